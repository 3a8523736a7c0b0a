"""The best batch size at equal cost as a value, and its JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np

from bss.cells import number
from bss.errors import InputError
from bss.laws.base import (
    BestBatch,
    Fit,
    Outlier,
    as_positive,
    check_lengths,
    check_positive,
    described,
    deviations,
    notes_of,
    outside,
    run_table,
)
from bss.laws.final_loss.points import Measured
from bss.units import rounded_tokens
from bss.values import Nonnegative, Positive, Range

if TYPE_CHECKING:
    import pandas as pd

UNITS = ("sequences", "tokens")
METHOD = (
    "minimum of a parabola in log B through the lowest loss and its neighbours, losses redrawn; by "
    "law: L_0 + A (S/(1 + B_c/B))^-alpha, refits to redrawn losses"
)
Unknown = Annotated[float, Range(0, inside=True, nan=True)]
Steps = Annotated[np.ndarray, Range(0, inside=True, nan=True)]


@dataclass(frozen=True)
class EqualOptimum:
    """The best batch size of runs of equal cost.

    Attributes:
        cost: e.g. in seconds.
        params: of the model; NaN if the table lacks it.
        best: B_opt by a parabola, in the fit's unit.
        by_law: B_opt by the law of steps, or why there is none.
        lowest: the batch size with the lowest loss.
        batch: [n] ascending, batch sizes.
        loss: [n] in nats.
        error: [n], standard errors of the losses.
        steps: [n], taken in the time; NaN if they are unknown.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    cost: Positive
    params: Unknown
    best: BestBatch = field(metadata={"key": "B_opt"})
    by_law: BestBatch
    lowest: Positive
    batch: Measured
    loss: Measured
    error: Measured
    steps: Steps

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_positive({"B_opt": self.best, "by_law": self.by_law}, where)
        columns = {name: getattr(self, name) for name in ("batch", "loss", "error", "steps")}
        check_lengths(columns, where)
        if (np.diff(self.batch) <= 0).any():
            raise InputError(f"{where}batch is not in order, or has a value twice")


