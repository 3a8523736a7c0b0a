"""Fitted critical batch sizes and their laws as values, and their JSON form."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.at_batch import Steps, steps_at_batch
from bss.laws.base import (
    Estimate,
    Fit,
    Outlier,
    as_positive,
    check_lengths,
    check_positive,
    check_status,
    described,
    notes_of,
    outside,
    run_table,
)
from bss.laws.critical.data import UNITS, StepsCurve, Unknown
from bss.laws.power import PowerFit, predict
from bss.laws.resampling import rms
from bss.values import Positive, Range

METHOD = (
    "parametric bootstrap with sampled noise variance, percentiles; cbs: also smooth deviations "
    "from S = a + b/B, by their probability; laws: the larger of the "
    "residual SD with Student's t and the errors of the values"
)
Quantity = Literal["cbs", "B_crit"]
SIZES = ("params", "tokens")
ENDS = ("low", "high")
NEAR_SIZE = 0.03  # relative difference of parameters that are printed with two digits
SEQUENCES = "E_min_sequences"
"""Key of E_min; with batches in tokens it is E_min."""
NAMES: dict[Quantity, str] = {"cbs": "CBS", "B_crit": "b/a"}


@dataclass(frozen=True)
class CriticalBatch:
    """The result of one curve of steps against batch. Batches in the fit's unit.

    Attributes:
        curve: the measurements.
        reference: B_ref of this curve.
        max_reference: the largest batch in the range of linear scaling, 5% more tokens than the
            smallest batch takes.
        is_linear: whether B_ref is in that range.
        S_min: a, steps that no batch can undercut; None if it is not bracketed.
        E_min: b, in sequences (or tokens); None if it is not bracketed.
        B_crit: b/a.
        cbs: the largest batch within the overhead of the reference, by `method`.
        method: "law", or "measured" if the steps reject S = a + b/B or only they bound it.
        by_law, interpolated: the same by the law, and by smooth curves through the steps.
        noise: residual standard deviation of log steps.
        residuals: log steps measured minus fitted, per batch.
        left_out: log steps predicted minus measured, per batch, by a fit to the other batches; NaN
            if there are too few.
        status: "converged", "not converged" or "unidentified: ...".
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    curve: StepsCurve
    reference: Positive = field(metadata={"key": "reference_batch"})
    max_reference: Unknown = field(metadata={"key": "max_reference_batch"})
    is_linear: bool
    S_min: Estimate
    E_min: Estimate
    B_crit: Estimate
    cbs: Estimate
    method: Literal["law", "measured"]
    by_law: Estimate = field(metadata={"key": "cbs_by_law"})
    interpolated: Estimate = field(metadata={"key": "cbs_interpolated"})
    noise: Annotated[float, Range(0, nan=True)]
    residuals: tuple[Annotated[float, Range(nan=True)], ...]
    left_out: tuple[Annotated[float, Range(nan=True)], ...]
    status: str

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_status(self.status, where)
        estimates = {name: x for name, x in vars(self).items() if isinstance(x, Estimate)}
        check_positive(estimates, where)
        columns = {"residuals": self.residuals, "left_out": self.left_out}
        check_lengths(columns, where, len(self.curve.batch))

    def steps(self, batch: np.ndarray) -> np.ndarray:
        """Steps to the target at batches in the fit's unit, by the law; NaN if it has none."""
        if self.S_min.value is None or self.B_crit.value is None:
            return np.full(np.shape(batch), np.nan)
        return self.S_min.value * (1 + self.B_crit.value / batch)

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON form: the measurements with what was fitted to them."""
        intervals = {"S_min": plain.pop("S_min"), SEQUENCES: plain.pop("E_min")}
        bounds = {name: estimate["value"] for name, estimate in intervals.items()}
        return plain.pop("curve") | bounds | {"intervals": intervals} | plain

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        ends = entry["intervals"]
        return entry | {"curve": entry, "S_min": ends["S_min"], "E_min": ends[SEQUENCES]}


def _renamed(entry: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """Return the JSON of a curve with E_min and its interval under another key, if it has it."""
    plain = {new if key == old else key: value for key, value in entry.items()}
    ends = {new if key == old else key: value for key, value in entry["intervals"].items()}
    return plain | {"intervals": ends}


@dataclass(frozen=True, repr=False)
class CriticalFit(Fit):
    """Critical batch sizes of several curves, and the laws through them.

    Attributes:
        overhead: r.
        reference: B_ref, as it was requested: a batch in `unit`, "smallest" or a share of b/a.
        unit: of every batch: "sequences" or "tokens".
        fits: one per curve, in the order of the table.
        quantity: of the laws: "cbs", or "B_crit" where most curves are not linear up to B_ref.
        law: the law that the design identifies, in params or tokens or both; None without one.
        laws: every law that was fitted: by "params" and by "tokens" alone, and "joint".
        joint_refused: why N and D were not fitted jointly; empty if they were.
        outliers: points that do not fit the others of their curve.

    Source: Zhang et al. (arXiv 2410.21676); S = a + b/B is of McCandlish et al. (arXiv 1812.06162).

    Examples:
        >>> from bss import fit_critical
        >>> rows = [{"model": "m", "params": 1e6, "tokens": 2e7, "target_loss": 3.0, "batch": b,
        ...          "steps": 1000 * (1 + 40 / b)} for b in (8, 16, 32, 64, 128, 512)]
        >>> fit = fit_critical(pd.DataFrame(rows), reference="smallest", resamples=20)
        >>> round(fit.fits[0].B_crit.value)  # sequences
        40
    """

    overhead: Positive
    reference: Positive | str = field(metadata={"key": "reference_batch"})
    unit: str
    fits: tuple[CriticalBatch, ...] = field(metadata={"key": "models"})
    quantity: Quantity
    law: PowerFit | None
    laws: dict[str, PowerFit]
    joint_refused: str
    outliers: tuple[Outlier, ...] = ()
    method: str = field(default=METHOD, kw_only=True)

    KIND = "critical"
    SCHEMA = 4  # of the JSON
    RESIDUAL_UNIT = "log steps"

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """See `Fit.encoded`; E_min_sequences is E_min if the unit is tokens."""
        if self.unit == "tokens":
            plain["models"] = [_renamed(one, SEQUENCES, "E_min") for one in plain["models"]]
        return super().encoded(plain)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        if entry.get("unit") != "tokens":
            return entry
        return entry | {"models": [_renamed(one, "E_min", SEQUENCES) for one in entry["models"]]}

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        check_lengths({"models": self.fits}, where)
        if self.unit not in UNITS:
            raise InputError(f"{where}unit is {self.unit!r}; expected {' or '.join(UNITS)}")
        for name, law in self.laws.items():
            variables = ("params", "tokens") if name == "joint" else (name,)
            if name not in ("joint", "params", "tokens") or law.variables != variables:
                raise InputError(f"{where}laws.{name} is a law of {', '.join(law.variables)}")
        names = [] if self.law is None else [self.law.variables]
        if any(one not in [law.variables for law in self.laws.values()] for one in names):
            raise InputError(f"{where}law is not one of laws")
        if isinstance(self.reference, str) and not re.fullmatch(
            r"smallest|[0-9.]+%", self.reference
        ):
            raise InputError(f"{where}reference_batch is {self.reference!r}")

    @property
    def RESIDUAL_AXES(self) -> dict[str, str]:  # pyrefly: ignore
        """Columns of `residuals` to plot against, with axis labels."""
        axes = {"batch": f"batch ({self.unit})", "log_batch_over_critical": "log $B/B_{crit}$"}
        return axes | {"params": "N", "tokens": "D (tokens)"}

    @property
    def critical(self) -> list[Estimate]:
        """Per curve what the laws are through."""
        return [getattr(at, self.quantity) for at in self.fits]

    @property
    def cv_error(self) -> float | None:
        """Root mean square error of log steps at left-out batches between others, or None."""
        errors = np.concatenate([at.left_out[1:-1] for at in self.fits])
        return rms(errors) if np.isfinite(errors).any() else None

    @property
    def answer(self) -> str:
        """The critical batch of the last curve, and the exponents of the law."""
        at = self.fits[-1]
        how = f"b/a of {at.curve.model}" if self.quantity == "B_crit" else str(at.curve.model)
        name = f"Critical batch size, {how}"
        line = described(name, self.critical[-1], self.unit, at.method)
        if self.law is None:
            return line
        pairs = zip(self.law.variables, self.law.exponents, strict=True)
        symbols = {"params": "N", "tokens": "D"}
        return line + "".join(
            f"; {described(f'exponent of {symbols[name]}', e, '').replace(' ,', ',')}"
            for name, e in pairs
        )

    @property
    def goal(self) -> str:
        """The exponent in D, or in N where the laws have no other variable."""
        varied = {name for law in self.laws.values() for name in law.variables}
        return "exponent:N" if varied == {"params"} else "exponent:D"

    @property
    def noise(self) -> float:
        """Standard deviation of a log critical batch about the law."""
        law = self.law or next(iter(self.laws.values()), None)
        return law.deviation if law else np.nan

    def draws_at(self, table: pd.DataFrame) -> np.ndarray:
        """Return draws [R, n] of log critical batches, by the law in the columns of the table."""
        law = self.law_of([name for name in ("params", "tokens") if name in table])
        return law.draws({name: table[name].to_numpy(float) for name in law.variables})

    def details(self) -> dict[str, pd.DataFrame]:
        """Return the laws of the critical batch."""
        laws = [
            {"law": name, "variable": variable, "exponent": e.value, "low": e.low, "high": e.high,
             "coefficient": law.coefficient.value, "unit": law.unit}
            for name, law in self.laws.items()
            for variable, e in zip(law.variables, law.exponents, strict=True)
        ]  # fmt: skip
        return {"Laws of the critical batch": pd.DataFrame(laws)} if laws else {}

    def summary(self) -> pd.DataFrame:
        """A row per curve: model, params, tokens, seq_len, target_loss, unit, the estimates.

        Batches (B_crit, cbs, cbs_interpolated with _low and _high, reference_batch) in the fit's
        unit, E_min_sequences (E_min if the unit is tokens), S_min in steps; noise and seed_noise
        are of log steps.
        """
        rows = []
        fewest = "E_min" if self.unit == "tokens" else SEQUENCES
        for at in self.fits:
            row = {n: getattr(at.curve, n) for n in ("model", "params", "tokens", "seq_len")}
            row |= {"target_loss": at.curve.target_loss, "unit": self.unit}
            row |= {"S_min": at.S_min.value, fewest: at.E_min.value, "noise": at.noise}
            row |= {"seed_noise": at.curve.seed_noise, "status": at.status, "method": at.method}
            row |= {"reference_batch": at.reference}
            estimates = {"B_crit": at.B_crit, "cbs": at.cbs, "cbs_interpolated": at.interpolated}
            for name, one in estimates.items():
                row |= {name: one.value, f"{name}_low": one.low, f"{name}_high": one.high}
            rows.append(row)
        return pd.DataFrame(rows)

    def predict(
        self,
        runs: pd.DataFrame | None = None,
        *,
        params: Any = None,
        tokens: Any = None,
        loss: Any = None,
        batch: Any = None,
    ) -> pd.DataFrame:
        """Return critical batch sizes of models and budgets, with prediction intervals.

        With a batch size, return the steps of new runs to a target loss instead, by S = a + b/B
        through its curve (`bss.laws.at_batch`).

        Args:
            runs: One size per row: params, tokens or both, the variables of a law of this fit.
            params: Non-embedding parameters, without a table, e.g. "7B".
            tokens: Token budget, without a table, e.g. "2T".
            loss: Target loss in nats; by default that of the only curve.
            batch: Batch size in the fit's unit.

        Returns:
            Columns critical_batch, critical_batch_low and critical_batch_high in the fit's unit,
            and note. With a batch size: loss, steps and tokens (or sequences, if their length is
            unknown) with their ends, and note, which has the form.

        Raises:
            InputError: If the fit has no law of these variables, or a number is not positive.
        """
        if batch is not None or loss is not None:
            if runs is not None or batch is None or tokens is not None:
                raise InputError("predict: give batch and loss alone, and params if sizes differ")
            return self._steps(batch, loss, params)
        given = {"params": params, "tokens": tokens}
        sizes = run_table(runs, (), given, optional=SIZES)
        law = self.law_of([*sizes])
        rows = [predict(law, row) for row in sizes.to_dict("records")]
        columns = {"critical_batch": [one.value for one in rows]}
        columns |= {f"critical_batch_{end}": [getattr(one, end) for one in rows] for end in ENDS}
        notes = notes_of(self, sizes, [one.note for one in rows])
        frame = pd.DataFrame(columns, sizes.index, dtype=float)
        return frame.assign(note=notes)

    def _steps(self, batch: Any, loss: Any, params: Any) -> pd.DataFrame:
        """Return steps and tokens to losses at batch sizes, a row each."""
        curves = self._curves_of(params)
        losses = {curve.target_loss for curve in curves}
        if loss is None and len(losses) > 1:
            known = ", ".join(f"{x:g}" for x in sorted(losses))
            raise InputError(f"loss: missing; the curves are of {known}; give one")
        given = {"batch": batch, "target_loss": [*losses] if loss is None else loss}
        runs = run_table(None, ("batch", "target_loss"), given)
        lengths = {curve.seq_len for curve in curves}
        length = lengths.pop() if len(lengths) == 1 else np.nan
        unit = 1.0 if self.unit == "tokens" else length
        count = "tokens" if np.isfinite(unit) else "sequences"
        targets = [
            Steps(c.target_loss, c.batch, np.log(c.steps), c.seed_noise, int(c.seeds.sum()))
            for c in curves
        ]
        rows = []
        for at, target in runs.to_numpy():
            found = steps_at_batch(targets, at, target, self.level)
            row = {"loss": target}
            for end, name in (("", "value"), ("_low", "low"), ("_high", "high")):
                steps = float(getattr(found.steps, name))
                row |= {
                    f"steps{end}": steps,
                    f"{count}{end}": steps * at * np.nan_to_num(unit, nan=1),
                }
            lines = "; ".join([found.source, *self.outside_batches(target, at)])
            rows.append(row | {"note": lines})
        return pd.DataFrame(rows, runs.index)

    def _curves_of(self, params: Any) -> list[StepsCurve]:
        """Return the curves of one model; InputError if there are several."""
        curves = [at.curve for at in self.fits]
        if params is not None:
            (size,) = as_positive("params", [params])
            curves = [one for one in curves if np.isclose(one.params, size, rtol=NEAR_SIZE)]
            if not curves:
                raise InputError(f"params: no curve is of {size:g}; steps need a measured size")
        models = {(one.model, one.params) for one in curves}
        if len(models) > 1:
            names = ", ".join(sorted(f"{name} ({size:.4g})" for name, size in models))
            raise InputError(f"params: missing; the fit has {names}; give params of one")
        return curves

    def outside_batches(self, loss: float, batch: float) -> list[str]:
        """Return a line if a batch size is outside of those that reached a loss."""
        curves = [at.curve for at in self.fits]
        near = [c for c in curves if np.isclose(c.target_loss, loss)] or curves
        return outside("batch", batch, [size for curve in near for size in curve.batch])

    def best_batch(self, *, params: Any = None, tokens: Any = None) -> Estimate:
        """Return the critical batch at a size by the fit's law, with a prediction interval.

        Args:
            params: Non-embedding parameters N, e.g. "7B".
            tokens: Token budget D, e.g. "2T". Without a size, the result is of the last curve.

        Raises:
            InputError: If the fit has no law of these variables.
        """
        given = {"params": params, "tokens": tokens}
        sizes = {n: float(as_positive(n, [x])[0]) for n, x in given.items() if x is not None}
        return predict(self.law_of([*sizes]), sizes) if sizes else self.critical[-1]

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a size is outside the curves that have a critical batch."""
        pairs = zip(self.fits, self.critical, strict=True)
        known = [at.curve for at, one in pairs if one.value] or [at.curve for at in self.fits]
        return [
            line
            for name in SIZES
            if name in run
            for line in outside(name, run[name], [getattr(curve, name) for curve in known])
        ]

    def law_of(self, variables: list[str]) -> PowerFit:
        """The law in these variables.

        Raises:
            InputError: the fit has none.
        """
        name = "joint" if len(variables) == 2 else "".join(variables)
        if name not in self.laws:
            why = self.joint_refused if name == "joint" else ""
            why = why or f"no law in {name or 'no variable'}"
            raise InputError(f"fit: {why}; the laws of this fit: {', '.join(self.laws) or 'none'}")
        return self.laws[name]

    def residuals(self) -> pd.DataFrame:
        """A row per curve and batch: measured and fitted steps, residual in log steps.

        Columns model, params, tokens, target_loss, batch, log_batch_over_critical, measured,
        fitted, residual, left_out (the same of a fit without the batch).
        """
        parts = []
        for at in self.fits:
            curve = at.curve
            residual = np.array(at.residuals)
            bend = at.B_crit.value or np.nan
            names = ("model", "params", "tokens", "target_loss", "batch")
            table = {name: getattr(curve, name) for name in names}
            table |= {"log_batch_over_critical": np.log(curve.batch / bend)}
            table |= {"measured": curve.steps, "fitted": curve.steps * np.exp(-residual)}
            table |= {"residual": residual, "left_out": -np.array(at.left_out)}
            parts.append(pd.DataFrame(table))
        return pd.concat(parts, ignore_index=True)
