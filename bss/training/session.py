"""Everything a run needs before its first step: data, mesh, state, compiled programs."""

import math
import warnings
from dataclasses import dataclass
from typing import Any

import jax
from jax.sharding import Mesh

from bss.errors import InputError
from bss.schedules.plan import Plan
from bss.training.buckets import Programs
from bss.training.checkpoint import Checkpoints, abstract, missing_forks, restore_fork
from bss.training.config import RunConfig
from bss.training.directory import RunDirectory, parent_path, read_config
from bss.training.evaluation import Evaluation
from bss.training.execution import NOT_COMPUTED, Execution, compiler_options, describe
from bss.training.mesh import replicated
from bss.training.noise_scale import NoiseAverages
from bss.training.source import Source
from bss.training.step import State, init_state, make_step


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


class Session:
    """One process's share of a run. Only `state` and `position` change.

    Attributes:
        rows: token counts at which a curve row is due.
        forks: token counts at which a checkpoint is kept for branches.
    """

    def __init__(
        self,
        run: RunConfig,
        execution: Execution,
        plan: Plan,
        source: Source,
        mesh: Mesh,
        directory: RunDirectory,
        checkpoints: Checkpoints,
    ):
        """Restores or initialises the state, and starts compiling.

        Raises:
            InputError: too little data, a missing fork point, a bucket the devices cannot share, an
                attention kernel that they cannot run.
        """
        self.run, self.execution, self.plan, self.source = run, execution, plan, source
        self.mesh, self.directory, self.checkpoints = mesh, directory, checkpoints
        sizes = {"validation": run.evaluation.tokens, "test": run.evaluation.test_tokens}
        seq_len = run.evaluation.seq_len or run.data.seq_len
        held_out = {s: source.held_out(s, size, seq_len) for s, size in sizes.items() if size}
        attention = execution.attention_of(run, mesh)
        self._note_execution(attention)

        self.forks = fork_points(run, plan, execution.forks)
        shapes = abstract(jax.eval_shape(lambda: init_state(run)), replicated(mesh))
        self.state, self.position = self._restore(shapes)
        directory.cut_curve(self.position.tokens)
        capacity, options = execution.ladder(run).capacity(plan), compiler_options(execution, mesh)
        step = make_step(run, mesh, attention)
        self.programs = Programs(step, shapes, capacity, run, mesh, options)
        bucket = execution.evaluation_bucket
        self._evaluations = {
            split: Evaluation(run, sequences, mesh, bucket, shapes, options, attention)
            for split, sequences in held_out.items()
        }
        self.rows = {plan.next_boundary(t) for t in run.evaluation_tokens()}
        self.rows |= {segment.end_tokens for segment in plan.segments}

    def losses(self) -> dict[str, float]:
        """Held-out losses of the weights and their averages, and bits per byte for text."""
        losses = self._evaluations["validation"].losses(self.state, "eval_loss")
        per_token = self.source.bytes_per_token()
        if per_token is not None:
            losses["bits_per_byte"] = losses["eval_loss"] / math.log(2) / per_token
        return losses

    def test_losses(self) -> dict[str, Any]:
        """The same on the test split, where the run asks for it."""
        test = self._evaluations.get("test")
        return test.losses(self.state, "test_loss") if test else {"test_loss": None}

    def _restore(self, shapes: State) -> tuple[State, Position]:
        """The newest checkpoint (before a fork to be made), the parent's, or a fresh state."""
        run = self.run
        before = min(missing_forks(self.directory.path, self.forks), default=None)
        found = self.checkpoints.restore_newest(shapes, before)
        if found is not None:
            return found.state, Position(**found.record)
        if run.parent is None:
            fresh = jax.jit(lambda: init_state(run), out_shardings=replicated(self.mesh))
            return fresh(), Position(0)
        parent = parent_path(self.execution.runs, run.parent)
        if parent.is_dir():
            _check_parent(run, read_config(parent))
        found = restore_fork(parent, run.parent.tokens, shapes)
        noise = {name: found.record.get(name, 0.0) for name in ("noise_trace", "noise_square")}
        return found.state, Position(found.tokens, found.record["step"], **noise)

    def _note_execution(self, attention: str) -> None:
        record = describe(self.mesh, self.execution, attention)
        before = self.directory.add_execution(record)
        matters, known = record.keys() - NOT_COMPUTED, before or {}
        changed = [k for k in record if k in matters and record[k] != known.get(k, record[k])]
        if changed:
            warnings.warn(
                f"run {self.run.id} continues under another execution ({', '.join(changed)}): "
                "not bit-identical to an uninterrupted run",
                RuntimeWarning,
                stacklevel=2,
            )


def fork_points(run: RunConfig, plan: Plan, asked: tuple[int, ...]) -> set[int]:
    """The step boundaries, in tokens, at which checkpoints for branches are kept."""
    return {plan.next_boundary(t) for t in asked if run.start < t <= plan.tokens}


def _check_parent(run: RunConfig, parent: RunConfig) -> None:
    """A branch goes on with its parent's state, so it must have the same shape."""
    for name in ("model", "averages"):
        if getattr(run, name) != getattr(parent, name):
            raise InputError(
                f"{name} differs from that of the parent run {parent.id}; "
                "a branch goes on with its parent's state, so give it the same"
            )
