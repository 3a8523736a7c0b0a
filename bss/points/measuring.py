"""Measure points of a run table: select runs, measure targets, and warn about the design.

Runs that differ only in their seeds are repetitions of one condition. A law is fitted to the runs
of one condition.

E(S) compares batch sizes at one LR, constant after warm-up (derived here; Zhou et al., arXiv
2601.05034, fix it). If a table has other LRs, a fit applies to these LRs only. For each batch
size, target and seed, the envelope keeps the LR that reaches the target with the fewest tokens.
A minimum over trials is biased low, and the bias grows with the number of trials. The table
therefore has this number, and whether the best LR lies between other LRs.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.points.conditions import (
    NEAR,
    independent_runs,
    near_as_one,
    refuse_conditions,
)
from bss.points.copies import copied_rows, grid_spacings, relative_spacings
from bss.points.curve import (
    ROUNDING,
    default_targets,
    evaluated,
    loss_column,
    peak_rates,
    points,
    rate_numbers,
)
from bss.points.divergence import left_out, marked_diverged, without_diverged
from bss.points.groups import SEED_NOISE, USUAL_SLOPE, apart
from bss.points.units import in_nats
from bss.tables import SETTINGS

_RUN = ("model", "params", "seq_len", "batch", "seed", "data_seed", "peak_lr")
EQUAL = 1.02
"""Ratio of step counts below which they are equal: logs end at different steps (derived here)."""

FEWEST_BATCHES = 3
"""Batch sizes from which equal numbers of steps are a design and no chance (derived here)."""
_KEYS = ["model", "lr_phase", "weights", "target_loss", "batch"]
_CURVE = ["model", "params", "lr_phase", "weights", "seq_len"]
_PLACE = ["model", "batch"]
_SEEDS = ["seed", "data_seed"]


def measure_points(
    runs: pd.DataFrame,
    targets: Sequence[float] | None = None,
    *,
    count: int = 5,  # as `default_targets`
    warmup: int = 0,
    smooth: int | None = None,
    peak_lr: float | None = None,
) -> tuple[pd.DataFrame, list[str]]:
    """Return steps and tokens to target losses, one row per run and target, and warnings.

    If a batch size has several peak LRs, only its best LR is kept (`bss.points.rates.envelope`).

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        targets: Losses in nats. Default: `count` targets are chosen.
        count: Number of targets to choose.
        warmup: LR warm-up in tokens. Targets that are chosen are reached after it.
        smooth: Width, in tokens, of the smoothing window for a noisy training loss.
        peak_lr: Measure only the runs with this peak LR.

    Raises:
        InputError: If the runs are too short to measure, are of several conditions, or no run
            reaches a target.
    """
    runs, few = evaluated(runs)
    runs, units = in_nats(runs)
    runs, left = independent_runs(runs)
    if peak_lr is not None:
        runs = runs_at_peak_lr(runs, peak_lr)
    healthy, diverged = without_diverged(runs, loss_column(runs))
    lost = runs.loc[~runs["run"].isin(list(healthy["run"]))]
    refuse_conditions(healthy)
    if targets is None:
        targets = default_targets(healthy, count, warmup_tokens=warmup, smooth=smooth)
    every, early = _after_first_loss(points(healthy, targets, smooth=smooth), healthy)
    best, tuned = best_rates(every, _rates_of(lost))
    traps = [*design_warnings(healthy, every), *rate_warnings(healthy, best), *apart(healthy)]
    return best, [*few, *units, *left, *diverged, *early, *tuned, *traps]


def tuned_points(
    points: pd.DataFrame, targets: Sequence[float] | None = None, peak_lr: float | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the points of a table at some targets and the best LR of each batch, with warnings.

    Args:
        points: as `bss.tables.read_points` returns it; rows without a run are named by their seeds.
        targets: losses in nats; by default all.
        peak_lr: only rows of this peak LR.

    Raises:
        InputError: If no row has a target, or the LR.
    """
    points = with_runs(points)
    lost = points.loc[marked_diverged(points)]
    points, copies = independent_points(points)
    if targets is not None:
        losses = points["target_loss"].to_numpy(float)
        near = [np.isclose(losses, target) for target in targets]
        for target, here in zip(targets, near, strict=True):
            if not here.any():
                known = ", ".join(f"{loss:g}" for loss in sorted(set(losses)))
                raise InputError(f"targets: no point is at {target:g}; the table has {known}")
        points = points.loc[np.any(near, axis=0)]
    if peak_lr is not None:
        points = runs_at_peak_lr(points, peak_lr)
    best, tuned = best_rates(points, lost)
    return best, [*copies, *tuned, *_targets_apart(points)]


