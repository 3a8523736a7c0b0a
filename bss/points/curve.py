"""Points from loss curves: the steps and tokens at which a run first reaches a target loss.

A curve is smoothed by a local linear fit in log tokens over a symmetric window. Unlike a trailing
average, this has no lag. Isotonic regression then makes it monotone, and the crossing is
interpolated in log tokens (derived here). Targets that a run does not reach are kept as censored:
the run needs more tokens than it consumed.
"""

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError, check, check_number, check_type
from bss.points.second_moment import with_second_moment
from bss.tables import POINTS, SETTINGS, check_runs

EFOLDS = 0.25
"""Width of the smoothing window, in e-folds of tokens (derived here)."""
LEAST_EVALUATIONS = 10
"""Evaluations per e-fold of tokens with which linear interpolation in log tokens is within 0.1% of
the crossing: the loss's slope halves over about one e-fold (derived here)."""
FEWEST = 3
"""Losses of a run: two make a line, and the third shows whether it bends."""
REACHED_SHARE = 0.6
"""Share of the batch sizes that reach the lowest default target: a minimum over batch sizes needs
most of them, and the largest ones often stop above it (derived here)."""
DECIMALS = 3
"""Digits of default targets in nats, unless targets are closer to each other."""
ROUNDING = 1e-9
"""Slack in log tokens: a row on the window's edge is in the window whatever its rounding."""
FLAT = 1e-12
"""Variance of log tokens below which a window holds one point, so that its line has no slope."""


@dataclass(frozen=True)
class Smooth:
    """A run's monotone curve, and its rows.

    Attributes:
        log_tokens, loss: [m], at evaluations up to the lowest loss.
        tokens, steps, measured: [n], of the rows; `measured` is NaN without a loss.
    """

    log_tokens: np.ndarray
    loss: np.ndarray
    tokens: np.ndarray
    steps: np.ndarray
    measured: np.ndarray


def loss_column(frame: pd.DataFrame) -> str:
    """Return the loss column of a run: held-out loss if present, else training loss."""
    return "eval_loss" if "eval_loss" in frame else "loss"


def rate_numbers(run: pd.DataFrame, column: str) -> np.ndarray:
    """Return a column as numbers; NaN for cells that are not numbers."""
    return pd.Series(pd.to_numeric(run[column], errors="coerce"), dtype=float).to_numpy()


def peak_rates(runs: pd.DataFrame) -> pd.Series:
    """Return the peak LR of each run, by its name: its peak_lr, else its largest lr, else NaN."""
    known = pd.Series(np.nan, runs["run"].unique())
    for column in [name for name in ("peak_lr", "lr") if name in runs]:
        rates = pd.Series(rate_numbers(runs, column))
        finite = rates.where(np.isfinite(rates))
        known = known.fillna(finite.groupby(runs["run"].to_numpy(), sort=False).max())
    return known


def smooth_curve(run: pd.DataFrame, column: str, smooth: int | None = None) -> Smooth:
    """The monotone local fit of one run's losses.

    Args:
        run: rows of one run in order, with tokens, step and the loss column.
        column: losses to fit; rows without one are left out.
        smooth: width of the window in tokens; by default a quarter of an e-fold of tokens.

    Raises:
        InputError: fewer than 3 losses.
    """
    return _smoothed(run["run"].iloc[0], _numbers(run, column), column, smooth)


def smooth_curves(runs: pd.DataFrame, column: str, smooth: int | None = None) -> dict[str, Smooth]:
    """Return the `smooth_curve` of each run of a table, by name.

    Raises:
        InputError: If a run has fewer than 3 losses.
    """
    numbers = _numbers(runs, column)
    return {
        name: _smoothed(name, numbers[:, rows], column, smooth)
        for name, rows in runs.groupby("run", sort=False).indices.items()
    }


