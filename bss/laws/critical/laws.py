"""Laws through critical batch sizes, and what becomes of them under other definitions.

The additive (1 + r)·B_ref of the closed form flattens the law: from the same data the exponent is
0.39 at r = 10% and 0.62 for b/a (derived here).
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from bss.laws.critical.curves import StepsCurve
from bss.laws.critical.shape import Shapes, critical_batch, interpolated_batch
from bss.laws.critical.values import Definition
from bss.laws.fitting import power

LAW_UNIT = 1e6
OVERHEADS = (0.1, 0.2, 0.5, 1.0)


class Fitted(NamedTuple):
    """Fits of all curves with one treatment of α, their refits, and the noise of each draw."""

    shapes: Shapes
    refits: Shapes
    noise: list[np.ndarray]


def laws_of(
    curves: Sequence[StepsCurve],
    values: Sequence[float | None],
    draws: Sequence[np.ndarray],
    level: float,
) -> tuple[dict[str, power.PowerLaw], str, list[str]]:
    """The laws that the design identifies.

    Args:
        curves: [n], their sizes and budgets.
        values: [n] critical batches; None where there is none.
        draws: [n, R], their refits.
        level: nominal coverage.

    Returns:
        Laws by "joint", or by "params" and "tokens"; why there is no joint one; warnings.
    """
    sizes = {(curve.params, curve.tokens) for curve in curves}
    if len(sizes) < len(curves):
        return {}, "", ["several curves of one size and budget: no law is fitted to them"]
    used = [i for i, value in enumerate(values) if value is not None]
    x = _variables(curves, used)
    varied = [name for name in x if not power.unidentified({name: x[name]})]
    if not varied:
        return {}, "", ["fewer than two critical batches over a factor of 2 in size: no law"]
    refused = power.unidentified(x) if len(x) > 1 else ""
    one_variable = [[name] for name in varied]
    names = [list(x)] if len(x) > 1 and not refused else one_variable
    fits = [(given, _law(curves, values, draws, given, level)) for given in names]
    laws = {"joint" if len(given) > 1 else given[0]: law for given, law in fits if law}
    notes = [f"no joint law: {refused}"] if len(varied) > 1 and refused else []
    return laws, refused, notes


def definitions(
    curves: Sequence[StepsCurve],
    fitted: Mapping[bool, Fitted],
    bracketed: Sequence[bool],
    overhead: float,
    reference: float,
    variables: Sequence[str],
    level: float,
) -> tuple[Definition, ...]:
    """Critical batches and their laws: over overheads, references, b/a, α free, and without a law.

    Args:
        curves: [n].
        fitted: with α held (False) and, where there are batches enough, free (True).
        bracketed: [n], whether the batches bracket the bend of a curve.
        overhead: r where it is not varied.
        reference: B_ref where it is not varied.
        variables: of the laws, names in "params" and "tokens".
        level: nominal coverage.
    """
    held, here = fitted[False], f"{overhead:.0%} over {reference:g}"
    low, high = max(c.batch[0] for c in curves), min(c.batch[-1] for c in curves)
    cases = [(r, reference) for r in sorted({*OVERHEADS, overhead})]
    cases += [(overhead, at) for at in (reference / 2, reference * 2) if low <= at <= high]
    told: list[tuple] = [(f"{r:.0%} over {at:g}", r, at, *by_law(held, r, at)) for r, at in cases]
    told.append(("b/a", None, None, held.shapes.kappa, held.refits.kappa))
    if True in fitted:
        values = by_law(fitted[True], overhead, reference)
        told.append((f"{here}, exponent of B free", overhead, reference, *values))
    values = _without_law(curves, held, overhead, reference)
    told.append((f"{here}, interpolated", overhead, reference, *values))
    rows = []
    for name, r, at, values, draws in told:
        identified = np.isfinite(values) & np.asarray(bracketed)
        kept = [float(v) if ok else None for v, ok in zip(values, identified, strict=True)]
        law = _law(curves, kept, draws, variables, level)
        rows.append(Definition(name, r, at, tuple(kept), law))
    return tuple(rows)


def _log_error(draws: np.ndarray) -> float:
    """Standard deviation of log draws, from quantiles that stray refits do not move."""
    told = draws[np.isfinite(draws)]
    if not len(told):
        return np.inf
    low, high = np.quantile(np.log(told), [0.16, 0.84])
    return float(high - low) / 2


def by_law(fitted: Fitted, overhead: float, reference: float) -> list[np.ndarray]:
    """Critical batches of the curves, [C], and of their refits, [C, R]."""
    return [
        critical_batch(shapes.kappa, shapes.alpha, overhead, reference)
        for shapes in (fitted.shapes, fitted.refits)
    ]


def _without_law(
    curves: Sequence[StepsCurve], fitted: Fitted, overhead: float, reference: float
) -> tuple[np.ndarray, list[np.ndarray]]:
    draws = [
        interpolated_batch(
            curve.batch, np.log(curve.steps) + np.vstack([np.zeros(len(curve.batch)), noise]),
            overhead, reference,
        )
        for curve, noise in zip(curves, fitted.noise, strict=True)
    ]  # fmt: skip
    return np.array([draw[0] for draw in draws]), [draw[1:] for draw in draws]


def _law(
    curves: Sequence[StepsCurve],
    values: Sequence[float | None],
    draws: Sequence[np.ndarray],
    variables: Sequence[str],
    level: float,
) -> power.PowerLaw | None:
    used = [i for i, value in enumerate(values) if value is not None]
    x = {name: _variables(curves, used)[name] for name in variables}
    if not x or power.unidentified(x):
        return None
    y, errors = [values[i] or 0.0 for i in used], [_log_error(draws[i]) for i in used]
    return power.fit_power(y, x, unit=LAW_UNIT, errors=errors, level=level)


def _variables(curves: Sequence[StepsCurve], used: Sequence[int]) -> dict[str, np.ndarray]:
    """Sizes and budgets, where every curve that is used has one."""
    columns = {
        "params": np.array([curves[i].params for i in used]),
        "tokens": np.array([curves[i].tokens for i in used]),
    }
    return {name: column for name, column in columns.items() if np.isfinite(column).all()}
