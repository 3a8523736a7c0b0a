"""Final losses of finished runs, as teams have them: one row per run, reduced to design points.

Losses of repeated runs at one LR are averaged. Each (params, tokens, batch) then uses the LR with
the lowest loss. The number of LRs is kept, because a minimum over many LRs is biased low, and a
minimum over few LRs is biased high. Rows of one LR may differ in a column that is not in the law.
Such a column is a setting; the lowest loss over settings is used as well. Rows of one batch that
differ by far more than repeated runs have a setting that no column tells, as the LR.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.final_loss.outliers import OUTLIER
from bss.laws.final_loss.points import DIVERGED, VARIED, LossPoints
from bss.laws.final_loss.residual_gp import RUN_NOISE
from bss.laws.minimum import FEWEST
from bss.laws.resampling import rms
from bss.points.conditions import HORIZON, NEAR, conditions, near_as_one, refuse_mixed_rows
from bss.points.copies import copied_rows
from bss.points.curve import loss_column
from bss.points.divergence import marked_diverged
from bss.points.groups import SEED_NOISE
from bss.tables.columns import Origin, as_numbers, need, positive, refuse_odd
from bss.tables.reading import Reading
from bss.tables.storage import read_table
from bss.units import format_tokens

SIZE = ["params", "tokens", "batch_tokens"]
MODELS = ("model", "architecture", "arch")
TABLE = Origin("table")
DIGITS = 7  # of a loss: draws depend on every digit
LONG = FEWEST + 1  # budgets of one run, from which they are a curve
FEWEST_RATED = FEWEST * (FEWEST + 1)  # rows, with three LRs or more: the law includes the LR
REPEATS = ("run", "steps", "step", "flops", "loss_se", "diverged")
"""Columns that may vary from row to row and are no setting of the training."""


def read_losses(path: str | Path, reading: Reading | None = None) -> pd.DataFrame:
    """Read a table of final losses from CSV (lines that begin with # are comments) or Parquet.

    Args:
        path: of the file.
        reading: what it calls its columns.

    Raises:
        InputError: it cannot be read, or `check_losses` refuses a row.
    """
    return check_losses(*read_table(path, reading))


def check_losses(frame: pd.DataFrame, origin: Origin = TABLE) -> pd.DataFrame:
    """Check a table of final losses and put its batches in tokens.

    Args:
        frame: columns params, tokens, loss, and batch with seq_len, or batch_tokens; lr (or
            peak_lr) if it was varied. A run diverged if its loss is missing or infinite, or if
            `diverged` (0 or 1) is 1. If each row is the best of an LR sweep: rates_tried and
            rate_bracketed (0 or 1). Optional: loss_se, the standard error of the loss.
        origin: what to call the table and its rows in an error message.

    Returns:
        A new frame with batch_tokens (tokens per step), and loss in nats.

    Raises:
        InputError: a column is missing, or a row (the first is 1) is not positive or contradicts
            itself.

    Examples:
        >>> row = {"params": 1e6, "tokens": 2e7, "batch": 16, "seq_len": 64, "loss": 3.0}
        >>> check_losses(pd.DataFrame([row]))["batch_tokens"].tolist()
        [1024.0]
    """
    refuse_odd(frame, origin)
    if "lr" not in frame:
        frame = frame.rename(columns={"peak_lr": "lr"})
    size = ["batch_tokens"] if "batch_tokens" in frame else ["batch", "seq_len"]
    need(frame, origin, "params", "tokens", "loss", *size)
    known = ["params", "tokens", *size, "batch", "seq_len", "lr", "rates_tried", "loss_se"]
    columns = {name: positive(frame, name, origin) for name in known if name in frame}
    losses = columns["loss"] = as_numbers(pd.Series(frame["loss"])).astype(float)
    for i in np.flatnonzero(losses <= 0)[:1]:
        origin.refuse(i, f"loss is {losses[i]:g}; write a positive number")
    if {"batch", "seq_len"} <= columns.keys():
        size = columns["batch"] * columns["seq_len"]
        for i in np.flatnonzero(size != columns.setdefault("batch_tokens", size))[:1]:
            contradiction = f"batch_tokens is not batch times seq_len, {size[i]:g}"
            origin.refuse(i, f"{contradiction}; correct one of them")
    _refuse_mixed_models(frame, columns["params"], origin)
    _refuse_curves(frame, origin)
    if "steps" in frame:
        _check_steps(as_numbers(pd.Series(frame["steps"])).astype(float), columns, origin)
    others = {str(name): frame[name] for name in frame if name not in columns}
    return pd.DataFrame(columns | others, index=frame.index)


def final_losses(runs: pd.DataFrame) -> pd.DataFrame:
    """Return final losses of the runs of one batch; held-out losses if there are any.

    Args:
        runs: a run table as `bss.tables.check_runs` returns it.

    Raises:
        InputError: the runs have no params, or `check_losses` refuses one.
    """
    if "params" not in runs:
        raise InputError("the runs have no params (non-embedding parameters)")
    column = loss_column(runs)
    constant = runs.loc[runs.groupby("run")["batch"].transform("nunique") == 1]
    ends = constant.loc[constant[column].notna()].groupby("run", sort=False).tail(1)
    losses = ends[["run", "params", "tokens", "batch", "seq_len"]].assign(loss=ends[column])
    for name in (*MODELS, *conditions(constant)):
        if name in ends and name != HORIZON:
            losses[name] = ends[name]
    if "status" in ends:
        losses["diverged"] = (ends["status"] == "diverged").astype(int)
    if "peak_lr" in ends and ends["peak_lr"].notna().all():
        losses["lr"] = ends["peak_lr"]
    return check_losses(losses)


def _refuse_mixed_models(frame: pd.DataFrame, params: np.ndarray, origin: Origin) -> None:
    """Two architectures of one size are two laws."""
    for name in (column for column in MODELS if column in frame):
        for size, here in frame.groupby(params)[name]:
            kinds = list(dict.fromkeys(here.astype(str)))
            if len(kinds) > 1:
                some = ", ".join(kinds[:3])  # in a message of one line
                raise InputError(
                    f"{origin.source}: {name} is {some} at params {size:g}; the "
                    "law is of one kind of model, so fit one at a time"
                )


def _refuse_curves(frame: pd.DataFrame, origin: Origin) -> None:
    """Several budgets of one run are a curve of losses."""
    budgets: Any = frame.groupby("run")["tokens"].nunique() if "run" in frame else pd.Series()
    if budgets.median() >= LONG:
        raise InputError(
            f"{origin.source}: runs have losses at several tokens each, so these are loss curves, "
            "which `bss fit es` and `bss fit curve` fit; give the last loss of each run"
        )


def _check_steps(steps: np.ndarray, columns: dict[str, np.ndarray], origin: Origin) -> None:
    """Tokens are steps times the batch, except for a warm-up of the batch or a resumed run."""
    taken = steps * columns["batch_tokens"]
    above_zero = 1e-9  # tokens: 0 steps have a logarithm, too
    ratio = np.abs(np.log(np.maximum(taken, above_zero) / columns["tokens"]))
    for i in np.flatnonzero(ratio > np.log(VARIED))[:1]:
        said = format_tokens(round(float(taken[i])))
        tokens = format_tokens(round(float(columns["tokens"][i])))
        origin.refuse(
            i, f"steps times the batch is {said} tokens, tokens {tokens}; correct one of them, or "
            "leave the column steps out"
        )  # fmt: skip


def loss_points(table: pd.DataFrame) -> tuple[LossPoints, list[str]]:
    """The rows of the law from checked ones, each with its LR where LRs vary, and warnings.

    Raises:
        InputError: no row has a finite loss, or runs are of several conditions.
    """
    cell = [*SIZE, "lr"]
    given = table
    table, left = independent_losses(given)
    refuse_mixed_rows(table, cell, "loss", 1.0, ("seq_len",))
    tried, means, runs, warnings = _runs(table)
    with_lr, said = _varies(runs, table)
    by = [*SIZE, "rate"] if with_lr else SIZE
    rows = runs.loc[runs.groupby(by)["loss"].idxmin()].sort_values(by)
    lr = rows["rate"].where(rows["rate"] > 0)
    columns = [rows[n].to_numpy(float) for n in SIZE]
    counts = runs["count"].to_numpy(float)
    lengths = table["seq_len"].unique() if "seq_len" in table else ()
    points = LossPoints(
        *columns,
        lr=lr.to_numpy(float),
        loss=rows["loss"].round(DIGITS).to_numpy(float),
        count=rows["count"].to_numpy(float),
        with_lr=with_lr,
        noise=_noise(tried, means, counts),
        seq_len=float(lengths[0]) if len(lengths) == 1 else None,
    )
    rated = _rate_warnings(table, runs, given)
    return points, [*left, *warnings, *said, *rated, *_batch_warnings(points)]


def _batch_warnings(points: LossPoints) -> list[str]:
    """Return a warning if no budget of a model has two batch sizes."""
    if len(points.cells) < 2 or any(len({*points.batch[rows]}) > 1 for rows in points.cells):
        return []
    return [
        "no (params, tokens) has two batch sizes, so what a batch size costs cannot be told from "
        "what params and tokens do; train one of them at three batch sizes"
    ]


def independent_losses(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return checked rows without diverged runs and copies of runs, and messages about them.

    A run has diverged, too, if its loss is far above a repetition of it.

    Raises:
        InputError: no row has a finite loss.
    """
    losses = table["loss"].to_numpy(float)
    finite = np.isfinite(losses) & ~marked_diverged(table)
    if not finite.any():
        raise InputError("loss: no row has a finite one; give final losses")
    cell = [name for name in [*SIZE, "lr", "seq_len", *MODELS] if name in table]
    cells = [table[name] for name in cell]
    lowest = table["loss"].where(finite).groupby(cells, dropna=False).transform("min")
    known = table.loc[finite & (losses <= (1 + DIVERGED) * lowest.to_numpy(float))]
    copied, messages = copied_rows(known, cell, "loss", SEED_NOISE / known["loss"].to_numpy(float))
    if len(known) < len(table):
        reasons = "without a finite loss, marked as diverged, or far above their repetitions"
        messages = [f"{len(table) - len(known)} rows {reasons}: left out", *messages]
    return known.loc[~copied], messages


def _varies(runs: pd.DataFrame, table: pd.DataFrame) -> tuple[bool, list[str]]:
    """Whether the LR is a variable of the law, and warnings."""
    if "rates_tried" in table or not (runs["rate"] > 0).all():
        return False, []
    several = int(np.sum(runs.groupby(SIZE)["rate"].nunique() > 1))
    if not several:
        confounded = "lr: each batch has one LR, so the best batch applies only to these pairs of "
        confounded += "batch and LR; train with two LRs at one or more batches"
        moved = bool((runs.groupby(["params", "tokens"])["rate"].nunique() > 1).any())
        return False, [confounded] if moved else []
    if len(runs) < FEWEST_RATED or runs["rate"].nunique() < FEWEST:
        return False, []
    if several == 1:
        return True, [
            "lr: only one batch of one (params, tokens) has several LRs, so the change of the "
            "best LR with batch rests on a prior; train with two LRs at another batch"
        ]
    return True, []


def _runs(table: pd.DataFrame) -> tuple[pd.DataFrame, Any, pd.DataFrame, list[str]]:
    """Rows with their rate, these by setting, the mean and count of each, and warnings."""
    warnings = []
    rates = table["lr"].map(near_as_one(table["lr"])) if "lr" in table else 0.0
    tried = table.assign(rate=rates)
    settings = settings_of(tried)
    if settings:
        warnings.append(
            f"columns that vary and are not in the law: {', '.join(settings)}; "
            "the lowest loss over them is used"
        )
    # A setting that is missing is one of its own.
    setting = tried[settings].astype(str) if settings else tried[[]]
    key = [*(tried[name] for name in [*SIZE, "rate"]), *(setting[name] for name in settings)]
    means = tried.groupby(key, sort=True)["loss"]
    if scatter := _untold(tried, means):
        warnings.append(
            f"rows of one (params, tokens, batch) differ by {scatter:.2g} nats (SD), which seeds "
            "do not, so a setting such as the LR is not in the table; the lowest loss is used"
        )
        means = tried.groupby([*key, pd.Series(range(len(tried)), tried.index)])["loss"]
    runs = pd.DataFrame({"loss": means.mean(), "count": means.size()}).reset_index()
    return tried, means, runs, warnings


def _untold(table: pd.DataFrame, groups: Any) -> float:
    """Standard deviation over rows of one batch that no column separates; 0 if seeds explain it."""
    if "lr" in table or "rates_tried" in table or "loss_se" in table:
        return 0.0
    if "seed" in table and not table.duplicated([*SIZE, "seed"]).any():
        return 0.0
    scatter = _noise(table, groups, groups.size().to_numpy(float))
    return scatter if scatter > OUTLIER * RUN_NOISE else 0.0


def settings_of(table: pd.DataFrame) -> list[str]:
    """Columns unknown to the law that differ between rows of one (N, D), and are no outcomes.

    A column with a different value in most rows is taken as measured, not chosen.
    """
    known = {*SIZE, *REPEATS, "batch", "seq_len", "lr", "rate", "rates_tried", "rate_bracketed"}
    others = [
        str(name)
        for name in table
        if name not in known
        and not any(part in str(name) for part in ("loss", "seed"))
        and len(table[name].unique()) <= len(table) / 2
    ]
    cells = [rows for _, rows in table.groupby(["params", "tokens"])]
    return [name for name in others if any(len(rows[name].unique()) > 1 for rows in cells)]


def _noise(table: pd.DataFrame, groups: Any, counts: np.ndarray) -> float:
    """Standard deviation of a loss over repetitions, pooled; NaN if none is known."""
    if "loss_se" in table:
        return rms(table["loss_se"])
    freedom = float(np.sum(counts - 1))
    if not freedom:
        return float("nan")
    squares = np.nansum(groups.var(ddof=1).to_numpy() * (counts - 1))
    return float(np.sqrt(squares / freedom))


def _rate_warnings(table: pd.DataFrame, runs: pd.DataFrame, given: pd.DataFrame) -> list[str]:
    """Return a warning if best LRs are not bracketed; an LR that diverged brackets from above.

    Args:
        table: The rows that are fitted.
        runs: The mean of each setting in these rows, with its LR as `rate`.
        given: The rows with those that diverged.
    """
    if "lr" not in table and "rates_tried" not in table:
        return ["no column lr: every loss is taken as the loss at a tuned LR"]
    sweeps = runs.groupby(SIZE)
    best = runs.loc[sweeps["loss"].idxmin(), "rate"].to_numpy()
    trials = sweeps["rate"].nunique()
    lowest = sweeps["rate"].min()
    highest = sweeps["rate"].max()
    if "lr" in given:  # equal within 1%
        tried = given.groupby(SIZE)["lr"].max().reindex(highest.index)
        highest = highest.mask(tried > (1 + NEAR) * highest, tried)
    bracketed = ((lowest < best) & (best < highest)).to_numpy(bool)
    if "rates_tried" in table:  # rows that are the best of sweeps
        known = table if "rate_bracketed" in table else table.assign(rate_bracketed=0)
        told = known.loc[np.isfinite(known["loss"])].groupby(SIZE)
        bracketed = told["rate_bracketed"].max().to_numpy() > 0
        trials = told["rates_tried"].max()
    open_ended = int(np.sum(~bracketed))
    single = int(np.sum(trials == 1))
    if not open_ended:
        return []
    return [
        f"learning rate not bracketed at {open_ended} of {len(bracketed)} points ({single} with "
        "one LR only): their losses are upper bounds of the loss at a tuned LR"
    ]
