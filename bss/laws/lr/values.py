"""The fitted best learning rates as a value: predictions, residuals and the JSON form."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NoReturn

import numpy as np

from bss.cells import number
from bss.errors import InputError
from bss.laws.base import (
    Estimate,
    Fit,
    Outlier,
    Status,
    check_lengths,
    check_names,
    check_positive,
    described,
    notes_of,
    outside,
    run_table,
)
from bss.laws.final_loss.points import SAME_BUDGET, Measured
from bss.laws.power import PowerFit, predict
from bss.laws.resampling import rms
from bss.units import rounded_tokens
from bss.values import Nonnegative, Positive, Range

if TYPE_CHECKING:
    import pandas as pd

SYMBOLS = {"params": "N", "tokens": "D", "batch": "B"}
UNITS = ("sequences", "tokens")
METHOD = (
    "best LRs: minimum of a parabola through the lowest loss and its neighbours, losses redrawn; "
    "law: least squares with Student's t"
)
Unknown = Annotated[float, Range(0, inside=True, nan=True)]


@dataclass(frozen=True)
class SweepOptimum:
    """The best LR of one sweep over LRs.

    Attributes:
        params, tokens, batch: N, D and B; NaN if the table lacks it.
        best: the best LR with its interval, or why it has no value, with its bounds.
        lower, upper: the LRs next to the one with the lowest loss; None beyond an end.
        lowest: the LR with the lowest loss.
        error: standard deviation of the log of the best LR; NaN without a value.
        status: "ok", "at_boundary", "within_noise" or "single_lr".
        lr, loss: [n], LRs tried, and losses in nats.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    params: Unknown
    tokens: Unknown
    batch: Unknown
    best: Estimate
    lower: Positive | None
    upper: Positive | None
    lowest: Positive
    error: Annotated[float, Range(0, nan=True)]
    status: Status
    lr: Measured
    loss: Measured

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_positive({"best": self.best}, where)
        check_lengths({"lr": self.lr, "loss": self.loss}, where)
        if (self.status == "ok") != (self.best.value is not None):
            raise InputError(f"{where}status is {self.status!r} with the best {self.best.value}")


