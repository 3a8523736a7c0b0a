"""Many small runs of one shape side by side: one program for all, many steps a dispatch.

A model too small to fill a device spends its steps on launches. Here the states of a fleet lie on
a leading axis, what differs between its runs (seeds, data, rates, betas) is traced, and the device
takes many steps by itself. Every run keeps its own directory, as if it were alone, and continues
alone or in another fleet; its numbers are those it has alone, up to rounding.
"""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from bss.errors import InputError
from bss.training.buckets import compilations
from bss.training.checkpoint import abstract, open_checkpoints
from bss.training.config import RunConfig
from bss.training.directory import open_run, read_status, run_path
from bss.training.dispatches import Dispatch, Dispatches, compile_steps
from bss.training.evaluation import HeldOut
from bss.training.execution import Execution, compiler_options, peak_flops
from bss.training.ledger import Diverged, Ledger
from bss.training.loop import REPORT_SECONDS, Interrupted, Report, is_done
from bss.training.mesh import make_mesh, replicated
from bss.training.optimizers.base import Optimizer
from bss.training.prefetch import prefetch
from bss.training.processes import several
from bss.training.source import Source, open_source
from bss.training.status import RunStatus
from bss.training.step import Metrics, State, state_shapes

_TRACED = ("lr", "beta1", "beta2", "beta2_half_life", "weight_decay")


def fleet_key(run: RunConfig, execution: Execution) -> Hashable:
    """Runs of equal keys can be trained side by side; None for one that is trained alone."""
    if run.noise_scale.half_life or execution.fit:
        return None
    segments = tuple((s.start_tokens, s.end_tokens, s.batch) for s in execution.plan(run).segments)
    optimizer = dataclasses.replace(run.optimizer, **{n: getattr(Optimizer, n) for n in _TRACED})
    data = dataclasses.replace(run.data, seed=0)
    rows = tuple(run.evaluation_tokens())
    return (run.model, data, optimizer, run.averages, run.evaluation, segments, rows)


def train_fleet(
    runs: Sequence[RunConfig],
    execution: Execution,
    *,
    report: Report = lambda _: None,
    stop: Event | None = None,
) -> dict[str, RunStatus]:
    """Trains runs of one `fleet_key` to their stops, from wherever their directories say they are.

    Args:
        runs: what to train.
        execution: where and how; on one device.
        report: called about twice a second for each run with tokens, loss and tokens_per_second.
        stop: set it to save and raise Interrupted before the next dispatch.

    Returns:
        The final status of each run, by id.

    Raises:
        InputError: bad config, data or directory of any run.
        Interrupted: after saving, when asked to stop.
    """
    if several():
        raise InputError("a fleet is trained by one process; train its runs one by one")
    if execution.fsdp > 1:
        raise InputError(
            f"execution.fsdp is {execution.fsdp}; a fleet is trained with 1: set it so"
        )
    mesh = make_mesh(execution.devices)
    if mesh.size > 1:
        raise InputError(f"execution.devices is {mesh.size}; a fleet is trained on 1: set it so")
    left = [run for run in runs if not is_done(run, execution.plan(run), execution)]
    with contextlib.ExitStack() as stack:
        ledgers = [_open(run, execution, stack) for run in left]
        try:
            _train(ledgers, mesh, report, stop or Event())
        except Interrupted:
            _tell(ledgers, lambda ledger: RunStatus("interrupted", ledger.position.tokens))
            raise
        except (InputError, OSError) as error:
            message = str(error)
            with contextlib.suppress(OSError):  # a full disk has no room for a status either
                _tell(ledgers, lambda ledger: ledger.failed(message))
            raise
    return {run.id: read_status(run_path(execution.runs, run)) for run in runs}


def _open(run: RunConfig, execution: Execution, stack: contextlib.ExitStack) -> Ledger:
    path = run_path(execution.runs, run)
    directory = stack.enter_context(open_run(path))
    directory.check_config(run)
    checkpoints = stack.enter_context(open_checkpoints(path))
    return Ledger(run, execution, execution.plan(run), directory, checkpoints)


def _tell(ledgers: Sequence[Ledger], status: Callable[[Ledger], RunStatus]) -> None:
    """Writes what became of the runs that have not ended."""
    for ledger in ledgers:
        if read_status(ledger.directory.path).status == "running":
            ledger.directory.write_status(status(ledger))


