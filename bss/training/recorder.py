"""RunRecorder: the diary of one run: its position, its curve, its saves and its status."""

import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh

from bss.files import is_there
from bss.schedules.plan import Plan
from bss.training import distributed, run_directory
from bss.training.batches import StepBatch
from bss.training.checkpoint import Checkpoints, open_checkpoints
from bss.training.evaluation import loss_columns
from bss.training.execution import NOT_COMPUTED, Execution
from bss.training.hardware import peak_flops
from bss.training.loggers import Loggers
from bss.training.noise_scale import noise_estimates, noise_rate
from bss.training.run_config import RunConfig, evaluation_points, fork_points
from bss.training.run_directory import STEP_COLUMNS, Rows, RunDirectory, RunStatus
from bss.training.spikes import MOST_SKIPPED
from bss.training.step import Metrics, State
from bss.training.step_log import StepLog


class Diverged(Exception):
    """A loss, gradient or update was not finite in the step that ended at `tokens`."""

    def __init__(self, tokens: int) -> None:
        super().__init__(f"not finite in the step that ended at {tokens} tokens")
        self.tokens = tokens


class NoActiveRuns(Exception):
    """All runs of a group have diverged."""


@dataclass
class TrainPosition:
    """The position of a run; saved in a checkpoint's record.

    Attributes:
        tokens: tokens consumed.
        step: optimizer steps, including those of parents.
        seconds: seconds in training steps, without evaluation, compilation and saving.
        loss_sum: sum of the losses of the steps since the last curve row.
        loss_steps: number of these steps.
        row_loss_sum: `loss_sum` of the last curve row.
        row_loss_steps: its number of steps; 0 if it is not known.
        noise_trace: numerator of the gradient noise scale, averaged.
        noise_square: its denominator.
        skipped: steps that were skipped as spikes.
        skipped_in_row: those since the last step that was not.
    """

    tokens: int
    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_steps: int = 0
    row_loss_sum: float = 0.0
    row_loss_steps: int = 0
    noise_trace: float = 0.0
    noise_square: float = 0.0
    skipped: int = 0
    skipped_in_row: int = 0

    @property
    def noise_scale(self) -> float | None:
        """B_simple in sequences; None if |G|² is not above zero."""
        return self.noise_trace / self.noise_square if self.noise_square > 0 else None

    @property
    def loss(self) -> float | None:
        """Mean training loss since the last curve row."""
        return self.loss_sum / self.loss_steps if self.loss_steps else None


