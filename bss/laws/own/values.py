"""A user's law as a fitted value: predictions, residuals and the JSON form.

The interval of a new run adds two parts in quadrature (derived here): the spread of the refits, and
the error of log y by Student's t. That is the error at what was left out, or else of the fit.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from bss.errors import InputError
from bss.laws.base import (
    Estimate,
    Fit,
    Outlier,
    check_lengths,
    check_names,
    check_status,
    described,
    notes_of,
    outside,
    run_table,
    tails,
)
from bss.laws.own.law import OwnLaw
from bss.laws.resampling import RunEffects, rms
from bss.values import Finite, Nonnegative

METHOD = "parametric bootstrap, an error of each unit of replication and independent noise"
OF_ROWS = ("fitted", "left_out")


@dataclass(frozen=True, repr=False)
class OwnFit(Fit):
    """A law of a user's own, fitted to a table.

    Attributes:
        law: what was fitted.
        values: the fitted parameters by name, also those that are unidentified.
        parameters: each with its interval, or why it has no value.
        status: "converged" or "not converged".
        rmse: root mean square error of log y.
        rows: columns run, fitted, left_out, and the columns of the law. left_out is the residual of
            log y by a fit without the fold; NaN without folds.
        draws: refits of the parameters.
        scatter: run effects of the residuals.
        outliers: rows far from what a fit without them predicts.

    Examples:
        >>> import bss
        >>> class Power(OwnLaw):
        ...     formula, measured, columns = "y = A·N^a", "y", ("params",)
        ...     parameters = (bss.Parameter("A", 0.1, 10.0), bss.Parameter("a", 0.0, 2.0))
        ...     def value(self, p, x):
        ...         return p.A * x["params"] ** p.a
        >>> rows = pd.DataFrame({"params": [1.0, 2.0, 4.0, 8.0], "y": [3.0, 4.2, 6.1, 8.4]})
        >>> fit = bss.fit_own(rows, Power("power"), resamples=20)
        >>> type(fit).__name__, fit.status
        ('OwnFit', 'converged')
        >>> fit.predict(params=2.0)["y"].round(1).tolist()
        [4.2]
    """

    KIND = "own"
    may_lack = ("constraints",)
    RESIDUAL_AXES: ClassVar = {"fitted": "fitted"}

    law: OwnLaw
    values: dict[str, Finite]
    parameters: dict[str, Estimate]
    status: str
    rmse: Nonnegative
    rows: dict[str, tuple[float | str, ...]] = field(metadata={"key": "residuals"})
    draws: dict[str, tuple[float, ...]]
    scatter: RunEffects
    outliers: tuple[Outlier, ...] = ()
    method: str = field(default=METHOD, kw_only=True)

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        check_status(self.status, where)
        for name, some in (("values", self.values), ("parameters", self.parameters)):
            check_names(some, self.law.names, f"{where}{name}")
        check_names(self.draws, self.law.names, f"{where}draws")
        check_lengths(self.draws, f"{where}draws.")
        names = ("run", *self.law.columns, self.law.measured, *OF_ROWS)
        check_names(self.rows, names, f"{where}residuals")
        check_lengths(self.rows, f"{where}residuals.")
        for name in (*self.law.columns, self.law.measured, "fitted"):
            if not all(isinstance(x, int | float) and 0 < x < np.inf for x in self.rows[name]):
                raise InputError(f"{where}residuals.{name} has a value that is not above 0")

    @property
    def RESIDUAL_UNIT(self) -> str:  # pyrefly: ignore
        """The unit of residuals."""
        return f"log {self.law.measured}"

    @property
    def law_name(self) -> str:
        """The name of the law."""
        return self.law.name

    @property
    def cv_error(self) -> float | None:
        """Root mean square error of log y at what was left out; None with nothing to leave out."""
        errors = np.array(self.rows["left_out"], float)
        return rms(errors) if np.isfinite(errors).any() else None

    @property
    def answer(self) -> str:
        """The first parameter of the law, and the error at what was left out."""
        name = self.law.names[0]
        line = described(name, self.parameters[name], "", self.law.formula).replace(" ,", ",")
        error = self.cv_error
        if error is None:
            return f"{line}; rms error {self.rmse:.2%}"
        return f"{line}; CV error {error:.2%}"

    @property
    def goal(self) -> str:
        """The first parameter of the law."""
        return self.law.names[0]

    @property
    def error(self) -> float:
        """Standard deviation of log y of a new row about the law."""
        scatter = float(np.hypot(self.scatter.offset, self.scatter.noise))
        return max(scatter, self.cv_error or 0.0)

    def draws_at(self, table: pd.DataFrame) -> np.ndarray:
        """Return draws [R, n] of log y at the columns of a table."""
        own = {name: np.array(x)[:, None] for name, x in self.draws.items()}
        columns = {name: table[name].to_numpy(float)[None] for name in self.law.columns}
        return self.law.logs(own, columns)

    def details(self) -> dict[str, pd.DataFrame]:
        """Return the errors of the fit and at what was left out."""
        errors = {"fitted": self.rmse, f"left out by {self.law.folds_by}": self.cv_error}
        table = pd.DataFrame({"rows": [*errors], f"rms error of log {self.law.measured}": [
            *errors.values()]})  # fmt: skip
        return {"Errors": table}

    def summary(self) -> pd.DataFrame:
        """Return a row per parameter: parameter, value, low, high, note."""
        rows = [
            {"parameter": name, "value": one.value, "low": one.low, "high": one.high}
            | {"note": one.note}
            for name, one in self.parameters.items()
        ]
        return pd.DataFrame(rows)

    def predict(self, runs: pd.DataFrame | None = None, **given: Any) -> pd.DataFrame:
        """Return y of new runs, with the ends of their intervals.

        Args:
            runs: One run per row, with the columns of the law.
            **given: The same by name, without a table.

        Returns:
            Columns of y, its _low and _high, and note.

        Raises:
            InputError: If a column is missing or unknown, or a value is not positive.
        """
        for name in given:
            if name not in self.law.columns:
                known = ", ".join(self.law.columns)
                raise InputError(f"{name}: not in the law {self.law.name}; give {known}")
        sizes = run_table(runs, self.law.columns, given)
        columns = {name: sizes[name].to_numpy(float) for name in self.law.columns}
        log_y = self.law.logs(self.values, columns)
        spread = np.nanquantile(self.draws_at(sizes) - log_y, tails(self.level), axis=0)
        freedom = max(self.scatter.offset_dof, 1.0)
        noise = stdtrit(freedom, (1 + self.level) / 2) * self.error
        below = np.hypot(np.minimum(spread[0], 0), noise)
        above = np.hypot(np.maximum(spread[1], 0), noise)
        name = self.law.measured
        found = {name: log_y, f"{name}_low": log_y - below, f"{name}_high": log_y + above}
        table = pd.DataFrame({key: np.exp(x) for key, x in found.items()}, sizes.index)
        return table.assign(note=notes_of(self, sizes))

    def best_batch(self) -> Estimate:
        """Return that a law of a user's own has no best batch size."""
        return Estimate(None, level=self.level, note="unidentified: the law states no best batch")

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside the rows of the fit."""
        return [
            line
            for name in self.law.columns
            if name in run
            for line in outside(name, run[name], self.rows[name])  # type: ignore[arg-type]
        ]

    def residuals(self) -> pd.DataFrame:
        """Return a row per row fitted: run, the columns, measured, fitted, residual, left_out.

        Residuals are measured minus fitted, in log y. left_out is by a fit without the fold.
        """
        table = pd.DataFrame(self.rows).rename(columns={self.law.measured: "measured"})
        ratio = table["measured"].astype(float) / table["fitted"].astype(float)
        return table.assign(residual=np.log(ratio))
