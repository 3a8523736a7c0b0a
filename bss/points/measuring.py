"""Measure points of a run table: select runs, measure targets, and warn about the design.

Runs that differ only in their seeds are repetitions of one condition. A law is fitted to the runs
of one condition.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from scipy.special import ndtr

from bss.errors import InputError
from bss.points import rates
from bss.points.curve import default_targets, evaluated, points
from bss.points.rates import best_rates, near_as_one, peak_rate, rate_warnings
from bss.tables import loss_column

FEWEST, SAME = 3, 10  # equal losses of a whole curve, and at the start of one, that make a copy
_IDENTITY = ("run", "model", "params", "seq_len", "batch", "seed", "data_seed", "peak_lr", "parent")
_SEED_SETTINGS = ("optimizer.lr", "schedule.batch", "data.seed", "parent.tokens")
_HORIZON = "schedule.tokens"
EQUAL = 1.02  # the ratio of step counts below which they are as many
_ALIKE = ["model", "kind", "target_loss", "batch"]


def measure_points(
    runs: pd.DataFrame,
    targets: Sequence[float] | None = None,
    *,
    count: int = 5,
    warmup: int = 0,
    smooth: int | None = None,
    at_rate: float | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Return steps and tokens to target losses, one row per run and target, and warnings.

    If a batch size has several peak LRs, only its best LR is kept (`bss.points.rates.envelope`).

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        targets: Losses in nats. Default: `count` targets are chosen.
        count: Number of targets to choose.
        warmup: LR warm-up in tokens. Targets that are chosen are reached after it.
        smooth: Width, in tokens, of the smoothing window for a noisy training loss.
        at_rate: Measure only the runs with this peak LR.

    Raises:
        InputError: If the runs are too short to measure, or no run reaches a target.
    """
    runs, few = evaluated(runs)
    runs, left = independent_runs(runs)
    refuse_conditions(runs, conditions(runs))
    if at_rate is not None:
        runs = rates.at_rate(runs, at_rate)
    if targets is None:
        targets = default_targets(runs, count, warmup_tokens=warmup, smooth=smooth)
    every, early = _after_first_loss(points(runs, targets, smooth=smooth), runs)
    best, tuned = best_rates(every)
    traps = [*design_warnings(runs, every), *rate_warnings(runs, best)]
    return best, [*few, *left, *early, *tuned, *traps]