def _targets_apart(points: pd.DataFrame) -> list[str]:
    """Return a warning for the first model whose targets have different batch sizes.

    Fewer batch sizes at a lower target are usual, because the others did not reach it.
    """
    curve = [name for name in _CURVE if name in points]
    for _, rows in points.groupby(curve, dropna=False, sort=False):
        batches = {loss: {*here["batch"]} for loss, here in rows.groupby("target_loss")}
        mixed = [
            f"{loss:g} (at {', '.join(f'{size:g}' for size in sorted(sizes))})"
            for loss, sizes in batches.items()
            if any(sizes - other and other - sizes for other in batches.values())
        ]
        if mixed:
            named = ", ".join(mixed[:3])  # a line holds three
            more = f" and {len(mixed) - 3} more" if len(mixed) > 3 else ""
            return [
                f"target losses have different batch sizes: {named}{more}; only batch sizes of one "
                "target are compared, so measure each to the same target"
            ]
    return []


def _rates_of(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the model, batch and peak LR of each run of a run table, as a table of points."""
    first = runs.drop_duplicates("run").set_index("run")
    rows = {"model": first.get("model", ""), "batch": first["batch"], "peak_lr": peak_rates(runs)}
    return pd.DataFrame(rows)


def independent_points(points: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return points without diverged runs and copies of runs, and messages about them.

    Columns mark a diverged run (`bss.points.divergence.marked_diverged`). A copy needs the same
    number of steps as another run to each target that it reached. Targets that were not reached are
    no values, because runs end after equal steps.

    Args:
        points: A table of points; rows without a run are named by their seeds.
    """
    marked = marked_diverged(points)
    lost = [*with_runs(points).loc[marked, "run"].unique()]
    points = points.loc[~marked]
    curve = [name for name in _CURVE if name in points]
    reached = points["reached"].astype(bool)
    named = with_runs(points).assign(steps=points["steps"].where(reached))
    curves = [named[name] for name in curve]
    cell = [*curve, "target_loss", "batch", "peak_lr", *SETTINGS]
    cells = [named[name] for name in cell if name in named]
    counts = [named["steps"], named["steps"] * named["batch"]]  # runs are evaluated every so many
    spacings = [
        count.groupby(curves, dropna=False).transform(relative_spacings) for count in counts
    ]
    spacings.append(named["steps"].groupby(cells, dropna=False).transform(grid_spacings))
    noise = SEED_NOISE / USUAL_SLOPE
    copied, messages = copied_rows(named, cell, "steps", noise, np.max(spacings, axis=0))
    return points.loc[~copied], [*([left_out(lost)] if lost else []), *messages]


def with_runs(points: pd.DataFrame) -> pd.DataFrame:
    """Return a table of points in which each run has a name; runs differ in settings and seeds."""
    if "run" in points:
        return points
    keys = [name for name in (*_RUN, *SETTINGS) if name in points]
    number = points.groupby(keys, dropna=False, sort=False).ngroup()
    return points.assign(run=[f"run {n + 1}" for n in number])


def _after_first_loss(every: pd.DataFrame, runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Drop points whose target a run reached before its first loss, and report their number.

    For such points only an upper bound on the tokens is known.

    Raises:
        InputError: If a target has no points left.
    """
    known = runs.loc[runs[loss_column(runs)].notna() & (runs["tokens"] > 0)]
    first = every["run"].map(known.groupby("run")["tokens"].first())
    upper = first * (1 + ROUNDING)
    early = (every["reached"] & (every["tokens_to_target"] <= upper)).to_numpy(bool)
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


def equal_steps(batches: Iterable[float], taken: Iterable[float]) -> list[str]:
    """Return a warning if all batch sizes were trained for the same number of steps.

    Args:
        batches: Batch sizes [n] of runs or of their rows.
        taken: Steps [n] of these runs or rows.
    """
    steps: Any = pd.Series([*taken], dtype=float).groupby([*batches]).max()
    if len(steps) < FEWEST_BATCHES or steps.index.max() < 2 * steps.index.min():
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
    fewest = int(counts.min())
    most = int(counts.max())
    at = counts.idxmax()
    if (counts > 1).sum() == 1:
        return [
            f"the LR was tuned only at batch size {at:g} ({most} LRs): its best LR needs "
            "fewer tokens by chance, which biases B_opt towards it; tune every batch size, or use "
            "one LR (--peak-lr)"
        ]
    return [
        f"batch sizes have {fewest} to {most} LRs (the most at {at:g}): the best of {most} needs "
        f"fewer tokens by chance than the best of {fewest}, which biases B_opt towards {at:g}; try "
        "the same number at each"
    ]


def one_rate(points: pd.DataFrame) -> float | None:
    """Return the peak LR that all points share. None if LRs differ or some are missing."""
    rates = points["peak_lr"].to_numpy(float)
    known = len(rates) and np.isfinite(rates).all()
    return float(rates[0]) if known and np.ptp(rates) <= NEAR * rates.max() else None


def runs_at_peak_lr(runs: pd.DataFrame, rate: float) -> pd.DataFrame:
    """Return the runs of a run table with one peak LR (within 1%).

    Raises:
        InputError: If no run has this peak LR.
    """
    peaks = peak_rates(runs)
    names = peaks.index[(peaks - rate).abs() <= NEAR * rate]
    if names.empty:
        known = sorted(set(near_as_one(peaks).values()))
        there = ", ".join(map(rate_text, known)) or "unknown (add a column peak_lr or lr)"
        raise InputError(f"--peak-lr {rate:g}: no run has this peak LR; the peak LRs are {there}")
    return runs.loc[runs["run"].isin(names)]


def rate_text(rate: float) -> str:
    """Format an LR without padding of mantissa or exponent.

    Examples:
        >>> rate_text(0.004), rate_text(2.5e-4)
        ('4e-3', '2.5e-4')
    """
    mantissa, power = f"{rate:.3e}".split("e")
    return f"{float(mantissa):g}e{int(power)}"


def rate_warnings(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """Return warnings about LRs that limit what a fit to the points applies to.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        points: Its points, as `bss.points.curve.points` or `best_rates` returns them. For an
            envelope, `best_rates` has warned already about LRs that differ between batch sizes.
    """
    if "trials" in points:
        return _within_runs(runs, points)
    return [*_between_batches(points), *_within_runs(runs, points)]


def _between_batches(points: pd.DataFrame) -> list[str]:
    known = points.loc[points["peak_lr"].notna()]
    if known.empty or one_rate(known) is not None:
        return []
    batches = known.groupby("batch")["peak_lr"]
    low = batches.min()
    high = batches.max()
    if any(np.ptp(ends) > NEAR * ends.max() for ends in (low.to_numpy(), high.to_numpy())):
        ends = [f"{rate_text(low[at])} at batch {at:g}" for at in (low.idxmin(), low.idxmax())]
        shown = " to ".join(ends) if low.idxmin() != low.idxmax() else ends[0]
        return [f"the LR differs between batch sizes ({shown}): B_opt applies to these LRs"]
    spread = f"{rate_text(low.iloc[0])} to {rate_text(high.iloc[0])}"
    return [f"every batch size has several LRs ({spread}): B_opt does not apply to a single LR"]


def _within_runs(runs: pd.DataFrame, points: pd.DataFrame) -> list[str]:
    """Return a warning about runs whose LR changes after warm-up and before the last target."""
    if "lr" not in runs:
        return []
    changing = []
    met = points.loc[points["reached"]].groupby("run")["tokens_to_target"].agg(["min", "max"])
    ends = dict(zip(met.index, met.to_numpy().tolist(), strict=True))
    rates = rate_numbers(runs, "lr")
    consumed = rate_numbers(runs, "tokens")
    for name, rows in runs.groupby("run", sort=False).indices.items():
        rate = rates[rows]
        if name not in ends or np.isnan(rate).all():
            continue
        tokens = consumed[rows]
        first, last = ends[name]
        full = tokens[np.argmax(rate >= (1 - NEAR) * np.nanmax(rate))]
        used = rate[(tokens >= min(first, full)) & (tokens <= last)]
        used = used[np.isfinite(used)]
        if len(used) and np.ptp(used) > NEAR * used.max():
            changing.append(f"run {name}, {rate_text(used[0])} to {rate_text(used[-1])}")
    if not changing:
        return []
    return [
        f"the LR changes within {len(changing)} of {len(met)} runs before their last target (the "
        f"first: {changing[0]}): B_opt applies to these schedules, not to a constant LR"
    ]


def envelope(points: pd.DataFrame, diverged: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return the points at the best LR of each (model, `lr_phase`, target, batch, seed).

    Runs with equal LR and seed but different names are repeats. The LR is chosen by their mean
    log tokens, and all runs at the chosen LR are kept. If the LRs of a batch size do not share
    seeds (`paired_seeds`), one best LR is chosen for all its seeds.

    An LR at which more runs reached the target is preferred. If no run reached it, the LR whose
    runs consumed the most tokens is kept, with `reached` False.

    Args:
        points: A table of points with `peak_lr`, at several LRs.
        diverged: As in `best_rates`.

    Returns:
        The rows at the best LR with two more columns. `trials` is the number of LRs tried, with
        those at which runs diverged. `bracketed` is whether a lower and a higher LR were tried; a
        higher one may have diverged.

    Raises:
        InputError: If a point has no LR.
    """
    rates = points["peak_lr"].to_numpy(float)
    if not (np.isfinite(rates) & (rates > 0)).all():
        raise InputError("points: peak_lr is missing in some rows; add it to every row")
    paired = np.zeros(len(points), int)
    seeds = points.groupby(_SEEDS, dropna=False).ngroup().to_numpy()
    for at in points.groupby(_KEYS, dropna=False).indices.values():
        paired[at] = paired_seeds(rates[at], seeds[at])
    lost: dict[Any, set[float]] = {}
    for place, group in diverged.groupby(_PLACE, dropna=False) if diverged is not None else ():
        lost[place] = {*group["peak_lr"].dropna()}
    rows: list[dict[str, Any]] = []
    for tried in _by_rate(points, paired):
        best = min(sorted(tried), key=lambda rate: _standing(tried[rate]))
        reached = any(record["reached"] for record in tried[best])
        failed = lost.get(tuple(tried[best][0][name] for name in _PLACE), set())
        every = {*tried, *failed}
        bracketed = reached and min(tried) < best < max(every)
        rows += [{**r, "trials": len(every), "bracketed": bracketed} for r in tried[best]]
    return pd.DataFrame(rows)


def _by_rate(points: pd.DataFrame, paired: np.ndarray) -> list[dict[float, list[dict[str, Any]]]]:
    """Return the rows of each group that has one best LR, by LR.

    Args:
        points: A table of points.
        paired: Labels [rows] of the seeds to compare LRs within.
    """
    numbers = points.groupby([*_KEYS, paired], sort=False, dropna=False).ngroup()
    groups: list[dict[float, list[dict[str, Any]]]] = [{} for _ in range(numbers.max() + 1)]
    for number, row in zip(numbers, points.to_dict("records"), strict=True):
        groups[number].setdefault(row["peak_lr"], []).append(row)
    return groups


def best_rates(
    points: pd.DataFrame, diverged: pd.DataFrame | None = None
) -> tuple[pd.DataFrame, list[str]]:
    """Return the envelope of a table in which some batch size has several LRs, and warnings.

    LRs within 1% count as equal. Runs without a known LR are kept. A table with one LR at each
    batch size is returned unchanged.

    Args:
        points: Points as `bss.points.curve.points` returns them.
        diverged: Model, batch and peak LR of runs that diverged. Their LRs count as tried, but
            none is the best one.
    """
    lost = points.iloc[:0] if diverged is None else diverged
    one = near_as_one([*points["peak_lr"], *lost["peak_lr"]])
    merged = points.assign(peak_lr=[one.get(rate, np.nan) for rate in points["peak_lr"]])
    known = merged.loc[merged["peak_lr"].notna()]
    rates = known.groupby(["model", "lr_phase", "weights", "batch"], dropna=False)[
        "peak_lr"
    ].nunique()
    if not (rates > 1).any():
        return points, []
    best = envelope(known, lost.assign(peak_lr=lost["peak_lr"].map(one)))
    messages = [
        "several LRs per batch size: the best is used at each batch size and target; pass "
        "--peak-lr to use one LR"
    ]
    open_ended = best.loc[best["reached"] & ~best["bracketed"] & (best["trials"] > 1), "batch"]
    if len(open_ended):
        listed = ", ".join(f"{batch:g}" for batch in sorted(set(open_ended)))
        messages.append(
            f"the best LR is the lowest or the highest tried at batch size {listed}; try LRs "
            "beyond it"
        )
    repeats = int(known.duplicated([*_KEYS, *_SEEDS, "peak_lr"]).groupby(known["run"]).any().sum())
    if repeats:
        messages.append(
            f"{repeats} runs repeat the LR, batch size and seed of other runs: each counts as a "
            "separate seed, and the LR is chosen by their mean"
        )
    rest = merged.loc[merged["peak_lr"].isna()].assign(trials=1, bracketed=False)
    return (pd.concat([best, rest], ignore_index=True) if len(rest) else best), messages


def _standing(runs: Sequence[dict[str, Any]]) -> tuple[float, float]:
    """Return the sort key of an LR (lower is better): share of missed targets, mean log tokens.

    If all runs missed the target, more tokens are better.
    """
    missed = float(np.mean([not run["reached"] for run in runs]))
    log = float(np.mean([np.log(run["tokens_to_target"]) for run in runs]))
    return missed, log if missed < 1 else -log


def paired_seeds(group: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Return labels [n] of the seeds to compare groups of runs within; all 0 if unpaired.

    Runs of one seed share initialization and data order. Two groups are compared within seeds if
    seeds connect them; if some are not connected, seeds are repetitions (derived here).

    Args:
        group: The compared group of each run [n], e.g. its batch size.
        seed: The seed label of each run [n].

    Returns:
        Integer labels [n].
    """
    from scipy.sparse import coo_array, csgraph  # a fit is read without it

    groups, group_of_run = np.unique(group, return_inverse=True)
    seeds, seed_of_run = np.unique(seed, return_inverse=True)
    # A graph of groups and seeds: each run is an edge between its group and its seed.
    nodes = len(groups) + len(seeds)
    ends = (group_of_run, len(groups) + seed_of_run)
    graph = coo_array((np.ones(len(group_of_run)), ends), shape=(nodes, nodes))
    parts, _ = csgraph.connected_components(graph, directed=False)
    return seed_of_run if parts == 1 else np.zeros_like(seed_of_run)
