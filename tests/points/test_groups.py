"""Two conditions are never pooled as seeds: they are named from losses; one condition is not."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws import fit_critical, fit_es
from bss.laws.base import Options
from bss.laws.final_loss.table import check_losses, loss_points
from bss.points.conditions import by_condition
from bss.points.groups import run_groups
from bss.points.measuring import measure_points
from bss.tables import check_runs, read_runs
from bss.tables.reading import only

CASES = Path("tests/cases")
FAST, SLOW = 6, 500


def corpus(name, floor=1.9, batches=(64, 128, 192, 256, 384, 512), seed=0, noise=0.004, seeds=1):
    """Runs of one corpus: a loss with this floor, an offset of each run, and evaluation noise."""
    draw = np.random.default_rng([seed, len(name)])
    frames = []
    for batch in batches:
        for repeat in range(seeds):
            step = np.unique(np.geomspace(200, 20_000, 60).astype(int))
            loss = floor + 60 * step**-0.5 * (1 + 20 / batch) + 60 / batch**1.1
            loss = loss + noise * draw.standard_normal() + 0.002 * draw.standard_normal(len(step))
            run = f"{name}-{batch}" if seeds == 1 else f"{name}-{batch}-s{repeat}"
            columns = {"run": run, "batch": batch, "seq_len": 4096, "step": step}
            frames.append(pd.DataFrame(columns | {"eval_loss": loss}))
    return pd.concat(frames, ignore_index=True)


def two_corpora(seeds=1):
    return check_runs(
        pd.concat(
            [corpus("web", seeds=seeds), corpus("mix2", 1.75, (64, 128, 256, 512), seeds=seeds)]
        )
    )


@pytest.mark.parametrize("seeds", [1, 2])
def test_two_corpora_are_named_by_the_part_of_the_names_that_separates_them(seeds):
    runs = two_corpora(seeds)
    with pytest.raises(InputError, match=r"2 conditions\? web-\*; mix2-\*; keep one with --keep"):
        measure_points(runs, [2.8])
    apart = by_condition(runs)
    assert [*apart] == ["run web-*", "run mix2-*"]
    web = only(runs, ["run=web-*"])
    assert {*apart["run web-*"]["run"]} == {*web["run"]}
    assert measure_points(web, [2.8])[0]["reached"].any()


def test_two_corpora_are_named_by_a_column_or_by_their_runs():
    runs = two_corpora()
    kinds = runs["run"].str.split("-").str[0]
    hashed = {run: f"{i * 7919 % 997:03d}x" for i, run in enumerate(runs["run"].unique())}
    hidden = runs.assign(run=runs["run"].map(hashed))
    assert "corpus=web" in run_groups(hidden.assign(corpus=kinds)).runs
    groups = run_groups(hidden)
    lower = {hashed[run] for run in hashed if run.startswith("mix2")}
    assert lower in [{*runs} for runs in groups.runs.values()]


def test_points_of_two_corpora_are_refused_in_every_fit():
    runs = two_corpora()
    parts = [measure_points(some, [3.2, 3.1])[0] for some in by_condition(runs).values()]
    both = pd.concat(parts, ignore_index=True)
    for fit in (fit_es, fit_critical):
        with pytest.raises(InputError, match=r"2 conditions\? web-\*; mix2-\*"):
            fit(both, options=Options(10))
    assert len(fit_es(parts[0], "hyperbola", options=Options(10)).fits) == 2


def test_final_losses_of_two_corpora_are_refused():
    ends = two_corpora().groupby("run").tail(1)
    losses = check_losses(ends.assign(params=1e6, loss=ends["eval_loss"]))
    with pytest.raises(InputError, match=r"2 conditions\?"):
        loss_points(losses)


@pytest.mark.filterwarnings("ignore:points. 5 runs have fewer than 10 evaluations")
def test_a_column_that_a_report_fits_apart_is_refused():
    runs = read_runs(CASES / "two_models.parquet")
    assert [*by_condition(runs)] == ["model code", "model web"]
    with pytest.raises(InputError, match=r"model: code, web.*--keep model="):
        measure_points(runs, [2.8])
    points, _ = measure_points(only(runs, ["model=web"]), [2.8, 2.7], at_rate=3e-4)
    best = fit_es(points, "surface", options=Options(10)).at(2.8).best
    assert best.value == pytest.approx(152, abs=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:points. 5 runs have fewer than 10 evaluations")
def test_the_right_interval_of_one_of_two_models():
    runs = only(read_runs(CASES / "two_models.parquet"), ["model=web"])
    points, _ = measure_points(runs, [2.8, 2.7], at_rate=3e-4)
    best = fit_es(points, options=Options(500)).at(2.8).best
    assert [best.value, best.low, best.high] == pytest.approx([152, 138, 168], abs=2)


def one_condition(seed):
    """Repeated runs of one condition, with usual to large noise of seeds and names of all kinds."""
    draw = np.random.default_rng([seed, 4])
    seeds = int(draw.integers(2, 5))
    batches = 2 ** np.arange(5, 5 + int(draw.integers(3, 8)))
    noise = float(draw.choice([0.002, 0.004, 0.008, 0.016]))
    runs = corpus("run", batches=batches, seed=seed, noise=noise, seeds=seeds)
    kind = draw.integers(3)
    names = {run: f"{draw.choice(['gpu', 'tpu'])}-{run}" for run in runs["run"].unique()}
    named = runs.assign(run=runs["run"].map(names)) if kind == 1 else runs
    hosts = {run: str(draw.choice(["a", "b"])) for run in named["run"].unique()}
    return check_runs(named.assign(host=named["run"].map(hosts)) if kind == 2 else named)


def false_alarms(count):
    return sum(run_groups(one_condition(seed)) is not None for seed in range(count))


def test_one_condition_is_seldom_taken_for_two():
    assert false_alarms(FAST) == 0


@pytest.mark.slow
def test_one_condition_is_taken_for_two_in_at_most_one_table_of_a_hundred():
    assert false_alarms(SLOW) <= SLOW / 100
