"""What must not change a fit, for a sample of every fit and for every law that is registered.

A change leaves the values and narrows no interval, and what is left out is told; or it is refused
with a reason. A command without a sample fails, and a new law is held at once.
"""

import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bss.cli import fit as commands
from bss.cli.output import Output
from bss.cli.reading import DrawOptions, FitOptions, TargetOptions
from bss.errors import InputError
from bss.laws.es import LAWS
from bss.laws.final_loss.forms import FORMS
from bss.laws.functional.problem import CLOCKS
from bss.tables.storage import write_table
from tests.laws.own.test_fit import NAME as OWN_LAW
from tests.laws.own.test_fit import planted as own_losses
from tests.planted import hyperbola, planted_points

FEW = FitOptions(resamples=20)
"""Enough where a changed table must give the same draws."""
MANY = FitOptions(resamples=200)
"""Where runs are drawn in another order, intervals are compared up to the noise of resampling."""
SEQ_LEN = 128
TARGETS = TargetOptions(targets=(2.6, 2.4))
Table = Callable[[Any], pd.DataFrame]


@dataclass(frozen=True)
class Sample:
    """A table of runs of one model, two seeds of each, and the command that fits it.

    Attributes:
        command: function of `bss.cli.fit`.
        table: returns the table, given planted curves.
        fit: fits a file, given how many resamples, with the options of a law.
        laws: by name, the options of every law that the command fits.
        measured: column of what was measured.
        factor: ratio of what was measured in a second condition.
        counted: columns that count sequences or steps, which columns of tokens can replace.
        curves: whether rows are of loss curves.
    """

    command: Callable[..., Output]
    table: Table
    fit: Callable[..., Output]
    laws: dict[str, dict[str, Any]]
    measured: str
    factor: float
    counted: str
    curves: bool = False


def runs_to_targets(_: Any) -> pd.DataFrame:
    """Whole steps to two targets."""
    points = planted_points(hyperbola, seeds=2, targets=(2.4, 2.0)).round({"steps": 0})
    seeds = points["run"].str.split("s").str[1].astype(int)
    return points.drop(columns="tokens_to_target").assign(seed=seeds)


def steps_of_sizes(_: Any) -> pd.DataFrame:
    """Whole steps a + b/B to the target of three sizes."""
    draw = np.random.default_rng(0)
    rows = [
        (f"{size:g}-b{batch}s{seed}", f"{size:g}", size, seed, batch, 5000 * (1 + bend / batch))
        for size, bend in ((1e8, 300), (4e8, 500), (1.6e9, 900))
        for batch in (64, 128, 256, 512, 1024, 2048)
        for seed in range(2)
    ]
    names = pd.Index(["run", "model", "params", "seed", "batch", "steps"])
    table = pd.DataFrame(rows, columns=names).assign(target_loss=3.0, seq_len=SEQ_LEN)
    steps = table["steps"] * np.exp(0.01 * draw.standard_normal(len(table)))
    return table.assign(steps=steps.round(), budget_tokens=20 * table["params"])


def loss_curves(_: Any) -> pd.DataFrame:
    """Losses with four digits that fall to 2, at six batch sizes."""
    draw = np.random.default_rng(0)
    frames = []
    for batch in (4, 8, 16, 32, 64, 128):
        for seed in range(2):
            step = np.unique(np.geomspace(40, 80_000 / batch, 50).astype(int))
            loss = 1.5 + 25 * step**-0.5 * (1 + 4 / batch) ** 0.5 + 2 / batch
            loss = loss + 0.004 * draw.standard_normal() + 0.002 * draw.standard_normal(len(step))
            columns = {"run": f"b{batch}s{seed}", "model": "m", "seed": seed, "batch": batch}
            frames.append(pd.DataFrame(columns | {"seq_len": SEQ_LEN, "step": step, "loss": loss}))
    return pd.concat(frames, ignore_index=True).round({"loss": 4})