@dataclass(frozen=True)
class Bend:
    """An exponent that changes over the table, so that one power does not fit.

    Attributes:
        symbol: of the variable, "N", "D" or "B".
        low, high: its smallest and largest value.
        at_low, at_high: the exponent there.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    symbol: str
    low: Positive
    high: Positive
    at_low: Estimate
    at_high: Estimate

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        if self.symbol not in SYMBOLS.values():
            raise InputError(f"{where}symbol is {self.symbol!r}; expected N, D or B")

    def __str__(self) -> str:
        """Return a sentence with the exponents at both ends."""
        ends = [
            f"{number(one.value, 2)} ({number(one.low, 2)} to {number(one.high, 2)}) at "
            f"{rounded_tokens(size)}"
            for size, one in ((self.low, self.at_low), (self.high, self.at_high))
        ]
        return (
            f"one power of {self.symbol} does not fit: its exponent is {ends[0]} and {ends[1]}; "
            "fit a part of the table, or use the best LRs of its rows"
        )


@dataclass(frozen=True, repr=False)
class LrFit(Fit):
    """The best peak LRs of a table, and their law in model size, tokens and batch size.

    Attributes:
        optima: one per sweep, i.e. per params, tokens and batch.
        law: lr = c·N^a·D^b·B^g in the variables that can be separated; None if there is none.
        exponents: by "N", "D" and "B", each with its interval or why it is unidentified.
        bends: variables of which one power does not fit.
        unit: of batch sizes, "sequences" or "tokens".
        seq_len: tokens per sequence; None if it is unknown, or not one.
        loss_noise: standard deviation of a loss, in nats.

    Source: derived here.

    Examples:
        >>> import pandas as pd
        >>> from bss import fit_lr
        >>> rows = [{"params": n, "lr": lr, "loss": 3 + (np.log(lr) + 5 + np.log(n) / 2) ** 2 / 9}
        ...         for n in (1, 4, 16) for lr in (0.001, 0.002, 0.004, 0.008, 0.016)]
        >>> round(fit_lr(pd.DataFrame(rows)).exponents["N"].value, 2)
        -0.5
    """

    KIND = "lr"
    RESIDUAL_UNIT = "log LR"

    optima: tuple[SweepOptimum, ...]
    law: PowerFit | None
    exponents: dict[str, Estimate]
    bends: tuple[Bend, ...]
    unit: str
    seq_len: Positive | None
    loss_noise: Nonnegative
    method: str = field(default=METHOD, kw_only=True)

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        check_lengths({"optima": self.optima}, where)
        check_names(self.exponents, SYMBOLS.values(), f"{where}exponents")
        if self.unit not in UNITS:
            raise InputError(f"{where}unit is {self.unit!r}; expected {' or '.join(UNITS)}")
        if self.law is not None and not {*self.law.variables} <= {*SYMBOLS}:
            raise InputError(f"{where}law is of {', '.join(self.law.variables)}")

    @property
    def RESIDUAL_AXES(self) -> dict[str, str]:  # pyrefly: ignore
        """Columns of `residuals` to plot against, with axis labels."""
        return {"params": "N", "tokens": "D (tokens)", "batch": f"batch ({self.unit})"}

    @property
    def outliers(self) -> tuple[Outlier, ...]:
        """None: a sweep without a best LR is no outlier."""
        return ()

    @property
    def known(self) -> list[SweepOptimum]:
        """The sweeps that have a best LR."""
        return [one for one in self.optima if one.best.value is not None]

    @property
    def misfits(self) -> list[str]:
        """The bends as short remarks, for what is predicted."""
        return [f"one power of {bend.symbol} does not fit" for bend in self.bends]

    @property
    def law_name(self) -> str:
        """The law with its variables, e.g. "lr ∝ N·D"; without one the parabola."""
        if self.law is None:
            return "parabola"
        return f"lr ∝ {'·'.join(SYMBOLS[name] for name in self.law.variables)}"

    @property
    def scatter(self) -> float | None:
        """Root mean square residual of the log of the best LRs; None without a law."""
        return None if self.law is None else rms(self.residuals()["residual"])

    @property
    def cv_error(self) -> float | None:
        """Root mean square error of the log of left-out best LRs by the law; None without one."""
        if self.law is None:
            return None
        left_out = self.residuals()["left_out"].to_numpy(float)
        return rms(left_out) if np.isfinite(left_out).any() else None

    @property
    def answer(self) -> str:
        """The law with its exponents; without one the best LR of the largest size that has one."""
        if self.law is not None:
            parts = [
                f"{symbol}^{_text(one.value)} ({_text(one.low)} to {_text(one.high)})"
                for symbol, one in self.exponents.items()
                if one.value is not None
            ]
            count = f"{len(self.known)} of {len(self.optima)} sweeps"
            rest = number(self.scatter, 2)
            how = f"{self.level:.0%} intervals, {count}, scatter {rest} in log"
            return f"Best LR ∝ {' '.join(parts)} ({how})"
        at = max(self.known or self.optima, key=_size)
        return described(f"Best LR{self._place(at)}", at.best, "").replace(" ,", ",").strip()

    def _place(self, at: SweepOptimum) -> str:
        """Return where a sweep is, e.g. " at N = 350M, D = 10B tokens"."""
        known = {"N": rounded_tokens(at.params)} if np.isfinite(at.params) else {}
        if np.isfinite(at.tokens):
            known["D"] = f"{rounded_tokens(at.tokens)} tokens"
        if np.isfinite(at.batch):
            known["B"] = f"{number(at.batch)} {self.unit}"
        parts = ", ".join(f"{symbol} = {text}" for symbol, text in known.items())
        return f" at {parts}" if parts else ""

    @property
    def goal(self) -> str:
        """The exponent in D, or in N if D does not vary."""
        return "exponent:D" if self.exponents["D"].value is not None else "exponent:N"

    def details(self) -> "dict[str, pd.DataFrame]":
        """Return the exponents."""
        import pandas as pd

        rows = [
            {"power law": f"best LR ∝ {symbol}", "value": one.value, "low": one.low,
             "high": one.high, "note": one.why}
            for symbol, one in self.exponents.items()
        ]  # fmt: skip
        return {"Exponents": pd.DataFrame(rows)}

    def summary(self) -> "pd.DataFrame":
        """Return one row per sweep.

        Columns params, tokens, batch, best_lr with low and high, tried (LRs), lower and upper (the
        LRs next to the lowest loss), by_law (the LR of the law) and status. A size that the table
        lacks has no column.
        """
        import pandas as pd

        fitted = self.residuals()["fitted"].to_numpy(float)
        rows = []
        for one, by_law in zip(self.optima, fitted, strict=True):
            row = {name: getattr(one, name) for name in self._columns}
            row |= {"best_lr": one.best.value, "low": one.best.low, "high": one.best.high}
            row |= {"tried": len(one.lr), "lower": one.lower, "upper": one.upper}
            rows.append(row | {"by_law": by_law, "status": one.status})
        return pd.DataFrame(rows)

    @property
    def _columns(self) -> list[str]:
        """The sizes that the table has."""
        return [n for n in SYMBOLS if np.isfinite([getattr(one, n) for one in self.optima]).all()]

    def residuals(self) -> "pd.DataFrame":
        """Return params, tokens, batch, measured, fitted, residual and left_out of each sweep.

        Residuals are logs of measured minus fitted best LRs; left_out is by a law without the
        sweep. They are NaN without a best LR, or without a law.
        """
        import pandas as pd

        table = {name: [getattr(one, name) for one in self.optima] for name in SYMBOLS}
        measured = np.array([one.best.value or np.nan for one in self.optima])
        fitted = np.full(len(measured), np.nan)
        spare = np.full(len(measured), np.nan)
        if self.law is not None:
            sizes = {name: np.array(table[name]) for name in self.law.variables}
            design = self.law.design(sizes)
            fitted = np.exp(self.law.logs(sizes))
            spare = 1 - np.einsum("ij,jk,ik->i", design, self.law.inverse, design)
        off = np.log(measured / fitted)
        left_out = off / np.where(spare > 0, spare, np.nan)
        table |= {"measured": measured, "fitted": fitted, "residual": off, "left_out": left_out}
        return pd.DataFrame(table)

    def draws_at(self, table: "pd.DataFrame") -> np.ndarray:
        """Return draws [R, n] of logs of best LRs by the law, at the sizes of a table."""
        law = self._needed_law()
        return law.draws({name: table[name].to_numpy(float) for name in law.variables})

    def _needed_law(self) -> PowerFit:
        if self.law is None:
            raise InputError("fit: it has no law of the best LR; fit a table with several sizes")
        return self.law

    def predict(
        self,
        runs: "pd.DataFrame | None" = None,
        *,
        params: Any = None,
        tokens: Any = None,
        batch: Any = None,
    ) -> "pd.DataFrame":
        """Return best peak LRs of runs, with the intervals of LRs that a new sweep would measure.

        Args:
            runs: One run per row: the variables of the law; others are used for the note alone.
            params: Non-embedding parameters, without a table, e.g. "350M".
            tokens: Token budget, without a table, e.g. "30B".
            batch: Batch size in `unit`, without a table.

        Returns:
            Columns lr, lr_low, lr_high, and note. Without a law the LRs are those measured at the
            same sizes.

        Raises:
            InputError: If a variable of the law is missing, a value is not a positive number, or
                there is no law and the sizes were not measured.
        """
        import pandas as pd

        given = {"params": params, "tokens": tokens, "batch": batch}
        needed = self.law.variables if self.law else ()
        sizes = run_table(runs, needed, given, optional=[n for n in SYMBOLS if n not in needed])
        rows = [self.best_lr(**row) for row in sizes.to_dict("records")]
        columns = {"lr": [one.value for one in rows]}
        columns |= {f"lr_{end}": [getattr(one, end) for one in rows] for end in ("low", "high")}
        reasons = ["; ".join(filter(None, (one.why, *self.misfits))) for one in rows]
        notes = notes_of(self, sizes, reasons)
        return pd.DataFrame(columns, sizes.index, dtype=float).assign(note=notes)

    def best_lr(
        self, params: float = np.nan, tokens: float = np.nan, batch: float = np.nan
    ) -> Estimate:
        """Return the best LR at a size, by the law; without a law as it was measured there.

        Args:
            params: N.
            tokens: D.
            batch: B in `unit`.

        Raises:
            InputError: If a variable of the law is missing, or there is no law and the size was not
                measured.
        """
        sizes = {"params": params, "tokens": tokens, "batch": batch}
        if self.law is not None:
            lacking = [name for name in self.law.variables if not np.isfinite(sizes[name])]
            if lacking:
                raise InputError(f"{lacking[0]}: missing; the law of the best LR needs it")
            return predict(self.law, sizes)
        same = [one for one in self.optima if _is_at(one, sizes)]
        if len(same) == 1:
            return same[0].best
        if same:
            raise InputError(
                f"fit: no law, and {len(same)} sweeps are of this size; give params, tokens, batch"
            )
        raise InputError("fit: no law, and no sweep of this size; sweep the LR there")

    def needs(self, name: str) -> bool:
        """Whether the best LR depends on a size, "params", "tokens" or "batch"."""
        if self.law is not None:
            return name in self.law.variables
        return len({getattr(one, name) for one in self.optima}) > 1 and name in self._columns

    def in_unit(self, batch: float) -> float:
        """Return a batch size in sequences in the unit of the fit.

        Raises:
            InputError: If the fit is in tokens and has no sequence length.
        """
        if self.unit == "sequences":
            return batch
        if self.seq_len is None:
            raise InputError(
                "fit: its batch sizes are in tokens of unknown sequences; fit it again with seq_len"
            )
        return batch * self.seq_len

    def best_batch(self, *_: Any, **__: Any) -> NoReturn:
        """Refuse: sweeps over LRs have no best batch size."""
        raise InputError("fit: of best LRs, it has no best batch size; see `bss.fit_loss`")

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside of the sweeps that have a best LR, a line each."""
        known = self.known or [*self.optima]
        lines = []
        for name in self._columns:
            if np.isfinite(run.get(name, np.nan)):
                measured = [getattr(one, name) for one in known]
                lines += outside(name, run[name], measured)
        return lines


def _text(exponent: float | None) -> str:
    return number(exponent, 3)  # three digits: errors of exponents are .01 or more


def _size(one: SweepOptimum) -> tuple[float, float, float]:
    """Return N, D and B, 0 for an unknown one."""
    return (
        float(np.nan_to_num(one.params)),
        float(np.nan_to_num(one.tokens)),
        float(np.nan_to_num(one.batch)),
    )


def _is_at(one: SweepOptimum, sizes: Mapping[str, float]) -> bool:
    """Whether a sweep is of a size, as far as both are known."""
    pairs = [(getattr(one, name), value) for name, value in sizes.items()]
    known = [(own, value) for own, value in pairs if np.isfinite(own) and np.isfinite(value)]
    return all(abs(np.log(own / value)) < SAME_BUDGET for own, value in known)
