"""Fitted critical batch sizes and their laws as values, and their JSON form."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from bss.laws.critical.curves import StepsCurve
from bss.laws.fitting.estimate import Estimate, Fit
from bss.laws.fitting.power import PowerFit

METHOD = (
    "profile likelihood, F threshold (B_crit and the closed form); parametric bootstrap with drawn "
    "noise variance (S_min, E_min, free exponent, interpolation); laws: the wider of Student's t "
    "over the scatter and the errors of the values"
)


@dataclass(frozen=True)
class CriticalBatch:
    """What one curve of steps against batch says. Batches in the fit's unit.

    Attributes:
        curve: the measurements.
        S_min: a, steps that no batch can undercut; None where it is not bracketed.
        E_min: b, in sequences (or tokens) for α = 1; None where not bracketed or α is free.
        alpha: exponent of the batch.
        B_crit: b/a; for a free α (b/a)^(1/α), where both terms are equal.
        cbs: the largest batch within the overhead of the reference, by the law.
        interpolated: the same without a law.
        noise: residual standard deviation of log steps.
        residuals: log steps measured less fitted, per batch.
        status: "converged", "not converged" or "unidentified: ...".
    """

    curve: StepsCurve
    S_min: Estimate
    E_min: Estimate
    alpha: Estimate
    B_crit: Estimate
    cbs: Estimate
    interpolated: Estimate = field(metadata={"key": "cbs_interpolated"})
    noise: float
    residuals: tuple[float, ...]
    status: str

    def steps(self, batch: np.ndarray) -> np.ndarray:
        """Steps to the target at batches in the fit's unit, by the law; NaN where it has none."""
        bend, alpha = self.B_crit.value, self.alpha.value
        if self.S_min.value is None or bend is None or alpha is None:
            return np.full(np.shape(batch), np.nan)
        return self.S_min.value * (1 + (bend / batch) ** alpha)

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The measurements beside what was fitted to them."""
        intervals = {"S_min": plain.pop("S_min"), "E_min_sequences": plain.pop("E_min")}
        bounds = {name: estimate["value"] for name, estimate in intervals.items()}
        return plain.pop("curve") | bounds | {"intervals": intervals} | plain

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        S_min, E_min = (entry["intervals"][name] for name in ("S_min", "E_min_sequences"))
        return entry | {"curve": entry, "S_min": S_min, "E_min": E_min}


@dataclass(frozen=True)
class Definition:
    """One way to call a batch critical, and the law it leads to.

    Attributes:
        name: in words.
        overhead, reference: r and B_ref; None for b/a, which needs none.
        values: per curve; None where it is not identified.
        law: through them; None where there are too few or they do not identify one.
    """

    name: str
    overhead: float | None
    reference: float | None = field(metadata={"key": "reference_batch"})
    values: tuple[float | None, ...]
    law: PowerFit | None


@dataclass(frozen=True)
class LeftOutSteps:
    """Root mean squares of log steps at batches left out in turn, of one form of the law.

    Attributes:
        form: its name.
        inside, edges: between other batches, and at the smallest and largest; None where no curve
            has one to spare.
    """

    form: str
    inside: float | None
    edges: float | None


@dataclass(frozen=True)
class OutlierSteps:
    """A point far from the others of its curve.

    Attributes:
        model, target_loss: of the curve; batch in the fit's unit.
        off: log of its steps over what the others say.
        times: over their scatter.
        moves: B_crit without it over B_crit with it.
    """

    model: str
    target_loss: float
    batch: float
    off: float
    times: float
    moves: float

    def __str__(self) -> str:
        """The point by name, how far off it is, and what B_crit is without it."""
        side = "above" if self.off > 0 else "below"
        return (
            f"model {self.model}, target {self.target_loss:g}, batch {self.batch:g}: "
            f"{abs(self.off):.3f} {side} the others in log steps, {self.times:.0f} times the "
            f"scatter; without it B_crit moves by {self.moves - 1:+.0%} "
            f"(--drop 'model={self.model},batch={self.batch:g}')"
        )


@dataclass(frozen=True, repr=False)
class CriticalFit(Fit):
    """Critical batch sizes of several curves, and the laws through them.

    Attributes:
        overhead, reference: r, and B_ref in `unit`.
        unit: of every batch: "sequences" or "tokens".
        fits: one per curve, in the order of the table.
        law: the law that the design identifies, in params or tokens or both; None without one.
        laws: every law that was fitted: by "params" and by "tokens" alone, and "joint".
        joint_refused: why N and D were not fitted jointly; empty where they were.
        definitions: critical batches and exponents over definitions.
        left_out: errors at batches left out in turn, of the form that is fitted first.
        outliers: points that do not fit the others of their curve.
    """

    overhead: float
    reference: float = field(metadata={"key": "reference_batch"})
    unit: str
    fits: tuple[CriticalBatch, ...] = field(metadata={"key": "models"})
    law: PowerFit | None
    laws: dict[str, PowerFit]
    joint_refused: str
    definitions: tuple[Definition, ...]
    left_out: tuple[LeftOutSteps, ...] = ()
    outliers: tuple[OutlierSteps, ...] = ()
    method: str = field(default=METHOD, kw_only=True)

    KIND = "critical"
