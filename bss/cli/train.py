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
    from bss.training.execution import Execution
    from bss.training.run_config import RunConfig
    from bss.training.run_directory import RunStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss train`."""
    parser.add_argument("config", type=Path, help='{"run": {...}, "execution": {...}}')
    several = parser.add_argument_group("several processes")
    several.add_argument("--processes", type=int, default=1, help="processes that train the run")
    several.add_argument("--coordinator", default="", help="HOST:PORT of process 0, or auto")
    several.add_argument("--process", type=int, help="index of this process, from 0")
    text = "seconds in which all processes must connect"
    several.add_argument("--init-timeout", type=float, default=60.0, help=text)
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output | int:
    """Trains; Ctrl-C and SIGTERM save and leave with status 130 and 143.

    Examples:
        bss train CONFIG.json
        bss train CONFIG.json --json
    """
    from bss.training.distributed import DistributedConfig, initialized

    values = {f.name: getattr(options, f.name) for f in fields(DistributedConfig)}
    with initialized(DistributedConfig(**values)):
        return _train(options)


def _train(options: argparse.Namespace) -> Output | int:
    config, execution = read_job(options.config)
    from bss.sweeps.engines import train_each
    from bss.sweeps.progress import Progress
    from bss.training.distributed import is_multihost, is_primary, log_primary
    from bss.training.loop import Interrupted

    warn_of(config.plan(), second_moment=config.optimizer.second_moment)
    stop, signals = Event(), list[int]()

    def ask(number: int, _: object) -> None:
        signals.append(number)
        stop.set()

    # Of several processes, SIGTERM is the preemption signal, which JAX sends to all of them.
    for one in (signal.SIGINT,) if is_multihost() else (signal.SIGTERM, signal.SIGINT):
        signal.signal(one, ask)
    progress = Progress(f"run {config.id}", quiet=options.json or not is_primary())
    try:
        status = train_each([config], execution, progress, stop)[config.id]
    except Interrupted as interrupted:
        log_primary(f"bss train: {interrupted}; run the same command to continue")
        return 128 + (signals or [signal.SIGTERM])[0]
    return _output(config.id, status) if is_primary() else 0


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
    from bss.training.execution import Execution
    from bss.training.run_config import RunConfig

    config = from_dict(RunConfig, job.get("run", {}), "run.")
    return config, from_dict(Execution, job.get("execution", {}), "execution.")