def final_losses(
    _: Any, lrs: tuple[float, ...] = (1e-3,), shifts: Iterable[int] = range(-3, 4)
) -> pd.DataFrame:
    """Last losses of two sizes at two budgets, with digits that no two seeds share."""
    draw = np.random.default_rng(0)
    rows = []
    for params in (2e8, 8e8):
        for tokens in (20 * params, 100 * params):
            for shift in shifts:
                batch = int(2 ** (round(np.log2(1000 * (tokens / 2e10) ** 0.5)) + shift))
                ratio = batch * 512 / 5e5
                loss = 1.5 + 0.5 * (params / 4e8) ** -0.35
                loss += 0.08 * (tokens / 2e10 / ratio) ** -0.6 + 0.08 * ratio**-0.6
                for lr in lrs:
                    untuned = 0.05 * np.log(lr / 1e-3 / ratio**0.4) ** 2 if len(lrs) > 1 else 0.0
                    for seed in range(2):
                        run = f"{params:g}-{tokens:g}-{batch}-{lr}-{seed}"
                        rows.append((run, "m", seed, params, tokens, batch, lr, loss + untuned))
    names = pd.Index(["run", "model", "seed", "params", "tokens", "batch", "lr", "loss"])
    table = pd.DataFrame(rows, columns=names).assign(seq_len=512)
    return table.assign(loss=(table["loss"] + 0.003 * draw.standard_normal(len(table))).round(5))


def scheduled_curves(planted: Any) -> pd.DataFrame:
    """Losses of a planted law, under constant and changing batches, with an LR."""
    parts = []
    for seed in range(2):
        runs = planted.table(planted.constants + planted.two_stage, seed=seed + 1)
        names = {run: f"r{i}s{seed}" for i, run in enumerate(runs["run"].unique())}
        parts.append(runs.assign(run=runs["run"].map(names), model="m", seed=seed))
    return pd.concat(parts, ignore_index=True)


def branch_losses(_: Any) -> pd.DataFrame:
    """Last losses of branches at two batch sizes, from twelve checkpoints; the penalty falls."""
    draw = np.random.default_rng(0)
    rows = []
    for i in range(1, 13):
        fork = 1000 * i * 131_072
        for batch, penalty in ((128, 0.0), (2048, 0.08 * np.exp(-i / 6))):
            for seed in range(2):
                loss = 3.8 - 0.04 * i + penalty + 0.001 * draw.standard_normal()
                end = fork + 1024 * 131_072
                rows.append((f"f{i}-b{batch}s{seed}", "m", seed, fork, batch, 1024, end, loss))
    names = pd.Index(["run", "model", "seed", "fork", "batch", "seq_len", "tokens", "loss"])
    return pd.DataFrame(rows, columns=names).round({"loss": 5})


def losses_of_own_law(_: Any) -> pd.DataFrame:
    """Losses that follow a law from outside the package; it reads no batch size."""
    table = own_losses()
    seed = table["run"].str[-1].astype(int)
    return table.assign(model="m", seed=seed, batch=8, seq_len=SEQ_LEN)


def fit_losses(path: Path, how: FitOptions, **law: Any) -> Output:
    return commands.loss([path], how=how, **law)