def _after_first_loss(every: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Drop points whose target a run reached before its first loss, and report their number.

    For such points only an upper bound on the tokens is known.

    Raises:
        InputError: If a target has no points left.
    """
    known = runs.loc[runs[loss_column(runs)].notna() & (runs["tokens"] > 0)]
    first = every["run"].map(known.groupby("run")["tokens"].first())
    early = (every["reached"] & (every["tokens_to_target"] <= first * (1 + 1e-9))).to_numpy(bool)
    left = every.loc[~early]
    for target in sorted({*every["target_loss"]} - {*left.loc[left["reached"], "target_loss"]}):
        raise InputError(
            f"targets: runs that reach {target:g} are below it at their first loss; lower it"
        )
    if not early.any():
        return every, []
    return left, [
        f"{early.sum()} points are left out: their runs are below the target at the first loss "
        f"(the first: run {every.loc[early, 'run'].iloc[0]}); choose lower targets"
    ]


def independent_runs(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs of one batch size each that share no losses, and what was left out.

    A forked run repeats the losses of its parent up to the fork. A run whose batch size changes
    has no points of one batch size. It is kept only if the batch size changes in every run.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
    """
    changes = runs.groupby("run")["batch"].transform("nunique").to_numpy() > 1
    changing, total = len({*runs.loc[changes, "run"]}), len({*runs["run"]})
    messages = []
    if 0 < changing < total:
        messages.append(f"{changing} of {total} runs change their batch size: left out")
        runs = runs.loc[~changes]
    copies = _copies(runs)
    if copies:
        messages.append(
            f"{len(copies)} runs repeat losses of others, as forks and copies do: left out "
            f"(the first: {copies[0]})"
        )
    return runs.loc[~runs["run"].isin(copies)], messages


def _copies(runs: pd.DataFrame) -> list[str]:
    """Return the runs whose first losses equal the first losses of a run that is kept.

    Runs without a parent are kept first, then longer runs, then earlier rows of the table.
    """
    column, found, kept = loss_column(runs), [], {}
    tables = {str(name): run for name, run in runs.groupby("run", sort=False)}
    forked = {
        name: "parent" in run and str(run["parent"].iloc[0]) in tables
        for name, run in tables.items()
    }
    for name in sorted(tables, key=lambda name: (forked[name], -len(tables[name]))):
        run = tables[name]
        curve = run.loc[run[column].notna(), ["tokens", column]].to_numpy(float)
        others = kept.setdefault((run["batch"].iloc[0], str(peak_rate(run))), [])
        if forked[name] or any(_same_start(curve, other) for other in others):
            found.append(name)
        else:
            others.append(curve)
    return found


def _same_start(one: np.ndarray, other: np.ndarray) -> bool:
    length = min(len(one), len(other))
    needed = min(length, SAME)
    return needed >= FEWEST and bool((one[:needed] == other[:needed]).all())


def conditions(runs: pd.DataFrame) -> list[str]:
    """Return the columns other than seeds and LR in which runs of one batch size differ.

    Columns with a dot are settings of a run. A column that differs from run to run is a name.
    Horizons are a condition only if some LR decays.
    """
    first = runs.drop_duplicates("run")
    names = [str(c) for c in runs if "." in str(c) and not str(c).startswith(("model.", "eval"))]
    names = [name for name in names if name not in (*_IDENTITY, *_SEED_SETTINGS)]
    if _HORIZON in names and not _decays(runs):
        names.remove(_HORIZON)
    by_batch = first.groupby(["batch", *(c for c in ("model", "seq_len") if c in first)])
    return [name for name in names if by_batch[name].nunique(dropna=False).to_numpy().max() > 1]


def by_condition(runs: pd.DataFrame) -> dict[str, pd.DataFrame]:
    """Return the runs of each condition, by its settings as text; of one condition by ""."""
    if not (names := conditions(independent_runs(runs)[0])):
        return {"": runs}
    found = {}
    for values, some in runs.groupby(names, dropna=False):
        pairs = zip(names, values, strict=True)  # type: ignore[arg-type]
        found[", ".join(f"{name} {value}" for name, value in pairs)] = some
    return found


def refuse_conditions(runs: pd.DataFrame, names: Sequence[str]) -> None:
    """Refuse runs that differ in more than batch size, LR and seeds.

    Raises:
        InputError: If there are such columns. The message names them, their values and the option
            that selects one value.
    """
    if names:
        values = [sorted({str(x) for x in runs[name]}) for name in names]
        shown = "; ".join(f"{n}: {', '.join(v)}" for n, v in zip(names, values, strict=True))
        raise InputError(
            f"runs: they differ in {shown}, but a fit needs one value; "
            f"drop the others, e.g. --drop {names[0]}={values[0][-1]}"
        )


def _decays(runs: pd.DataFrame) -> bool:
    if "lr" not in runs:
        return True
    rates = (run["lr"].dropna().to_numpy(float) for _, run in runs.groupby("run"))
    return any(len(rate) and rate[-1] < 0.99 * rate.max() for rate in rates)


def design_warnings(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """Return warnings about the design of the runs, each with its consequence.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        points: Its points at every LR, as `bss.points.curve.points` returns them.
    """
    names = runs.groupby("run")["batch"].transform("nunique") == 1
    constant = runs.loc[names]
    one = near_as_one(points["peak_lr"])
    known = points.loc[points["run"].isin(list(constant["run"])) & points["peak_lr"].notna()]
    known = known.assign(peak_lr=[one[rate] for rate in known["peak_lr"]])
    return [*equal_steps(constant["batch"], constant["step"]), *_tuned(known)]


def least_of(count: int) -> float:
    """Return the expected minimum of `count` draws of a standard normal (derived here).

    Examples:
        >>> [round(least_of(count), 3) + 0.0 for count in (1, 2, 5)]
        [0.0, -0.564, -1.163]
    """
    x = np.linspace(-9, 9, 3601)
    density = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi)
    return float(np.trapezoid(x * count * density * ndtr(-x) ** (count - 1), x))


def equal_steps(batches: Iterable[float], taken: Iterable[float]) -> list[str]:
    """Return a warning if all batch sizes were trained for the same number of steps.

    Args:
        batches: Batch sizes [n] of runs or of their rows.
        taken: Steps [n] of these runs or rows.
    """
    steps: Any = pd.Series([*taken], dtype=float).groupby([*batches]).max()
    if len(steps) < 3 or steps.index.max() < 2 * steps.index.min():
        return []
    most = steps.max()
    if most > EQUAL * steps.min():
        return []
    return [
        f"every batch size was trained for the same number of steps ({most:.0f}), so the largest "
        "saw the most data and has the lowest final loss; compare tokens to a target, or train "
        "for equal tokens"
    ]


def _tuned(known: pd.DataFrame) -> list[str]:
    """Return a warning if the number of LRs tried differs between batch sizes."""
    counts: Any = known.groupby("batch", sort=False)["peak_lr"].nunique()
    if counts.nunique() < 2:
        return []
    fewest, most, at = int(counts.min()), int(counts.max()), counts.idxmax()
    optimism = _optimism(known, least_of(fewest) - least_of(most))
    if (counts > 1).sum() == 1:
        return [
            f"the LR was tuned only at batch size {at:g} ({most} LRs): its best LR{optimism}, "
            "which biases B_opt towards it; tune every batch size, or use one LR (--at-rate)"
        ]
    return [
        f"batch sizes have {fewest} to {most} LRs (the most at {at:g}): the best of {most}"
        f"{optimism} than the best of {fewest}, which biases B_opt towards {at:g}; try the same "
        "number at each"
    ]


def _optimism(known: pd.DataFrame, deviations: float) -> str:
    """Describe how much fewer tokens the best of more LRs needs by chance alone.

    The advantage is `deviations` times the noise SD of log tokens over runs of one LR. Without
    repeats, the SD over LRs is used. It includes the effect of the LR, so it is an upper bound.
    """
    logs = known.assign(log=np.log(known["tokens_to_target"].to_numpy(float)))
    logs = logs.loc[logs["reached"]]
    for keys, most in (([*_ALIKE, "peak_lr"], ""), ([*_ALIKE, "seed", "data_seed"], "at most ")):
        groups = [rows["log"].to_numpy(float) for _, rows in logs.groupby(keys, dropna=False)]
        freedom = sum(len(group) - 1 for group in groups)
        if freedom:
            squares = sum(float(((group - group.mean()) ** 2).sum()) for group in groups)
            noise = float(np.sqrt(squares / freedom))
            lower, between = 1 - np.exp(-deviations * noise), "LRs" if most else "runs of one LR"
            return (
                f" needs {most}{lower:.1%} fewer tokens by chance "
                f"(SD between {between}: {noise:.1%})"
            )
    return " needs fewer tokens by chance"
