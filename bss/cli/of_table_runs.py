"""Runs of a table predicted by a fit of final losses, each at its own rate."""

import argparse

import numpy as np
import pandas as pd

from bss.cells import Table, estimate, number
from bss.cli.output import Output
from bss.cli.predict import PredictedRun
from bss.errors import InputError
from bss.laws import TableFit, check_losses
from bss.laws.base import Estimate
from bss.tables.reading import Reading
from bss.tables.storage import read_table
from bss.values import to_dict


def of_runs(fit: TableFit, options: argparse.Namespace) -> Output:
    """The final loss of each run of the table that the options name."""
    for name in ("params", "tokens", "batch", "lr"):
        if getattr(options, name, None) is not None:
            raise InputError(f"--{name}: the runs of --runs have their own; leave one of them out")
    how = Reading.parse(options.columns, getattr(options, "seq_len", None) or _length(fit))
    frame, origin = read_table(options.runs, how)
    table = check_losses(frame if "loss" in frame else frame.assign(loss=float("nan")), origin)
    rated = fit.with_lr and "lr" in table
    columns = ["params", "tokens", "batch_tokens", *(["lr"] if rated else [])]
    outside = [
        fit.outside(dict(zip(columns, row, strict=True)))
        for row in table[columns].itertuples(index=False, name=None)
    ]
    for i in (i for i, beyond in enumerate(outside) if beyond and not options.extrapolate):
        fit.check_tested({name: float(table[name].iloc[i]) for name in columns})
    found = fit.predict(table[columns])
    losses = [Estimate(a, b, c, fit.level) for a, b, c in found.to_numpy(float).tolist()]
    runs = []
    if "run" not in table:
        table = table.assign(run=[str(i + 1) for i in range(len(table))])
    ends = zip(table["run"], table["tokens"], losses, table["loss"], outside, strict=True)
    for name, tokens, loss, measured, beyond in ends:
        known = float(measured) if np.isfinite(measured) else None
        error = None if known is None else (loss.value or 0.0) - known
        runs.append(PredictedRun(str(name), int(tokens), loss, known, error, tuple(beyond)))
    return _runs_output(fit, runs, table, columns)


def _length(fit: TableFit) -> int | None:
    return None if fit.seq_len is None else int(fit.seq_len)


def _runs_output(
    fit: TableFit, runs: list[PredictedRun], table: pd.DataFrame, columns: list[str]
) -> Output:
    known = [one for one in runs if one.error is not None]
    errors, losses = (np.array([getattr(x, n) for x in known]) for n in ("error", "measured"))
    rmse = float(np.sqrt(np.mean(errors**2))) if known else None
    spread = float(np.sum((losses - losses.mean()) ** 2)) if len(known) > 1 else 0.0
    r2 = 1 - float(np.sum(errors**2)) / spread if spread else None
    rows = table[columns].to_numpy(float).tolist()
    entries = [
        {"run": one.run, **dict(zip(columns, row, strict=True)), "loss": to_dict(one.loss),
         "measured": one.measured, "error": one.error, "outside": list(one.extrapolates)}
        for one, row in zip(runs, rows, strict=True)
    ]  # fmt: skip
    payload = {"kind": "prediction", "of": "table", "predictions": entries, "rmse": rmse, "r2": r2}
    cells = {
        "run": lambda one: one.run,
        f"predicted ({fit.level:.0%})": lambda one: estimate(one.loss),
        "measured": lambda one: number(one.measured),
        "error": lambda one: "–" if one.error is None else f"{one.error:+.4f}",
        "outside": lambda one: ", ".join(one.extrapolates),
    }
    notes = [] if "lr" in columns else ["warning: losses are those of tuned rates"]
    if known:
        share = "" if r2 is None else f", R² {r2:.3f}"
        notes.append(f"rms error {rmse:.2g} nats over {len(known)} runs{share}")
    title = "predicted final losses, nats, each at its own rate"
    return Output(payload, [Table.of(title, runs, cells)], notes)
