"""The steps of runs that go side by side, of one at least, and what happens between them.

Everything is keyed by tokens consumed. Between two events (an evaluation, a fork point, a batch
change) steps are only dispatched, and what a dispatch tells is read after the next has begun.
"""

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping
from threading import Event, Lock
from typing import Any

import jax
import numpy as np

from bss.training.devices.fsdp import gradients_a_bucket
from bss.training.devices.processes import Wish, several, together, wished
from bss.training.devices.watchdog import Watchdog
from bss.training.execution import peak_flops
from bss.training.record.ledger import Diverged, Ledger
from bss.training.record.seals import state_hash
from bss.training.running.buckets import compilations
from bss.training.running.prefetch import Dispatch, prefetch
from bss.training.running.session import Session
from bss.training.step import Metrics

Report = Callable[[dict[str, Any]], None]
REPORT_SECONDS = 0.5


class Interrupted(Exception):
    """The runs were asked to stop; their states are saved."""


class AllEnded(Exception):
    """No run goes on."""


class Doubted(Exception):
    """A run was not finite in its first step behind a checkpoint."""

    def __init__(self, ledger: Ledger):
        self.ledger = ledger


class Steps:
    """The steps that are left of a session's runs. `alive` are the runs that go on, by place."""

    def __init__(self, session: Session, report: Report, stop: Event):
        self.session, self.report, self.stop = session, report, stop
        self.alive = dict(enumerate(session.ledgers))
        self._wishes = {wish: wished(wish, session.mesh) for wish in Wish} if several() else {}
        self._agreed, self._mistake = int(Wish.NOTHING), OSError()
        self._unread: tuple[Dispatch, Metrics] | None = None
        # When a program with cuDNN's kernels is first executed, cuDNN captures, and does not
        # execute, all that is started on the devices: nothing else may be.
        self._busy, self._begun = Lock(), set[int]()
        self._reported_at = time.monotonic()
        runs = ", ".join(f"run {ledger.run.id}" for ledger in session.ledgers)
        self._watchdog = Watchdog(self._lead.execution.step_limit, runs)
        self._recompilations = 0

    @property
    def _lead(self) -> Ledger:
        """One that goes on; its events are those of all."""
        return next(iter(self.alive.values()))

    def run(self) -> None:
        """Takes the steps, and writes what became of every run.

        Raises:
            AllEnded: where none goes on.
            Doubted: where one is to go back to the checkpoint before.
            Interrupted: after saving.
        """
        session, events = self.session, self._lead.rows | self._lead.forks
        peak_flops()  # takes a measurement on CPUs: not between two steps
        state_hash(session.member(next(iter(self.alive))), None)  # compiles what saves need
        inputs = prefetch(iter(session.inputs), self._busy)
        with contextlib.closing(self._watchdog), contextlib.closing(inputs) as prefetched:
            self._clock = time.perf_counter()
            for item in prefetched:
                self._dispatch(item)
                wish = self._agreed if self._wishes else self._wish()
                if item.ends[-1] in events or wish:
                    self._handle(item, wish)
        self._save(wait=True)
        tested = session.held_out.at_the_end(session.state)
        for m, ledger in self.alive.items():
            numbers = _of(tested, m), session.mesh, len(session.programs), self._recompilations
            with self._noting():
                ledger.end(ledger.finished(*numbers))
        together(self._raise)

    def _dispatch(self, item: Dispatch) -> None:
        """Starts steps, then reads those before them."""
        session = self.session
        waited = time.perf_counter()
        program: Any = session.programs.get(item.program)
        self._clock += time.perf_counter() - waited
        wishes = self._wishes[self._wish()] if self._wishes else ()
        arguments = session.state, *item.arguments, *wishes
        before = compilations()
        with self._watchdog.watched():
            if item.program in self._begun:
                session.state, metrics = program(*arguments)
            else:
                with self._busy:
                    session.state, metrics = jax.block_until_ready(program(*arguments))
                self._begun.add(item.program)
        self._recompilations += compilations() - before
        self._read()
        self._unread = item, metrics
        if time.monotonic() - self._reported_at > REPORT_SECONDS:
            self._reported_at = time.monotonic()
            for ledger in self.alive.values():
                self.report(ledger.standing(self._seconds()))

    def _seconds(self) -> float:
        """A run's share of the time since the clock was set."""
        return (time.perf_counter() - self._clock) / len(self.session.ledgers)

    def _read(self) -> np.ndarray:
        """Takes the last dispatch's metrics from the devices; its last gradient norms, [F]."""
        if self._unread is None:
            return np.full(len(self.session.ledgers), np.nan)
        item, metrics = self._unread
        self._unread = None
        with self._watchdog.watched():
            metrics = jax.device_get(metrics)  # in one transfer
        if metrics.wish is not None:
            self._agreed = int(metrics.wish)
        shape, shares = (-1, len(self.session.ledgers)), self._shares(item)
        read_KxF = [np.reshape(x, shape)[: len(item.ends)] for x in metrics[:4] if x is not None]
        for m, ledger in [*self.alive.items()]:
            columns = (x_KxF[:, m].tolist() for x_KxF in read_KxF)
            with self._ending(m):
                for end, *norms in zip(item.ends, *columns, strict=True):
                    ledger.add_step(end, *norms[:3])
                    if metrics.squares is not None and shares > 1:
                        ledger.add_noise(item.batch, shares, norms[3], norms[1])
        return read_KxF[1][-1]

    def _shares(self, item: Dispatch) -> int:
        """How many gradients a step sums: for each bucket, one of those who make it together."""
        one = self._lead.execution.whole_gradient
        return item.buckets * gradients_a_bucket(self.session.mesh, one)

    def _wish(self) -> Wish:
        """What this process wants done, whatever is due for all."""
        if self._mistake.args:
            return Wish.FAIL
        if self.stop.is_set():
            return Wish.STOP
        return Wish.SAVE if self._lead.is_due() else Wish.NOTHING

    def _handle(self, item: Dispatch, wish: int) -> None:
        """Curve rows, checkpoints, a stop: whatever is due after these steps."""
        session, tokens = self.session, item.ends[-1]
        grad_norm_F = self._read()
        wish, self._agreed = max(wish, self._agreed), Wish.NOTHING
        seconds = self._seconds()
        if wish == Wish.FAIL:
            together(self._raise)
        for ledger in self.alive.values():
            ledger.position.seconds += seconds
        if tokens in self._lead.rows:
            noise, before = self._shares(item) > 1, compilations()
            with self._busy, self._watchdog.watched():
                losses = session.held_out.along(session.state)
            self._recompilations += compilations() - before
            for m, ledger in [*self.alive.items()]:
                with self._ending(m), self._noting():
                    ledger.add_row(_of(losses, m), float(grad_norm_F[m]), noise=noise)
        stops = wish == Wish.STOP and tokens < self._lead.plan.tokens
        if tokens in self._lead.forks or wish:
            self._save(wait=stops)
        if stops:
            runs = [f"run {ledger.run.id}" for ledger in self.alive.values()]
            raise Interrupted(f"{', '.join(runs)} saved at {tokens} tokens")
        self._clock = time.perf_counter()

    def _save(self, *, wait: bool) -> None:
        if len(self.alive) > 1:  # one checkpoint that all have is always whole
            for ledger in self.alive.values():
                ledger.checkpoints.wait()
        for m, ledger in self.alive.items():
            ledger.save(self.session.member(m))
        spent = sum(ledger.save_seconds for ledger in self.alive.values())
        for ledger in self.alive.values():
            ledger.save_seconds = spent
            if wait:
                ledger.checkpoints.wait()

    @contextlib.contextmanager
    def _noting(self) -> Iterator[None]:
        """What the system refuses here, the others are told behind the next step, if there are."""
        try:
            yield
        except OSError as error:
            if not several():
                raise
            self._mistake = error

    def _raise(self) -> None:
        if self._mistake.args:
            raise self._mistake

    @contextlib.contextmanager
    def _ending(self, m: int) -> Iterator[None]:
        """A run that diverges here ends; the others go on, if there are any."""
        try:
            yield
        except Diverged as diverged:
            if self.alive[m].is_doubtful(diverged):
                raise Doubted(self.alive[m]) from None
            ledger = self.alive.pop(m)
            ledger.end(ledger.diverged(diverged.tokens))
            if not self.alive:
                raise AllEnded from None


def _of(losses: Mapping[str, Any], m: int) -> dict[str, Any]:
    """One run's losses, of numbers or arrays over runs."""
    return {name: None if x is None else float(np.ravel(x)[m]) for name, x in losses.items()}
