"""Best LRs over batch sizes, and what a large batch costs by LR, beta2 and checkpoint.

A cell is one model and token budget. Numbers of tables without a licence are derived from a
directory that has them, and only these numbers are committed.
"""

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pandas as pd

from benchmarks.optima import PUBLISHED, SEQ_LEN
from bss.laws.minimum import parabola_vertex

FEWEST = 3  # batch sizes of a cell, each with a best LR inside those tried
LARGER = 4  # times the best batch size
SPREAD = {2: 1.128, 3: 1.693, 4: 2.059, 5: 2.326, 6: 2.534}
"""Expected range of n normal numbers in SDs, the control-chart constant d2."""


def steplaw() -> pd.DataFrame:
    """Return the runs of steplaw_rates.csv with lr and seq_len."""
    table = pd.read_csv(PUBLISHED / "steplaw_rates.csv", comment="#")
    return table.rename(columns={"peak_lr": "lr"}).assign(seq_len=SEQ_LEN)


def _cells(runs: pd.DataFrame) -> Iterable[tuple[float, float, pd.DataFrame]]:
    """Return params, tokens and lowest losses [batch, lr] of each cell."""
    for (params, tokens), cell in runs.groupby(["params", "tokens"]):
        yield params, tokens, cell.pivot_table(index="batch", columns="lr", values="loss")


def lr_powers(source: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Return the power of the batch size that the best LR follows, by cell.

    A best LR is the minimum of a parabola in log LR; batch sizes at which the lowest or highest LR
    is best are left out. Columns: source, params, tokens, batches, power.
    """
    rows = []
    for params, tokens, losses in _cells(runs):
        best = {float(batch): _best_lr(row.dropna()) for batch, row in losses.iterrows()}
        inside = {batch: lr for batch, lr in best.items() if lr is not None}
        if len(inside) >= FEWEST:
            power = np.polyfit(np.log2([*inside]), [*inside.values()], 1)[0]
            row = {"source": source, "params": params, "tokens": tokens}
            rows.append(row | {"batches": len(inside), "power": power})
    return pd.DataFrame(rows)


def _best_lr(losses: pd.Series) -> float | None:
    """Return log2 of the best LR; None if the lowest or highest tried is best."""
    lowest = int(np.argmin(losses))
    if lowest in (0, len(losses) - 1):
        return None
    near = slice(lowest - 1, lowest + 2)
    x = np.log2(losses.index.to_numpy(float)[near])
    y = losses.to_numpy()[near]
    if np.isclose(x[1] - x[0], x[2] - x[1], rtol=0.01):  # LRs are rounded
        return float(parabola_vertex(x, y[None])[0])
    curve = np.polyfit(x - x[1], y, 2)
    return float(x[1] - curve[1] / (2 * curve[0]))


def kept_lr(source: str, runs: pd.DataFrame) -> pd.DataFrame:
    """Return what LARGER times the best batch size costs with its LR tuned, and kept.

    Columns: source, params, tokens, batch, tuned_mnats, kept_mnats (1e-3 nats above the lowest
    loss). Cells in which the larger batch size or the kept LR was not trained are left out.
    """
    rows = []
    for params, tokens, losses in _cells(runs):
        batch = losses.min(axis=1).idxmin()
        lr = losses.loc[batch].idxmin()
        if LARGER * batch not in losses.index:
            continue
        there = losses.loc[LARGER * batch]
        kept = 1e3 * (there[lr] - losses.loc[batch, lr])
        tuned = 1e3 * (there.min() - losses.loc[batch, lr])
        row = {"source": source, "params": params, "tokens": tokens, "batch": batch}
        rows.append(row | {"tuned_mnats": tuned, "kept_mnats": kept})
    return pd.DataFrame(rows).dropna()


def beta2_gains() -> pd.DataFrame:
    """Return the gain of the best beta2 over 0.95 of marin's mixtures, by width and batch size.

    Columns: d_model, batch, beta2 (best), gain (1e-3 bits per byte).
    """
    table = pd.read_csv(PUBLISHED / "marin_beta2.csv", comment="#")
    rows = []
    for (width, batch), cell in table.groupby(["d_model", "batch"]):
        loss = cell.set_index("beta2")["c4_en_bpb"]
        gain = 1e3 * (loss[0.95] - loss.min())
        rows.append({"d_model": width, "batch": batch, "beta2": loss.idxmin(), "gain": gain})
    return pd.DataFrame(rows)


def penalties(path: Path) -> pd.DataFrame:
    """Return the tuned loss minus that at the smallest batch size, by optimizer and norm control.

    Args:
        path: optimizer_batch.csv, a table without a licence.

    Returns:
        Columns optimizer, family, batch_tokens, mnats (1e-3 nats), error (its standard error by
        the pooled SD of repeated runs), freedom (of that SD).
    """
    table = pd.read_csv(path, comment="#").sort_values("batch")
    several = table[table["runs"] > 1]
    sd = (several["loss_max"] - several["loss_min"]) / several["runs"].map(SPREAD)
    freedom = int((several["runs"] - 1).sum())
    pooled = np.sqrt(np.average(sd**2, weights=several["runs"] - 1))
    groups = table.groupby(["optimizer", "family"])
    mnats = 1e3 * (table["loss"] - groups["loss"].transform("first"))
    error = 1e3 * pooled * np.sqrt(1 / table["runs"] + 1 / groups["runs"].transform("first"))
    table = table.assign(mnats=mnats, error=error, freedom=freedom)
    larger = table[table["mnats"] != 0].sort_values(["family", "optimizer", "batch"])
    columns = ["optimizer", "family", "batch_tokens", "mnats", "error", "freedom"]
    return larger[columns].reset_index(drop=True)


def branches(path: Path) -> pd.DataFrame:
    """Return the penalty of 16 times the batch in hidden matrices, by checkpoint of a Muon run.

    Args:
        path: muon_branch_ends.csv, a table without a licence.

    Returns:
        Columns checkpoint_tokens, penalty_mnats.
    """
    table = pd.read_csv(path, comment="#")
    table = table[table["large_batch_in"] == "all"]
    return table[["checkpoint_tokens", "penalty_mnats"]].reset_index(drop=True)


def ramp_steps(path: Path) -> pd.DataFrame:
    """Return steps of the constant and the ramp run of modded-nanogpt to validation losses.

    Args:
        path: nanogpt_ramp_curves.csv.

    Returns:
        Columns loss, steps_constant, steps_ramp, tokens_ratio (ramp over constant).
    """
    table = pd.read_csv(path, comment="#")
    rows = []
    for loss in (4.5, 4.0, 3.7, 3.5, 3.4, 3.3):
        at = {str(run): _first(curve, loss) for run, curve in table.groupby("run")}
        constant = at["constant"]
        ramp = at["ramp"]
        row = {"loss": loss, "steps_constant": constant[0], "steps_ramp": ramp[0]}
        rows.append(row | {"tokens_ratio": ramp[1] / constant[1]})
    return pd.DataFrame(rows)


def _first(curve: pd.DataFrame, loss: float) -> tuple[float, float]:
    """Return steps and tokens at which a running minimum first has a loss, linear in between."""
    least = np.minimum.accumulate(curve["loss"].to_numpy())
    falling = -least
    return (
        float(np.interp(-loss, falling, curve["step"])),
        float(np.interp(-loss, falling, curve["tokens"])),
    )
