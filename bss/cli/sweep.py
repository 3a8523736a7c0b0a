"""bss sweep: a set-up and axes from one config, trained, measured, fitted and reported."""

import argparse
import copy
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bss.cli.output import Output, Table, add_output_arguments, emit, number
from bss.errors import InputError

if TYPE_CHECKING:
    from bss.sweeps.answers import Answers
    from bss.sweeps.sweep import SweepConfig

SHOWN = 12  # runs that a dry run lists
DEFAULT_RUNS = "runs"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss sweep`."""
    add = parser.add_argument
    text = 'FILE.json, FILE.py or FILE.py:SIZE: {"setup": {...}, "axes": {"schedule.batch": [4]}}'
    add("config", help=text)
    text = "change the setup, as optimizer.lr=2e-3; again for more"
    add("--set", metavar="PATH=VALUE", action="append", default=[], dest="changes", help=text)
    text = "one more axis, as schedule.batch=4,8,16; every combination is trained"
    add("--axis", metavar="PATH=VALUES", action="append", default=[], dest="axes", help=text)
    add("--out", metavar="DIR", type=Path, help="its tables and report; its runs in DIR/runs")
    add("--dry-run", action="store_true", help="say what it costs, and train nothing")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output | int:
    """Trains the sweep, or prices it; Ctrl-C and SIGTERM save every run and leave.

    Examples:
        bss sweep SWEEP.json --out runs/mine --dry-run
        bss sweep SWEEP.json --axis optimizer.lr=1e-3,2e-3 --out runs/mine
    """
    config = _config(options)
    if config.dry_run:
        return _priced(config)
    from bss.sweeps.answers import run_sweep
    from bss.sweeps.slurm import Written

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        answers = run_sweep(config, "--out")
        assert answers  # this process is alone
        output = _output(answers)
        if not answers.failed:
            return output
        emit(output, as_json=options.json, plot=None)
        message = f"{answers.failed} runs failed and are in no table; the same command tries again"
        print(f"bss sweep: {message}", file=sys.stderr)
        return 1
    except Written as written:
        print(f"bss sweep: {written}", file=sys.stderr)
        return os.EX_TEMPFAIL
    except KeyboardInterrupt:
        message = "interrupted; every run is saved, the same command continues"
        print(f"bss sweep: {message}", file=sys.stderr)
        return 130
    finally:
        signal.signal(signal.SIGTERM, before)


def _config(options: argparse.Namespace) -> "SweepConfig":
    """What the file asks for, changed by the options."""
    from bss.sweeps.reading import read_config
    from bss.sweeps.sweep import SweepConfig
    from bss.values import from_dict

    entry = {"results": "", **read_config(options.config, "config")}
    entry |= {"results": str(options.out or entry["results"]), "dry_run": options.dry_run}
    if not (entry["results"] or options.dry_run):
        raise InputError("--out is missing; name a directory for the tables and the report")
    axis, setup = entry.get("axis", ()), copy.deepcopy(entry.get("setup", {}))
    if isinstance(axis, list | tuple):  # what is not as it should be is refused below
        entry["axis"] = [*axis, *options.axes]
    if isinstance(setup, dict):
        _change(setup, options.changes)
        engine = setup.setdefault("engine", {})
        if isinstance(engine, dict) and engine.get("runs", DEFAULT_RUNS) == DEFAULT_RUNS:
            engine["runs"] = str(Path(entry["results"]) / "runs")
    config = from_dict(SweepConfig, {**entry, "setup": setup})
    _refuse_without_effect(options.changes, config)
    return config


def _refuse_without_effect(changes: Sequence[str], config: "SweepConfig") -> None:
    from bss.sweeps.axes import parse_set

    axes = [axis for axis in config.every_axis() if not callable(axis)]
    varied = {name for axis in axes for overlay in axis for name in overlay}
    for text in changes:
        if (name := ".".join(parse_set(text)[0])) in varied:
            raise InputError(
                f"--set {text} has no effect: an axis varies {name}; change the config's axes"
            )


def _change(setup: dict[str, Any], changes: Sequence[str]) -> None:
    """Puts what --set says in its places."""
    from bss.sweeps.axes import parse_set

    for text in changes:
        (*groups, leaf), value = parse_set(text)
        place: Any = setup
        for group in groups:
            place = place.setdefault(group, {})
            if not isinstance(place, dict):
                raise InputError(f"--set {text}: {group} is {place!r}, which has no fields")
        place[leaf] = value


def _priced(config: "SweepConfig") -> Output:
    """What the sweep costs, and of which runs it is."""
    from bss.sweeps.price import price
    from bss.sweeps.sweep import planned
    from bss.sweeps.table import differing

    runs = planned(config.setup, config.every_axis())
    cost, varied = price(runs), differing(runs)
    names = list(varied[runs[0].id])
    shown = [
        (
            run.seed,
            number(run.optimizer.lr),
            *varied[run.id].values(),
            f"{price([run]).flops:.2g}",
        )
        for run in runs[:SHOWN]
    ]
    more = [f"and {len(runs) - SHOWN} more"] if len(runs) > SHOWN else []
    table = Table("runs", ("seed", "peak lr", *names, "FLOPs"), shown)
    return Output(asdict(cost), [table], [*more, str(cost)])


def _output(answers: "Answers") -> Output:
    from bss.cli.of_es import es_table

    finals, fits = answers.swept.finals, answers.fits
    best = finals.loc[finals["eval_loss"].idxmin()]
    payload = {
        "report": str(answers.report),
        "runs": list(finals["run"]),
        "fit": fits[""].to_dict() if "" in fits else None,
        "fits": {name: fit.to_dict() for name, fit in fits.items()},
        "warnings": answers.remarks,
    }
    notes = [f"warning: {text}" for text in answers.remarks]
    lowest = f"{number(best['eval_loss'])} of run {best['run']}, batch {best['batch']}"
    notes += [f"{len(finals)} runs finished; lowest held-out loss {lowest}"]
    notes += [f"report: {answers.report}"]
    tables = []
    for name, fit in fits.items():
        table = es_table(fit)
        tables.append(replace(table, title=f"{name}: {table.title}" if name else table.title))
    return Output(payload, tables, notes)
