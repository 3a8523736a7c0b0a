"""bss train: one run from CONFIG.json, {"run": {...}, "execution": {...}}."""

import argparse
import signal
import sys
from dataclasses import fields
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING, Any

from bss.cli.output import Output, Table, add_output_arguments, number
from bss.cli.plan import warn_of_second_moments
from bss.errors import InputError
from bss.files import read_json
from bss.units import format_tokens
from bss.values import to_dict

if TYPE_CHECKING:
    from bss.training.status import RunStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss train`."""
    parser.add_argument("config", type=Path, help='{"run": {...}, "execution": {...}}')
    together = parser.add_argument_group("several processes")
    together.add_argument("--processes", type=int, default=1, help="how many train it together")
    together.add_argument("--coordinator", default="", help="HOST:PORT of the first, or auto")
    together.add_argument("--process", type=int, help="which one this is, from 0")
    together.add_argument(
        "--patience", type=float, default=60.0, help="seconds in which all must have come together"
    )
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output | int:
    """Trains; SIGTERM and Ctrl-C save and leave with status 143."""
    from bss.training.launch import Joining, joined, start

    joining = Joining(*(getattr(options, f.name) for f in fields(Joining)))
    if joining.to_be_started:
        return start(joining.processes)
    with joined(joining):
        return _train(options)


def _train(options: argparse.Namespace) -> Output | int:
    job = read_job(options.config)
    from bss.sweeps.progress import Progress
    from bss.training.config import RunConfig
    from bss.training.execution import Execution, use_compilation_cache
    from bss.training.loop import Interrupted, train
    from bss.training.processes import first
    from bss.values import from_dict

    config = from_dict(RunConfig, job.get("run", {}), "run.")
    execution = from_dict(Execution, job.get("execution", {}), "execution.")
    use_compilation_cache(execution)
    if config.optimizer.second_moment:
        warn_of_second_moments(config.plan())
    stop = Event()
    for number_ in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number_, lambda *_: stop.set())
    progress = Progress(f"run {config.id}", quiet=options.json or not first())
    progress.add(config.id, execution.plan(config).tokens - config.start)
    try:
        with progress:
            status = train(
                config,
                execution,
                report=lambda p: progress.update(config.id, p["tokens"] - config.start),
                stop=stop,
            )
            progress.finish(config.id, status.status)
    except Interrupted as interrupted:
        print(f"bss train: {interrupted}; run the same command to continue", file=sys.stderr)
        return 143
    return _output(config.id, status) if first() else 0


def _output(run: str, status: "RunStatus") -> Output:
    payload = {"run": run, **to_dict(status)}
    if not status.finished:
        last = status.last_checkpoint
        kept = "no checkpoint" if last is None else f"the last good checkpoint, at {last:,} tokens"
        note = (
            f"run {run} diverged in the step that ended at {status.tokens:,} tokens; kept: {kept}"
        )
        return Output(payload, notes=[note])
    rows = [
        (s.batch, format_tokens(s.tokens), number(s.tokens_per_second), _share(s.mfu))
        for s in status.throughput
    ]
    columns = ("batch", "tokens", "tokens/s", "MFU")
    note = (
        f"held-out loss {number(status.losses['eval_loss'])} after {status.tokens:,} tokens, "
        f"{status.step:,} steps; {status.programs} programs, "
        f"{status.recompilations} recompilations"
    )
    return Output(payload, [Table(f"run {run}", columns, rows)], [note])


def _share(mfu: float | None) -> str:
    return "–" if mfu is None else f"{mfu:.1%}"


def read_job(path: Path) -> dict[str, Any]:
    """A run and how it is executed, as written by hand or by a sweep."""
    job = read_json(path, 'write {"run": {...}, "execution": {...}}', "config")
    if set(job) - {"run", "execution"}:
        raise InputError(f'config {path}: expected {{"run": {{...}}, "execution": {{...}}}}')
    return job
