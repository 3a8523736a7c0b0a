"""Fits of curves with their refits, and power laws through their critical batch sizes.

The closed form of the critical batch has an additive term (1 + r)·B_ref. This term lowers the
exponent of a power law. From the same data the exponent is 0.39 at r = 10% and 0.62 for b/a
(derived here).
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
    fit_shapes,
    measured_critical_batch,
    refit_shapes,
)
from bss.laws.resampling import rms

LAW_UNIT = 1e6  # of N and D in a law


class Batches(NamedTuple):
    """Critical batches of the curves, [C], and of their refits, [C] times [R]."""

    values: np.ndarray
    draws: Sequence[np.ndarray]


class Fitted(NamedTuple):
    """Fits of C curves, their R refits, and the noise [R, n] of each."""

    curves: Sequence[StepsCurve]
    shapes: Shapes
    refits: Shapes
    noise: list[np.ndarray]

    @classmethod
    def of(cls, curves: Sequence[StepsCurve], options: Options) -> "Fitted":
        """Return the fits of curves."""
        shapes = fit_shapes(curves)
        how = {"resamples": options.resamples, "seed": options.seed}
        return cls(curves, shapes, *refit_shapes(curves, shapes, **how))

    def mean_noise(self, i: int) -> np.ndarray:
        """Return standard deviations [n] of the mean log steps of curve i, of seeds if known.

        Else of residuals, but at most of third differences: the law may not fit a smooth curve.
        """
        curve = self.curves[i]
        if np.isfinite(curve.seed_noise):
            return curve.seed_noise / np.sqrt(curve.seeds)
        third = len(curve.batch) > 4
        rough = rms(np.diff(np.log(curve.steps), 2 + third)) / np.sqrt(20 if third else 6)
        return np.full(len(curve.batch), max(min(self.shapes.noise[i], rough), LEAST_NOISE))

    def by_law(self, definition: CbsDefinition) -> Batches:
        """Return critical batches by the law."""
        pairs = [
            (kappa, c.batch[0]) for c, kappa in zip(self.curves, self.shapes.kappa, strict=True)
        ]
        values = np.array([definition.by_law(*pair) for pair in pairs])
        refits = zip(self.refits.kappa, pairs, strict=True)
        return Batches(values, [definition.by_law(kappa, pair[1]) for kappa, pair in refits])

    def measured(self, definition: CbsDefinition) -> Batches:
        """Return critical batches by interpolation of the steps."""
        found = []
        for i, curve in enumerate(self.curves):
            noise = self.noise[i] * (self.mean_noise(i) / self.shapes.noise[i])
            logs = np.log(curve.steps) + np.vstack([0 * noise[:1], noise])
            reference = float(definition.at(self.shapes.kappa[i], curve.batch[0]))
            how = curve.batch, logs, definition.overhead, reference
            found.append(measured_critical_batch(*how))
        return Batches(np.array([each[0] for each in found]), [each[1:] for each in found])


def laws_of(
    curves: Sequence[StepsCurve],
    values: Sequence[float | None],
    draws: Sequence[np.ndarray],
    level: float,
) -> tuple[dict[str, power.PowerFit], str, list[str]]:
    """Return the laws that the design identifies, of critical batches [n] and refits [n] × [R].

    Returns:
        Laws with the key "joint", or the keys "params" and "tokens"; the reason if the design does
        not identify a joint law, else an empty text; warnings.
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
    """Return the standard deviation of log draws, from quantiles that stray refits do not move."""
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return np.inf
    low, high = np.quantile(np.log(finite), [0.16, 0.84])
    return float(high - low) / 2


def _variables(curves: Sequence[StepsCurve]) -> dict[str, np.ndarray]:
    """Return sizes and budgets, if every curve has one."""
    columns = {name: np.array([getattr(c, name) for c in curves]) for name in ("params", "tokens")}
    return {name: column for name, column in columns.items() if np.isfinite(column).all()}
