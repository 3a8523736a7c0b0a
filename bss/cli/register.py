"""bss register: predictions of a curve or table fit, written down before the runs are trained."""

import argparse
import dataclasses
import datetime
import math
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.cli.kinds import KINDS, read_fit
from bss.cli.output import Output, add_output_arguments
from bss.cli.predict import PredictedRun, add_schedule_arguments
from bss.cli.score import PREDICTIONS
from bss.errors import InputError
from bss.predictions.registration import Prediction, Registration, digest, register
from bss.provenance import commit


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss register`."""
    add = parser.add_argument
    add("name", metavar="NAME", help="of the file that the predictions are written to")
    add_schedule_arguments(parser)
    add("--predictions", type=Path, default=PREDICTIONS, help="directory of these files")
    add("--ids", metavar="IDS", help="runs of the schedule asked, one a seed, with commas between")
    add("--metric", default="eval_loss", help="the final loss that counts; eval_loss by default")
    add("--baseline", metavar="NAME=LOSS", action="append", help="or =COLUMN of --runs; repeatable")
    text = "what is left out, and why; repeatable"
    add("--exclude", metavar="TEXT", action="append", default=[], help=text)
    add("--seed", type=int, help="that the schedules were drawn from")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Writes predictions down; the output says where, and what their runs have to record.

    Examples:
        bss register NAME --from CURVE.json --runs TABLE.csv --seed 7
        bss register NAME --from CURVE.json --batch 8 --tokens 1M --lr 2e-3 --ids a1,b2
    """
    fit = read_fit(options.fit, "register", ("curve", "table"))
    commands = import_module(KINDS[fit.KIND].commands)
    baselines = _baselines(options.baseline or ())
    if not options.runs and fit.KIND == "table":
        raise InputError("--runs: missing; of a table fit a table of runs is registered")
    if not options.runs:
        output, prediction = commands.of_schedule(fit, options)
        predictions = [_of_schedule(prediction, options.ids, baselines)]
    elif options.ids:
        raise InputError("--ids: the runs of --runs have names; leave one of them out")
    else:
        output, runs, table = commands.of_runs(fit, options)
        predictions = _of_runs(runs, table, baselines)
    path = register(
        Registration(
            options.name,
            options.metric,
            tuple(predictions),
            fit.to_dict(),
            baselines,
            tuple(options.exclude),
            options.seed,
            date=datetime.date.today().isoformat(),
            commit=commit(),
        ),
        options.predictions,
    )
    trained = sum(len(one.runs) for one in predictions)
    sha, count = digest(path), len(predictions)
    entry = {"file": str(path), "sha256": sha, "schedules": count, "runs": trained}
    note = (
        f"registered in {path} (schedules {count}, runs {trained}); commit it, then train "
        f"with execution.registration {sha}"
    )
    payload = {**output.json, "registration": entry}
    return dataclasses.replace(output, json=payload, notes=[*output.notes, note])


def _of_schedule(
    prediction: Prediction, ids: str | None, baselines: Mapping[str, str]
) -> Prediction:
    """The prediction of one schedule, for the runs that are named."""
    if not ids:
        raise InputError("--ids: missing; name the runs that will be trained by it, as a1b2,c3d4")
    values = {name: _number(text, name) for name, text in baselines.items()}
    return dataclasses.replace(prediction, runs=tuple(ids.split(",")), baselines=values)


def _of_runs(
    runs: Sequence[PredictedRun], table: pd.DataFrame, baselines: Mapping[str, str]
) -> list[Prediction]:
    """A prediction for each schedule of the table; `schedule` and `ending` name both, if there."""
    predictions: dict[str, Prediction] = {}
    tables = {str(name): rows for name, rows in table.groupby("run", sort=False)}
    for one in runs:
        if one.measured is not None:
            raise InputError(f"run {one.run}: has a loss; what is registered has none yet")
        rows = tables[one.run]
        key = _schedule(rows)
        if key in predictions:
            more = (*predictions[key].runs, one.run)
            predictions[key] = dataclasses.replace(predictions[key], runs=more)
            continue
        last = rows.iloc[-1]
        rates = [name for name in ("lr", "peak_lr") if name in rows]
        predictions[key] = Prediction(
            str(last.get("schedule", one.run)),
            (one.run,),
            one.tokens,
            one.loss,
            {name: _cell(last, column, name) for name, column in baselines.items()},
            str(last.get("ending", "")),
            float(np.max(rows[rates[0]].to_numpy(float))) if rates else None,
            extrapolates=one.extrapolates,
        )
    return list(predictions.values())


def _schedule(table: pd.DataFrame) -> str:
    """What two runs of one schedule share."""
    names = ("schedule", "ending", "params", "tokens", "batch", "lr", "peak_lr")
    columns = [name for name in names if name in table]
    return str(table[columns].to_csv(index=False))


def _baselines(given: Sequence[str]) -> dict[str, str]:
    """Of each --baseline, what it is told to be: a loss, or a column."""
    rules = {}
    for text in given:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value or name in rules:
            raise InputError(
                f"--baseline {text}: expected NAME=LOSS or NAME=COLUMN, each name once"
            )
        rules[name] = value
    return rules


def _cell(row: pd.Series, column: str, name: str) -> float:
    if column not in row:
        raise InputError(f"--baseline {name}={column}: --runs has no column {column}")
    return _number(row[column], name)


def _number(loss: Any, name: str) -> float:
    try:
        value = float(loss)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise InputError(f"--baseline {name}: {loss} is no loss; give one in nats, as 1.93")
    return value
