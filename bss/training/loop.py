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
from typing import Any, NamedTuple

import jax
import numpy as np
from jax.sharding import Mesh

from bss.errors import InputError, check
from bss.provenance import commit
from bss.schedules.plan import Plan
from bss.training import distributed
from bss.training.batches import Source, StepBatch, open_source, prefetch
from bss.training.checkpoint import missing_forks, saved
from bss.training.distributed import HostAction, Interrupted, on_all_hosts
from bss.training.evaluation import Evaluator
from bss.training.execution import Execution
from bss.training.loggers import Loggers
from bss.training.out_of_memory import check_memory, naming_size
from bss.training.programs import CompiledGroup, Programs, compilation_counter, compile_group
from bss.training.recorder import (
    NoActiveRuns,
    RunRecorder,
    ending_diverged,
    open_recorder,
    record_metrics,
)
from bss.training.resume import resume
from bss.training.run_config import DataConfig, RunConfig, fork_points
from bss.training.run_directory import RunStatus, read_status, run_path, status_at
from bss.training.sharding import DATA, make_mesh
from bss.training.step import Metrics, State, state_shapes
from bss.values import dotted, to_dict

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.5


class PlannedRun(NamedTuple):
    """A run with its plan, which is built once."""

    run: RunConfig
    plan: Plan


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
        The final status; at once if the run has finished before. If a run of a larger token budget
        is there, it is the status at the end of this one; see `run_directory.status_at`.

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
    plan = execution.plan(run)
    if not is_done(run, plan, execution):
        mesh = on_all_hosts(lambda: make_mesh(execution.devices, execution.fsdp))
        planned = [PlannedRun(run, plan)]
        _train(planned, execution, mesh, report, stop or Event(), vmapped=False)
        if distributed.is_multihost():  # the others may read before process 0 has written the end
            distributed.await_same(lambda: {"status": to_dict(read_status(path))})
    return status_at(path, plan)


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
        raise InputError("vmapped runs are trained by one process; train them separately")
    check(
        execution.fsdp == 1, "execution.fsdp", execution.fsdp, "1: vmapped runs are trained with it"
    )
    mesh = make_mesh(execution.devices)
    check(mesh.size == 1, "execution.devices", mesh.size, "1: vmapped runs are trained on it")
    planned = [PlannedRun(run, execution.plan(run)) for run in runs]
    if left := [one for one in planned if not is_done(*one, execution)]:
        _train(left, execution, mesh, report, stop or Event(), vmapped=True)
    return {run.id: status_at(run_path(execution.runs, run), plan) for run, plan in planned}