def _numbers(runs: pd.DataFrame, column: str) -> np.ndarray:
    """Return tokens, steps and losses of rows, [3, n]."""
    return np.stack([runs[name].to_numpy(float) for name in ("tokens", "step", column)])


def _smoothed(name: str, numbers: np.ndarray, column: str, smooth: int | None) -> Smooth:
    from scipy.optimize import isotonic_regression  # a fit is read without it

    consumed, steps, measured = numbers
    seen = np.isfinite(measured) & (consumed > 0)
    if seen.sum() < FEWEST:
        raise InputError(f"runs: run {name} has {seen.sum()} values of {column}; it needs {FEWEST}")
    tokens = consumed[seen]
    loss = measured[seen]
    x = np.log(tokens)
    if smooth is None:
        fitted = _local_linear(x, loss, x - EFOLDS / 2, x + EFOLDS / 2)
    else:
        # Near the start the window is cut on both sides, to stay symmetric in tokens.
        half = np.minimum(smooth / 2, tokens - tokens[0])
        with np.errstate(divide="ignore"):
            fitted = _local_linear(x, loss, np.log(tokens - half), np.log(tokens + half))
    # What comes after the lowest loss, a divergence for one, cannot move a crossing before it.
    last = int(np.argmin(fitted)) + 1
    monotone = isotonic_regression(fitted[:last], increasing=False).x
    return Smooth(
        log_tokens=x[:last],
        loss=monotone,
        tokens=consumed,
        steps=steps,
        measured=measured,
    )


