"""bss predict --register: predictions of a curve fit, written down before the runs are trained."""

import argparse
import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from bss.cli.output import Output
from bss.errors import InputError
from bss.laws import CurveFit
from bss.laws.fitting.estimate import Estimate
from bss.predictions.registration import Prediction, Registration, digest, register
from bss.schedules.batch import BatchSchedule
from bss.schedules.config import ScheduleConfig
from bss.schedules.rates import Rate
from bss.training.execution import commit


def registered(
    output: Output,
    fit: CurveFit,
    predictions: Sequence[Prediction],
    options: argparse.Namespace,
) -> Output:
    """Writes predictions down; the output says where, and what their runs have to record."""
    path = register(
        Registration(
            options.register,
            options.metric or "eval_loss",
            tuple(predictions),
            fit.to_dict(),
            _baselines(options),
            tuple(options.exclude or ()),
            options.seed,
            date=datetime.date.today().isoformat(),
            commit=commit(),
        ),
        options.predictions,
    )
    runs = sum(len(one.runs) for one in predictions)
    told = {"file": str(path), "sha256": digest(path), "schedules": len(predictions), "runs": runs}
    note = (
        f"registered in {path} (schedules {len(predictions)}, runs {runs}); commit it, then train "
        f"with execution.registration {told['sha256']}"
    )
    payload = {**output.json, "registration": told}
    return dataclasses.replace(output, json=payload, notes=[*output.notes, note])


def of_schedule(
    batch: BatchSchedule,
    rate: Rate,
    tokens: int,
    loss: Estimate,
    beyond: tuple[str, ...],
    options: argparse.Namespace,
) -> tuple[Prediction]:
    """The prediction of the schedule that the options ask for."""
    if not options.ids:
        raise InputError("--ids: missing; name the runs that will be trained by it, as a1b2,c3d4")
    values = {name: _number(text, name) for name, text in _baselines(options).items()}
    settings = ScheduleConfig(
        int(rate.total),
        batch,
        warmup=int(rate.warmup),
        decay=int(rate.decay),
        shape=rate.shape,
    )
    runs = tuple(options.ids.split(","))
    return (
        Prediction(
            str(batch), runs, tokens, loss, values, rate.ending, rate.peak, settings, beyond
        ),
    )


def of_runs(
    rows: Sequence[Mapping[str, Any]], runs: pd.DataFrame, options: argparse.Namespace
) -> list[Prediction]:
    """Those of the runs of a table; runs of the same tokens, batches and rates are one schedule.

    Args:
        rows: what is predicted of each run, as the command prints it.
        runs: the table; `schedule` and `ending` name both where it has them.
        options: of the command.
    """
    if options.ids:
        raise InputError("--ids: the runs of --runs have names; leave one of them out")
    predictions: dict[str, Prediction] = {}
    baselines = _baselines(options)
    tables = {str(name): table for name, table in runs.groupby("run", sort=False)}
    for row in rows:
        if row["measured"] is not None:
            raise InputError(f"run {row['run']}: has a loss; what is registered has none yet")
        table = tables[row["run"]]
        key = _schedule(table)
        if key in predictions:
            more = (*predictions[key].runs, row["run"])
            predictions[key] = dataclasses.replace(predictions[key], runs=more)
            continue
        last = table.iloc[-1]
        rates = [name for name in ("lr", "peak_lr") if name in table]
        predictions[key] = Prediction(
            str(last.get("schedule", row["run"])),
            (row["run"],),
            row["tokens"],
            Estimate(**row["loss"]),
            {name: _cell(last, told, name) for name, told in baselines.items()},
            str(last.get("ending", "")),
            float(np.max(table[rates[0]].to_numpy(float))) if rates else None,
            extrapolates=tuple(row["extrapolates"]),
        )
    return list(predictions.values())


def _schedule(table: pd.DataFrame) -> str:
    """What two runs of one schedule share."""
    kept = [
        name for name in ("schedule", "ending", "tokens", "batch", "lr", "peak_lr") if name in table
    ]
    return str(table[kept].to_csv(index=False))


def _baselines(options: argparse.Namespace) -> dict[str, str]:
    """Of each --baseline, what it is told to be: a loss, or a column."""
    told = {}
    for text in options.baseline or ():
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value or name in told:
            raise InputError(
                f"--baseline {text}: expected NAME=LOSS or NAME=COLUMN, each name once"
            )
        told[name] = value
    return told


def _cell(row: pd.Series, column: str, name: str) -> float:
    if column not in row:
        raise InputError(f"--baseline {name}={column}: --runs has no column {column}")
    return _number(row[column], name)


def _number(told: Any, name: str) -> float:
    try:
        value = float(told)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"--baseline {name}: {told} is no loss; give one in nats, as 1.93")
    return value