@dataclass(frozen=True, repr=False)
class EqualFit(Fit):
    """The best batch sizes of runs that had equal time, or another equal cost.

    Attributes:
        optima: one per cost, and per model size if the table has several.
        column: of the cost, e.g. "seconds".
        unit: of batch sizes, "sequences" or "tokens".
        loss_noise: standard deviation of a loss, in nats.

    Source: derived here.

    Examples:
        >>> import pandas as pd
        >>> from bss import fit_loss
        >>> rows = [{"batch": b, "seconds": 600, "loss": 3 + np.log(b / 300) ** 2 / 40}
        ...         for b in (64, 128, 256, 512, 1024)]
        >>> round(fit_loss(pd.DataFrame(rows), equal="seconds").best_batch().value)
        300
    """

    KIND = "equal"
    RESIDUAL_UNIT = "nats"

    optima: tuple[EqualOptimum, ...]
    column: str
    unit: str
    loss_noise: Nonnegative
    method: str = field(default=METHOD, kw_only=True)

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        check_lengths({"optima": self.optima}, where)
        if self.unit not in UNITS:
            raise InputError(f"{where}unit is {self.unit!r}; expected {' or '.join(UNITS)}")

    @property
    def RESIDUAL_AXES(self) -> dict[str, str]:  # pyrefly: ignore
        """Columns of `residuals` to plot against, with axis labels."""
        return {"batch": f"batch ({self.unit})", self.column: self.column}

    @property
    def outliers(self) -> tuple[Outlier, ...]:
        """None: each batch size is compared with its neighbours alone."""
        return ()

    @property
    def law_name(self) -> str:
        """The name of the curve, "parabola"."""
        return "parabola"

    @property
    def cv_error(self) -> float | None:
        """None: a parabola through three losses leaves none out."""
        return None

    @property
    def _largest(self) -> EqualOptimum:
        """The largest cost that identifies B_opt, of the largest model."""
        known = [at for at in self.optima if at.best.value is not None] or [*self.optima]
        return max(known, key=lambda at: (at.cost, float(np.nan_to_num(at.params))))

    @property
    def goal(self) -> str:
        """B_opt at the largest cost that identifies it."""
        return f"B_opt@{self._largest.cost:.4g}"

    @property
    def answer(self) -> str:
        """The best batch size at the largest cost, by the parabola and by the law if it has one."""
        at = self._largest
        size = f", N = {rounded_tokens(at.params)}" if np.isfinite(at.params) else ""
        name = f"Best batch at equal {self.column} ({number(at.cost)}{size})"
        method = at.best.method if at.best.value is not None else at.best.status
        line = described(name, at.best, self.unit, f"{method}; lowest loss at {at.lowest:g}")
        if at.by_law.value is None and at.by_law.status != "at_boundary":
            return line
        return line + "; " + described("by the law of steps", at.by_law, self.unit)

    def details(self) -> "dict[str, pd.DataFrame]":
        """Return the losses, and what each batch size costs relative to the lowest loss."""
        return {f"Losses at equal {self.column}": self.residuals()}

    def summary(self) -> "pd.DataFrame":
        """Return one row per cost.

        Columns: the cost, params, B_opt with low and high, lowest (batch size with the lowest
        loss), by_law with by_law_low and by_law_high, status. Batch sizes are in the fit's unit.
        """
        import pandas as pd

        rows = []
        for at in self.optima:
            row: dict[str, float | str | None] = {self.column: at.cost}
            if np.isfinite(at.params):
                row["params"] = at.params
            row |= {"B_opt": at.best.value, "low": at.best.low, "high": at.best.high}
            row |= {"lowest": at.lowest, "by_law": at.by_law.value}
            row |= {"by_law_low": at.by_law.low, "by_law_high": at.by_law.high}
            rows.append(row | {"status": at.best.status})
        return pd.DataFrame(rows)

    def residuals(self) -> "pd.DataFrame":
        """Return one row per batch size and cost.

        Columns: the cost, batch, steps, loss (nats), above (nats above the lowest loss), and its
        interval, low and high.
        """
        import pandas as pd

        parts = []
        for at in self.optima:
            above = at.loss - at.loss.min()
            best = at.error[int(at.loss.argmin())]
            half = deviations(self.level) * np.where(above > 0, np.hypot(at.error, best), 0.0)
            table = {self.column: at.cost, "batch": at.batch, "steps": at.steps, "loss": at.loss}
            parts.append(
                pd.DataFrame(table | {"above": above, "low": above - half, "high": above + half})
            )
        return pd.concat(parts, ignore_index=True)

    def draws_at(self, table: "pd.DataFrame") -> np.ndarray:
        """Return [0, n]: the fit keeps no draws."""
        return np.empty((0, len(table)))

    @property
    def noise(self) -> float:
        """Standard deviation of a loss, in nats."""
        return self.loss_noise

    def predict(
        self, runs: "pd.DataFrame | None" = None, *, batch: Any = None, cost: Any = None
    ) -> "pd.DataFrame":
        """Return losses of runs of a measured cost, linear in log B between batch sizes.

        Args:
            runs: One run per row: batch, and cost if there are several.
            batch: Batch size in the fit's unit, without a table.
            cost: A measured cost, without a table; by default the largest.

        Returns:
            Columns loss, loss_low, loss_high in nats, and note. The interval is of a new run, and
            includes the bend of the losses between batch sizes. Beyond them losses are NaN.

        Raises:
            InputError: If a column is missing, or a value is not a positive number.
        """
        import pandas as pd

        given = {"batch": batch, "cost": cost}
        sizes = run_table(runs, ("batch",), given, optional=("cost",))
        rows = [self._loss_at(**row) for row in sizes.to_dict("records")]
        columns = dict(zip(("loss", "loss_low", "loss_high"), np.array(rows).T, strict=True))
        return pd.DataFrame(columns | {"note": notes_of(self, sizes)}, sizes.index)

    def _loss_at(self, batch: float, cost: float | None = None) -> tuple[float, float, float]:
        """Return the loss at a batch size, and the ends of its interval."""
        at = self._at(cost)
        x = np.log(at.batch)
        here = np.log(batch)
        loss = float(np.interp(here, x, at.loss, np.nan, np.nan))
        inner = int(np.clip(np.searchsorted(x, here) - 1, 0, len(x) - 2))
        near = range(max(inner - 1, 0), min(inner + 1 + 2, len(x)))
        curve = np.polyfit(
            x[[*near]] - here, at.loss[[*near]], 2
        )  # with the bend of its neighbours
        bend = abs(float(curve[-1]) - loss)
        noise = float(np.sqrt(2)) * self.loss_noise  # of a new run, and of those measured
        half = float(np.hypot(deviations(self.level) * noise, bend))
        return loss, loss - half, loss + half

    def _at(self, cost: float | None) -> EqualOptimum:
        """Return the optimum at a cost, or at the largest."""
        if cost is None:
            return self._largest
        return min(self.optima, key=lambda at: abs(np.log(at.cost / cost)))

    def best_batch(self, cost: Any = None) -> BestBatch:
        """Return B_opt at a measured cost, e.g. in seconds; by default at the largest.

        Raises:
            InputError: If the cost is no positive number.
        """
        if cost is None:
            return self._largest.best
        return self._at(float(as_positive("cost", [cost])[0])).best

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside of the costs and batch sizes measured."""
        costs = [at.cost for at in self.optima]
        lines = outside("cost", run["cost"], costs) if "cost" in run else []
        batches = [size for at in self.optima for size in at.batch]
        return lines + (outside("batch", run["batch"], batches) if "batch" in run else [])
