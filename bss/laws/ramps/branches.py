"""Branches with a larger batch from checkpoints of a run: what they cost, and from when on little.

A branch starts from a checkpoint of a run, the trunk. It trains for a number of tokens at the batch
size of the trunk, or at a larger one. The penalty of a batch size is the loss at it minus the loss
at the trunk's, at equal tokens (Merrill et al., arXiv 2505.23971). The batch may grow where the
penalty passes a tolerance for the last time (derived here).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.laws.base import UNIDENTIFIED, Estimate, Fit, Options, check_lengths, outside, tails
from bss.laws.ramps.smooth import DRAWS, LEAST_POINTS, SmoothCurve, last_crossings, smooth
from bss.points.conditions import refuse_mixed_rows
from bss.points.copies import copied_rows
from bss.points.divergence import FAR, left_out, marked_diverged
from bss.points.groups import SEED_NOISE
from bss.tables.columns import Origin, as_numbers, counts, need, numbers, renamed
from bss.units import rounded_tokens
from bss.values import Count, Finite, Positive

TOLERANCE = 0.02
"""Nats that a larger batch may cost: the spread of several seeds of small models."""
ROUNDING = 1e-6  # of a step, so that a whole number of steps stays one
DIGITS = 4  # of a position, which tell apart checkpoints of one run
SHOWN = 4  # of names in a warning
MODELS = ("model", "architecture", "arch")
SLACK = 1e-3  # of the tokens of a branch: the last step of one of them
COLUMNS = (("fork", "fork_step"), ("batch", "batch_tokens"), "loss", "tokens")
NAMES = {
    "fork": ("fork_tokens", "checkpoint", "checkpoint_tokens", "branch_tokens", "parent_tokens"),
    "fork_step": ("checkpoint_step", "branch_step", "parent_step"),
    "batch": ("batch_size", "global_batch_size", "gbs"),
    "loss": ("eval_loss", "val_loss", "validation_loss", "final_loss"),
    "tokens": ("end_tokens", "tokens_seen", "total_tokens"),
    "seq_len": ("sequence_length", "context_length", "block_size", "seqlen"),
}
"""Other names of the columns, where a table has none of ours."""
SCOPE = (
    "a penalty applies to the parameters that step at the larger batch; in a published diagnostic "
    "of 124M parameters (128K against 2M tokens) only the hidden matrices do, and the batch of a "
    "whole model may have to grow later"
)
"""What a table of branches does not show."""


@dataclass(frozen=True)
class GrownBatch:
    """A batch size above the trunk's, and when it costs at most the tolerance.

    Attributes:
        batch: in sequences.
        factor: its ratio to the trunk's.
        tokens: position from which on the penalty is within the tolerance, or why it is unknown.
        first_penalty, last_penalty: measured at the first and the last checkpoint, in nats.
        checkpoints: number of checkpoints with this batch size.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    batch: Positive
    factor: Positive
    tokens: Estimate
    first_penalty: Finite
    last_penalty: Finite
    checkpoints: Count

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        if self.factor <= 1:
            raise InputError(f"{where}factor is {self.factor:g}; expected a number above 1")


