"""Fitted critical batch sizes and their laws as values, and their JSON form."""

from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from bss.laws.critical.curves import StepsCurve
from bss.laws.fitting.estimate import Estimate
from bss.laws.fitting.power import PowerLaw

SCHEMA = 1
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
        cbs_error: standard deviation of log cbs over the bootstrap.
        status: "converged", "not converged" or "unidentified: ...".
    """

    curve: StepsCurve
    S_min: Estimate
    E_min: Estimate
    alpha: Estimate
    B_crit: Estimate
    cbs: Estimate
    interpolated: Estimate
    noise: float
    residuals: tuple[float, ...]
    cbs_error: float
    status: str

    def to_dict(self) -> dict[str, Any]:
        """JSON: the measurements beside what was fitted to them."""
        curve = self.curve
        return {
            "model": curve.model,
            "params": curve.params,
            "tokens": curve.tokens,
            "target_loss": curve.target_loss,
            "kind": curve.kind,
            "seq_len": curve.seq_len,
            "S_min": self.S_min.value,
            "E_min_sequences": self.E_min.value,
            "intervals": {
                "S_min": self.S_min.to_dict(),
                "E_min_sequences": self.E_min.to_dict(),
            },
            "alpha": self.alpha.to_dict(),
            "B_crit": self.B_crit.to_dict(),
            "cbs": self.cbs.to_dict(),
            "cbs_interpolated": self.interpolated.to_dict(),
            "noise": self.noise,
            "seed_noise": curve.seed_noise,
            "batch": curve.batch.tolist(),
            "steps": curve.steps.tolist(),
            "seeds": curve.seeds.tolist(),
            "settings": curve.settings.tolist(),
            "residuals": list(self.residuals),
            "not_reached": [{"batch": b, "steps": s} for b, s in curve.censored.items()],
            "status": self.status,
        }


@dataclass(frozen=True)
class Definition:
    """One way to call a batch critical, and the law it leads to.

    Attributes:
        name: in words.
        overhead: r; None for b/a, which needs none.
        reference: B_ref; None for b/a.
        values: per curve; None where it is not identified.
        law: through them; None where there are too few or they do not identify one.
    """

    name: str
    overhead: float | None
    reference: float | None
    values: tuple[float | None, ...]
    law: PowerLaw | None

    def to_dict(self) -> dict[str, Any]:
        """JSON, with the law's exponents."""
        return {
            "name": self.name,
            "overhead": self.overhead,
            "reference_batch": self.reference,
            "values": list(self.values),
            "law": None if self.law is None else self.law.to_dict(),
        }


@dataclass(frozen=True)
class CriticalFit:
    """Critical batch sizes of several curves, and the laws through them.

    Attributes:
        overhead: r.
        reference: B_ref, in `unit`.
        unit: of every batch: "sequences" or "tokens".
        fits: one per curve, in the order of the table.
        law: the law that the design identifies, in params or tokens or both; None without one.
        laws: every law that was fitted: by "params" and by "tokens" alone, and "joint".
        joint_refused: why N and D were not fitted jointly; empty where they were.
        definitions: critical batches and exponents over definitions.
        resamples: bootstrap refits.
        level: of all intervals.
        method: how they were made.
        warnings: what a reader must know.
        version: of the package that made the fit.
    """

    overhead: float
    reference: float
    unit: str
    fits: tuple[CriticalBatch, ...]
    law: PowerLaw | None
    laws: dict[str, PowerLaw]
    joint_refused: str
    definitions: tuple[Definition, ...]
    resamples: int
    level: float
    method: str = METHOD
    warnings: tuple[str, ...] = ()
    version: str = version("bss")

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: `{"kind": "critical", "schema": 1, "models", "law", ...}`."""
        return {
            "kind": "critical",
            "schema": SCHEMA,
            "overhead": self.overhead,
            "reference_batch": self.reference,
            "unit": self.unit,
            "models": [fit.to_dict() for fit in self.fits],
            "law": None if self.law is None else self.law.to_dict(),
            "laws": {name: law.to_dict() for name, law in self.laws.items()},
            "joint_refused": self.joint_refused,
            "definitions": [definition.to_dict() for definition in self.definitions],
            "resamples": self.resamples,
            "level": self.level,
            "method": self.method,
            "warnings": list(self.warnings),
            "version": self.version,
        }
