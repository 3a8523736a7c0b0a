"""bss train: one run from CONFIG.json, {"run": {...}, "execution": {...}}."""

import argparse
import signal
from dataclasses import fields
from pathlib import Path
from threading import Event
from typing import TYPE_CHECKING

from bss.cli.output import Output, Table, add_output_arguments, number, with_error
from bss.cli.plan import warn_of
from bss.errors import InputError
from bss.files import read_json
from bss.units import format_tokens
from bss.values import from_dict, to_dict

if TYPE_CHECKING:
    from bss.training.config import RunConfig
    from bss.training.execution import Execution
    from bss.training.record.status import RunStatus


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
    text = "how often they are started again where a process or a device is lost"
    together.add_argument("--restarts", type=int, default=0, help=text)
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output | int:
    """Trains; Ctrl-C and SIGTERM save and leave with status 130 and 143.

    Examples:
        bss train CONFIG.json
        bss train CONFIG.json --json
    """
    from bss.training.devices.launch import Joining, joined
    from bss.training.devices.starter import check_restarts, start

    joining = Joining(*(getattr(options, f.name) for f in fields(Joining)))
    if joining.restarts:
        seconds = read_job(options.config)[1].checkpoint_seconds
        check_restarts(joining.restarts, seconds, "execution.checkpoint_seconds")
    if joining.to_be_started:
        return start(joining)
    with joined(joining):
        return _train(options)


def _train(options: argparse.Namespace) -> Output | int:
    config, execution = read_job(options.config)
    from bss.sweeps.engines import train_each
    from bss.sweeps.progress import Progress
    from bss.training.devices.processes import first, say
    from bss.training.running.loop import Interrupted

    warn_of(config.plan(), second_moment=config.optimizer.second_moment)
    stop, signals = Event(), list[int]()

    def ask(number: int, _: object) -> None:
        signals.append(number)
        stop.set()

    for one in (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, ask)
    progress = Progress(f"run {config.id}", quiet=options.json or not first())
    try:
        status = train_each([config], execution, progress, stop)[config.id]
    except Interrupted as interrupted:
        say(f"bss train: {interrupted}; run the same command to continue")
        return 128 + signals[0]
    return _output(config.id, status) if first() else 0


def _output(run: str, status: "RunStatus") -> Output:
    payload = {"run": run, **to_dict(status)}
    if not status.finished:
        last = status.last_checkpoint
        left = "no checkpoint" if last is None else f"the last good checkpoint, at {last:,} tokens"
        note = (
            f"run {run} diverged in the step that ended at {status.tokens:,} tokens; kept: {left}"
        )
        return Output(payload, notes=[note])
    cells = {
        "batch": lambda s: s.batch,
        "tokens": lambda s: format_tokens(s.tokens),
        "tokens/s": lambda s: number(s.tokens_per_second),
        "MFU": lambda s: "–" if s.mfu is None else f"{s.mfu:.1%}",
    }
    reached = with_error(status.losses["eval_loss"], status.losses.get("eval_loss_se"))
    note = (
        f"held-out loss {reached} after {status.tokens:,} tokens, "
        f"{status.step:,} steps; {status.programs} programs, "
        f"{status.recompilations} recompilations"
    )
    return Output(payload, [Table.of(f"run {run}", status.throughput, cells)], [note])


def read_job(path: Path) -> "tuple[RunConfig, Execution]":
    """A run and how it is executed, as written by hand or by a sweep."""
    job = read_json(path, 'write {"run": {...}, "execution": {...}}', "config")
    if set(job) - {"run", "execution"}:
        raise InputError(f'config {path}: expected {{"run": {{...}}, "execution": {{...}}}}')
    from bss.training.config import RunConfig
    from bss.training.execution import Execution

    config = from_dict(RunConfig, job.get("run", {}), "run.")
    return config, from_dict(Execution, job.get("execution", {}), "execution.")
