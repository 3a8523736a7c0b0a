"""Several runs as one problem for the law of loss curves, and what they can identify by design."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.functional.law import Pieces, Readings
from bss.laws.functional.paths import READINGS, Path, run_path
from bss.tables import check_runs, loss_column
from bss.units import format_tokens

PADDING = 8  # few shapes make few programs to compile
LOSSES = 512  # read of all runs together, unless they are very many
FEWEST = 8  # of a run then
TELLING = 3  # losses of a run within which noise is seen to be forgotten
VARIED = 1.2  # a range that counts as a variation: (largest / smallest)


@dataclass(frozen=True)
class Curves:
    """Paths padded to one shape: pieces [R, G], readings [R, N]; weight 0 where a loss is padding.

    Attributes:
        runs: names of the R runs.
        seq_len: tokens per sequence.
        pieces, readings: as the law takes them.
        tokens, loss, weight: [R, N].
        measured: how many losses there were before curves were thinned.
        silent: runs that were left out, because they have no loss to read.
    """

    runs: tuple[str, ...]
    seq_len: int
    pieces: Pieces
    readings: Readings
    tokens: np.ndarray
    loss: np.ndarray
    weight: np.ndarray
    measured: int = 0
    silent: tuple[str, ...] = ()

    def table(self, used: np.ndarray, **columns: np.ndarray) -> pd.DataFrame:
        """A row for each place that is used, [R, N]: its run and these columns there."""
        names = np.broadcast_to(np.array(self.runs, object)[:, None], used.shape)
        return pd.DataFrame({"run": names[used]} | {n: x[used] for n, x in columns.items()})


def curves_of(runs: pd.DataFrame, *, warmup: int = 0, since: int = 0, ends: bool = False) -> Curves:
    """The curves of a run table.

    Args:
        runs: a run table, with lr, or peak_lr where it is constant; a table without either is taken
            to have one rate, 1. The held-out loss is read where there is one, else the training
            loss; a row without a loss has the schedule alone, a run may have one loss or none.
        warmup: tokens of linear warm-up. Losses in it are left out, as those are at which the rate
            is seen to rise from the start.
        since: tokens before which losses are left out as well.
        ends: read the last loss of each run alone; at the end, NaN, of a run that has none.

    Raises:
        InputError: `check_runs` refuses the table, sequence lengths or models are mixed, a rate is
            negative or never above 0, or no run has a loss to read.
    """
    runs = check_runs(runs, need_loss=False)
    for column in ("seq_len", "model", "params"):
        values = list(dict.fromkeys(runs[column].tolist())) if column in runs else []
        if len(values) > 1:
            mixed = ", ".join(str(value) for value in values[:4])
            raise InputError(f"runs: {column} {mixed} are mixed; fit one at a time")
    runs = runs.assign(lr=_rates(runs), loss=runs[loss_column(runs)])
    seq_len, own = int(runs["seq_len"].iloc[0]), runs.groupby("run", sort=False)
    each = max(FEWEST, min(READINGS, LOSSES // own.ngroups))
    paths = [run_path(rows, warmup, since, last=ends, readings=each) for _, rows in own]
    heard = [path for path in paths if len(path.at)]
    if not heard:
        later = f" and {format_tokens(since)} tokens" if since else ""
        raise InputError(f"runs: no losses after the warm-up{later}; lower them, or evaluate later")
    silent = tuple(path.run for path in paths if not len(path.at))
    return replace(stack(heard, seq_len), silent=silent)


def stack(paths: list[Path], seq_len: int) -> Curves:
    """Paths padded to one shape."""

    def padded(rows: Sequence[np.ndarray], value: float) -> np.ndarray:
        width = -(-max(map(len, rows)) // PADDING) * PADDING
        return np.array([np.pad(a, (0, width - len(a)), constant_values=value) for a in rows])

    def of(name: str, value: float) -> np.ndarray:
        return padded([getattr(path, name) for path in paths], value)

    piece, part = zip(*map(_located, paths), strict=True)
    return Curves(
        runs=tuple(p.run for p in paths),
        seq_len=seq_len,
        pieces=Pieces(of("steps", 0.0), of("lr", 1.0), of("batch", 1.0)),
        readings=Readings(padded(piece, 0.0), padded(part, 1.0)),
        tokens=of("tokens", np.nan),
        loss=of("loss", 1.0),
        weight=padded([np.ones(len(p.at)) for p in paths], 0.0),
        measured=sum(p.measured for p in paths),
    )


def unidentified_by_design(curves: Curves) -> dict[str, str]:
    """Parameters that these runs cannot identify, whatever their losses, and why (derived here).

    Within a run whose η/B never changes after its first loss, noise that is forgotten slowly is the
    same as noise that is forgotten at once and a slower signal. A run of fewer than three losses
    is compared with others, not with itself: its whole path counts, after its warm-up.
    """
    steps, lr, batch = curves.pieces
    used = steps > 0
    reasons = {}
    log_lr, log_batch = np.log(np.maximum(lr, 1e-12)), np.log(batch)
    constant = _spread(log_batch[used]) < VARIED
    if constant:
        reasons["m"] = "unidentified: one batch"
    # Rates near 0, at the end of a decay, say little of the exponent.
    steady = used & (log_lr > log_lr[used].max() - 5)
    if _spread(log_lr[steady]) < VARIED:
        reasons["p"] = "unidentified: one learning rate"
    elif not constant and abs(np.corrcoef(log_lr[steady], log_batch[steady])[0, 1]) > 0.99:
        reasons["p"] = "unidentified: the rate changes only with the batch"
    if len(np.unique(batch[used])) < 3 or _spread(log_batch[used]) < 4:
        reasons["B_phi"] = "unidentified: fewer than three batches over a factor of four"
    peak = np.where(used, lr, 0.0).argmax(axis=1)
    few = curves.weight.sum(axis=1) < TELLING
    first = curves.readings.piece[:, 0]
    first = np.where(few, np.minimum(peak, first), first)
    seen = used & (np.arange(steps.shape[1]) >= first[:, None])
    ratios = zip(log_lr - log_batch, seen, strict=True)
    if max(_spread(ratio[after]) for ratio, after in ratios) < VARIED:
        why = "unidentified: no run changes its batch or its rate after its first loss"
        if few.any():
            why += "; of runs with so few, rows without a loss can give the schedule before it"
        reasons |= dict.fromkeys(("c_K", "q", "A_1"), why)
    return reasons


def _spread(logs: np.ndarray) -> float:
    return float(np.exp(np.ptp(logs))) if logs.size else 1.0


def _rates(runs: pd.DataFrame) -> pd.Series:
    column = next((name for name in ("lr", "peak_lr") if name in runs), None)
    if column is None:
        return pd.Series(1.0, index=runs.index)
    rates = pd.Series(pd.to_numeric(runs[column], errors="coerce"), dtype=float)
    for i in np.flatnonzero(~np.isfinite(rates) | (rates < 0))[:1]:
        row = runs.iloc[i]
        raise InputError(
            f"runs: {column} of run {row['run']} at step {row['step']} is {row[column]}; "
            "write a rate of 0 or more"
        )
    return rates


def _located(path: Path) -> tuple[np.ndarray, np.ndarray]:
    ends = np.cumsum(path.steps)
    piece = np.minimum(np.searchsorted(ends, path.at * (1 - 1e-12)), len(ends) - 1)
    part = 1 - (ends[piece] - path.at) / path.steps[piece]
    return piece.astype(float), np.clip(part, 0.0, 1.0)
