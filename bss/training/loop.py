"""One run, from its config to its curve: restore, step, evaluate, checkpoint, finish.

Everything is keyed by tokens consumed. Between two events (an evaluation, a fork point, a batch
change) the loop only dispatches steps, and reads a step's metrics after the next is dispatched.
"""

import contextlib
import math
import time
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Any

from bss.errors import InputError
from bss.schedules.plan import Plan
from bss.training.buckets import compilations
from bss.training.checkpoint import missing_forks, open_checkpoints
from bss.training.config import RunConfig
from bss.training.directory import open_run, read_curve, read_status, run_path
from bss.training.execution import Execution, peak_flops
from bss.training.mesh import make_mesh
from bss.training.noise_scale import estimates, noise_scale, update
from bss.training.prefetch import StepInput, prefetch, step_inputs
from bss.training.session import Session, fork_points
from bss.training.source import open_source
from bss.training.status import RunStatus, Speed
from bss.training.step import Metrics

Report = Callable[[dict[str, Any]], None]
_REPORT_SECONDS = 0.5


class Interrupted(Exception):
    """The run was asked to stop; its state is saved."""


class Diverged(Exception):
    """A loss, gradient or update was not finite in the step that ended at these tokens."""

    def __init__(self, tokens: int):
        super().__init__(f"not finite in the step that ended at {tokens} tokens")
        self.tokens = tokens


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
    plan = execution.plan(run)
    if is_done(run, plan, execution):
        return read_status(path)
    mesh = make_mesh(execution.devices)
    source = open_source(run, Path(execution.data), mesh)
    source.check(plan.tokens // run.data.seq_len)
    with open_run(path) as directory, open_checkpoints(path) as checkpoints:
        directory.check_config(run)
        try:
            session = Session(run, execution, plan, source, mesh, directory, checkpoints)
            loop = _Loop(session, report, stop or Event())
            loop.run()
            status = loop.summary()
        except Diverged as diverged:
            newest = next(iter(checkpoints.tokens()), None)
            status = RunStatus("diverged", diverged.tokens, last_checkpoint=newest)
        except (InputError, OSError) as error:
            with contextlib.suppress(OSError):  # a full disk has no room for a status either
                tokens = next(iter(checkpoints.tokens()), 0)
                directory.write_status(RunStatus("failed", tokens, message=str(error)))
            raise
        directory.write_status(status)
        return status


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
        self.session, self.report, self.stop = session, report, stop
        self.directory, self.position = session.directory, session.position
        self.recompilations = 0
        self._unread: tuple[StepInput, Metrics] | None = None
        self._saved_at = self._reported_at = time.monotonic()

    def run(self) -> None:
        """Runs the steps; between two events it does nothing but dispatch and read."""
        session = self.session
        events = session.rows | session.forks
        self.directory.write_status(RunStatus("running", self.position.tokens))
        peak_flops()  # takes a measurement on CPUs: not between two steps
        plan = session.plan
        # A trunk that is asked for less than it has trained has no step left.
        first = plan.step_at(min(self.position.tokens, plan.tokens))
        ladder = session.execution.ladder(session.run)
        inputs = step_inputs(plan, first, session.source, ladder, session.run.averages)
        compiled_before = compilations()
        with contextlib.closing(prefetch(inputs)) as prefetched:
            self._clock = time.perf_counter()
            for item in prefetched:
                self._dispatch(item)
                if item.end_tokens in events or self._is_due() or self.stop.is_set():
                    self._handle(item)
        self.recompilations = compilations() - compiled_before
        self._save()
        session.checkpoints.wait()

    def summary(self) -> RunStatus:
        """That it has finished, with its final numbers."""
        session, position = self.session, self.position
        rows = read_curve(self.directory.path)
        last = rows[-1] if rows else {}
        flops, peak = session.run.model.training_flops_per_token(session.run.data.seq_len), None
        if one := peak_flops():
            peak = one * session.mesh.size / flops
        held_out = {name: value for name, value in last.items() if name.startswith("eval_loss")}
        return RunStatus(
            "finished",
            position.tokens,
            position.step,
            {"loss": last.get("loss"), **held_out, **session.test_losses()},
            position.seconds,
            session.plan.remainder_tokens,
            len(session.programs.capacity),
            self.recompilations,
            throughput(rows, peak, session.run.start),
        )

    def _dispatch(self, item: StepInput) -> None:
        """Starts a step, then reads the one before it."""
        session = self.session
        waited = time.perf_counter()
        program = session.programs.get(item.bucket)
        self._clock += time.perf_counter() - waited
        session.state, metrics = program(
            session.state, item.sequences_NxbxT1, item.buckets, item.settings
        )
        self._read()
        self._unread = item, metrics
        if time.monotonic() - self._reported_at > _REPORT_SECONDS:
            self._reported_at = time.monotonic()
            self.report(self._standing())

    def _read(self) -> float | None:
        """Takes the last step's metrics from the device; returns its gradient norm."""
        if self._unread is None:
            return None
        item, metrics = self._unread
        loss, grad_norm, update_norm = (float(x) for x in metrics[:3])
        if not all(map(math.isfinite, (loss, grad_norm, update_norm))):
            raise Diverged(item.end_tokens)
        self._unread = None
        self.position.tokens = item.end_tokens
        self.position.step += 1
        self.position.loss_sum += loss
        self.position.loss_steps += 1
        if metrics.squares is not None and self._shares(item) > 1:
            self._add_noise(item, float(metrics.squares), grad_norm)
        return grad_norm

    def _add_noise(self, item: StepInput, squares: float, grad_norm: float) -> None:
        """One step's part in the averages of the gradient noise scale."""
        position, spec, count = self.position, item.spec, self._shares(item)
        moments = estimates(squares / count, grad_norm**2, spec.batch // count, count)
        tokens, half_life = item.end_tokens - spec.tokens, self.session.run.noise_scale.half_life
        noise = update(position.noise, *moments, tokens, half_life)
        position.noise_trace, position.noise_square = noise

    def _shares(self, item: StepInput) -> int:
        """How many gradients a step sums: one of each device for each bucket."""
        return int(item.buckets) * self.session.mesh.size

    def _is_due(self) -> bool:
        seconds = self.session.execution.checkpoint_seconds
        return time.monotonic() - self._saved_at > seconds

    def _handle(self, item: StepInput) -> None:
        """A curve row, a checkpoint, a stop: whatever is due after this step."""
        session, tokens = self.session, item.end_tokens
        stopping = self.stop.is_set()
        grad_norm = self._read()
        self.position.seconds += time.perf_counter() - self._clock
        if tokens in session.rows:
            self._add_row(item, grad_norm)
        if tokens in session.forks or self._is_due() or stopping:
            self._save()
        if stopping and tokens < session.plan.tokens:
            session.checkpoints.wait()
            self.directory.write_status(RunStatus("interrupted", tokens))
            raise Interrupted(f"run {session.run.id} saved at {tokens} tokens")
        self._clock = time.perf_counter()

    def _add_row(self, item: StepInput, grad_norm: float | None) -> None:
        position = self.position
        losses = self.session.losses()
        if not all(map(math.isfinite, losses.values())):
            raise Diverged(position.tokens)
        row = {
            "step": position.step,
            "tokens": position.tokens,
            "batch": item.spec.batch,
            "lr": item.spec.settings.lr,
            "loss": position.loss_sum / position.loss_steps,
            **losses,
            "grad_norm": grad_norm,
        }
        if self.session.run.noise_scale.half_life:  # missing where a step sums one gradient
            row["noise_scale"] = noise_scale(position.noise) if self._shares(item) > 1 else None
        self.directory.append_row(row | {"seconds": position.seconds})
        position.loss_sum, position.loss_steps = 0.0, 0

    def _save(self) -> None:
        session, tokens = self.session, self.position.tokens
        record = dict(vars(self.position))
        session.checkpoints.save(tokens, session.state, record, fork=tokens in session.forks)
        self._saved_at = time.monotonic()

    def _standing(self) -> dict[str, Any]:
        position = self.position
        seconds = position.seconds + time.perf_counter() - self._clock
        return {
            "run": self.session.run.id,
            "tokens": position.tokens,
            "loss": position.loss_sum / position.loss_steps if position.loss_steps else None,
            "tokens_per_second": (position.tokens - self.session.run.start) / seconds,
        }


def throughput(
    rows: list[dict[str, Any]], peak_tokens_per_second: float | None, start: int = 0
) -> tuple[Speed, ...]:
    """Tokens per second and model FLOP utilisation by batch size, from a curve.

    Its rows have cumulative `seconds`; the peak is that of the devices at their peak FLOP/s, None
    where that is not known;
    `start` tokens were consumed before the first row's steps.
    """
    spans: dict[int, list[float]] = {}
    tokens, seconds = start, 0.0
    for row in rows:
        span = spans.setdefault(row["batch"], [0, 0.0])
        span[0] += row["tokens"] - tokens
        span[1] += row["seconds"] - seconds
        tokens, seconds = row["tokens"], row["seconds"]
    return tuple(
        Speed(
            batch,
            int(spent),
            spent / took,
            peak_tokens_per_second and spent / took / peak_tokens_per_second,
        )
        for batch, (spent, took) in spans.items()
        if took > 0
    )
