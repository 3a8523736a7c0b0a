"""Training: from the configs of runs to their loss curves.

`train` trains one run; `train_vmapped` trains runs of one `vmap_key` in one program. Everything is
keyed by tokens consumed. Between two events (an evaluation, a fork point, a batch change) steps are
only dispatched. The metrics of a dispatch are read after the next one has started.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from threading import Event, Lock
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bss.errors import InputError, check
from bss.provenance import commit
from bss.training import distributed
from bss.training.batches import Source, StepBatch, open_source, prefetch
from bss.training.checkpoint import missing_forks, saved
from bss.training.distributed import HostAction, Interrupted, on_all_hosts
from bss.training.execution import Execution
from bss.training.loggers import Loggers
from bss.training.programs import compilation_counter, compile_group
from bss.training.recorder import (
    NoActiveRuns,
    RunRecorder,
    ending_diverged,
    open_recorder,
    record_metrics,
    resume,
)
from bss.training.run_config import DataConfig, RunConfig, fork_points
from bss.training.run_directory import RunStatus, read_status, run_path
from bss.training.sharding import DATA, make_mesh
from bss.training.step import Metrics, State, state_shapes
from bss.values import dotted, to_dict

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.5


def train(
    run: RunConfig,
    execution: Execution,
    *,
    report: Report = lambda _: None,
    stop: Event | None = None,
) -> RunStatus:
    """Train a run to its token budget, from its newest checkpoint.

    Args:
        run: the run.
        execution: Devices, directory and kernels of the run.
        report: called about twice a second with tokens, loss and tokens_per_second.
        stop: if it is set, the run is saved at the next step and Interrupted is raised.

    Returns:
        The final status; at once if the run has finished before.

    Raises:
        InputError: If the config, the data or the directory is bad.
        Interrupted: After saving, if the run received a request to stop.
    """
    path = run_path(execution.runs, run)
    if distributed.is_multihost():
        distributed.assert_same(_facts(run, execution))
        distributed.await_same(
            lambda: {"status": to_dict(read_status(path)), "checkpoints": saved(path)}
        )
    execution.plan(run)
    if not is_done(run, execution):
        mesh = on_all_hosts(lambda: make_mesh(execution.devices, execution.fsdp))
        _train([run], execution, mesh, report, stop or Event(), vmapped=False)
    return read_status(path)


def train_vmapped(
    runs: Sequence[RunConfig],
    execution: Execution,
    *,
    report: Report = lambda _: None,
    stop: Event | None = None,
) -> dict[str, RunStatus]:
    """Train runs of one `vmap_key` in one program on one device; see `train`.

    Returns:
        The final status of each run, by id.
    """
    if distributed.is_multihost():
        raise InputError("a fleet is trained by one process; train its runs separately")
    check(execution.fsdp == 1, "execution.fsdp", execution.fsdp, "1: a fleet is trained with it")
    mesh = make_mesh(execution.devices)
    check(mesh.size == 1, "execution.devices", mesh.size, "1: a fleet is trained on it")
    if left := [run for run in runs if not is_done(run, execution)]:
        _train(left, execution, mesh, report, stop or Event(), vmapped=True)
    return {run.id: read_status(run_path(execution.runs, run)) for run in runs}


def is_done(run: RunConfig, execution: Execution) -> bool:
    """Return True if nothing of the plan is left to train, and every fork point exists."""
    plan, path = execution.plan(run), run_path(execution.runs, run)
    status = read_status(path)
    if status.status == "diverged":
        return status.tokens <= plan.tokens
    if not status.finished or status.tokens < plan.tokens:
        return False
    return not missing_forks(path, fork_points(run, plan, execution.forks))


def _facts(run: RunConfig, execution: Execution) -> dict[str, Any]:
    """Return the facts in which processes that train a run together must not differ."""
    own = {"data": ""}  # each may have a copy of the same content
    values = {**to_dict(run), "execution": asdict(execution) | own}
    leaves = {name: x for name, x in dotted(values) if not isinstance(x, Mapping)}
    return {"commit": commit(), "jax": jax.__version__, **leaves}


def _train(
    runs: Sequence[RunConfig],
    execution: Execution,
    mesh: Mesh,
    report: Report,
    stop: Event,
    *,
    vmapped: bool,
) -> None:
    """Open, resume and train runs; those at the same tokens together, group after group."""
    sources = on_all_hosts(lambda: _open_sources(runs, execution, mesh))
    loggers = [Loggers(execution.trackers if distributed.is_primary() else ()) for _ in runs]
    with contextlib.ExitStack() as opened:
        recorders = [
            open_recorder(run, execution, own, opened)
            for run, own in zip(runs, loggers, strict=True)
        ]
        try:
            shapes = state_shapes(runs[0], mesh)
            restored = resume(recorders, shapes)
            for _, group in groupby(restored, key=lambda one: one[0].position.tokens):
                with contextlib.suppress(NoActiveRuns):
                    train_and_evaluate([*group], sources, mesh, report, stop, vmapped=vmapped)
        except Interrupted:
            _end(recorders, lambda one: RunStatus("interrupted", one.position.tokens))
            raise
        except (InputError, OSError) as error:
            message = str(error)
            with contextlib.suppress(OSError):  # a full disk has no space for a status
                _end(recorders, lambda one: one.failed(message))
            raise


def _open_sources(
    runs: Sequence[RunConfig], execution: Execution, mesh: Mesh
) -> dict[DataConfig, Source]:
    """Open the data of runs that have the steps of one plan."""
    plan, sources = execution.plan(runs[0]), dict[DataConfig, Source]()
    for run in {run.data: run for run in runs}.values():
        sources[run.data] = source = open_source(run, Path(execution.data), mesh)
        source.check(plan.tokens // run.data.seq_len)
    return sources


def _end(recorders: Sequence[RunRecorder], status: Callable[[RunRecorder], RunStatus]) -> None:
    for recorder in recorders:
        if not recorder.ended:
            recorder.end(status(recorder))


def train_and_evaluate(
    group: Sequence[tuple[RunRecorder, State]],
    sources: Mapping[DataConfig, Source],
    mesh: Mesh,
    report: Report,
    stop: Event,
    *,
    vmapped: bool,
) -> None:
    """Train runs at the same tokens to their token budget: step, evaluate, save, finish.

    Args:
        group: the runs and their states.
        sources: the sequences by data config.
        mesh: the devices.
        report: see `train`.
        stop: see `train`.
        vmapped: use the program of several runs, also for one.

    Raises:
        NoActiveRuns: If all have diverged.
        Interrupted: After saving.
    """
    state, batches, programs, evaluator, select = compile_group(
        group, sources, mesh, vmapped=vmapped
    )
    active = {m: recorder for m, (recorder, _) in enumerate(group)}
    lead, runs = active[0], len(group)
    plan, events, rows = lead.plan, lead.rows | lead.forks, lead.rows
    gradients = mesh.shape[DATA]
    # The first execution of a program with cuDNN's kernels captures, instead of executing,
    # everything that is started on the devices: nothing else may be.
    busy, executed = Lock(), set[int]()
    pending: tuple[StepBatch, Metrics] | None = None
    agreed, errors = HostAction.NONE, list[OSError]()
    actions = {
        a: distributed.host_action_arguments(a, mesh)
        for a in HostAction
        if distributed.is_multihost()
    }
    recompilations, reported_at = 0, time.monotonic()
    guard = distributed.HangGuard(lead.execution.step_limit)
    with (
        compilation_counter() as compilations,
        contextlib.closing(guard),
        contextlib.closing(prefetch(batches, busy)) as prefetched,
    ):
        clock = time.perf_counter()
        for batch in prefetched:
            tokens, waited = batch.ends[-1], time.perf_counter()
            if batch.program not in executed:
                guard.pause()
            program = programs[batch.program].result()
            clock += time.perf_counter() - waited
            own = actions[requested_action(active, stop, errors, tokens)] if actions else ()
            arguments, before = (state, *batch.arguments, *own), compilations()
            guard.watch()
            if batch.program in executed:
                state, metrics = program(*arguments)
            else:
                with busy:
                    state, metrics = jax.block_until_ready(program(*arguments))
                executed.add(batch.program)
            recompilations += compilations() - before
            if pending:
                _, agreed = record_metrics(*pending, active, runs, gradients)
            pending = batch, metrics
            if time.monotonic() - reported_at > REPORT_SECONDS:
                reported_at = time.monotonic()
                for recorder in active.values():
                    report(recorder.progress((time.perf_counter() - clock) / runs))
            action = agreed if actions else requested_action(active, stop, errors, tokens)
            if tokens not in events and not action:
                continue
            # An event: read the metrics, evaluate, save, stop.
            grad_norm_F, agreed = record_metrics(*pending, active, runs, gradients)
            action, agreed, pending = max(action, agreed), HostAction.NONE, None
            seconds = (time.perf_counter() - clock) / runs
            if action == HostAction.FAIL:
                on_all_hosts(lambda: _raise(errors))
            for recorder in active.values():
                recorder.position.seconds += seconds
            if tokens in rows:
                guard.watch()
                noise, before = batch.buckets * gradients > 1, compilations()
                with busy:
                    losses = evaluator.evaluate(state)
                recompilations += compilations() - before
                for m, recorder in [*active.items()]:
                    with ending_diverged(active, m), keeping(errors):
                        grad_norm = float(grad_norm_F[m])
                        recorder.add_row(_of_run(losses, m), grad_norm, noise=noise)
            stops = action == HostAction.STOP and tokens < plan.tokens
            if tokens in lead.forks or action:
                guard.pause()
                save(active, state, select, wait=stops)
            if stops:
                names = ", ".join(f"run {recorder.run.id}" for recorder in active.values())
                raise Interrupted(f"{names} saved at {tokens} tokens")
            clock = time.perf_counter()
    save(active, state, select, wait=True)
    tested = evaluator.evaluate_test(state)
    for m, recorder in active.items():
        numbers = _of_run(tested, m), mesh, len(programs), recompilations
        with keeping(errors):
            recorder.end(recorder.finished(*numbers))
    on_all_hosts(lambda: _raise(errors))


def requested_action(
    active: dict[int, RunRecorder], stop: Event, errors: list[OSError], tokens: int
) -> HostAction:
    """Return what this process requests after a step."""
    lead = next(iter(active.values()))
    if errors:
        return HostAction.FAIL
    step = lead.plan.step_at(tokens)
    if stop.is_set() or (distributed.is_multihost() and lead.checkpoints.reached_preemption(step)):
        return HostAction.STOP
    return HostAction.SAVE if lead.save_is_due() else HostAction.NONE


@contextlib.contextmanager
def keeping(errors: list[OSError]) -> Iterator[None]:
    """Keep an OSError, if there are other processes, until all know of it."""
    try:
        yield
    except OSError as error:
        if not distributed.is_multihost():
            raise
        errors.append(error)


def _raise(errors: list[OSError]) -> None:
    if errors:
        raise errors[0]


def save(
    active: dict[int, RunRecorder],
    state: State,
    select: Callable[[State, int], State],
    *,
    wait: bool,
) -> None:
    """Start saving runs; several keep at least one checkpoint that all of them have."""
    if len(active) > 1:
        for recorder in active.values():
            recorder.checkpoints.wait()
    for m, recorder in active.items():
        recorder.save(select(state, m))
    spent = sum(recorder.save_seconds for recorder in active.values())
    for recorder in active.values():
        recorder.save_seconds = spent
        if wait:
            recorder.checkpoints.wait()


def _of_run(losses: Mapping[str, Any], m: int) -> dict[str, Any]:
    """Return one run's losses, given numbers or arrays over runs."""
    return {name: None if x is None else float(np.ravel(x)[m]) for name, x in losses.items()}
