"""Train a sweep, measure its runs, fit E(S) and write the tables and the report."""

import sys
from contextlib import nullcontext
from typing import Any

import pandas as pd

from bss.cells import Table, number
from bss.cli.output import Output
from bss.files import locked
from bss.laws.base import DRAWS, Options
from bss.report.measured import fit_conditions
from bss.report.page import write_report
from bss.sweeps.config import SweepConfig
from bss.sweeps.engine import Engine
from bss.sweeps.engines import engine_of
from bss.sweeps.grid import Axis
from bss.sweeps.results import Results
from bss.sweeps.sweep import planned, tables, trained
from bss.training.distributed import is_primary, on_all_hosts


def run_sweep(config: SweepConfig) -> Output | None:
    """Train a sweep and write its results directory; called again, train what is left.

    Args:
        config: the sweep.

    Returns:
        The answers, with the path of the report in the notes; None in a process that leaves the
        writing to process 0.

    Raises:
        InputError: If the config is wrong or the directory has another sweep, before anything is
            trained; or if no run finished.
    """
    axes = config.every_axis()
    results = on_all_hosts(lambda: Results(config, option="--out"))
    kind = engine_of(config.engine)
    planned(config.setup, axes, kind)  # before the directory is made
    with locked(results.directory / ".lock") if is_primary() else nullcontext():
        return _answers(config, results, axes, kind)


def _answers(
    config: SweepConfig, results: Results, axes: list[Axis], kind: type[Engine]
) -> Output | None:
    """Train what is left, measure and write it."""
    runs, trainer = trained(config.setup, axes, kind, config.title)
    if not is_primary():
        return None
    swept = tables(runs, trainer)
    options = Options(config.resamples, draws=DRAWS)
    warmup = config.setup.schedule.warmup
    found = fit_conditions(swept.runs, options, count=config.targets, warmup=warmup)
    remarks = [*found.missing, *found.warnings]
    points = [x.assign(condition=name) if name else x for name, x in found.points.items()]
    files: dict[str, Any] = {"points.csv": pd.concat(points)} if points else {}
    entries = {name: {fit.law_name: fit} for name, fit in found.fits.items()}
    if entries:
        files["fits.json"] = entries.get("", entries)
    report = results.directory / "report.html"
    results.write(
        {"runs.parquet": swept.runs, "finals.csv": swept.finals, **files},
        trainer,
        conclusions=[] if entries else remarks,
    )
    write_report(results.directory, report)
    if failed := sum(x.status in ("failed", "interrupted") for x in trainer.statuses.values()):
        message = f"{failed} runs failed and are in no table; the same command tries again"
        print(f"bss sweep: {message}", file=sys.stderr)
    fits = {name: fit.to_dict() for name, fit in found.fits.items()}
    payload = {"report": str(report), "runs": list(swept.finals["run"]), "fit": fits.get("")}
    return Output(
        payload | {"fits": fits, "warnings": remarks},
        f"{len(swept.finals)} runs finished; {lowest_loss(swept.finals)}",
        [Table.of_frame(f"{n} {x.answer}".strip(), x.summary()) for n, x in found.fits.items()],
        remarks,
        [f"report: {report}"],
        status=1 if failed else 0,
    )


def lowest_loss(finals: pd.DataFrame) -> str:
    """Return the lowest final held-out loss and its run as text.

    A run need not be evaluated at its end, e.g. one that a longer run was cut to.
    """
    measured = finals.dropna(subset=["eval_loss"]) if "eval_loss" in finals else finals[:0]
    if measured.empty:
        return "no held-out loss was measured at the end of a run"
    best = measured.loc[measured["eval_loss"].astype(float).idxmin()]
    loss = number(best["eval_loss"])
    return f"lowest held-out loss {loss} of run {best['run']}, batch {best['batch']}"
