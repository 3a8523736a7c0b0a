"""The index over run directories: what is there, and its curves as one tidy run table."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.training.config import RunConfig
from bss.training.directory import (
    is_being_written,
    parent_path,
    read_config,
    read_curve,
    read_status,
    run_path,
)


def list_runs(runs: Path) -> list[dict[str, Any]]:
    """One record per run directory: id, status, tokens of stop, batch, lr, seeds, loss.

    A run that says it is running, with no process that writes it, was killed: "interrupted".

    Raises:
        InputError: where `runs` is no directory.
    """
    if not runs.is_dir():
        raise InputError(f"runs directory {runs} does not exist; name the one a sweep wrote")
    records = []
    for path in sorted(p.parent for p in runs.glob("*/config.json")):
        run, status = read_config(path), read_status(path)
        rows = read_curve(path)
        state = status.get("status", "to do")
        if state == "running" and not is_being_written(path):
            state = "interrupted"
        records.append(
            {
                "run": run.id,
                "status": state,
                "tokens": status.get("tokens", 0),
                "stop": run.schedule.tokens,
                "batch": str(run.schedule.batch),
                "peak_lr": run.optimizer.lr,
                "rate": _rate_label(run),
                "seed": run.seed,
                "data_seed": run.data.seed,
                "parent": run.parent.run if run.parent else None,
                "eval_loss": rows[-1]["eval_loss"] if rows else None,
            }
        )
    return records


def _rate_label(run: RunConfig) -> str:
    s = run.schedule
    return "stable" if s.rate == "wsd" and s.decay == 0 else s.rate


def lineage_curve(runs: Path, run: RunConfig) -> list[dict[str, Any]]:
    """A run's rows with those of its parents before the fork."""
    before: list[dict[str, Any]] = []
    if run.parent:
        parent = read_config(parent_path(runs, run.parent))
        rows = lineage_curve(runs, parent)
        before = [row for row in rows if row["tokens"] <= run.parent.tokens]
    return before + read_curve(run_path(runs, run))


def run_table(runs: Path, chosen: Sequence[RunConfig]) -> pd.DataFrame:
    """The tidy run table of some runs: their identity beside every row of their curves.

    A branch's curve begins with its parent's, so its tokens and steps count from zero.

    Raises:
        InputError: where there are no runs.
    """
    if not chosen:
        raise InputError(f"runs: none of {runs} finished, so there is nothing to measure")
    frames = []
    for run in chosen:
        frame = pd.DataFrame(lineage_curve(runs, run))
        identity = {
            "run": run.id,
            "model": run.model.label,
            "params": run.model.counts().non_embedding,
            "seq_len": run.data.seq_len,
            "seed": run.seed,
            "data_seed": run.data.seed,
            "peak_lr": run.optimizer.lr,
        }
        for position, (name, value) in enumerate(identity.items()):
            frame.insert(position, name, value)
        frames.append(frame)
    return pd.concat(frames, ignore_index=True)
