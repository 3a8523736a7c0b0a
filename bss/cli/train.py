"""bss train: one run from RUN.json, {"run": {...}, "execution": {...}}."""

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from bss.cells import Table, number
from bss.cli.output import Output, Show
from bss.cli.plan import warn_about
from bss.errors import InputError
from bss.files import read_json
from bss.sweeps.engines import JointEngine
from bss.sweeps.progress import Progress
from bss.sweeps.setup import EngineConfig
from bss.training.allocator import keep_freed_memory
from bss.training.distributed import (
    DistributedConfig,
    MultihostError,
    initialized,
    is_primary,
)
from bss.training.execution import COMPILED, Execution
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus
from bss.values import from_dict, to_dict

THROUGHPUT = ("batch", "tokens", "tokens_per_second", "mfu")


PROCESSES = Parameter(name="*", group=Group("Several processes", sort_key=2))
ALONE = DistributedConfig()


def train(
    config: Path,
    /,
    *,
    processes: Annotated[DistributedConfig, PROCESSES] = ALONE,
    show: Show = Show(),
) -> Output | int:
    """Train one run; Ctrl-C and SIGTERM save it and exit with status 130 and 143.

    Args:
        config: JSON: {"run": {...}, "execution": {...}}

    Examples:
        bss train RUN.json
        bss train RUN.json --json
    """
    keep_freed_memory()
    with initialized(processes):
        return _train(config, show)


def _train(path: Path, show: Show) -> Output | int:
    config, execution = read_job(path)
    if not execution.compilation_cache:
        compiled = str(Path(execution.runs) / COMPILED)
        execution = replace(execution, compilation_cache=compiled)
    warn_about(config.plan(), second_moment=config.optimizer.second_moment)
    progress = Progress(f"run {config.id}", quiet=show.json or not is_primary())
    status = JointEngine(EngineConfig()).train([config], execution, progress)[config.id]
    if status.status == "failed":
        raise MultihostError(status.message)
    return _output(config.id, status) if is_primary() else 0


def _output(run: str, status: RunStatus) -> Output:
    payload = {"run": run, **to_dict(status)}
    if not status.finished:
        last = status.last_checkpoint
        kept = "no checkpoint" if last is None else f"the last good checkpoint, at {last:,} tokens"
        return Output(
            payload,
            f"run {run} diverged in the step that ended at {status.tokens:,} tokens; kept: {kept}",
        )
    loss = number(status.losses.get("eval_loss"))
    error = number(status.losses.get("eval_loss_se"))
    answer = (
        f"held-out loss {loss} ± {error} after {status.tokens:,} tokens, {status.step:,} steps; "
        f"{status.programs} programs, {status.recompilations} recompilations"
    )
    if status.skipped:
        answer += f"; {status.skipped} steps skipped as spikes"
    table = Table.of_records(f"run {run}", map(to_dict, status.throughput), THROUGHPUT)
    return Output(payload, answer, [table])


def read_job(path: Path) -> tuple[RunConfig, Execution]:
    """Read a run and how it is executed, as a user or a sweep writes them."""
    job = read_json(path, 'write {"run": {...}, "execution": {...}}', "config")
    if set(job) - {"run", "execution"}:
        raise InputError(f'config {path}: expected {{"run": {{...}}, "execution": {{...}}}}')
    config = from_dict(RunConfig, job.get("run", {}), "run.")
    return config, from_dict(Execution, job.get("execution", {}), "execution.")
