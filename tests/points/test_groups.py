"""Two conditions are never pooled as seeds: they are named from losses; one condition is not."""

import dataclasses
import itertools
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.cli import fit as commands
from bss.cli.reading import TargetOptions
from bss.errors import InputError
from bss.laws import fit_critical, fit_es
from bss.laws.base import Options
from bss.laws.final_loss.table import check_losses, loss_points
from bss.models.transformer import TransformerConfig
from bss.points.conditions import by_condition, find_conditions, independent_runs
from bss.points.groups import USUAL_SLOPE, find_groups, row_levels, run_groups
from bss.points.measuring import independent_points, measure_points, with_runs
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.tables import POINTS as POINT_COLUMNS
from bss.tables import SETTINGS, check_runs, read_points, read_runs
from bss.tables.reading import only
from bss.training.run_config import DataConfig, RunConfig
from bss.training.run_directory import RunStatus, open_run

CASES = Path("tests/cases")
FAST, SLOW = 6, 200
MEASURED_OF_POINTS = {"steps", "tokens_to_target", "reached", "eval_spacing", "seed", "data_seed"}


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


def test_two_corpora_that_share_two_batch_sizes_are_named():
    runs = [corpus("web"), corpus("mix2", 1.6, (384, 512, 768, 1024))]
    with pytest.raises(InputError, match=r"2 conditions\? web-\*; mix2-\*; keep one with --keep"):
        measure_points(check_runs(pd.concat(runs)), [2.8])


@pytest.mark.parametrize("floor", [1.6, 1.9])
def test_two_corpora_that_share_a_batch_size_are_a_warning(floor):
    runs = check_runs(pd.concat([corpus("web"), corpus("mix2", floor, (512, 768, 1024))]))
    told = [line for line in measure_points(runs, [2.8])[1] if "2 conditions" in line]
    assert len(told) == (floor != 1.9)
    assert all(line.endswith("keep one, e.g. --keep run=mix2-512") for line in told)


@pytest.mark.parametrize("gap", [0.0, 0.1])
def test_rows_without_names_of_two_conditions_are_refused(gap):
    draw = np.random.default_rng(0)
    rows = [
        {"params": 1e6, "tokens": d, "batch": b, "seq_len": 64, "lr": 1e-3}
        | {"loss": 3 + 900 / d**0.4 + 0.01 * np.log(b / 16) ** 2 + k + 0.003 * draw.normal()}
        for d in (2e7, 8e7) for b in (4, 8, 16, 32, 64) for k in (0.0, gap)
    ]  # fmt: skip
    table = check_losses(pd.DataFrame(rows))
    if gap:
        with pytest.raises(InputError, match=r"rows of one batch differ by x .*2 conditions"):
            loss_points(table)
        named = table.assign(optimizer=["adamw", "muon"] * 10)
        assert "optimizer; the lowest loss" in str(loss_points(named))
    else:
        loss_points(table)


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
    points, _ = measure_points(only(runs, ["model=web"]), [2.8, 2.7], peak_lr=3e-4)
    best = fit_es(points, "surface", options=Options(10)).at(2.8).best
    assert best.value == pytest.approx(152, abs=1)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:points. 5 runs have fewer than 10 evaluations")
def test_the_right_interval_of_one_of_two_models():
    runs = only(read_runs(CASES / "two_models.parquet"), ["model=web"])
    points, _ = measure_points(runs, [2.8, 2.7], peak_lr=3e-4)
    best = fit_es(points, options=Options(500)).at(2.8).best
    assert [best.value, best.low, best.high] == pytest.approx([152, 146, 168], abs=2)


def test_conditions_of_a_directory_of_runs_are_refused_in_every_fit(tmp_path):
    """Its runs differ in a setting, or in a model of the same size."""
    model = TransformerConfig(256, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    for batch, seed in itertools.product((2, 4, 8, 16), range(2)):
        for kind, one in enumerate(kinds_of_runs(model)):
            schedule = ScheduleConfig(65536 * 16, BatchSchedule.parse(str(batch)))
            run = dataclasses.replace(one, seed=seed, schedule=schedule)
            write_run(tmp_path / ("model" if kind == 1 else "content"), run, batch, 0.2 * kind)
            if kind == 0:
                write_run(tmp_path / "model", run, batch, 0.0)
    for name, told in (("model", r"model\.activation"), ("content", r"data\.content")):
        folder = tmp_path / name
        fits = (
            lambda folder=folder: commands.es([folder], targets=TargetOptions((3.5,))),
            lambda folder=folder: commands.loss([folder]),
            lambda folder=folder: commands.curve([folder]),
        )
        for fit in fits:
            with pytest.raises(InputError, match=told) as refused:
                fit()
            assert "\n" not in str(refused.value)


def kinds_of_runs(model: TransformerConfig) -> list[RunConfig]:
    """A run, one of another model of its size, and one of another corpus."""
    run = RunConfig(model, DataConfig(content="web", seq_len=128))
    other = dataclasses.replace(run, model=dataclasses.replace(model, activation="gelu"))
    return [run, other, dataclasses.replace(run, data=DataConfig(content="code", seq_len=128))]


def write_run(runs: Path, run: RunConfig, batch: int, floor: float) -> None:
    """Write the directory of a finished run whose loss falls to a floor."""
    last = 65536 * 16 // (128 * batch)
    steps = np.unique(np.geomspace(last // 20, last, 12).astype(int)).tolist()
    with open_run(runs / run.id) as directory:
        directory.check_config(run)
        for step in steps:
            loss = 3 + floor + 30 * step**-0.5 * (1 + 2 / batch) + 1e-3 * run.seed
            row = {"step": step, "tokens": step * batch * 128, "batch": batch, "lr": 1e-3}
            directory.add_row(row | {"loss": loss, "eval_loss": loss})
        directory.write_status(RunStatus("finished", last * batch * 128, last))


RESULTS = sorted(Path("results").rglob("*.parquet"))


@pytest.mark.slow
@pytest.mark.parametrize("file", RESULTS, ids=str)
def test_no_committed_table_is_split_by_its_losses(file):
    """Their conditions have columns; runs that differ in none were trained alike."""
    runs = check_runs(pd.read_parquet(file), need_loss=False)
    names, groups = find_conditions(independent_runs(runs)[0])
    parts = [some for _, some in runs.groupby(names, dropna=False)] if names else [runs]
    for some in parts:
        assert find_conditions(independent_runs(some)[0]) == ([], None)
    assert groups is None


POINTS = ["critical_batch/points.csv", "demo/points.csv", "es_ablations/points.csv",
          "es_wsd/sizes/points.csv", "published/mlperf_rcp.csv"]  # fmt: skip


@pytest.mark.parametrize(
    "file", [pytest.param(f, marks=pytest.mark.slow) for f in POINTS[:-1]] + POINTS[-1:]
)
def test_no_committed_table_of_points_has_copies_or_is_split(file):
    """Runs of MLPerf are evaluated every so many steps, and many have equal steps."""
    points = read_points(Path("results") / file)
    kept, messages = independent_points(points)
    assert (len(kept), messages) == (len(points), [])
    reached = with_runs(kept.loc[kept["reached"].to_numpy(bool)])
    levels = reached.assign(log_steps=np.log(reached["steps"].astype(float)))
    cell = [name for name in levels if name in {*POINT_COLUMNS, *SETTINGS} or "." in str(name)]
    cell = [name for name in cell if name not in MEASURED_OF_POINTS]
    assert find_groups(row_levels(levels, cell, "log_steps", USUAL_SLOPE), levels) is None


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
