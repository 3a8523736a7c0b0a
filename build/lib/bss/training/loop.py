"""One run, from its config to its curve: restore, step, evaluate, checkpoint, finish.

Everything is keyed by tokens consumed. Between two events (an evaluation, a fork point, a batch
change) the loop only dispatches steps, and reads a step's metrics after the next is dispatched.
"""

import contextlib
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from threading import Event, Lock
from typing import Any

import jax
from jax.sharding import Mesh

from bss.errors import InputError
from bss.schedules.plan import Plan
from bss.training.buckets import check_split, compilations
from bss.training.checkpoint import missing_forks, open_checkpoints, saved
from bss.training.config import RunConfig
from bss.training.directory import open_run, read_status, run_path
from bss.training.execution import Execution, commit, peak_flops
from bss.training.fsdp import gradients_a_bucket
from bss.training.largest import by_memory
from bss.training.ledger import Diverged, Ledger, fork_points
from bss.training.mesh import make_mesh
from bss.training.prefetch import StepInput, prefetch, step_inputs
from bss.training.processes import Wish, check_same, in_turn, several, together, wished
from bss.training.session import Session
from bss.training.source import Source, open_source
from bss.training.status import RunStatus
from bss.training.step import Metrics
from bss.values import to_dict

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.5


class Interrupted(Exception):
    """The run was asked to stop; its state is saved."""


def train(
    run: RunConfig,
    execution: Execution,
    *,
    report: Report = lambda _: None,
    stop: Event | None = None,
) -> RunStatus:
    """Trains a run to its stop, from wherever its directory says it is.

    Args:
        run: what to train.
        execution: where and how.
        report: called about twice a second with tokens, loss and tokens_per_second.
        stop: set it to save and raise Interrupted at the next step.

    Returns:
        The final status; at once where the run has finished before.

    Raises:
        InputError: bad config, data or directory.
        Interrupted: after saving, when asked to stop.
    """
    path = run_path(execution.runs, run)
    if several():
        check_same(_facts(run, execution))
    plan = execution.plan(run)
    if is_done(run, plan, execution):
        return read_status(path)
    mesh = together(lambda: make_mesh(execution.devices, execution.fsdp))
    if execution.fit:
        execution = together(lambda: by_memory(run, execution, plan, mesh))
        check_same({"execution.fit: buckets by memory": execution.buckets})
    source = together(lambda: _opened(run, execution, plan, mesh))
    with contextlib.ExitStack() as stack:
        directory = together(lambda: stack.enter_context(open_run(path)))
        in_turn(lambda: directory.check_config(run))
        checkpoints = stack.enter_context(open_checkpoints(path))
        ledger = Ledger(run, execution, plan, directory, checkpoints)
        try:
            session = Session(ledger, source, mesh)
            loop = _Loop(session, report, stop or Event())
            loop.run()
            tested, programs = session.test_losses(), len(session.programs.capacity)
            status = ledger.finished(tested, mesh, programs, loop.recompilations)
        except Diverged as diverged:
            status = ledger.diverged(diverged.tokens)
        except (InputError, OSError) as error:
            with contextlib.suppress(OSError):  # a full disk has no room for a status either
                directory.write_status(ledger.failed(str(error)))
            raise
        directory.write_status(status)
        return status