class RunRecorder:
    """Records one run in this process.

    Attributes:
        run: the run.
        execution: Devices, directory and kernels of the run.
        plan: its plan.
        directory: its directory.
        checkpoints: its checkpoints.
        rows: token counts at which a curve row is due.
        forks: token counts of fork points.
        position: Current position of the run.
        curve: its rows so far.
        saved_at: time of the last save, by `time.monotonic`.
        save_seconds: seconds by which the last save, of all vmapped runs, delayed the steps.
        ended: True if its final status is written.
    """

    def __init__(
        self,
        run: RunConfig,
        plan: Plan,
        execution: Execution,
        directory: RunDirectory,
        checkpoints: Checkpoints,
        loggers: Loggers,
    ) -> None:
        self.run = run
        self.plan = plan
        self.execution = execution
        self.directory = directory
        self.checkpoints = checkpoints
        self._loggers = loggers
        self._loss_columns = loss_columns(run)
        self._missing = set[str]()
        self.forks = fork_points(run, plan, execution.forks)
        self.rows = evaluation_points(run, plan)
        self._step_log: StepLog | None = None
        self.position = TrainPosition(0)
        self.curve = Rows()
        self.ended = False
        self.saved_at = time.monotonic()
        self.save_seconds = 0.0

    @property
    def first_step(self) -> int:
        """The first step of the plan that is left; past its end if the token budget is smaller."""
        return self.plan.step_at(min(self.position.tokens, self.plan.tokens))

    def add_execution(self, record: dict[str, Any]) -> None:
        """Record where the run continues; warn if its numbers may change.

        Args:
            record: from `describe`, with `mates`, which identifies the runs of its program: after
                a kill they continue together.
        """
        before = self.directory.add_execution(record) or {}
        computed = [name for name in record if name not in NOT_COMPUTED]
        changed = [name for name in computed if record[name] != before.get(name, record[name])]
        if changed:
            warnings.warn(
                f"run {self.run.id} continues under another execution ({', '.join(changed)}): "
                "not bit-identical to an uninterrupted run",
                RuntimeWarning,
                stacklevel=2,
            )

    def resume(self, position: TrainPosition, curve: Rows) -> None:
        """Continue from a position, with the curve of its checkpoint; [] for a new run.

        The row at the end of a smaller token budget is taken off. Without that budget there would
        be no row, and the loss of the next one would be a mean from the row before on.
        """
        self.position = position
        self.curve = curve
        logged = position.tokens
        if self._passes_end():
            self.directory.keep_end(curve.pop())
            position.loss_sum = position.row_loss_sum
            position.loss_steps = position.row_loss_steps
            logged -= 1
        self.checkpoints.drop_newer(position.tokens)
        self.directory.truncate_curve(position.tokens, curve)
        self._loggers.begin(self.run, self.directory.path, logged)

    def open_step_log(self, mesh: Mesh) -> None:
        """Open the log of steps at the current position, if the execution asks for one."""
        if not self.execution.log_every:
            return
        self._step_log = StepLog(
            self.directory.path,
            self.execution.log_every,
            lambda row: self._loggers.each(lambda logger: logger.step(row)),
            writable=self.directory.writable,
            peak=_peak_tokens_per_second(self.run, mesh),
        )
        self._step_log.begin(self.position.tokens, self.position.seconds)

    def log_step(self, end: int, seconds: float, metrics: Sequence[float], *, noise: bool) -> None:
        """Log the last step, if its row is due.

        Args:
            end: tokens consumed after its dispatch.
            seconds: seconds of training since the position's, after its dispatch.
            metrics: loss, gradient norm and update norm.
            noise: True if the step measures the gradient noise.
        """
        log = self._step_log
        position = self.position
        if log is None or position.step % log.every:
            return
        spec = self.plan.at(self.plan.step_at(position.tokens) - 1)
        loss, grad_norm, update_norm = metrics
        skipped = position.skipped if self.run.skips_spikes else None
        row = {
            "step": position.step,
            "tokens": position.tokens,
            "batch": spec.batch,
            "lr": spec.settings.lr,
            "loss": loss,
            "grad_norm": grad_norm,
            "update_norm": update_norm,
            "noise_scale": position.noise_scale if noise else None,
            "skipped": skipped,
        }
        log.add(row, end, position.seconds + seconds)

    def end_dispatch(self, end: int, seconds: float) -> None:
        """Write the logged steps of a dispatch; see `log_step`."""
        if self._step_log is not None:
            self._step_log.end_dispatch(end, self.position.seconds + seconds)

    def _passes_end(self) -> bool:
        """Return True if the last row is there only because a smaller budget ended at it."""
        if not self.curve or not self.position.row_loss_steps:
            return False
        at = self.position.tokens
        return self.curve[-1]["tokens"] == at < self.plan.tokens and at not in self.rows

    def skip_step(self, end_tokens: int) -> None:
        """Count a step that was skipped; its loss is in no mean.

        Raises:
            Diverged: If too many steps in a row were skipped.
        """
        position = self.position
        position.tokens = end_tokens
        position.step += 1
        position.skipped += 1
        position.skipped_in_row += 1
        if position.skipped_in_row >= MOST_SKIPPED:
            raise Diverged(end_tokens)

    def add_step(self, end_tokens: int, loss: float, grad_norm: float, update_norm: float) -> None:
        """Record a step.

        Raises:
            Diverged: If one of its metrics is not finite.
        """
        self.position.skipped_in_row = 0
        if not all(map(math.isfinite, (loss, grad_norm, update_norm))):
            raise Diverged(end_tokens)
        self.position.tokens = end_tokens
        self.position.step += 1
        self.position.loss_sum += loss
        self.position.loss_steps += 1

    def add_noise(self, batch: int, count: int, squares: float, grad_norm: float) -> None:
        """Update the averages of the gradient noise scale with the last step.

        Args:
            batch: batch size in sequences.
            count: number of gradients that the step sums.
            squares: sum of their squared norms.
            grad_norm: norm of their mean.
        """
        position = self.position
        half_life = self.run.noise_scale.half_life
        trace, square = noise_estimates(squares / count, grad_norm**2, batch // count, count)
        rate = noise_rate(batch * self.plan.seq_len, half_life)
        position.noise_trace += rate * (trace - position.noise_trace)
        position.noise_square += rate * (square - position.noise_square)

    def add_row(
        self, held_out: Mapping[str, float | None], grad_norm: float, *, noise: bool
    ) -> None:
        """Record a curve row.

        Args:
            held_out: the held-out columns.
            grad_norm: norm of the last step's gradient.
            noise: True if the last step measures the gradient noise.

        Raises:
            Diverged: If a held-out loss is not finite.
        """
        position = self.position
        spec = self.plan.at(self.plan.step_at(position.tokens) - 1)
        numbers = self._finite(held_out)
        row = {
            "step": position.step,
            "tokens": position.tokens,
            "batch": spec.batch,
            "lr": spec.settings.lr,
            "loss": position.loss,
            **numbers,
            "grad_norm": grad_norm if math.isfinite(grad_norm) else None,
        }
        if self.run.skips_spikes:
            row["skipped"] = position.skipped
        if self.run.noise_scale.half_life:
            row["noise_scale"] = position.noise_scale if noise else None
        row["seconds"] = position.seconds
        self.curve.append(row)
        self.directory.add_row(row)
        self._loggers.each(lambda logger: logger.row(dict(row)))
        position.row_loss_sum = position.loss_sum
        position.row_loss_steps = position.loss_steps
        position.loss_sum = 0.0
        position.loss_steps = 0

    def _finite(self, held_out: Mapping[str, float | None]) -> dict[str, float | None]:
        """Return held-out numbers, with None for values that are not finite."""
        odd = {name for name, x in held_out.items() if x is not None and not math.isfinite(x)}
        if odd & self._loss_columns:
            raise Diverged(self.position.tokens)
        if new := sorted(odd - self._missing):
            self._missing |= odd
            warnings.warn(
                f"run {self.run.id}: {', '.join(new)} not finite at {self.position.tokens} tokens; "
                "left out here and wherever it is so again",
                RuntimeWarning,
                stacklevel=2,
            )
        return {name: None if name in odd else x for name, x in held_out.items()}

    def save(self, state: State) -> None:
        """Start saving a checkpoint."""
        tokens = self.position.tokens
        start = time.monotonic()
        record = vars(self.position) | {"curve": [*self.curve]}
        self.checkpoints.save(tokens, state, record, fork=tokens in self.forks)
        self.saved_at = time.monotonic()
        self.save_seconds = self.saved_at - start

    def save_is_due(self) -> bool:
        """Return True if the last save is old; saves take at most 5% of the time."""
        seconds = self.execution.checkpoint_seconds
        spaced = max(seconds, 20 * self.save_seconds) if seconds else 0
        return time.monotonic() - self.saved_at > spaced

    def progress(self, seconds: float) -> dict[str, Any]:
        """Return a progress report, `seconds` of training after the position's."""
        position = self.position
        took = position.seconds + seconds
        return {
            "run": self.run.id,
            "tokens": position.tokens,
            "loss": position.loss,
            "tokens_per_second": (position.tokens - self.run.start) / took if took else None,
        }

    def end(self, status: RunStatus) -> None:
        """Write the status with which the run stops."""
        self.directory.write_status(status)
        self._loggers.each(lambda logger: logger.end(status))
        self.ended = True

    def finished(
        self, test_losses: Mapping[str, Any], mesh: Mesh, programs: int, recompilations: int
    ) -> RunStatus:
        """Return the status of a finished run, with its final numbers."""
        position = self.position
        run = self.run
        rows = self.curve
        last = rows[-1] if rows else {}
        peak = _peak_tokens_per_second(run, mesh)
        held_out = {name: value for name, value in last.items() if name not in STEP_COLUMNS}
        return RunStatus(
            "finished",
            position.tokens,
            position.step,
            {"loss": last.get("loss"), **held_out, **test_losses},
            position.seconds,
            self.plan.remainder_tokens,
            programs,
            recompilations,
            run_directory.throughput(rows, peak, run.start),
            position.skipped,
        )

    def diverged(self, tokens: int) -> RunStatus:
        """Return the status of a run that diverged in the step that ended at `tokens`."""
        newest = next(iter(self.checkpoints.tokens()), None)
        return RunStatus("diverged", tokens, last_checkpoint=newest)

    def failed(self, message: str) -> RunStatus:
        """Return the status of a run that failed, at its newest checkpoint."""
        return RunStatus("failed", next(iter(self.checkpoints.tokens()), 0), message=message)


def _peak_tokens_per_second(run: RunConfig, mesh: Mesh) -> float | None:
    """Return the throughput at the devices' peak FLOP/s; None if it is unknown."""
    flops = run.model.training_flops_per_token(run.data.seq_len)
    one = peak_flops()
    return one * mesh.size / flops if flops and one else None


@contextmanager
def ending_diverged(active: dict[int, RunRecorder], m: int) -> Iterator[None]:
    """End a run that diverges in the block; the others continue."""
    try:
        yield
    except Diverged as diverged:
        recorder = active.pop(m)
        recorder.end(recorder.diverged(diverged.tokens))
        if not active:
            raise NoActiveRuns from None


def record_metrics(
    batch: StepBatch,
    metrics: Metrics,
    active: dict[int, RunRecorder],
    runs: int,
    gradients: int,
    clock: float,
) -> tuple[np.ndarray, distributed.HostAction]:
    """Fetch the metrics of a dispatch and record its steps.

    Args:
        batch: the dispatch.
        metrics: its metrics, on the devices.
        active: recorders by index; a run that has diverged is removed.
        runs: number of runs in the program.
        gradients: number of gradients that the devices compute per micro-batch.
        clock: `time.perf_counter` when the position's seconds were last updated.

    Returns:
        The last step's gradient norm of each run, [F], and the action that all processes take.
    """
    metrics = jax.device_get(metrics)  # in one transfer
    seconds = (time.perf_counter() - clock) / runs
    action = distributed.HostAction(0 if metrics.action is None else int(metrics.action))
    count = batch.buckets * gradients
    read_KxF = [np.reshape(x, (-1, runs))[: len(batch.ends)] for x in metrics[:4] if x is not None]
    skipped_KxF = np.zeros((len(batch.ends), runs), bool)
    if metrics.skipped is not None:
        skipped_KxF = np.reshape(metrics.skipped, (-1, runs))[: len(batch.ends)]
    measures_noise = metrics.squares is not None and count > 1
    for m, recorder in [*active.items()]:
        columns = (x_KxF[:, m].tolist() for x_KxF in (skipped_KxF, *read_KxF))
        with ending_diverged(active, m):
            for end, skipped, *norms in zip(batch.ends, *columns, strict=True):
                if skipped:
                    recorder.skip_step(end)
                else:
                    recorder.add_step(end, *norms[:3])
                    if measures_noise:
                        recorder.add_noise(batch.batch, count, norms[3], norms[1])
                recorder.log_step(batch.ends[-1], seconds, norms[:3], noise=measures_noise)
        recorder.end_dispatch(batch.ends[-1], seconds)
    return read_KxF[1][-1], action


def open_recorder(
    run: RunConfig, plan: Plan, execution: Execution, loggers: Loggers, opened: ExitStack
) -> RunRecorder:
    """Open the directory and the checkpoints of a run, to be closed with `opened`.

    Raises:
        InputError: If the directory is another run's, is being written, or is not shared.
    """
    path = run_directory.run_path(execution.runs, run)
    directory = distributed.on_all_hosts(lambda: opened.enter_context(run_directory.open_run(path)))
    distributed.on_all_hosts(lambda: directory.check_config(run))
    distributed.await_same(lambda: {f"{path} exists": is_there(path / "config.json")})
    checkpoints = opened.enter_context(open_checkpoints(path))
    return RunRecorder(run, plan, execution, directory, checkpoints, loggers)