def is_done(run: RunConfig, plan: Plan, execution: Execution) -> bool:
    """Return True if nothing of the plan is left to train, and every fork point exists."""
    path = run_path(execution.runs, run)
    status = status_at(path, plan)
    if status.status == "diverged":
        return True
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
    planned: Sequence[PlannedRun],
    execution: Execution,
    mesh: Mesh,
    report: Report,
    stop: Event,
    *,
    vmapped: bool,
) -> None:
    """Open, resume and train runs; those at the same tokens together, group after group."""
    sources = on_all_hosts(lambda: _open_sources(planned, execution, mesh))
    trackers = execution.trackers if distributed.is_primary() else ()
    loggers = [Loggers(trackers) for _ in planned]
    with contextlib.ExitStack() as opened:
        recorders = [
            open_recorder(run, plan, execution, own, opened)
            for (run, plan), own in zip(planned, loggers, strict=True)
        ]
        try:
            shapes = state_shapes(planned[0].run, mesh)
            restored = resume(recorders, shapes)
            for recorder, _ in restored:
                if recorder.position.tokens > recorder.plan.tokens:  # of a larger token budget
                    recorder.end(RunStatus("interrupted", recorder.position.tokens))
            restored = [one for one in restored if not one[0].ended]
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
    planned: Sequence[PlannedRun], execution: Execution, mesh: Mesh
) -> dict[DataConfig, Source]:
    """Open the data of runs that have the steps of one plan."""
    sources: dict[DataConfig, Source] = {}
    for run, plan in planned:
        if run.data not in sources:
            source = open_source(run, Path(execution.data), mesh)
            source.check(plan.tokens // run.data.seq_len)
            sources[run.data] = source
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
    compiled = compile_group(group, sources, mesh, vmapped=vmapped)
    state = compiled.state
    runs = RunGroup([recorder for recorder, _ in group], compiled, mesh, stop)
    for recorder in runs.active.values():
        recorder.open_step_log(mesh)
    hosts = HostAgreement(mesh)
    pending: tuple[StepBatch, Metrics] | None = None
    reported_at = time.monotonic()
    with (
        compilation_counter() as compilations,
        contextlib.closing(Devices(runs.lead.execution.step_limit, compilations)) as devices,
        contextlib.closing(prefetch(compiled.batches, devices.busy)) as prefetched,
    ):
        clock = time.perf_counter()
        for batch in prefetched:
            tokens = batch.ends[-1]
            waited = time.perf_counter()
            program = devices.await_program(compiled.programs, batch.program)
            clock += time.perf_counter() - waited
            request = hosts.arguments_of(runs, tokens)
            state, metrics = devices.step(batch, program, (state, *batch.arguments, *request))
            # Metrics are read one dispatch late. Reading waits for the devices, which by now have
            # the next dispatch to work on, so they never wait for the host.
            if pending:
                _, hosts.agreed = runs.record(*pending, clock)
            pending = batch, metrics
            if time.monotonic() - reported_at > REPORT_SECONDS:
                reported_at = time.monotonic()
                runs.report_progress(report, time.perf_counter() - clock)
            action = hosts.decide(runs, tokens)
            if tokens in runs.events or action:
                hosts.agreed = HostAction.NONE
                at_event(runs, devices, state, pending, action, clock)
                pending = None
                clock = time.perf_counter()
    runs.save(state, wait=True)
    tested = compiled.evaluator.evaluate_test(state)
    for m, recorder in runs.active.items():
        losses = _select_run(tested, m)
        with runs.keeping_errors():
            recorder.end(
                recorder.finished(losses, mesh, len(compiled.programs), devices.recompilations)
            )
    runs.raise_errors()


def at_event(
    runs: "RunGroup",
    devices: "Devices",
    state: State,
    dispatch: tuple[StepBatch, Metrics],
    action: HostAction,
    clock: float,
) -> None:
    """Read the metrics of the last dispatch, then evaluate, save and stop, as is due.

    Args:
        runs: the runs.
        devices: what executes their programs.
        state: their state after the dispatch.
        dispatch: the last dispatch and its metrics, which are not recorded yet.
        action: what is requested; of several processes, after the dispatch before.
        clock: `time.perf_counter` at the start of the training steps that are not counted yet.

    Raises:
        Interrupted: After saving, if a stop is requested before the end.
        MultihostError: If a process failed to write.
    """
    batch, metrics = dispatch
    tokens = batch.ends[-1]
    grad_norm_F, agreed = runs.record(batch, metrics, clock)
    action = max(action, agreed)
    seconds = (time.perf_counter() - clock) / runs.size
    if action == HostAction.FAIL:
        runs.raise_errors()
    for recorder in runs.active.values():
        recorder.position.seconds += seconds
    if tokens in runs.lead.rows:
        losses = devices.evaluate(runs.compiled.evaluator, state)
        measures_noise = batch.buckets * runs.gradients > 1
        for m, recorder in [*runs.active.items()]:
            with ending_diverged(runs.active, m), runs.keeping_errors():
                grad_norm = float(grad_norm_F[m])
                recorder.add_row(_select_run(losses, m), grad_norm, noise=measures_noise)
    stops = action == HostAction.STOP and tokens < runs.lead.plan.tokens
    if tokens in runs.lead.forks or action:
        devices.guard.pause()
        runs.save(state, wait=stops)
    if stops:
        names = ", ".join(f"run {recorder.run.id}" for recorder in runs.active.values())
        raise Interrupted(f"{names} saved at {tokens} tokens")


class RunGroup:
    """The runs that one program trains.

    Attributes:
        active: their recorders by index, without those that have diverged.
        compiled: their programs.
        lead: the first recorder, for what they have in common.
        size: number of runs in the program, those that have diverged included.
        gradients: number of gradients that the devices compute per micro-batch.
        events: token counts at which steps are not only dispatched.
    """

    def __init__(
        self, recorders: Sequence[RunRecorder], compiled: CompiledGroup, mesh: Mesh, stop: Event
    ) -> None:
        self.active = dict(enumerate(recorders))
        self.compiled = compiled
        self.lead = recorders[0]
        self.size = len(recorders)
        self.gradients = mesh.shape[DATA]
        self.events = self.lead.rows | self.lead.forks
        self._stop = stop
        self._errors: list[OSError] = []

    def record(
        self, batch: StepBatch, metrics: Metrics, clock: float
    ) -> tuple[np.ndarray, HostAction]:
        """Fetch and record the metrics of a dispatch; see `record_metrics`."""
        return record_metrics(batch, metrics, self.active, self.size, self.gradients, clock)

    def request_action(self, tokens: int) -> HostAction:
        """Return what this process requests after the step that ends at `tokens`."""
        one = next(iter(self.active.values()))
        if self._errors:
            return HostAction.FAIL
        step = one.plan.step_at(tokens)
        preempted = distributed.is_multihost() and one.checkpoints.reached_preemption(step)
        if self._stop.is_set() or preempted:
            return HostAction.STOP
        return HostAction.SAVE if one.save_is_due() else HostAction.NONE

    def report_progress(self, report: Report, seconds: float) -> None:
        """Report every run, `seconds` after the last event."""
        for recorder in self.active.values():
            report(recorder.progress(seconds / self.size))

    def save(self, state: State, *, wait: bool) -> None:
        """Start saving; several runs keep at least one checkpoint that all of them have."""
        recorders = self.active.values()
        if len(self.active) > 1:
            for recorder in recorders:
                recorder.checkpoints.wait()
        for m, recorder in self.active.items():
            recorder.save(self.compiled.select(state, m))
        spent = sum(recorder.save_seconds for recorder in recorders)
        for recorder in recorders:
            recorder.save_seconds = spent
            if wait:
                recorder.checkpoints.wait()

    @contextlib.contextmanager
    def keeping_errors(self) -> Iterator[None]:
        """Keep an OSError, if there are other processes, until all know of it."""
        try:
            yield
        except OSError as error:
            if not distributed.is_multihost():
                raise
            self._errors.append(error)

    def raise_errors(self) -> None:
        """Raise, in all processes, the first error that one of them keeps."""

        def raise_own() -> None:
            if self._errors:
                raise self._errors[0]

        on_all_hosts(raise_own)


class HostAgreement:
    """The action on which several processes agree; a single process decides alone.

    Processes that compute together must save and stop after the same step, or one would wait for
    another that has left. So each passes its request to the step as an argument. The step returns
    the maximum of all requests with its metrics, so that no further communication is needed.

    Attributes:
        agreed: the maximum of the requests that was returned last, one dispatch late.
    """

    def __init__(self, mesh: Mesh) -> None:
        self.agreed = HostAction.NONE
        self._arguments: dict[HostAction, tuple[jax.Array, ...]] = {}
        if distributed.is_multihost():
            self._arguments = {a: distributed.host_action_arguments(a, mesh) for a in HostAction}

    def arguments_of(self, runs: RunGroup, tokens: int) -> tuple[jax.Array, ...]:
        """Return this process's request as arguments of a step; () for a single process."""
        if not self._arguments:
            return ()
        return self._arguments[runs.request_action(tokens)]

    def decide(self, runs: RunGroup, tokens: int) -> HostAction:
        """Return what is done after the step that ends at `tokens`."""
        return self.agreed if self._arguments else runs.request_action(tokens)


class Devices:
    """Executes programs on the devices.

    Attributes:
        busy: locked while nothing else may be started on the devices.
        guard: ends the process if the devices hang. Without it a job would hold its machines for
            nothing. It is paused for what has no limit of time: compilation and saves.
        recompilations: compilations after the first use of a program.
    """

    def __init__(self, step_limit: float, compilations: Callable[[], int]) -> None:
        self.busy = Lock()
        self.guard = distributed.HangGuard(step_limit)
        self.recompilations = 0
        self._compilations = compilations
        self._executed = set[int]()

    def await_program(self, programs: Programs, key: int) -> Any:
        """Return a program when it is compiled."""
        if key in self._executed:
            return programs[key].result()
        self.guard.pause()
        with naming_size("buckets", key):
            program = programs[key].result()
        check_memory(program, key)
        return program

    def step(
        self, batch: StepBatch, program: Any, arguments: tuple[Any, ...]
    ) -> tuple[State, Metrics]:
        """Dispatch a batch."""
        before = self._compilations()
        self.guard.watch()
        if batch.program in self._executed:
            state, metrics = program(*arguments)
        else:
            # The first execution of a program with cuDNN's kernels captures a CUDA graph: instead
            # of executing, it records everything that is started on the devices meanwhile. So
            # nothing else may be started, neither a transfer of the next batch nor an evaluation.
            with self.busy, naming_size("buckets", batch.program):
                state, metrics = jax.block_until_ready(program(*arguments))
            self._executed.add(batch.program)
        self.recompilations += self._compilations() - before
        return state, metrics

    def evaluate(self, evaluator: Evaluator, state: State) -> dict[str, Any]:
        """Return the held-out columns of a curve row."""
        self.guard.watch()
        before = self._compilations()
        with self.busy:
            losses = evaluator.evaluate(state)
        self.recompilations += self._compilations() - before
        return losses

    def close(self) -> None:
        """Stop the guard."""
        self.guard.close()


def _select_run(losses: Mapping[str, Any], m: int) -> dict[str, Any]:
    """Return one run's losses, given numbers or arrays over runs."""
    return {name: None if x is None else float(np.ravel(x)[m]) for name, x in losses.items()}
