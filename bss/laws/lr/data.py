"""Final losses over learning rates, as sweeps: one per model size N, budget D and batch size B.

Only lr and loss are needed. N, D or B that a table lacks is one unknown value, and is no variable
of the law.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.bracketed import loss_noise, repeat_squares
from bss.laws.final_loss.points import SAME_BUDGET
from bss.laws.final_loss.table import (
    DIGITS,
    SIZE,
    TABLE,
    check_losses,
    independent_losses,
    settings_of,
)
from bss.points.conditions import near_as_one, refuse_mixed_rows
from bss.tables.columns import Origin, need, refuse_odd

LACKING = 1.0
"""What a size has in every row if the table lacks it."""
NEAREST = 5  # LRs of a sweep around its lowest loss, to which a cubic is fitted
CUBIC = 4  # parameters of a cubic


@dataclass(frozen=True)
class Sweep:
    """Losses over LRs at one size.

    Attributes:
        params, tokens, batch: N, D, and B in sequences or tokens; NaN if the table lacks it.
        lr: [n] ascending.
        loss: [n] in nats, means over repetitions.
        count: [n], repetitions.
        diverged: LRs at which every run diverged.
    """

    params: float
    tokens: float
    batch: float
    lr: np.ndarray
    loss: np.ndarray
    count: np.ndarray
    diverged: tuple[float, ...]


@dataclass(frozen=True)
class Sweeps:
    """The sweeps of a table.

    Attributes:
        each: the sweeps, by params, tokens and batch.
        unit: of the batch sizes: "sequences" or "tokens".
        seq_len: tokens per sequence; None if it is unknown, or not one.
        noise: standard deviation of one loss, in nats.
        warnings: what was left out or averaged.
    """

    each: tuple[Sweep, ...]
    unit: str
    seq_len: float | None
    noise: float
    warnings: tuple[str, ...]


def check_rates(frame: pd.DataFrame, origin: Origin = TABLE) -> pd.DataFrame:
    """Check a table of final losses over LRs.

    Args:
        frame: columns lr (or peak_lr) and loss (or eval_loss); params, tokens, and batch or
            batch_tokens, if they vary; others as `bss.check_losses` takes them.
        origin: what to call the table and its rows in an error message.

    Returns:
        A new frame with the columns of `bss.check_losses`. A size that the table lacks is LACKING
        in every row, and batch_tokens is in sequences if their length is unknown.

    Raises:
        InputError: If a column is missing, or a row is refused.
    """
    refuse_odd(frame, origin)
    if "lr" not in frame:
        frame = frame.rename(columns={"peak_lr": "lr"})
    if "loss" not in frame:
        frame = frame.rename(columns={"eval_loss": "loss"})
    need(frame, origin, "lr", "loss")
    given = {name: LACKING for name in ("params", "tokens") if name not in frame}
    if "batch_tokens" not in frame:
        given |= {name: LACKING for name in ("batch", "seq_len") if name not in frame}
    if given.keys() & {"tokens", "seq_len"} and "steps" in frame:
        frame = frame.drop(columns="steps")  # nothing to compare them with
    checked = check_losses(frame.assign(**given), origin)
    if "batch" in given:  # what it would be in tokens is unknown as well
        checked = checked.assign(batch_tokens=LACKING, seq_len=LACKING)
    return checked


def sweeps_of(table: pd.DataFrame) -> Sweeps:
    """Return the sweeps of a table as `check_rates` returns it.

    Raises:
        InputError: If no row has a finite loss, or runs are of several conditions.
    """
    kept, left = independent_losses(table)
    refuse_mixed_rows(kept, [*SIZE, "lr"], "loss", 1.0, ("seq_len",))
    settings = settings_of(kept.assign(rate=kept["lr"]))
    warnings = [*left]
    if settings:
        warnings.append(
            f"columns that vary and are not in the law: {', '.join(settings)}; the lowest loss "
            f"over them is used; --keep {settings[0]}=VALUE answers for one"
        )
    lengths = table["seq_len"].unique() if "seq_len" in table else ()
    seq_len = float(lengths[0]) if len(lengths) == 1 else None
    unit = 1.0 if seq_len is None else seq_len
    means = _means(kept, settings)
    lost = _means(table.loc[~table.index.isin(kept.index)].assign(loss=np.inf), settings)
    known = {name: bool((table[name] != LACKING).any()) for name in SIZE}
    each = tuple(_sweep(rows, lost, unit, known) for rows in _cells(means))
    return Sweeps(
        each,
        "tokens" if seq_len is None else "sequences",
        _known(seq_len),
        _noise(kept, settings, each),
        tuple(warnings),
    )


def _known(seq_len: float | None) -> float | None:
    return None if seq_len == LACKING else seq_len


def _means(table: pd.DataFrame, settings: list[str]) -> pd.DataFrame:
    """Return the mean loss of each size and LR, of the setting with the lowest one."""
    rates = table["lr"].map(near_as_one(table["lr"]))
    setting = table[settings].astype(str)
    key = [table[name] for name in SIZE] + [rates] + [setting[name] for name in settings]
    losses = table["loss"].groupby(key, sort=True)
    means = pd.DataFrame({"loss": losses.mean().round(DIGITS), "count": losses.size()})
    means = means.reset_index()
    by = [*SIZE, "lr"]
    return means.loc[means.groupby(by)["loss"].idxmin()].sort_values(by)


def _cells(means: pd.DataFrame) -> Iterator[pd.DataFrame]:
    """Yield the rows of each size; budgets within 3% are one, as of whole steps."""
    for _, rows in means.groupby(["params", "batch_tokens"]):
        budgets = sorted(rows["tokens"].unique())
        steps = [np.log(after / before) >= SAME_BUDGET for before, after in pairwise(budgets)]
        cell = dict(zip(budgets, np.cumsum([0, *steps]), strict=True))
        yield from (some for _, some in rows.groupby(rows["tokens"].map(cell)))


def _sweep(rows: pd.DataFrame, lost: pd.DataFrame, unit: float, known: dict[str, bool]) -> Sweep:
    """Return the sweep of the rows of one size."""
    best = rows.loc[rows.groupby("lr")["loss"].idxmin()].sort_values("lr")
    first = rows.iloc[0]
    here = (lost["params"] == first["params"]) & (lost["batch_tokens"] == first["batch_tokens"])
    here &= np.abs(np.log(lost["tokens"] / first["tokens"])) < SAME_BUDGET
    diverged = sorted({*lost.loc[here, "lr"]} - {*best["lr"]})
    sizes = {name: float(first[name]) if known[name] else np.nan for name in SIZE}
    return Sweep(
        sizes["params"],
        sizes["tokens"],
        sizes["batch_tokens"] / unit,
        best["lr"].to_numpy(float),
        best["loss"].to_numpy(float),
        best["count"].to_numpy(float),
        tuple(diverged),
    )


def _noise(kept: pd.DataFrame, settings: list[str], each: tuple[Sweep, ...]) -> float:
    """Return the standard deviation of a loss: of repetitions, or else about smooth curves.

    The usual noise counts as one degree of freedom.
    """
    key = [kept[name].astype(str) for name in [*SIZE, "lr", *settings]]
    squares, freedom = repeat_squares(kept["loss"].groupby(key))
    for one in each if not freedom else ():
        at = int(one.loss.argmin())
        near = np.sort(np.argsort(np.abs(np.log(one.lr / one.lr[at])))[:NEAREST])
        if len(near) > CUBIC:
            design = np.vander(np.log(one.lr[near] / one.lr[at]), CUBIC)
            rest = one.loss[near] - design @ np.linalg.lstsq(design, one.loss[near])[0]
            squares += float(rest @ rest)
            freedom += len(near) - CUBIC
    return loss_noise(squares, freedom)


def refuse_one_rate(sweeps: Sweeps) -> None:
    """Raise InputError if no size has two LRs."""
    if all(len(one.lr) + len(one.diverged) < 2 for one in sweeps.each):
        raise InputError(
            "lr: each (params, tokens, batch) has one learning rate; train with three or more at "
            "one size, or let `bss fit loss` compare batch sizes"
        )
