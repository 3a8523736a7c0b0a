"""What is claimed of critical batches: on planted curves, and what the committed tables show."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.contests.contrasts import holm
from bss.laws import fit_critical
from bss.laws.fitting.estimate import Options
from experiments.critical_batch import noise, published, text_tables
from experiments.critical_batch.claims import (
    CONTEXT,
    WIDE,
    beside,
    beta2_of,
    claims,
    curves_of,
    designs,
    fits_of,
    growth,
    schedules,
    shape,
)
from experiments.critical_batch.statements import (
    AGREES,
    BY_LAW,
    DATA,
    GROWS,
    GROWS_WITH_SIZE,
    HUMP,
    LEVEL_BY_LAW,
    MORE_DATA,
    SIZE,
)

RESULTS = Path(__file__).parents[2] / "results" / "critical_batch"
BATCHES = 2.0 ** np.arange(9)
TOGETHER = [(7e3, 5e4), (1.4e4, 1e5), (2.8e4, 2e5), (5.6e4, 4e5), (1.12e5, 8e5), (2.24e5, 1.6e6)]
ONE_MODEL = [(2.8e4, tokens) for _, tokens in TOGETHER]
ONE_BUDGET = [(size, 2e5) for size, _ in TOGETHER]


def fitted(points, in_size, in_data, scatter=0.01):
    """Curves whose b/a is a power of N and D; B_ref is small beside it."""
    draw, curves = np.random.default_rng(len(points)), []
    for size, tokens in points:
        bend = 3000 * (size / 2.8e4) ** in_size * (tokens / 2e5) ** in_data
        steps = 100 * (1 + bend / BATCHES / 100) * np.exp(scatter * draw.normal(size=9))
        curves.append(
            pd.DataFrame(
                {
                    "batch": BATCHES, "steps": steps, "reached": True, "kind": "stable",
                    "seq_len": 32.0, "peak_lr": np.nan, "model": f"{size:g}",
                    "params": size, "budget_tokens": tokens, "target_loss": 2.0,
                }
            )
        )  # fmt: skip
    return fit_critical(pd.concat(curves), overhead=0.2, reference=1, options=Options(50, 0.95))


def planted(in_size, in_data, **kind):
    every = list(dict.fromkeys(TOGETHER + ONE_MODEL + ONE_BUDGET))
    parts = {"together": TOGETHER, "data": ONE_MODEL, "size": ONE_BUDGET, "both": every}
    return {name: fitted(points, in_size, in_data, **kind) for name, points in parts.items()}


def verdicts(found, way=BY_LAW):
    """Verdicts by statement."""
    told = {}
    for one in found:
        if one.condition.endswith(way):
            told.setdefault(one.question, []).append(one.verdict)
    return told


@pytest.fixture(scope="module")
def committed():
    return fits_of(RESULTS)


def test_growth_with_data_alone_is_told_from_growth_with_size():
    told = verdicts(growth(planted(0.0, 0.6)))
    assert told[GROWS] == ["shown"]
    assert set(told[DATA]) == set(told[SIZE]) == set(told[MORE_DATA]) == {"shown"}
    assert "shown" not in told[GROWS_WITH_SIZE]


def test_growth_with_size_alone_is_told_as_the_opposite():
    told = verdicts(growth(planted(0.6, 0.0)))
    assert set(told[GROWS_WITH_SIZE]) == {"shown"}
    assert set(told[SIZE]) == set(told[MORE_DATA]) == {"opposite shown"}
    assert "shown" not in told[DATA]


def test_nothing_is_shown_of_noise_alone():
    told = verdicts(growth(planted(0.0, 0.0, scatter=0.2)))
    assert not {"shown", "opposite shown"} & {v for s in (GROWS, DATA, MORE_DATA) for v in told[s]}


def test_two_points_a_line_cannot_be_tested():
    few = {"together": fitted(TOGETHER[:2], 0, 0.5), "data": fitted(ONE_MODEL[:2], 0, 0.5)}
    assert {one.verdict for one in growth(few)} == {"not testable here"}
    assert shape({"together": few["together"]})
    assert [*beside(few)] == []


def test_a_noise_scale_that_is_the_bend_and_one_that_is_three_times_it():
    fits = planted(0.0, 0.5)
    draw = np.random.default_rng(0)
    rows = [
        {
            "size": at.curve.model, "seq_len": 32.0, "params": at.curve.params, "batch": batch,
            "budget_tokens": at.curve.tokens, "B_crit": at.B_crit.value, "cbs": at.cbs.value,
            "noise_scale": at.B_crit.value * np.exp(0.05 * draw.normal()),
        }
        for at in curves_of(designs(fits))
        for batch in (16, 32)
    ]  # fmt: skip
    table = pd.DataFrame(rows)
    curves = curves_of(designs(fits))
    found = {one.condition: one for one in noise.claims_of(table, curves)}
    assert found["batch 16"].verdict == found["batch 32"].verdict == "shown"
    told = {one.question: one.verdict for one in found.values()}
    told |= {one.question: one.verdict for one in noise.claims_of(table, curves)}
    assert told[noise.DATA] == told[noise.SIZE] == told[noise.MORE_DATA] == "shown"
    far = noise.claims_of(table.assign(noise_scale=3 * table["noise_scale"]), curves)
    assert {one.verdict for one in far if one.question == noise.IS_BEND} == {"opposite shown"}


def test_the_committed_steps_miss_in_a_pattern(committed):
    told = {one.question: one for one in shape(committed)}
    assert told[HUMP].verdict == told[LEVEL_BY_LAW].verdict == "shown"
    assert "below 0 in 13 of 13 curves" in told[HUMP].note
    assert told[HUMP].effect.estimate == pytest.approx(0.207, abs=0.002)


def test_the_committed_exponents_show_growth_by_their_law_alone(committed):
    found = growth(committed, beta2_of(RESULTS))
    assert len(found) == 24
    by_law = [one for one in found if BY_LAW in one.condition]
    assert {one.verdict for one in found if one not in by_law} == {"undecided"}
    shown = {one.question for one in by_law if one.verdict == "shown"}
    assert shown == {GROWS, DATA, GROWS_WITH_SIZE}
    assert {one.verdict for one in by_law if one.question not in shown} == {"undecided"}
    data = [one.effect for one in by_law if one.question == DATA]  # a family of their own
    assert data[0].estimate == pytest.approx(0.278, abs=0.001)
    p = [one.p for one in data if one.p is not None]
    assert [one.p_adjusted for one in data] == pytest.approx(holm(p))
    told = next(one for one in found if one.question == AGREES)
    assert "floored there from 2,048 tokens" in told.note


def test_what_else_the_committed_tables_show(committed):
    assert {one.verdict for one in beside(committed)} == {"undecided"}
    assert {one.question for one in beside(committed)} == {WIDE, CONTEXT}
    table = pd.read_csv(RESULTS / "noise_scale.csv")
    found = noise.claims_of(table, curves_of(designs(committed)))
    told = {(one.question, one.condition): one.verdict for one in found}
    assert told[noise.IS_BEND, "batch 64"] == "opposite shown"
    assert told[noise.DATA, "10 points jointly"] == "shown"
    assert told[noise.MORE_DATA, "10 points jointly"] == "undecided"
    asked = schedules(pd.read_csv(RESULTS / "schedules.csv"))
    assert {one.verdict for one in asked} == {"not testable here"}


def test_the_published_steps_give_the_published_exponent():
    told = verdicts(published.claims_of(published.published_fit()))
    assert told[GROWS] == told[AGREES] == ["shown"]
    told = {one.question: one.verdict for one in published.closed(published.published_fit())}
    assert set(told.values()) == {"not testable here"}


def test_every_claim_names_its_table_and_condition():
    found = claims(RESULTS)
    assert len({(one.statement, one.condition) for one in found}) == len(found)
    assert all(one.table and one.condition for one in found)


def test_tables_tell_curves_and_why_a_claim_cannot_be_tested(committed):
    assert text_tables.curves_beside({}).empty
    table = text_tables.curves_beside({"N at one D": committed["size"]}, 1)
    assert table["critical batch"].str.fullmatch(r"[\d.]+ \([\d.]+ to [\d.]+\)").all()
    assert len(table) == len(committed["size"].fits)
    told = text_tables.reasons(schedules(pd.read_csv(RESULTS / "schedules.csv")))
    assert "one seed; the fewest steps of at most 6 settings, 3 of 15 bracketed" in told
    beside_law = text_tables.exponents_beside(committed)
    assert beside_law.loc[1, "without a law"].startswith("0.337 (−0.421")