FORMS_BY_NAME = {name: {"form": (name,)} for name in FORMS}
SAMPLES = {
    "points": Sample(
        commands.es,
        runs_to_targets,
        lambda path, how, **law: commands.es([path], how=how, **law),
        {"hyperbola": {"law": "hyperbola"}, "chosen": {}, **{n: {"law": n} for n in LAWS}},
        "steps", 1.4, "steps",
    ),
    "runs": Sample(
        commands.es,
        loss_curves,
        lambda path, how, **law: commands.es([path], how=how, targets=TARGETS, **law),
        {"hyperbola": {"law": "hyperbola"}},
        "loss", 1.1, "seq_len", curves=True,
    ),
    "critical": Sample(
        commands.critical,
        steps_of_sizes,
        lambda path, how, **law: commands.critical([path], how=how),
        {"a + b/B": {}},
        "steps", 1.4, "steps",
    ),
    "loss": Sample(
        commands.loss, final_losses, fit_losses, FORMS_BY_NAME,
        "loss", 1.1, "batch",
    ),
    "table of LRs": Sample(
        commands.loss, partial(final_losses, lrs=(5e-4, 1e-3, 2e-3)), fit_losses, FORMS_BY_NAME,
        "loss", 1.1, "batch",
    ),
    "best LRs": Sample(
        commands.lr,
        partial(final_losses, lrs=(2.5e-4, 5e-4, 1e-3, 2e-3, 4e-3), shifts=(-1, 0, 1)),
        lambda path, how, **law: commands.lr([path], how=how),
        {"power law": {}},
        "loss", 1.1, "batch",
    ),
    "branches": Sample(
        commands.branches,
        branch_losses,
        lambda path, how, **law: commands.branches(
            [path], how=DrawOptions(resamples=how.resamples)
        ),
        {"smooth penalty": {}},
        "loss", 1.1, "batch",
    ),
    "own": Sample(
        commands.own,
        losses_of_own_law,
        lambda path, how, **law: commands.own([path], law=OWN_LAW, how=how),
        {"data law": {}},
        "loss", 1.1, "batch",
    ),
    "curve": Sample(
        commands.curve,
        scheduled_curves,
        lambda path, how, **law: commands.curve([path], how=how, **law),
        {clock: {"clock": clock} for clock in CLOCKS},
        "loss", 1.1, "seq_len", curves=True,
    ),
}  # fmt: skip
QUICK = [
    ("points", "hyperbola"),
    ("critical", "a + b/B"),
    ("branches", "smooth penalty"),
    ("own", "data law"),
]
"""Commands that are fast: the fast tests have all changes at once."""
ONE_BY_ONE = [("best LRs", "power law")]
"""Its coefficient changes with the unit of the batch size: the fast tests have each change."""


def test_every_fit_and_law_has_a_sample():
    found = {
        name
        for name, one in vars(commands).items()
        if inspect.isfunction(one) and one.__module__ == commands.__name__ and name[0] != "_"
    }
    assert found == {sample.command.__name__ for sample in SAMPLES.values()}


EACH = [
    pytest.param(
        *(name, law),
        marks=[] if (name, law) in ONE_BY_ONE else pytest.mark.slow,
        id=f"{name}-{law}",
    )
    for name, sample in SAMPLES.items()
    for law in [next(iter(sample.laws))]
]
"""Every sample with its first law, a change at a time."""
AT_ONCE = [pytest.param(*each, id="-".join(each)) for each in QUICK] + [
    pytest.param(name, law, marks=pytest.mark.slow, id=f"{name}-{law}")
    for name, sample in SAMPLES.items()
    for law in [*sample.laws][1:]
]
"""The other laws of each sample, which read the same table; and those of the fast tests."""


@pytest.fixture(scope="module")
def fitted(tmp_path_factory, planted_curves):
    """Fits a table as the command does; the table of a sample once."""
    known: dict[tuple[str, str, FitOptions], Output] = {}

    def fit(
        name: str, law: str, table: pd.DataFrame | None = None, how: FitOptions = FEW
    ) -> Output:
        sample = SAMPLES[name]
        if table is None and (name, law, how) in known:
            return known[name, law, how]
        path = tmp_path_factory.mktemp("table") / "table.csv"
        write_table(sample.table(planted_curves) if table is None else table, path)
        output = sample.fit(path, how, **sample.laws[law])
        if table is None:
            known[name, law, how] = output
        return output

    return fit


Estimates = dict[str, tuple[float, ...]]


def estimates(value: Any, path: str = "") -> Estimates:
    """Return every value of a fit's JSON that has an interval; NaN for an end that is open."""
    if isinstance(value, dict) and {"value", "low", "high"} <= value.keys():
        ends = (value["value"], value["low"], value["high"])
        return {path: tuple(math.nan if end is None else end for end in ends)}
    if isinstance(value, dict):
        entries = [*value.items()]
    else:
        entries = [
            (x.get("model", i) if isinstance(x, dict) else i, x) for i, x in enumerate(value)
        ]
    nested = [(f"{path}.{key}", x) for key, x in entries if isinstance(x, dict | list | tuple)]
    return {at: ends for key, x in nested for at, ends in estimates(x, key).items()}