@dataclass(frozen=True, kw_only=True, repr=False)
class BranchFit(Fit):
    """The penalties of larger batch sizes along a run.

    Attributes:
        seq_len: tokens per sequence; None if the table has none.
        trunk_batch: batch size of the trunk, in sequences.
        tolerance: penalty that is allowed, in nats.
        grown: the larger batch sizes, ascending.
        rows: columns of the penalties: fork (tokens), batch, factor, penalty (nats).
        seed: of the draws.

    Examples:
        >>> rows = [{"fork": at * 10**8, "batch": b, "seq_len": 64, "tokens": at * 10**8 + 10**7,
        ...          "loss": 3 + (b - 8) * 0.01 / at} for at in range(1, 9) for b in (8, 16)]
        >>> fit = fit_branches(pd.DataFrame(rows))
        >>> round(fit.grown[0].tokens.value / 1e8, 3)
        4.0
    """

    KIND: ClassVar[str] = "branches"
    RESIDUAL_UNIT: ClassVar[str] = "nats"
    RESIDUAL_AXES: ClassVar[dict[str, str]] = {"fork": "tokens at the checkpoint"}

    seq_len: Positive | None
    trunk_batch: Positive
    tolerance: Positive
    grown: tuple[GrownBatch, ...]
    rows: dict[str, tuple[Finite, ...]]
    seed: Count = 0

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_lengths(self.rows, f"{where}rows.")

    @property
    def batches(self) -> tuple[float, ...]:
        """All batch sizes, the trunk's first."""
        return (self.trunk_batch, *(one.batch for one in self.grown))

    @property
    def outliers(self) -> tuple[()]:
        """None are looked for."""
        return ()

    @property
    def cv_error(self) -> None:
        """None, as no law predicts a left-out checkpoint."""
        return None

    @property
    def goal(self) -> str:
        """The quantity in the answer."""
        return "position of the switch"

    @property
    def answer(self) -> str:
        """When each larger batch size costs at most the tolerance."""
        texts = []
        for one in self.grown:
            name = f"batch {one.batch:g} ({one.factor:g} times the trunk's)"
            fall = f"its penalty goes from {one.first_penalty:.4f} to {one.last_penalty:.4f} nats"
            texts.append(f"{name} costs at most {self.tolerance:g} nats {self._when(one)}; {fall}")
        return "\n".join(texts)

    def _when(self, one: GrownBatch) -> str:
        at = one.tokens
        if at.value is None:
            low = "" if at.low is None else f", not before {rounded_tokens(at.low)} tokens"
            return f"from no known position on ({at.why}{low})"
        if at.value == 0:
            return "from the first checkpoint on"
        step = self.trunk_step(at.value)
        steps = "" if step is None else f" (step {step:,} of the trunk)"
        ends = " to ".join(rounded_tokens(end or 0) for end in (at.low, at.high))
        start = rounded_tokens(at.value, DIGITS)
        return f"from {start} tokens on{steps}, {at.level:.0%} interval {ends}"

    def trunk_step(self, tokens: float | None) -> int | None:
        """Return the first step of the trunk at or after a position; None if it is unknown."""
        if tokens is None or self.seq_len is None:
            return None
        return math.ceil(tokens / (self.trunk_batch * self.seq_len) - ROUNDING)

    def penalties(self) -> pd.DataFrame:
        """Return the penalty of each checkpoint and batch size: fork, batch, factor, penalty."""
        return pd.DataFrame({name: list(column) for name, column in self.rows.items()})

    def details(self) -> dict[str, pd.DataFrame]:
        """Return the penalties, a row per checkpoint and batch size."""
        frame = self.penalties()
        if self.seq_len is not None:
            frame.insert(1, "step", [self.trunk_step(fork) for fork in frame["fork"]])
        frame["fork"] = frame["fork"].astype(int)
        return {"penalty at each checkpoint, in nats": frame}

    def summary(self) -> pd.DataFrame:
        """Return a row per larger batch size: its position with interval, in tokens and steps."""
        rows = []
        for one in self.grown:
            at = one.tokens
            row: dict[str, Any] = {"batch": one.batch, "factor": one.factor}
            row |= {"tokens": at.value, "tokens_low": at.low, "tokens_high": at.high}
            for name in ("tokens", "tokens_low", "tokens_high"):
                row[name.replace("tokens", "step")] = self.trunk_step(row[name])
            row |= {"checkpoints": one.checkpoints, "note": at.why}
            rows.append(row)
        return pd.DataFrame(rows)

    @cached_property
    def _curves(self) -> dict[float, SmoothCurve]:
        """The smooth curve of each batch size with enough checkpoints."""
        table = self.penalties()
        curves: dict[float, SmoothCurve] = {}
        for one in self.grown:
            here = table.loc[table["batch"] == one.batch]
            if len(here) >= LEAST_POINTS:
                points = (here["fork"].to_numpy(float), here["penalty"].to_numpy(float))
                curves[one.batch] = smooth(*points, self.resamples, self.seed, bins=0)
        return curves

    @property
    def smooth_batches(self) -> tuple[float, ...]:
        """The batch sizes with checkpoints enough for a smooth penalty."""
        return tuple(self._curves)

    def curve(self, batch: float) -> SmoothCurve:
        """Return the smooth penalty of a larger batch size over tokens.

        Raises:
            InputError: If the batch size is unknown, or has too few checkpoints.
        """
        if batch not in self._curves:
            known = ", ".join(f"{one:g}" for one in self._curves) or "none"
            raise InputError(f"batch: {batch:g} has no smooth penalty; choose one of {known}")
        return self._curves[batch]

    def within(self, tolerance: float) -> "BranchFit":
        """Return the fit at another tolerance, in nats."""
        check(0 < tolerance < math.inf, "tolerance", tolerance, "nats above 0, e.g. 0.02")
        fit = replace(self, tolerance=tolerance)
        grown = [replace(one, tokens=fit.position(one.batch)) for one in self.grown]
        return replace(fit, grown=tuple(grown))

    def position(self, batch: float) -> Estimate:
        """Return from when on a batch size costs at most the tolerance, in tokens.

        The value is on the measured penalties, linear between checkpoints, if it lies in the
        interval, which is of the smooth curve.
        """
        if batch not in self._curves:
            why = f"too few checkpoints; measure {LEAST_POINTS} or more"
            return Estimate(None, level=self.level, note=f"{UNIDENTIFIED}{why}")
        smoothed = self._curves[batch].last_crossing(
            self.tolerance, rising=False, coverage=self.level
        )
        if smoothed.value is None:
            return smoothed
        table = self.penalties()
        here = table.loc[table["batch"] == batch].groupby("fork")["penalty"].mean()
        within = self.tolerance - here.to_numpy()[None]
        measured = float(last_crossings(here.index.to_numpy(float), within, in_log=False)[0])
        low = smoothed.low or 0.0
        high = smoothed.high or math.inf
        return replace(smoothed, value=measured) if low <= measured <= high else smoothed

    def predict(self, *args: Any, **kwargs: Any) -> pd.DataFrame:
        """Return the smooth penalty of batch sizes at positions, with intervals.

        Args:
            *args: A table with columns tokens and batch.
            **kwargs: The same by name.
        """
        table = (
            args[0]
            if args
            else pd.DataFrame({name: np.atleast_1d(x) for name, x in kwargs.items()})
        )
        rows = []
        for tokens, batch in zip(table["tokens"], table["batch"], strict=True):
            curve = self.curve(float(batch))
            x = math.log(float(tokens))
            log = np.log(curve.tokens)
            draws = np.array([np.interp(x, log, draw) for draw in curve.draws])
            low, high = np.quantile(draws, tails(self.level))
            row = {"penalty": float(np.interp(x, log, curve.values)), "penalty_low": low}
            note = "; ".join(self.untested({"tokens": tokens}))
            rows.append({**row, "penalty_high": high, "note": note})
        return pd.DataFrame(rows, table.index)

    def best_batch(self, tokens: float) -> Estimate:
        """Return the largest batch size that costs at most the tolerance at a position."""
        sizes = {"low": self.trunk_batch, "value": self.trunk_batch, "high": self.trunk_batch}
        for one in self.grown:
            ends = {"low": one.tokens.high, "value": one.tokens.value, "high": one.tokens.low}
            for name, end in ends.items():
                if end is not None and end <= tokens:
                    sizes[name] = one.batch
        return Estimate(sizes["value"], sizes["low"], max(sizes.values()), self.level)

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside of the checkpoints and the batch sizes measured."""
        found = []
        if "tokens" in run:
            found += outside("tokens", run["tokens"], self.rows["fork"])
        if "batch" in run:
            found += outside("batch", run["batch"], self.batches)
        return found

    def draws_at(self, table: pd.DataFrame) -> np.ndarray:
        """Return no draws: a position is not a run that could be measured next."""
        return np.empty((0, len(table)))

    def residuals(self) -> pd.DataFrame:
        """Return a row per penalty: measured, smooth, and their difference, in nats."""
        table = self.penalties().rename(columns={"penalty": "measured"})
        fitted = []
        for fork, batch in zip(table["fork"], table["batch"], strict=True):
            curve = self._curves.get(batch)
            known = curve is not None
            fitted.append(
                np.interp(math.log(fork), np.log(curve.tokens), curve.values) if known else math.nan
            )
        return table.assign(fitted=fitted, residual=table["measured"] - fitted)


def fit_branches(
    table: pd.DataFrame,
    *,
    tolerance: float = TOLERANCE,
    options: Options | None = None,
    source: str | Origin = "branches",
) -> BranchFit:
    """Fit the penalties of branches; see `bss.fit_branches`.

    Args:
        table: One row per branch, or loss curves of branches: fork (tokens at the checkpoint),
            batch (sequences), loss (nats), tokens at its end, and seq_len.
        tolerance: Penalty that is allowed, in nats.
        options: Of the intervals.
        source: Name of the table in errors.

    Raises:
        InputError: If a column is missing, or no checkpoint has two batch sizes.
    """
    options = options or Options(resamples=DRAWS)
    check(0 < tolerance < math.inf, "tolerance", tolerance, "nats above 0, e.g. 0.02")
    origin = source if isinstance(source, Origin) else Origin(source)
    ends, left = _independent(_ends(table, origin))
    trunk = float(ends["batch"].min())
    rows, reasons = _penalties(ends, trunk, origin)
    seq_len = float(ends["seq_len"].iloc[0]) if "seq_len" in ends else None
    fit = BranchFit(
        seq_len=seq_len,
        trunk_batch=trunk,
        tolerance=tolerance,
        grown=(),
        rows={name: tuple(rows[name].astype(float)) for name in rows},
        seed=options.seed,
        level=options.level,
        resamples=options.resamples,
        method="draws of a smoothing spline over log tokens",
        warnings=(*left, *reasons, SCOPE),
    )
    grown = []
    for batch, here in rows.groupby("batch"):
        first = float(here["penalty"].iloc[0])
        last = float(here["penalty"].iloc[-1])
        unknown = Estimate(None, note=f"{UNIDENTIFIED}not computed")
        grown.append(
            GrownBatch(float(batch), float(batch) / trunk, unknown, first, last, len(here))
        )
    return replace(fit, grown=tuple(grown)).within(tolerance)


def holds_branches(table: pd.DataFrame) -> bool:
    """Return whether a table has branches from checkpoints."""
    names = renamed(table, NAMES)
    return "fork" in names or "fork_step" in names


def _ends(table: pd.DataFrame, origin: Origin) -> pd.DataFrame:
    """Return the last row of each branch, checked: fork, batch, loss, tokens and seq_len."""
    table = renamed(table, NAMES)
    need(table, origin, *COLUMNS)
    if table.empty:
        raise InputError(f"{origin.source}: has no rows; write at least one")
    table = _with_forks(_with_batches(table, origin), origin)
    known = table.loc[table["fork"].notna()].reset_index(drop=True)  # the trunk has no fork
    known = known.assign(loss=known["loss"].replace(np.inf, np.nan))  # such a run diverged
    if known.empty:
        raise InputError(f"{origin.source}: no row has a fork, the tokens at its checkpoint")
    frame = pd.DataFrame(
        {
            "fork": counts(known, "fork", origin),
            "batch": counts(known, "batch", origin),
            "tokens": counts(known, "tokens", origin),
            "loss": numbers(known, "loss", origin, missing_ok=True),
        }
    )
    if "seq_len" in known:
        lengths = np.unique(as_numbers(known["seq_len"]))
        if len(lengths) != 1:
            shown = ", ".join(f"{length:g}" for length in lengths[:SHOWN])
            raise InputError(f"{origin.source}: seq_len {shown} are mixed; fit one at a time")
        frame["seq_len"] = int(lengths[0])
    for i in np.flatnonzero(frame["tokens"] < frame["fork"])[:1]:
        origin.refuse(i, f"tokens is {frame['tokens'][i]}, before the fork at {frame['fork'][i]}")
    others = known.drop(columns=[name for name in known if name in frame])
    frame = frame.join(others)
    if "run" in frame:
        frame["run"] = frame["run"].astype(str)
        frame = frame.sort_values("tokens", kind="stable")
        frame = frame.groupby(["fork", "batch", "run"], sort=False).tail(1)
    return frame.sort_values(["fork", "batch"]).reset_index(drop=True)


def _independent(ends: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return the branches that count, and what was left out: diverged ones and copies.

    Raises:
        InputError: If branches of one checkpoint and batch size are of several conditions.
    """
    losses = ends["loss"].to_numpy(float)
    lowest = ends["loss"].groupby([ends["fork"], ends["batch"]]).transform("min")
    lost = marked_diverged(ends) | ~(losses <= lowest.to_numpy(float) + FAR)
    left = []
    kept = ends
    if lost.any() and not lost.all():
        names = ends["run"] if "run" in ends else ends.index.astype(str)
        left = [left_out([*names[lost]])]
        kept = ends.loc[~lost].reset_index(drop=True)
    noise = SEED_NOISE / kept["loss"].to_numpy(float)
    copies, told = copied_rows(kept, ["fork", "batch", "tokens"], "loss", noise)
    kept = kept.loc[~copies].reset_index(drop=True)
    refuse_mixed_rows(kept, ["fork", "batch"], "loss", 1.0, MODELS)
    return kept, [*left, *told]