def _opened(run: RunConfig, execution: Execution, plan: Plan, mesh: Mesh) -> Source:
    check_split(execution.ladder(run).capacity(plan), mesh)
    source = open_source(run, Path(execution.data), mesh)
    source.check(plan.tokens // run.data.seq_len)
    return source


def _facts(run: RunConfig, execution: Execution) -> dict[str, Any]:
    """In what the processes that train a run together may not differ."""
    path = run_path(execution.runs, run)
    return {
        "commit": commit(),
        "jax": jax.__version__,
        **{f"run.{name}": value for name, value in to_dict(run).items()},
        **{f"execution.{name}": value for name, value in asdict(execution).items()},
        "execution.data": "",  # each may have its own copy of the same content
        "run directory": [to_dict(read_status(path)), saved(path)],
    }


def is_done(run: RunConfig, plan: Plan, execution: Execution) -> bool:
    """Whether nothing of the plan is left to train, and every fork point asked for is kept."""
    path = run_path(execution.runs, run)
    status = read_status(path)
    if status.status == "diverged":
        return status.tokens <= plan.tokens
    if not status.finished or status.tokens < plan.tokens:
        return False
    return not missing_forks(path, fork_points(run, plan, execution.forks))


class _Loop:
    """The steps that are left of a run, and what happens between them."""

    def __init__(self, session: Session, report: Report, stop: Event):
        self.session, self.ledger = session, session.ledger
        self.report, self.stop = report, stop
        self.recompilations = 0
        self._wishes = {wish: wished(wish, session.mesh) for wish in Wish} if several() else {}
        self._agreed = int(Wish.NOTHING)
        self._unread: tuple[StepInput, Metrics] | None = None
        # When a program with cuDNN's kernels is first executed, cuDNN captures, and does not
        # execute, all that is started on the devices: nothing else may be.
        self._busy, self._begun = Lock(), set[int]()
        self._reported_at = time.monotonic()

    def run(self) -> None:
        """Runs the steps; between two events it does nothing but dispatch and read."""
        session, ledger = self.session, self.ledger
        events = ledger.rows | ledger.forks
        peak_flops()  # takes a measurement on CPUs: not between two steps
        ladder, half_lives = ledger.execution.ladder(ledger.run), ledger.run.averages
        inputs = step_inputs(ledger.plan, ledger.first_step, session.source, ladder, half_lives)
        compiled_before = compilations()
        with contextlib.closing(prefetch(inputs, self._busy)) as prefetched:
            self._clock = time.perf_counter()
            for item in prefetched:
                self._dispatch(item)
                wish = self._agreed if self._wishes else self._wish()
                if item.end_tokens in events or wish:
                    self._handle(item, wish)
        self.recompilations = compilations() - compiled_before
        ledger.save(session.state)
        ledger.checkpoints.wait()

    def _dispatch(self, item: StepInput) -> None:
        """Starts a step, then reads the one before it."""
        session = self.session
        waited = time.perf_counter()
        program = session.programs.get(item.bucket)
        self._clock += time.perf_counter() - waited
        arguments = session.state, item.sequences_NxbxT1, item.buckets, item.settings
        if self._wishes:
            arguments += self._wishes[self._wish()]
        if item.bucket in self._begun:
            session.state, metrics = program(*arguments)
        else:
            with self._busy:
                session.state, metrics = jax.block_until_ready(program(*arguments))
            self._begun.add(item.bucket)
        self._read()
        self._unread = item, metrics
        if time.monotonic() - self._reported_at > REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self.report(self.ledger.standing(time.perf_counter() - self._clock))

    def _read(self) -> float:
        """Takes the last step's metrics from the device; returns its gradient norm."""
        if self._unread is None:
            return float("nan")
        item, metrics = self._unread
        metrics = jax.device_get(metrics)  # in one transfer
        loss, grad_norm, update_norm = (float(x) for x in metrics[:3])
        self.ledger.add_step(item.end_tokens, loss, grad_norm, update_norm)
        self._unread = None
        if metrics.wish is not None:
            self._agreed = int(metrics.wish)
        if metrics.squares is not None and self._shares(item) > 1:
            self.ledger.add_noise(item.spec, self._shares(item), float(metrics.squares), grad_norm)
        return grad_norm

    def _shares(self, item: StepInput) -> int:
        """How many gradients a step sums: for each bucket, one of those who make it together."""
        one = self.ledger.execution.whole_gradient
        return int(item.buckets) * gradients_a_bucket(self.session.mesh, one)

    def _wish(self) -> Wish:
        """What this process wants done, whatever is due for all."""
        if self.stop.is_set():
            return Wish.STOP
        return Wish.SAVE if self.ledger.is_due() else Wish.NOTHING

    def _handle(self, item: StepInput, wish: int) -> None:
        """A curve row, a checkpoint, a stop: whatever is due after this step."""
        session, ledger, tokens = self.session, self.ledger, item.end_tokens
        grad_norm = self._read()
        wish, self._agreed = max(wish, self._agreed), Wish.NOTHING
        ledger.position.seconds += time.perf_counter() - self._clock
        if tokens in ledger.rows:
            noise = self._shares(item) > 1
            with self._busy:
                losses = session.losses()
            ledger.add_row(item.spec, losses, grad_norm, noise=noise)
        if tokens in ledger.forks or wish:
            ledger.save(session.state)
        if wish == Wish.STOP and tokens < ledger.plan.tokens:
            ledger.checkpoints.wait()
            ledger.directory.write_status(RunStatus("interrupted", tokens))
            raise Interrupted(f"run {ledger.run.id} saved at {tokens} tokens")
        self._clock = time.perf_counter()