def assert_equal(found: Output, wanted: Output, but: str = "") -> None:
    """Values and intervals are equal, but for the one of this name."""
    expected = estimates(wanted.json)
    others = estimates(found.json)
    assert expected
    assert others.keys() == expected.keys()
    for at in expected.keys() - {but}:
        assert others[at] == pytest.approx(expected[at], rel=1e-6, nan_ok=True), at


def assert_near(found: Output, wanted: Output) -> None:
    """Values are equal, and intervals within the noise of resampling: a third of their width."""
    expected = estimates(wanted.json)
    others = estimates(found.json)
    assert others.keys() == expected.keys()
    for at, (value, low, high) in expected.items():
        assert others[at][0] == pytest.approx(value, rel=2e-3, nan_ok=True), at
        width = np.nanmax([high - low, 2 * (high - value), 2 * (value - low), 0.0])
        slack = max(width / 4, 2e-3 * abs(value))
        assert others[at][1:] == pytest.approx((low, high), abs=slack, nan_ok=True), at


def renamed(table: pd.DataFrame) -> pd.DataFrame:
    """Runs under names without a pattern."""
    names = {run: f"{i * 7919 % 9973:04d}x" for i, run in enumerate(table["run"].unique())}
    return table.assign(run=table["run"].map(names))


def in_tokens(sample: Sample, table: pd.DataFrame) -> pd.DataFrame:
    """The same table that counts tokens in place of sequences."""
    if sample.counted == "steps":
        tokens = table["steps"] * table["batch"] * table["seq_len"]
        return table.assign(tokens_to_target=tokens).drop(columns="steps")
    size = table["batch"] * table["seq_len"]
    columns = ["batch", "seq_len"] if sample.counted == "batch" else ["seq_len"]
    return table.assign(batch_tokens=size).drop(columns=columns)


def reordered(sample: Sample, table: pd.DataFrame) -> pd.DataFrame:
    """Runs in another order, and rows too where they are no curve."""
    order = np.random.default_rng(1).permutation(table["run"].unique())
    runs = [table.loc[table["run"] == run] for run in order]
    return pd.concat(runs if sample.curves else [run[::-1] for run in runs], ignore_index=True)


@pytest.mark.parametrize(("name", "law"), EACH)
def test_copies_of_runs_narrow_no_interval(name, law, planted_curves, fitted):
    table = SAMPLES[name].table(planted_curves)
    copies = renamed(table).assign(seed=7)
    for some in (copies, copies.loc[copies["run"] == copies["run"].iloc[0]]):
        found = fitted(name, law, pd.concat([table, some], ignore_index=True))
        assert_equal(found, fitted(name, law))
        assert any("copies" in text for text in found.warnings)


@pytest.mark.parametrize(("name", "law"), EACH)
def test_names_and_order_change_nothing(name, law, planted_curves, fitted):
    table = SAMPLES[name].table(planted_curves)
    assert_equal(fitted(name, law, renamed(table)), fitted(name, law))
    moved = fitted(name, law, reordered(SAMPLES[name], table), MANY)
    assert_near(moved, fitted(name, law, how=MANY))


@pytest.mark.parametrize(("name", "law"), EACH)
def test_tokens_instead_of_sequences_change_nothing(name, law, planted_curves, fitted):
    sample = SAMPLES[name]
    table = sample.table(planted_curves)
    found, wanted = fitted(name, law, in_tokens(sample, table)), fitted(name, law)
    if sample.command is not commands.lr:
        assert_equal(found, wanted)
        return
    # c B^g is the same rate: the coefficient is of B in tokens, and has the exponent's error too.
    assert_equal(found, wanted, but=".law.coefficient")
    of_batch = wanted.json["law"]["x"].index("batch")
    exponent = wanted.json["law"]["exponents"][of_batch]["value"]
    one, other = (x.json["law"]["coefficient"]["value"] for x in (found, wanted))
    assert one == pytest.approx(other * 512**-exponent, rel=1e-6)


