"""What one run has done and writes down: its position, curve rows, checkpoints, final numbers."""

import math
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jax.sharding import Mesh

from bss.models.family import ONE_BY_ONE, Layers
from bss.schedules.plan import Plan
from bss.training.config import RunConfig
from bss.training.execution import NOT_COMPUTED, Execution, describe, peak_flops
from bss.training.held_out import loss_columns
from bss.training.noise_scale import NoiseAverages, estimates, noise_scale, update
from bss.training.record.checkpoint import Checkpoints
from bss.training.record.directory import FollowedDirectory
from bss.training.record.status import RunStatus, throughput
from bss.training.record.trackers import Tracker
from bss.training.step import State

OF_STEPS = ("step", "tokens", "batch", "lr", "loss", "grad_norm", "noise_scale", "seconds")
"""What a curve's rows hold besides held-out numbers."""


class Diverged(Exception):
    """A loss, gradient or update was not finite in the step that ended at these tokens."""

    def __init__(self, tokens: int):
        super().__init__(f"not finite in the step that ended at {tokens} tokens")
        self.tokens = tokens


@dataclass
class Position:
    """Where a run stands: what a checkpoint's record holds besides the state.

    Attributes:
        tokens: consumed so far.
        step: optimizer steps so far, those of the parents included.
        seconds: spent in training steps, without evaluation, compilation and saving.
        loss_sum: of the steps since the last curve row.
        loss_steps: how many these are.
        noise_trace: numerator of the gradient noise scale, averaged.
        noise_square: its denominator.
    """

    tokens: int
    step: int = 0
    seconds: float = 0.0
    loss_sum: float = 0.0
    loss_steps: int = 0
    noise_trace: float = 0.0
    noise_square: float = 0.0

    @property
    def noise(self) -> NoiseAverages:
        """Both, of the gradient noise scale."""
        return NoiseAverages(self.noise_trace, self.noise_square)

    @property
    def loss(self) -> float | None:
        """Mean training loss since the last curve row."""
        return self.loss_sum / self.loss_steps if self.loss_steps else None