def evaluated(runs: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the runs with enough losses for a curve, and warnings about the other runs.

    If the table has held-out losses, only these count, so a run without them is left out.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.

    Raises:
        InputError: If no run has enough losses.
    """
    column = loss_column(runs)
    finite = np.isfinite(runs[column].to_numpy(float))
    counts: Any = pd.Series(finite, runs.index).groupby(runs["run"], sort=False).sum()
    few = counts.loc[counts < FEWEST]
    if few.empty:
        return runs, []
    first = few.index[0]
    if len(few) == len(counts):
        raise InputError(
            f"runs: run {first} has {few[first]} values of {column}; it needs {FEWEST}"
        )
    message = (
        f"{len(few)} of {len(counts)} runs are left out, with fewer than {FEWEST} values of "
        f"{column} (the first: {first})"
    )
    return runs.loc[~runs["run"].isin(few.index)], [message]


def points(
    runs: pd.DataFrame,
    targets: Sequence[float],
    *,
    smooth: int | None = None,
    column: str | None = None,
    lr_phase: str = "constant",
    weights: str = "last",
) -> pd.DataFrame:
    """Return steps and tokens to each target for each run.

    Args:
        runs: A run table as `bss.tables.check_runs` returns it.
        targets: Losses in nats.
        smooth: Width, in tokens, of the smoothing window for a noisy training loss.
        column: Column of the losses. Default: eval_loss if the table has it, else loss.
        lr_phase: LR phase of the losses: "constant", "decayed" or "cosine".
        weights: Evaluated weights: "last" or "averaged".

    Returns:
        A table with the columns POINTS, `run`, and the columns in SETTINGS that the runs have.
        `batch` is E/S in sequences, or the run's batch size if it is constant. `eval_spacing` is
        the spacing of evaluations around the crossing, in log tokens; NaN if the lowest loss is
        the first. A target that was not
        reached has the run's last step and tokens, and `reached` is False.

    Raises:
        InputError: If there are no targets, one is not positive, or no run reaches one.
    """
    column = column or loss_column(runs)
    runs = with_second_moment(runs)
    curves = smooth_curves(runs, column, smooth)
    if not targets or not all(math.isfinite(t) and t > 0 for t in targets):
        raise InputError(f"targets: {list(targets)} must be positive losses in nats, at least one")
    lowest = min(curve.loss[-1] for curve in curves.values())
    if min(targets) < lowest:
        raise InputError(
            f"targets: no run reaches {min(targets):g}; the lowest loss reached is {lowest:.4f}, "
            "so choose targets above it"
        )
    # the curve of decayed losses has a point per token budget
    _warn(curves, sparse_too=column != "loss" and lr_phase == "constant")
    peaks = peak_rates(runs)
    settings = [name for name in SETTINGS if name in runs]
    wanted = sorted({float(target) for target in targets}, reverse=True)
    phase = {"lr_phase": lr_phase, "weights": weights}
    rows = []
    for name, own in _of_runs(runs, settings).items():
        stated = own | {"peak_lr": peaks[name], **phase}
        rows += [_crossing(curves[name], target, own["seq_len"]) | stated for target in wanted]
    return pd.DataFrame(rows, columns=["run", *POINTS, *settings])


def _of_runs(runs: pd.DataFrame, settings: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return what all points of a run share, by its name; its batch size if that is constant."""
    names = [name for name in ("model", "params", "seed", "data_seed", *settings) if name in runs]
    given = runs.drop_duplicates("run")[["run", *names, "seq_len", "batch"]].to_dict("records")
    missing = {"model": "", "params": math.nan, "seed": math.nan, "data_seed": math.nan}
    found = {row["run"]: missing | row | {"seq_len": int(row["seq_len"])} for row in given}
    sizes = runs.groupby("run")["batch"].nunique(dropna=False)
    for name in sizes.index[sizes > 1]:
        del found[name]["batch"]
    return found


def default_targets(
    runs: pd.DataFrame,
    count: int = 5,  # enough for a trend over targets, few enough to read as a table
    *,
    warmup_tokens: int = 0,
    share: float = REACHED_SHARE,
    smooth: int | None = None,
    column: str | None = None,
) -> tuple[float, ...]:
    """Return evenly spaced targets, from below every batch size's loss at twice the warm-up.

    Args:
        runs: A run table.
        count: Number of targets.
        warmup_tokens: Warm-up of the LR schedule, in tokens.
        share: The lowest target is reached by this share of the batch sizes.
        smooth: Width, in tokens, of the smoothing window for a noisy training loss.
        column: Column of the losses. Default: eval_loss if the table has it, else loss.

    Returns:
        Losses in nats, the highest first.

    Raises:
        InputError: If the runs are too short for their warm-up, or `count` is below 1.

    Examples:
        >>> import bss
        >>> losses = [3.0, 2.5, 2.25, 2.1, 2.0, 1.95]
        >>> columns = {"batch": 8, "seq_len": 64, "step": range(10, 61, 10), "loss": losses}
        >>> runs = bss.check_runs(pd.DataFrame({"run": "a", **columns}))
        >>> default_targets(runs, count=2)
        (2.475, 1.95)
    """
    check_type("count", count, (int, np.integer), "a whole number")
    if count < 1:
        raise InputError(f"targets: {count} given; pass 1 or more")
    check_number("share", share)
    check(0 < share <= 1, "share", share, "0 < share <= 1")
    check_type("runs", runs, pd.DataFrame, "a run table")
    runs = runs if {"run", "tokens", "step", "batch", "loss"} <= {*runs} else check_runs(runs)
    column = column or loss_column(runs)
    check(column in runs, "column", column, "the name of a loss in the table")
    start = math.log(max(2 * warmup_tokens, 1))
    highest = math.inf
    reached: dict[Any, float] = {}
    batches = runs.drop_duplicates("run", keep="last").set_index("run")["batch"].to_dict()
    for name, curve in smooth_curves(runs, column, smooth).items():
        if len(curve.log_tokens) < 2:  # it only rises: it crosses no target
            continue
        highest = min(highest, float(np.interp(start, curve.log_tokens, curve.loss)))
        batch = batches[name]
        reached[batch] = min(reached.get(batch, math.inf), float(curve.loss[-1]))
    if not reached:
        first = runs["run"].iloc[0]
        raise InputError(
            f"targets: every run has its lowest {column} first (e.g. {first}); give runs that fall"
        )
    lowest = sorted(reached.values())[math.ceil(share * len(reached)) - 1]
    if not highest > lowest:
        raise InputError(
            f"targets: {share:.0%} of the batches reach {lowest:.4f}, which some run is below at "
            f"twice the warm-up ({highest:.4f}); train longer or warm up less"
        )
    spaced = np.linspace(highest, lowest, count + 1)[1:]
    decimals = max(DECIMALS, math.ceil(1 - math.log10(spaced[0] - spaced[-1] + ROUNDING)))
    return tuple(_round_up(target, decimals) for target in spaced)


def _round_up(number: float, decimals: int) -> float:
    scale = 10**decimals  # decimal digits
    return math.ceil(number * scale) / scale


def _crossing(curve: Smooth, target: float, seq_len: int) -> dict[str, Any]:
    """Return the columns of a point that depend on its target; `batch` is E/S in sequences."""
    reached = bool(curve.loss[-1] <= target)
    tokens = float(curve.tokens[-1])
    steps = float(curve.steps[-1])
    spacing = math.nan
    if reached:
        i = int(np.argmax(curve.loss <= target))
        tokens = math.exp(_interpolate(curve, i, target))
        steps = float(np.interp(tokens, np.append(0, curve.tokens), np.append(0, curve.steps)))
        if (
            len(curve.log_tokens) > 1
        ):  # one loss, e.g. the first of a run that rises, has no spacing
            spacing = float(np.diff(curve.log_tokens)[max(i - 1, 0)])
    return {
        "budget_tokens": int(curve.tokens[-1]),
        "target_loss": target,
        "batch": tokens / (steps * seq_len),
        "steps": steps,
        "tokens_to_target": tokens,
        "reached": reached,
        "eval_spacing": spacing,
    }


def _interpolate(curve: Smooth, i: int, target: float) -> float:
    """Log tokens where the monotone curve meets a target between evaluations i-1 and i."""
    if i == 0:
        return float(curve.log_tokens[0])
    part = (curve.loss[i - 1] - target) / (curve.loss[i - 1] - curve.loss[i])
    return float(curve.log_tokens[i - 1] + part * (curve.log_tokens[i] - curve.log_tokens[i - 1]))


def _local_linear(x: np.ndarray, y: np.ndarray, low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """Least-squares lines over the windows [low, high], at their points x; by prefix sums."""
    first = np.searchsorted(x, low - ROUNDING)
    end = np.searchsorted(x, high + ROUNDING)
    level = y.mean()

    def total(values: np.ndarray) -> np.ndarray:
        sums = np.append(0.0, np.cumsum(values))
        return sums[end] - sums[first]

    # Sums of squares about the means keep the digits that sums about zero would lose.
    u = x - x.mean()
    v = y - level
    n = end - first
    mean_u = total(u) / n
    mean_v = total(v) / n
    variance = total(u * u) / n - mean_u**2
    covariance = total(u * v) / n - mean_u * mean_v
    slope = np.where(variance > FLAT, covariance / np.maximum(variance, FLAT), 0.0)
    return level + mean_v + slope * (u - mean_u)


def _warn(curves: dict[str, Smooth], sparse_too: bool) -> None:
    """Warn about runs with too few evaluations for exact crossings."""
    logs = {name: curve.log_tokens for name, curve in curves.items()}
    sparse = [name for name, x in logs.items() if len(x) < LEAST_EVALUATIONS * np.ptp(x)]
    if sparse_too and sparse:
        warnings.warn(
            f"points: {len(sparse)} runs have fewer than {LEAST_EVALUATIONS} evaluations per "
            f"e-fold of tokens (the first: {sparse[0]}); crossings will be coarse",
            stacklevel=3,  # the caller of `points`
        )