def diverged(sample: Sample, table: pd.DataFrame, value: float, whole: bool) -> pd.DataFrame:
    """A further run whose losses are a value from its middle on, or all."""
    run = table.loc[table["run"] == table["run"].iloc[0]]
    rows = np.arange(len(run)) >= (0 if whole else len(run) // 2)
    losses = np.where(rows, value, run[sample.measured] + 0.001)
    return run.assign(run=f"lost {value} {whole}", seed=8, **{sample.measured: losses})


def all_diverged(sample: Sample, table: pd.DataFrame) -> list[pd.DataFrame]:
    """Runs that diverged in each way: marked, and by their losses."""
    marked = table.loc[table["run"] == table["run"].iloc[0]].assign(run="marked", seed=9)
    lost = [marked.assign(status="diverged", **{sample.measured: 1.01 * marked[sample.measured]})]
    if sample.measured == "loss":
        # A law of one's own is of any quantity: which values are too far is not known.
        values = (np.nan, np.inf) if sample.command is commands.own else (np.nan, np.inf, 50.0)
        lost += [diverged(sample, table, value, True) for value in values]
    if sample.curves:
        # To the fit of curves, rows without a loss are of the schedule alone.
        values = (np.inf, 50.0) if sample.command is commands.curve else (np.nan, np.inf, 50.0)
        lost += [diverged(sample, table, value, False) for value in values]
    return lost


def assert_told(warnings: list[str], lost: list[pd.DataFrame]) -> None:
    """As many runs are told as left out as diverged."""
    told = [text for text in warnings if "left out" in text]
    counts = [int(text.split()[0]) if text[0].isdigit() else 1 for text in told]
    assert sum(counts) == len(lost), told


@pytest.mark.parametrize(("name", "law"), EACH)
def test_diverged_runs_change_nothing(name, law, planted_curves, fitted):
    table = SAMPLES[name].table(planted_curves)
    lost = all_diverged(SAMPLES[name], table)
    found = fitted(name, law, pd.concat([table, *lost], ignore_index=True))
    assert_equal(found, fitted(name, law))
    assert_told(found.warnings, lost)


@pytest.mark.parametrize(("name", "law"), AT_ONCE)
def test_all_changes_at_once_change_nothing(name, law, planted_curves, fitted):
    """But for the order of runs, which changes the draws: there the values are compared."""
    sample, wanted = SAMPLES[name], fitted(name, law)
    table = sample.table(planted_curves)
    lost = all_diverged(sample, table)
    named = renamed(pd.concat([table, *lost], ignore_index=True))
    copies = renamed(table).assign(seed=7)
    copies["run"] += "-again"
    found = fitted(name, law, in_tokens(sample, pd.concat([named, copies], ignore_index=True)))
    assert_equal(found, wanted)
    others = [text for text in found.warnings if "copies" not in text]
    assert len(others) < len(found.warnings)
    assert_told(others, lost)
    expected = {at: ends[0] for at, ends in estimates(wanted.json).items()}
    values = estimates(fitted(name, law, reordered(sample, table)).json)
    assert {at: ends[0] for at, ends in values.items()} == {
        at: pytest.approx(value, rel=2e-3, nan_ok=True) for at, value in expected.items()
    }


CONDITIONS = ("model", "corpus", "optimizer.name", "schedule.decay", "")


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow if sample.curves else [])
        for name, sample in SAMPLES.items()
    ],
)
def test_a_second_condition_is_refused(name, planted_curves, fitted):
    """In a column, or in a part of the names of runs."""
    sample = SAMPLES[name]
    table = sample.table(planted_curves)
    other = table.assign(run="other-" + table["run"])
    other[sample.measured] *= sample.factor
    law = next(iter(sample.laws))
    for column in CONDITIONS:
        if column == "model" and table["model"].nunique() > 1:
            continue  # curves of steps are of one model each
        both = pd.concat([table.assign(run="one-" + table["run"]), other], ignore_index=True)
        if column:
            both[column] = np.repeat(["a", "b"], len(table))
        with pytest.raises(InputError, match=column or "one-.*other-") as refused:
            fitted(name, law, both)
        assert "\n" not in str(refused.value)
