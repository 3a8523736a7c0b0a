"""Differences of the fits of two groups, and the cost of a batch size in a group.

Groups have different runs, so that their estimates are independent. The interval of a difference
x - y adds the parts of both intervals in quadrature. Its lower end is
x - y - √((x - x_low)² + (y_high - y)²) (Zou and Donner, Statistics in Medicine 27:1693, 2008).
Ratios are differences of logarithms.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from bss.errors import InputError
from bss.laws.base import Estimate, Fit, deviations, interval
from bss.laws.final_loss.law import GRID
from bss.laws.final_loss.residual_gp import SAME_BUDGET
from bss.points.groups import SEED_NOISE

if TYPE_CHECKING:
    import pandas as pd

    from bss.laws.critical.values import CriticalFit
    from bss.laws.equal.values import EqualFit
    from bss.laws.es.values import EsFit
    from bss.laws.final_loss.values import LossFit
    from bss.laws.functional.values import CurveFit
    from bss.laws.lr.values import LrFit
    from bss.laws.own.values import OwnFit
    from bss.laws.ramps.branches import BranchFit

RATIO = "ratio"
NATS = "nats"
DIFFERENCE = "difference"  # of an exponent or a parameter


@dataclass(frozen=True)
class Compared:
    """An estimate that groups are compared by.

    Attributes:
        quantity: e.g. "B_opt".
        estimate: with its interval.
        unit: "ratio" if its ratio is compared, else what a difference is in.
        where: the target loss of the estimate, or the params and tokens of it.
    """

    quantity: str
    estimate: Estimate
    unit: str = RATIO
    where: Mapping[str, Any] = field(default_factory=dict)


def differences(fit: Fit, base: Fit) -> "pd.DataFrame":
    """Return how a fit differs from another of its kind.

    Returns:
        One row per estimate that both fits have. Columns: those of its place, quantity, unit
        ("ratio", "nats" or "difference"), value, low and high. note has the reason why a value is
        missing.
    """
    import pandas as pd

    mine = compared(fit)
    theirs = compared(base)
    rows = []
    for one in mine:
        other = _matching(one, theirs)
        if other is None and len(_places(mine)) == len(_places(theirs)) == 1:
            other = next((x for x in theirs if x.quantity == one.quantity), None)
        if other is None:
            continue
        found = difference(one.estimate, other.estimate, one.unit)
        row = {**one.where, "quantity": one.quantity, "unit": one.unit}
        row |= {"value": found.value, "low": found.low, "high": found.high}
        rows.append(row | {"note": found.why})
    return pd.DataFrame(rows)


def difference(one: Estimate, other: Estimate, unit: str) -> Estimate:
    """Return an estimate minus another, or divided by it, with its interval.

    Examples:
        >>> two = difference(Estimate(8, 4, 16), Estimate(4, 2, 8), "ratio")
        >>> round(two.value, 3), round(two.low, 2), round(two.high, 2)
        (2.0, 0.75, 5.33)
    """
    level = one.level
    missing = next((each for each in (one, other) if each.value is None), None)
    if missing is not None:
        return Estimate(None, level=level, note=f"unidentified: {missing.why}")
    if unit == RATIO:
        ends = difference(_log(one), _log(other), DIFFERENCE)
        low = None if ends.low is None else math.exp(ends.low)
        high = None if ends.high is None else math.exp(ends.high)
        return Estimate(math.exp(ends.value or 0.0), low, high, level)
    x = one.value or 0.0
    y = other.value or 0.0
    low = high = None
    if one.low is not None and other.high is not None:
        low = x - y - math.hypot(x - one.low, other.high - y)
    if one.high is not None and other.low is not None:
        high = x - y + math.hypot(one.high - x, y - other.low)
    return Estimate(x - y, low, high, level)


def compared(fit: Fit) -> list[Compared]:
    """Return the estimates of a fit that groups are compared by."""
    return _COMPARED[fit.KIND](fit)


def penalties(fit: Any) -> "pd.DataFrame":
    """Return what each batch size costs against the best one; see `GroupFits.penalties`.

    Raises:
        InputError: If the fit has no penalties.
    """
    found = {"es": _tokens_above, "loss": _losses_above, "equal": _equal_above}.get(fit.KIND)
    if found is None:
        raise InputError(f"penalties: a fit of kind {fit.KIND} has none; use one of es or loss")
    return found(fit)


def _log(one: Estimate) -> Estimate:
    """Return the logarithm of an estimate of a positive number."""

    def log(end: float | None) -> float | None:
        return math.log(end) if end else None

    return Estimate(log(one.value), log(one.low), log(one.high), one.level)


def _places(estimates: list[Compared]) -> set[tuple[Any, ...]]:
    return {tuple(one.where.values()) for one in estimates if one.where}


def _matching(one: Compared, others: list[Compared]) -> Compared | None:
    """Return the estimate of the same quantity at the same place, if there is one."""
    for other in others:
        alike = other.quantity == one.quantity and other.where.keys() == one.where.keys()
        if alike and all(_equal(x, other.where[name]) for name, x in one.where.items()):
            return other
    return None


def _equal(one: Any, other: Any) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one == other
    if math.isnan(one) or math.isnan(other):
        return math.isnan(one) and math.isnan(other)
    return abs(math.log(one / other)) < SAME_BUDGET


def _of_es(fit: "EsFit") -> list[Compared]:
    found = []
    for at in fit.fits:
        where = {"target_loss": f"{at.target_loss:.6g}"}  # exact: near targets are different ones
        found.append(Compared("B_opt", at.best, RATIO, where))
        if "E_min" in at.intervals:
            found.append(Compared("E_min", at.intervals["E_min"], RATIO, where))
    return found


def _of_loss(fit: "LossFit") -> list[Compared]:
    seen = fit.tested["batch_tokens"]
    batch = np.geomspace(seen.low, seen.high, GRID[1])
    found = []
    for at in fit.optima:
        where = {"params": at.params, "tokens": at.tokens}
        found.append(Compared("B_opt", at.batch, RATIO, where))
        lowest = fit.law.draws(at.params, at.tokens, batch).min(axis=1)
        loss = interval(float(lowest[0]), lowest[1:], level=fit.level)
        found.append(Compared("lowest loss", loss, NATS, where))
    return found


def _of_critical(fit: "CriticalFit") -> list[Compared]:
    name = "critical batch size"
    found = []
    for at, one in zip(fit.fits, fit.critical, strict=True):
        where = {"params": at.curve.params, "target_loss": f"{at.curve.target_loss:.6g}"}
        found.append(Compared(name, one, RATIO, where))
    exponents = zip(fit.law.variables, fit.law.exponents, strict=True) if fit.law else ()
    return found + [Compared(f"exponent of {n}", e, DIFFERENCE) for n, e in exponents]


def _of_lr(fit: "LrFit") -> list[Compared]:
    found = []
    for at in fit.optima:
        sizes = {"params": at.params, "tokens": at.tokens, "batch": at.batch}
        where = {name: x for name, x in sizes.items() if np.isfinite(x)}
        found.append(Compared("best LR", at.best, RATIO, where))
    exponents = {f"exponent of {name}": one for name, one in fit.exponents.items()}
    known = {name: one for name, one in exponents.items() if one.value is not None}
    return found + [Compared(name, one, DIFFERENCE) for name, one in known.items()]


def _of_curve(fit: "CurveFit") -> list[Compared]:
    best = fit.best_batch()
    return [
        Compared("L_0", fit.parameters["L_0"], NATS),
        Compared("best fixed batch", best, RATIO, {"tokens": fit.tokens}),
    ]


def _of_equal(fit: "EqualFit") -> list[Compared]:
    found = []
    for at in fit.optima:
        where = {fit.column: at.cost}
        lowest = int(at.loss.argmin())
        half = deviations(fit.level) * float(at.error[lowest])
        loss = float(at.loss[lowest])
        found.append(Compared("B_opt", at.best, RATIO, where))
        ends = Estimate(loss, loss - half, loss + half, fit.level)
        found.append(Compared("lowest loss", ends, NATS, where))
    return found


def _of_own(fit: "OwnFit") -> list[Compared]:
    return [Compared(name, one, DIFFERENCE) for name, one in fit.parameters.items()]


def _of_branches(fit: "BranchFit") -> list[Compared]:
    return [
        Compared("tokens at the switch", one.tokens, RATIO, {"batch": one.batch})
        for one in fit.grown
    ]


_COMPARED: dict[str, Callable[[Any], list[Compared]]] = {
    "es": _of_es,
    "loss": _of_loss,
    "critical": _of_critical,
    "lr": _of_lr,
    "curve": _of_curve,
    "equal": _of_equal,
    "own": _of_own,
    "branches": _of_branches,
}


def _losses_above(fit: "LossFit") -> "pd.DataFrame":
    """Return the lowest loss of each batch size, and what it is above the lowest of all."""
    points = fit.law.points
    cell = ["params", "tokens"]
    cells = fit.summary()[cell].iloc[points.cell].reset_index(drop=True)
    rows = cells.assign(batch_tokens=points.batch, loss=points.loss, count=points.count)
    lowest = rows.loc[rows.groupby([*cell, "batch_tokens"])["loss"].idxmin()]
    noise = points.noise if np.isfinite(points.noise) else SEED_NOISE
    found = _with_interval(lowest, cell, "loss", noise, fit.level)
    return found.drop(columns="count")


def _tokens_above(fit: "EsFit") -> "pd.DataFrame":
    """Return the tokens of each batch size to each target, and what they are above the fewest."""
    rows = fit.residuals()
    logs = rows.assign(log_tokens=np.log(rows["measured"].astype(float)))
    each = logs.groupby(["target_loss", "batch"], as_index=False)
    means = each.agg(log_tokens=("log_tokens", "mean"), count=("log_tokens", "size"))
    rest = logs["log_tokens"] - each["log_tokens"].transform("mean")
    freedom = len(logs) - len(means)
    noise = math.sqrt(float((rest**2).sum()) / freedom) if freedom else fit.noise
    found = _with_interval(means, ["target_loss"], "log_tokens", noise, fit.level)
    for name in ("penalty", "penalty_low", "penalty_high"):
        found[name] = np.expm1(found[name])
    tokens = np.exp(found["log_tokens"])
    return found.drop(columns=["log_tokens", "count"]).assign(tokens=tokens)[
        ["target_loss", "batch", "tokens", "penalty", "penalty_low", "penalty_high"]
    ]


def _equal_above(fit: "EqualFit") -> "pd.DataFrame":
    """Return the loss of each batch size, and what it is above the lowest."""
    rows = fit.residuals()
    names = {"above": "penalty", "low": "penalty_low", "high": "penalty_high"}
    return rows.drop(columns="steps").rename(columns=names)


def _with_interval(
    rows: "pd.DataFrame", where: list[str], name: str, noise: float, level: float
) -> "pd.DataFrame":
    """Return rows with what a column is above its lowest at the same place, and the interval.

    Args:
        rows: with a column count, of measurements that were averaged.
        where: the columns that rows of one place share.
        name: the column.
        noise: standard deviation of one measurement.
        level: of the interval.
    """
    at = rows.groupby(where)[name].transform("idxmin")
    above = rows[name] - rows[name].loc[at].to_numpy()
    error = np.sqrt(1 / rows["count"] + 1 / rows["count"].loc[at].to_numpy())
    half = deviations(level) * noise * np.where(above > 0, error, 0.0)
    return rows.assign(
        penalty=above, penalty_low=above - half, penalty_high=above + half
    ).reset_index(drop=True)
