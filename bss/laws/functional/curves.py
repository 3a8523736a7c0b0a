"""Several runs as one problem for the law of loss curves, and what they identify by design."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.functional.law import EvalPoints, Segments
from bss.laws.functional.paths import Path, run_path
from bss.points.curve import loss_column
from bss.tables import check_runs
from bss.tables.columns import Origin, numbers
from bss.units import format_tokens

READINGS = 32  # losses kept per run: neighbours of more are correlated and add nothing but cost
LOSSES = 512  # kept of all runs together, at least 8 per run: bounds the cost of a fit
VARIED = 1.2  # ratio of the largest to the smallest value from which a quantity varies


@dataclass(frozen=True)
class Curves:
    """Paths padded to one shape: segments [R, G], points [R, N].

    Attributes:
        runs: names of the R runs.
        seq_len: tokens per sequence.
        segments, points: as the law takes them.
        tokens, loss, weight: [R, N]; weight is 0 for padding.
        measured: number of losses before curves were thinned.
        without_loss: runs that were left out, because they have no loss.
    """

    runs: tuple[str, ...]
    seq_len: int
    segments: Segments
    points: EvalPoints
    tokens: np.ndarray
    loss: np.ndarray
    weight: np.ndarray
    measured: int = 0
    without_loss: tuple[str, ...] = ()

    @property
    def budgets(self) -> np.ndarray:
        """Tokens of each run [R], with those after its last loss."""
        return (self.segments.steps * self.segments.batch).sum(axis=1) * self.seq_len

    @property
    def peak_lrs(self) -> np.ndarray:
        """The highest learning rate of each run [R]."""
        return np.where(self.segments.steps > 0, self.segments.lr, 0.0).max(axis=1)

    @property
    def last(self) -> np.ndarray:
        """Index of the last loss of each run [R]; of a run without one, of its last point."""
        used = self.weight > 0
        known = used & np.isfinite(self.loss)
        known = np.where(known.any(axis=1, keepdims=True), known, used)
        return known.shape[1] - 1 - known[:, ::-1].argmax(axis=1)

    def table(self, **columns: np.ndarray) -> pd.DataFrame:
        """Return one row per loss: its run, and these columns [R, N]."""
        used = self.weight > 0
        names = np.broadcast_to(np.array(self.runs, object)[:, None], used.shape)
        return pd.DataFrame({"run": names[used]} | {n: x[used] for n, x in columns.items()})

    def at_points(self, of_segments: np.ndarray) -> np.ndarray:
        """Return values of segments [R, G] at the evaluation points [R, N]."""
        return np.take_along_axis(of_segments, self.points.segment.astype(int), axis=1)


def curves_of(
    runs: pd.DataFrame, *, warmup: int = 0, since: int = 0, every_row: bool = False
) -> Curves:
    """Return the curves of a run table.

    Args:
        runs: a run table with lr, or peak_lr if it is constant; without either the learning rate
            is 1. The held-out loss is used if there is one, else the training loss. A row without
            a loss gives the schedule alone.
        warmup: tokens of linear warm-up. Losses in it are left out, and losses at which the
            learning rate still rises from the start.
        since: tokens before which losses are left out as well.
        every_row: evaluate every row after step 0, with or without a loss, instead of at most
            READINGS losses per run.

    Raises:
        InputError: if `check_runs` refuses the table, sequence lengths or models are mixed, a
            learning rate is negative or never above 0, or no run has a loss.
    """
    runs = check_runs(runs, need_loss=False)
    for column in ("seq_len", "model", "params"):
        values = list(dict.fromkeys(runs[column].tolist())) if column in runs else []
        if len(values) > 1:
            mixed = ", ".join(str(value) for value in values[:4])
            raise InputError(f"runs: {column} {mixed} are mixed; fit one at a time")
    runs = runs.assign(lr=_learning_rates(runs), loss=runs[loss_column(runs)])
    seq_len, own = int(runs["seq_len"].iloc[0]), runs.groupby("run", sort=False)
    most = None if every_row else max(8, min(READINGS, LOSSES // own.ngroups))
    paths = [run_path(rows, warmup, since, most) for _, rows in own]
    with_loss = [path for path in paths if len(path.at)]
    if not with_loss:
        later = f" and {format_tokens(since)} tokens" if since else ""
        raise InputError(f"runs: no losses after the warm-up{later}; lower them, or evaluate later")
    without = tuple(path.run for path in paths if not len(path.at))
    return replace(stack(with_loss, seq_len), without_loss=without)


def stack(paths: list[Path], seq_len: int) -> Curves:
    """Return paths padded to one shape, in multiples of 8 so that few programs are compiled."""

    def padded(rows: Sequence[np.ndarray], value: float) -> np.ndarray:
        width = -(-max(map(len, rows)) // 8) * 8
        return np.array([np.pad(a, (0, width - len(a)), constant_values=value) for a in rows])

    def of(name: str, value: float) -> np.ndarray:
        return padded([getattr(path, name) for path in paths], value)

    segment, fraction = zip(*map(_located, paths), strict=True)
    return Curves(
        runs=tuple(p.run for p in paths),
        seq_len=seq_len,
        segments=Segments(of("steps", 0.0), of("lr", 1.0), of("batch", 1.0)),
        points=EvalPoints(padded(segment, 0.0), padded(fraction, 1.0)),
        tokens=of("tokens", np.nan),
        loss=of("loss", 1.0),
        weight=padded([np.ones(len(p.at)) for p in paths], 0.0),
        measured=sum(p.measured for p in paths),
    )


def unidentified_by_design(curves: Curves) -> dict[str, str]:
    """Return the parameters that these runs cannot identify, whatever their losses, and why.

    If η/B of a run never changes after its first loss, slowly forgotten noise is not
    distinguishable from noise that is forgotten at once with a slower signal. A run with fewer than
    three losses is compared with other runs, so its whole path after the warm-up is used (derived
    here).
    """
    steps, lr, batch = curves.segments
    used = steps > 0
    reasons = {}
    log_lr, log_batch = np.log(np.maximum(lr, 1e-12)), np.log(batch)
    constant = _spread(log_batch[used]) < VARIED
    if constant:
        reasons["m"] = "unidentified: one batch"
    # A learning rate near 0, at the end of a decay, hardly constrains the exponent.
    steady = used & (log_lr > log_lr[used].max() - 5)
    if _spread(log_lr[steady]) < VARIED:
        reasons["p"] = "unidentified: one learning rate"
    elif not constant and abs(np.corrcoef(log_lr[steady], log_batch[steady])[0, 1]) > 0.99:
        reasons["p"] = "unidentified: the LR changes only with the batch"
    if len(np.unique(batch[used])) < 3 or _spread(log_batch[used]) < 4:
        reasons["B_phi"] = "unidentified: fewer than three batches over a factor of four"
    peak = np.where(used, lr, 0.0).argmax(axis=1)
    few = curves.weight.sum(axis=1) < 3
    first = curves.points.segment[:, 0]
    first = np.where(few, np.minimum(peak, first), first)
    seen = used & (np.arange(steps.shape[1]) >= first[:, None])
    ratios = zip(log_lr - log_batch, seen, strict=True)
    if max(_spread(ratio[after]) for ratio, after in ratios) < VARIED:
        why = "unidentified: no run changes its batch or its LR after its first loss"
        if few.any():
            why += "; for runs with fewer than three losses, add rows with the earlier schedule"
        reasons |= dict.fromkeys(("c_K", "q", "A_1"), why)
    return reasons


def _spread(logs: np.ndarray) -> float:
    return float(np.exp(np.ptp(logs))) if logs.size else 1.0


def _learning_rates(runs: pd.DataFrame) -> np.ndarray:
    column, origin = next((n for n in ("lr", "peak_lr") if n in runs), None), Origin("runs")
    if column is None:
        return np.ones(len(runs))
    rates = numbers(runs, column, origin)
    for i in np.flatnonzero(rates < 0)[:1]:
        origin.refuse(i, f"{column} is {rates[i]}; write an LR of 0 or more")
    return rates


def _located(path: Path) -> tuple[np.ndarray, np.ndarray]:
    """Return the segment of each loss [N], and the fraction of the segment before it."""
    ends = np.cumsum(path.steps)
    segment = np.minimum(np.searchsorted(ends, path.at * (1 - 1e-12)), len(ends) - 1)
    fraction = 1 - (ends[segment] - path.at) / path.steps[segment]
    return segment.astype(float), np.clip(fraction, 0.0, 1.0)