def _with_batches(table: pd.DataFrame, origin: Origin) -> pd.DataFrame:
    """Return a table with batch sizes in sequences; of one token, if their length is unknown."""
    if "batch" in table:
        return table
    size = counts(table, "batch_tokens", origin)
    if "seq_len" not in table:
        return table.assign(batch=size, seq_len=1)
    length = counts(table, "seq_len", origin)
    return table.assign(batch=size // length)


def _with_forks(table: pd.DataFrame, origin: Origin) -> pd.DataFrame:
    """Return a table with the checkpoints in tokens, also if they are in steps of the trunk."""
    if "fork" in table:
        return table
    if "seq_len" not in table:
        raise InputError(f"{origin.source}: fork_step needs the tokens of a step; give --seq-len")
    size = counts(table, "batch", origin).min() * counts(table, "seq_len", origin).min()
    return table.assign(fork=as_numbers(table["fork_step"]) * size)


def _penalties(ends: pd.DataFrame, trunk: float, origin: Origin) -> tuple[pd.DataFrame, list[str]]:
    """Return fork, batch, factor and penalty of each pair at equal tokens, and what is left out."""
    rows: list[dict[str, float]] = []
    reasons: dict[str, list[str]] = {}
    for fork, here in ends.groupby("fork"):
        name = rounded_tokens(float(fork))
        base = here.loc[(here["batch"] == trunk) & np.isfinite(here["loss"])]
        if base.empty:
            reasons.setdefault(f"no branch at the trunk's batch {trunk:g}", []).append(name)
            continue
        end = float(base["tokens"].mean())
        for batch, grown in here.loc[here["batch"] > trunk].groupby("batch"):
            size = float(batch) * float(here["seq_len"].iloc[0] if "seq_len" in here else 1)
            slack = max(size, SLACK * (end - float(fork)))
            equal = (grown["tokens"] - end).abs() <= slack
            used = grown.loc[equal & np.isfinite(grown["loss"])]
            if used.empty:
                why = f"batch {batch:g} ends at other tokens than the trunk's batch, or has no loss"
                reasons.setdefault(why, []).append(name)
                continue
            penalty = float(used["loss"].mean() - base["loss"].mean())
            row = {"fork": float(fork), "batch": float(batch), "factor": float(batch) / trunk}
            rows.append({**row, "penalty": penalty})
    if not rows:
        why = "; ".join(reasons) or f"all rows have batch {trunk:g}"
        raise InputError(
            f"{origin.source}: no checkpoint has branches at two batch sizes ({why}); train one at "
            "the trunk's batch and one at a larger batch, for the same tokens"
        )
    texts = [
        f"left out: forks at {', '.join(names[:SHOWN])}: {why}" for why, names in reasons.items()
    ]
    return pd.DataFrame(rows), texts