def _train(ledgers: Sequence[Ledger], mesh: Mesh, report: Report, stop: Event) -> None:
    """Trains fleets of the runs that stand at the same tokens, one after another."""
    if not ledgers:
        return
    sources: dict[Any, Source] = {}
    for run in (ledger.run for ledger in ledgers):
        if run.data not in sources:
            sources[run.data] = open_source(run, Path(ledgers[0].execution.data), mesh)
            sources[run.data].check(ledgers[0].plan.tokens // run.data.seq_len)
    first = ledgers[0].run
    shapes = state_shapes(first, mesh)
    restored = [(ledger, ledger.restore(shapes)) for ledger in ledgers]
    restored.sort(key=_tokens)
    for _, group in groupby(restored, key=_tokens):
        with contextlib.suppress(_AllEnded):
            _Fleet([*group], sources, mesh, report, stop).run()


def _tokens(restored: tuple[Ledger, State]) -> int:
    return restored[0].position.tokens


class _AllEnded(Exception):
    """No run of a fleet goes on."""


class _Fleet:
    """Runs that stand at the same tokens, and the steps that are left of them."""

    def __init__(
        self,
        restored: Sequence[tuple[Ledger, State]],
        sources: Mapping[Any, Source],
        mesh: Mesh,
        report: Report,
        stop: Event,
    ):
        self.ledgers = ledgers = [ledger for ledger, _ in restored]
        self.alive = dict(enumerate(ledgers))
        self.mesh, self.report, self.stop = mesh, report, stop
        run, execution = ledgers[0].run, ledgers[0].execution
        attention = execution.attention_of(run, mesh)
        for ledger in ledgers:
            ledger.note_execution(mesh, attention, len(ledgers))
        self.states = jax.tree.map(lambda *x: jnp.stack(x), *(state for _, state in restored))
        self.inputs = Dispatches(ledgers, sources)
        options = compiler_options(execution, mesh)
        shapes = abstract(self.states, replicated(mesh))
        self.programs = compile_steps(self.inputs, shapes, mesh, options, attention)
        self.held_out = HeldOut(run, sources[run.data])
        bucket = execution.evaluation_bucket
        self.held_out.compile(mesh, bucket, shapes, options, attention, fleet=True)
        pick = jax.jit(lambda states, m: jax.tree.map(lambda x: x[m], states))
        self._pick = pick.lower(shapes, jax.ShapeDtypeStruct((), jnp.int32)).compile()
        self._unread: tuple[Dispatch, Metrics] | None = None
        self._reported_at = time.monotonic()

    @property
    def lead(self) -> Ledger:
        """One that goes on; its events are those of all."""
        return next(iter(self.alive.values()))

    def run(self) -> None:
        """Takes the steps, and writes what became of every run."""
        peak_flops()  # takes a measurement on CPUs: not between two steps
        before = compilations()
        with contextlib.closing(prefetch(iter(self.inputs))) as prefetched:
            self._clock = time.perf_counter()
            for item in prefetched:
                self.states, metrics = self.programs[item.batch](
                    self.states,
                    item.sequences_UxKxNxbxT1,
                    item.settings_KxV,
                    np.int32(len(item.ends)),
                )
                self._read()
                self._unread = item, metrics
                due = self.lead.is_due() or self.stop.is_set()
                if item.ends[-1] in self.inputs.events or due:
                    self._handle(item)
                self._report()
        recompilations = compilations() - before
        self._save()
        tested = self.held_out.test_losses(self.states)
        for m, ledger in self.alive.items():
            ledger.checkpoints.wait()
            numbers = _of(tested, m), self.mesh, len(self.programs), recompilations
            ledger.directory.write_status(ledger.finished(*numbers))

    def _read(self) -> np.ndarray:
        """Takes the last dispatch's metrics in one transfer; its last gradient norms, [F]."""
        if self._unread is None:
            return np.zeros(len(self.ledgers))
        item, metrics = self._unread
        self._unread = None
        loss_KxF, grad_KxF, update_KxF = jax.device_get(metrics[:3])
        for m, ledger in [*self.alive.items()]:
            columns = (x[: len(item.ends), m] for x in (loss_KxF, grad_KxF, update_KxF))
            with self._ending(m):
                for end, *numbers in zip(item.ends, *(x.tolist() for x in columns), strict=True):
                    ledger.add_step(end, *numbers)
        return grad_KxF[len(item.ends) - 1]

    def _handle(self, item: Dispatch) -> None:
        """Curve rows, checkpoints, a stop: whatever is due after these steps."""
        stopping, tokens = self.stop.is_set(), item.ends[-1]
        grad_norms = self._read()
        # The fleet's time is shared among its runs.
        seconds = (time.perf_counter() - self._clock) / len(self.ledgers)
        for ledger in self.alive.values():
            ledger.position.seconds += seconds
        if tokens in self.lead.rows:
            losses = self.held_out.losses(self.states)
            for m, ledger in [*self.alive.items()]:
                spec = ledger.plan.at(item.first + len(item.ends) - 1)
                with self._ending(m):
                    ledger.add_row(spec, _of(losses, m), float(grad_norms[m]), noise=False)
        if tokens in self.lead.forks or self.lead.is_due() or stopping:
            self._save()
        if stopping and tokens < self.inputs.plan.tokens:
            for ledger in self.alive.values():
                ledger.checkpoints.wait()
            raise Interrupted(f"{len(self.alive)} runs saved at {tokens} tokens")
        self._clock = time.perf_counter()

    def _save(self) -> None:
        for m, ledger in self.alive.items():
            ledger.save(self._pick(self.states, np.int32(m)))
        spent = sum(ledger.save_seconds for ledger in self.alive.values())
        for ledger in self.alive.values():
            ledger.save_seconds = spent

    @contextlib.contextmanager
    def _ending(self, m: int) -> Iterator[None]:
        """A run that diverges here ends; the others go on, if there are any."""
        try:
            yield
        except Diverged as diverged:
            ledger = self.alive.pop(m)
            ledger.directory.write_status(ledger.diverged(diverged.tokens))
            if not self.alive:
                raise _AllEnded from None

    def _report(self) -> None:
        if time.monotonic() - self._reported_at > REPORT_SECONDS:
            self._reported_at = time.monotonic()
            seconds = (time.perf_counter() - self._clock) / len(self.ledgers)
            for ledger in self.alive.values():
                self.report(ledger.standing(seconds))


def _of(losses: Mapping[str, Any], m: int) -> dict[str, Any]:
    """One run's losses."""
    return {name: None if x is None else float(x[m]) for name, x in losses.items()}
