"""Laws through critical batch sizes, and what becomes of them under other definitions.

The additive (1 + r)·B_ref of the closed form flattens the law: from the same data the exponent is
0.39 at r = 10% and 0.62 for b/a (derived here).
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from bss.laws import power
from bss.laws.base import Options
from bss.laws.critical.curves import StepsCurve
from bss.laws.critical.shape import (
    LEAST_NOISE,
    CbsDefinition,
    Shapes,
    critical_batch,
    fit_shapes,
    measured_critical_batch,
    refit_shapes,
)
from bss.laws.critical.values import Definition
from bss.laws.resampling import rms

LAW_UNIT = 1e6
OVERHEADS = (0.1, 0.2, 0.5, 1.0)
Values = tuple[np.ndarray, Sequence[np.ndarray]]
"""Critical batches of the curves, [C], and of their refits, [C, R]."""


class Fitted(NamedTuple):
    """Fits of C curves with one treatment of α, their R refits, and the noise [R, n] of each."""

    curves: Sequence[StepsCurve]
    shapes: Shapes
    refits: Shapes
    noise: list[np.ndarray]

    @classmethod
    def of(cls, curves: Sequence[StepsCurve], alpha: float | None, options: Options) -> "Fitted":
        """The curves fitted, with α held, or fitted where it is None."""
        shapes = fit_shapes(curves, alpha)
        how = {"resamples": options.resamples, "seed": options.seed}
        return cls(curves, shapes, *refit_shapes(curves, shapes, alpha, **how))

    def mean_noise(self, i: int) -> np.ndarray:
        """[n], standard deviations of the log steps of curve i: of seeds, if there are any.

        Else of residuals, but no more than neighbours scatter: the law may miss a smooth curve.
        """
        curve = self.curves[i]
        if np.isfinite(curve.seed_noise):
            return curve.seed_noise / np.sqrt(curve.seeds)
        third = len(curve.batch) > 4
        rough = rms(np.diff(np.log(curve.steps), 2 + third)) / np.sqrt(20 if third else 6)
        return np.full(len(curve.batch), max(min(self.shapes.noise[i], rough), LEAST_NOISE))

    def by_law(self, definition: CbsDefinition) -> Values:
        """Critical batches by the law."""
        smallest, found = np.array([curve.batch[0] for curve in self.curves]), []
        for each in (self.shapes, self.refits):
            ends = smallest.reshape(-1, *[1] * (each.kappa.ndim - 1))
            references = definition.at(each.kappa, ends)
            found.append(critical_batch(each.kappa, each.alpha, definition.overhead, references))
        return found[0], list(found[1])

    def without_law(self, definition: CbsDefinition) -> Values:
        """Critical batches by interpolation."""
        batches = []
        for curve, kappa, noise in zip(self.curves, self.shapes.kappa, self.noise, strict=True):
            logs = np.log(curve.steps) + np.vstack([0 * noise[:1], noise])
            reference = float(definition.at(kappa, curve.batch[0]))
            how = curve.batch, logs, definition.overhead, reference
            batches.append(measured_critical_batch(*how))
        return np.array([each[0] for each in batches]), [each[1:] for each in batches]


def laws_of(
    curves: Sequence[StepsCurve],
    values: Sequence[float | None],
    draws: Sequence[np.ndarray],
    level: float,
) -> tuple[dict[str, power.PowerFit], str, list[str]]:
    """The laws that the design identifies, of critical batches [n] and their refits [n, R].

    Returns:
        Laws by "joint", or by "params" and "tokens"; why there is no joint one; warnings.
    """
    sizes = {(curve.params, curve.tokens) for curve in curves}
    if len(sizes) < len(curves):
        return {}, "", ["several curves of one size and budget: no law is fitted to them"]
    x = _variables([c for c, value in zip(curves, values, strict=True) if value is not None])
    varied = [name for name in x if not power.unidentified({name: x[name]})]
    if not varied:
        return {}, "", ["fewer than two critical batches over a factor of 2 in size: no law"]
    refused = power.unidentified(x) if len(x) > 1 else ""
    joint = len(x) > 1 and not refused
    wanted = {"joint": list(x)} if joint else {name: [name] for name in varied}
    laws = {name: _law(curves, values, draws, given, level) for name, given in wanted.items()}
    notes = [f"no joint law: {refused}"] if len(varied) > 1 and refused else []
    return {name: law for name, law in laws.items() if law}, refused, notes


def definitions(
    held: Fitted,
    free: Fitted | None,
    bracketed: Sequence[bool],
    definition: CbsDefinition,
    variables: Sequence[str],
    level: float,
) -> tuple[Definition, ...]:
    """Critical batches and their laws: over overheads, references, b/a, α free, and without a law.

    Args:
        held: with α held at 1.
        free: with α fitted; None where there are too few batches.
        bracketed: [n], whether the batches bracket the bend of a curve.
        definition: r and B_ref where they are not varied.
        variables: of the laws, names in "params" and "tokens".
        level: nominal coverage.
    """
    overhead, reference = definition.overhead, definition.reference
    cases = [CbsDefinition(r, reference) for r in sorted({*OVERHEADS, overhead})]
    if not isinstance(reference, str):
        low, high = max(c.batch[0] for c in held.curves), min(c.batch[-1] for c in held.curves)
        around = (at for at in (reference / 2, reference * 2) if low <= at <= high)
        cases += [CbsDefinition(overhead, at) for at in around]
    entries: list[tuple] = [(str(case), case, held.by_law(case)) for case in cases]
    entries.append(("b/a", None, (held.shapes.kappa, held.refits.kappa)))
    if free:
        name = f"{definition}, exponent of B free"
        entries.append((name, definition, free.by_law(definition)))
    measured = held.without_law(definition)
    entries.append((f"{definition}, interpolated", definition, measured))
    rows = []
    for name, case, (values, draws) in entries:
        identified = np.isfinite(values) & np.asarray(bracketed)
        if case:
            pairs = zip(held.curves, held.shapes.kappa, strict=True)
            identified &= [c.covers(float(case.at(kappa, c.batch[0]))) for c, kappa in pairs]
        numbers = [float(v) if ok else None for v, ok in zip(values, identified, strict=True)]
        law = _law(held.curves, numbers, draws, variables, level)
        ends = (case.overhead, case.reference) if case else (None, None)
        rows.append(Definition(name, *ends, tuple(numbers), law))
    return tuple(rows)


def _law(
    curves: Sequence[StepsCurve],
    values: Sequence[float | None],
    draws: Sequence[np.ndarray],
    variables: Sequence[str],
    level: float,
) -> power.PowerFit | None:
    used = [i for i, value in enumerate(values) if value is not None]
    columns = _variables([curves[i] for i in used])
    x = {name: columns[name] for name in variables}
    if not x or power.unidentified(x):
        return None
    y, errors = [values[i] or 0.0 for i in used], [_log_error(draws[i]) for i in used]
    return power.fit_power(y, x, unit=LAW_UNIT, errors=errors, level=level)


def _log_error(draws: np.ndarray) -> float:
    """Standard deviation of log draws, from quantiles that stray refits do not move."""
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return np.inf
    low, high = np.quantile(np.log(finite), [0.16, 0.84])
    return float(high - low) / 2


def _variables(curves: Sequence[StepsCurve]) -> dict[str, np.ndarray]:
    """Sizes and budgets, where every curve has one."""
    columns = {name: np.array([getattr(c, name) for c in curves]) for name in ("params", "tokens")}
    return {name: column for name, column in columns.items() if np.isfinite(column).all()}
