"""Questions on beta2, more tokens and the ramp's start: planted effects come back."""

import numpy as np
import pandas as pd
import pytest

from bss.files import write_json
from bss.stats import Claim, answers, effect_of
from experiments.es_wsd import conditions
from experiments.es_wsd.conditions import (
    PER_STEP,
    SHORT,
    SLOW,
    Cell,
    Tokens,
    chosen_rates,
    excess,
)
from experiments.findings import findings, read_questions
from experiments.tables import Tables

EXCESS = {PER_STEP: 0.4, SHORT: 0.1, SLOW: 0.0}  # of batch 1, in log tokens
HALF_LIFE = {PER_STEP: 0, SHORT: 7_000, SLOW: 20_000}
BEST = {1: 2e-3, 2: 4e-3, 4: 4e-3}


def planted_runs(last=600_000):
    """Curves whose tokens to a loss are 100K × exp(excess + 2 |log2(LR / best)| / 10)."""
    tokens = np.geomspace(20_000, last, 40).astype(int)
    rng = np.random.default_rng(0)
    runs = []
    for rule, above in EXCESS.items():
        for batch, best in BEST.items():
            for rate in (1e-3, 2e-3, 4e-3, 8e-3):
                for seed in (110, 111, 112, 113, 114, 115):
                    shift = above * (batch == 1) + 0.2 * abs(np.log2(rate / best))
                    shift += 0.01 * rng.standard_normal()
                    loss = 1.2 + (100_000 * np.exp(shift) / tokens) ** 0.3
                    runs.append(
                        pd.DataFrame(
                            {
                                "run": f"{rule}{batch}{rate}{seed}",
                                "size": "12k", "group": rule,
                                "arm": f"constant {batch}, LR {rate:g}",
                                "model": "1x32", "params": 12_416, "seq_len": 16,
                                "batch": batch, "seed": seed, "data_seed": seed, "peak_lr": rate,
                                "step": tokens // (16 * batch), "tokens": tokens,
                                "eval_loss": loss, "eval_loss_avg_4%": loss - 0.1,
                                "optimizer.beta2_half_life": HALF_LIFE[rule],
                            }
                        )
                    )  # fmt: skip
    return pd.concat(runs, ignore_index=True)


@pytest.fixture(scope="module")
def found():
    return conditions.points_of_rules(planted_runs(), (2.40, 2.20, 0.5), "last")


def test_the_excess_of_batch_1_comes_back_at_the_lr_that_the_first_seeds_chose(found):
    rates = chosen_rates(found)
    at = rates.query("target_loss == 2.2").set_index(["rule", "batch"])
    assert {batch: at.loc[(SLOW, batch), "peak_lr"] for batch in BEST} == BEST
    assert at["bracketed"].all()
    tokens = Tokens(found, rates)
    for rule, above in EXCESS.items():
        apart = excess(tokens.tuned(Cell(rule)), (2, 4))
        assert len(apart.low) == 4  # 112 to 115 decide
        assert apart.low == pytest.approx(above, abs=0.05)
    one = excess(tokens.at_one_rate(Cell(PER_STEP)), (2, 4))
    assert one.low == pytest.approx(0.4 + 0.2, abs=0.05)  # two doublings off instead of one


def test_a_missed_loss_is_a_bound_and_never_the_tokens_of_the_run():
    short = planted_runs(last=120_000)
    missed = conditions.points_of_rules(short, (2.20,), "last")
    tokens = Tokens(missed, chosen_rates(missed))
    apart = excess(tokens.tuned(Cell(PER_STEP)), (2, 4))
    assert apart.censored.all() and np.isinf(apart.high).all()
    answer = answers({"x": Claim(sign=1, margin=0.1)}, {"x": effect_of(apart)})["x"]
    assert answer.word == "inconclusive" and answer.effect.bound == "at least"


def test_ratios_are_to_the_least_tokens_of_any_rule(found):
    table = conditions.relative_tokens(found, chosen_rates(found))
    at = table.query("target_loss == 2.2 and rate == 'tuned'").set_index(["rule", "batch"])
    assert at["log_ratio"].min() == pytest.approx(0, abs=0.03)
    assert at.loc[(PER_STEP, 1), "log_ratio"] == pytest.approx(0.4, abs=0.05)


@pytest.mark.parametrize(
    ("first", "second", "word"),
    [([0] * 5, [1] * 5, "supported"), ([1] * 5, [1] * 5, "contradicted"),
     ([0, 0, 0, 0, 1], [1] * 5, "inconclusive"), ([0] * 5, [0, 1, 1, 1, 1], "inconclusive")],
)  # fmt: skip
def test_b_min_is_decided_only_where_every_seed_agrees(first, second, word):
    rows = [
        {"batch": batch, "seed": seed, "target_loss": conditions.LOWEST, "reached": bool(one)}
        for batch, reached in ((1, first), (2, second))
        for seed, one in enumerate(reached)
    ]
    effect = conditions.minimum_effect(pd.DataFrame(rows))
    claim = Claim(sign=1, margin=0)
    assert answers({"x": claim}, {"x": effect})["x"].word == word


def test_every_question_has_a_part_and_equalities_stand_alone():
    questions = read_questions(conditions.QUESTIONS)
    assert {one.part for one in questions} == set(conditions.PARTS) == set(conditions.MEASURES)
    assert all(one.equal == (one.sign == 0) == (not one.adjusted) for one in questions)


def test_the_answers_of_a_part_name_its_conditions(tmp_path):
    tables = Tables(tmp_path / "beta2")
    tables.folder.mkdir()
    tables.write("runs.parquet", planted_runs())
    write_json(
        tables.folder / "experiment.json", {"config": {"setup": {"optimizer": {"beta2": 0.95}}}}
    )
    conditions.measure_rules(tables, conditions.TARGETS["beta2"])
    questions = [one for one in read_questions(conditions.QUESTIONS) if one.part == "beta2"]
    table = findings(questions, conditions.rules(tables), paper="p", command="c").set_index("key")
    expected = {
        "excess_per_step": 0.4,
        "excess_slow": 0,
        "beta2_excess": 0.4,
        "beta2_excess_short": 0.3,
    }
    expected |= {"beta2_excess_averaged": 0.4, "lr_excess": 0.2, "optimum_rises_slow": 0}
    assert table["effect"].drop("slow_saves").to_dict() == pytest.approx(expected, abs=0.05)
    assert (
        table.loc["excess_slow", "answer"] == table.loc["excess_per_step", "answer"] == "supported"
    )
    assert table.loc["excess_slow", "family"] == 1
    assert "half-life of 20k tokens" in table.loc["excess_slow", "question"]
    assert "12k parameters" in table.loc["beta2_excess", "question"]
    assert "tried" not in "".join(table["conditions"])


def test_a_best_lr_at_the_end_of_those_tried_is_named(tmp_path):
    tables = Tables(tmp_path / "beta2")
    tables.folder.mkdir()
    runs = planted_runs()
    tables.write("runs.parquet", runs.loc[(runs["batch"] > 1) | (runs["peak_lr"] > 1e-3)])
    write_json(
        tables.folder / "experiment.json", {"config": {"setup": {"optimizer": {"beta2": 0.95}}}}
    )
    conditions.measure_rules(tables, conditions.TARGETS["beta2"])
    known = str(conditions.rules(tables)["beta2_excess_short"].conditions)
    for rule in (PER_STEP, SHORT):
        assert f"{rule}: the best LR at batch 1 is the lowest or highest tried" in known