class Ledger:
    """The books of one run in one process. Only `position` and `curve` change.

    Attributes:
        rows: token counts at which a curve row is due.
        forks: token counts at which a checkpoint is kept for branches.
        position: where the run stands.
        curve: its rows to there.
        restored_at: tokens of the checkpoint that it went on from, None for none.
        believed: whether it may diverge in its first step; else it goes back once before.
        saved_at: when it was saved last, on the monotonic clock.
        save_seconds: that its last save, or that of its fleet, held up the steps.
        ended: whether it is written what became of the run.
    """

    def __init__(
        self,
        run: RunConfig,
        execution: Execution,
        plan: Plan,
        directory: FollowedDirectory,
        checkpoints: Checkpoints,
        trackers: Sequence[Tracker] = (),
    ):
        """Reads and writes nothing yet; the `trackers` are those besides the directory."""
        self.run, self.execution, self.plan = run, execution, plan
        self.directory, self.checkpoints = directory, checkpoints
        self._trackers, self._losses = (directory, *trackers), loss_columns(run)
        self._odd = set[str]()
        self.forks = fork_points(run, plan, execution.forks)
        self.rows = {plan.next_boundary(t) for t in run.evaluation_tokens()}
        self.rows |= {segment.end_tokens for segment in plan.segments}
        self.position, self.curve = Position(0), list[dict[str, Any]]()
        self.restored_at: int | None = None
        self.believed = False
        self.saved_at, self.save_seconds = time.monotonic(), 0.0
        self.ended = False

    @property
    def first_step(self) -> int:
        """The plan's first step that is left; a trunk asked for less than it has, has none."""
        return self.plan.step_at(min(self.position.tokens, self.plan.tokens))

    def note_execution(
        self,
        mesh: Mesh,
        attention: str,
        fleet: int = 1,
        mates: str = "",
        layers: Layers = ONE_BY_ONE,
    ) -> None:
        """Records where the run goes on; warns where that changes what is computed.

        `mates` is a name of the runs of its fleet: after a kill they go on together.
        """
        record = describe(mesh, self.execution, attention, fleet, layers)
        before = self.directory.add_execution(record | ({"mates": mates} if mates else {}))
        matters, known = record.keys() - NOT_COMPUTED, before or {}
        changed = [k for k in record if k in matters and record[k] != known.get(k, record[k])]
        if changed:
            warnings.warn(
                f"run {self.run.id} continues under another execution ({', '.join(changed)}): "
                "not bit-identical to an uninterrupted run",
                RuntimeWarning,
                stacklevel=2,
            )

    def begin(self, position: Position, restored: dict[str, Any] | None) -> None:
        """The run goes on from a position; `restored` is the record of a checkpoint of its own.

        The curve is cut back to it, and what files lost is put back.
        """
        kept = {"curve": [], "executions": []} if restored is None else restored
        self.position = position
        self.restored_at = None if restored is None else position.tokens
        self.checkpoints.drop_newer(position.tokens)
        told = kept.get("curve"), kept.get("executions", [])
        self.curve = [*self.directory.put_back(position.tokens, *told)]
        for tracker in self._trackers:
            tracker.begin(self.run, self.directory.path, position.tokens)

    def is_doubtful(self, diverged: Diverged) -> bool:
        """Whether it diverged in the first step behind a checkpoint, which may be what is wrong."""
        if self.believed or self.restored_at is None:
            return False
        first = self.plan.step_at(self.restored_at) + 1
        return diverged.tokens <= self.plan.tokens_at(first)

    def doubt(self) -> None:
        """Puts the checkpoint aside that it went on from; whatever comes next is believed."""
        self.believed = True
        if self.restored_at is not None:
            why = "was not finite after one step"
            self.checkpoints.put_aside(self.restored_at, why)

    def add_step(self, end_tokens: int, loss: float, grad_norm: float, update_norm: float) -> None:
        """One more step; raises Diverged where it was not finite."""
        if not all(map(math.isfinite, (loss, grad_norm, update_norm))):
            raise Diverged(end_tokens)
        self.position.tokens = end_tokens
        self.position.step += 1
        self.position.loss_sum += loss
        self.position.loss_steps += 1

    def add_noise(self, batch: int, count: int, squares: float, grad_norm: float) -> None:
        """The last step's part in the averages of the gradient noise scale.

        Args:
            batch: of the step, in sequences.
            count: gradients that it sums.
            squares: the sum of their squared norms.
            grad_norm: of their mean.
        """
        position, half_life = self.position, self.run.noise_scale.half_life
        moments = estimates(squares / count, grad_norm**2, batch // count, count)
        noise = update(position.noise, *moments, batch * self.plan.seq_len, half_life)
        position.noise_trace, position.noise_square = noise

    def add_row(
        self, held_out: Mapping[str, float | None], grad_norm: float, *, noise: bool
    ) -> None:
        """A curve row behind a step; raises Diverged where a held-out loss is not finite.

        `noise` says whether the step's gradient noise can be told.
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
            "grad_norm": grad_norm,
        }
        if self.run.noise_scale.half_life:  # missing where a step sums one gradient
            row["noise_scale"] = noise_scale(position.noise) if noise else None
        row["seconds"] = position.seconds
        self.curve.append(row)
        for tracker in self._trackers:
            tracker.row(row)
        position.loss_sum, position.loss_steps = 0.0, 0

    def _finite(self, held_out: Mapping[str, float | None]) -> dict[str, float | None]:
        """Held-out numbers, None for one that is not finite; Diverged where that is a loss."""
        odd = {name for name, x in held_out.items() if x is not None and not math.isfinite(x)}
        if odd & self._losses:
            raise Diverged(self.position.tokens)
        if new := sorted(odd - self._odd):
            self._odd |= odd
            warnings.warn(
                f"run {self.run.id}: {', '.join(new)} not finite at {self.position.tokens} tokens; "
                "left out here and wherever it is so again",
                RuntimeWarning,
                stacklevel=2,
            )
        return {name: None if name in odd else x for name, x in held_out.items()}

    def save(self, state: State) -> None:
        """Starts saving a checkpoint."""
        tokens, start = self.position.tokens, time.monotonic()
        record = vars(self.position) | {"curve": [*self.curve]}
        record |= {"executions": self.directory.executions}
        self.checkpoints.save(tokens, state, record, fork=tokens in self.forks)
        self.saved_at = time.monotonic()
        self.save_seconds = self.saved_at - start

    def is_due(self) -> bool:
        """Whether the newest checkpoint is old; saves may take a 20th of the time."""
        seconds = self.execution.checkpoint_seconds
        spaced = max(seconds, 20 * self.save_seconds) if seconds else 0
        return time.monotonic() - self.saved_at > spaced

    def standing(self, seconds: float) -> dict[str, Any]:
        """What is reported on the way, `seconds` of training behind the position's."""
        position = self.position
        took = position.seconds + seconds
        return {
            "run": self.run.id,
            "tokens": position.tokens,
            "loss": position.loss,
            "tokens_per_second": (position.tokens - self.run.start) / took if took else None,
        }

    def finished(
        self, test_losses: Mapping[str, Any], mesh: Mesh, programs: int, recompilations: int
    ) -> RunStatus:
        """That the run has finished, with its final numbers."""
        position, run = self.position, self.run
        rows = self.curve
        last = rows[-1] if rows else {}
        flops, peak = run.model.training_flops_per_token(run.data.seq_len), None
        if flops and (one := peak_flops()):
            peak = one * mesh.size / flops
        along = {name: value for name, value in last.items() if name not in OF_STEPS}
        return RunStatus(
            "finished",
            position.tokens,
            position.step,
            {"loss": last.get("loss"), **along, **test_losses},
            position.seconds,
            self.plan.remainder_tokens,
            programs,
            recompilations,
            throughput(rows, peak, run.start),
        )

    def end(self, status: RunStatus) -> None:
        """Tells what became of the run."""
        for tracker in self._trackers:
            tracker.end(status)
        self.ended = True

    def diverged(self, tokens: int) -> RunStatus:
        """That the run diverged in the step that ended at these tokens."""
        newest = next(iter(self.checkpoints.tokens()), None)
        return RunStatus("diverged", tokens, last_checkpoint=newest)

    def failed(self, message: str) -> RunStatus:
        """That the run failed, with what it can continue from."""
        return RunStatus("failed", next(iter(self.checkpoints.tokens()), 0), message=message)


def fork_points(run: RunConfig, plan: Plan, wanted: tuple[int, ...]) -> set[int]:
    """The step boundaries, in tokens, at which checkpoints for branches are kept.

    What is asked in the remainder is the end of the last step; beyond the budget, another run's.
    """
    return {plan.next_boundary(t) for t in wanted if run.start < t <= plan.budget}
