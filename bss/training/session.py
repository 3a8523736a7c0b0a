"""Everything a run needs before its first step: data, mesh, state, compiled programs."""

import math
import warnings
from dataclasses import dataclass, field
from pathlib import Path

import jax
from jax.sharding import Mesh

from bss.errors import InputError
from bss.schedules.plan import Plan
from bss.training.buckets import Programs, replicated
from bss.training.checkpoint import Checkpoints, abstract, missing_forks, restore_fork
from bss.training.config import RunConfig
from bss.training.directory import RunDirectory, parent_path, read_config
from bss.training.evaluation import Evaluation
from bss.training.execution import Execution, describe
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


@dataclass
class Session:
    """One process's share of a run. Only `state` and `position` change.

    Attributes:
        rows: token counts at which a curve row is due.
        forks: token counts at which a checkpoint is kept for branches.
    """

    run: RunConfig
    execution: Execution
    plan: Plan
    source: Source
    mesh: Mesh
    checkpoints: Checkpoints
    state: State
    position: Position
    programs: Programs
    validation: Evaluation
    test: Evaluation | None
    rows: set[int] = field(default_factory=set)
    forks: set[int] = field(default_factory=set)

    def losses(self) -> dict[str, float]:
        """Held-out losses of the weights and their averages, and bits per byte for text."""
        losses = self.validation.losses(self.state, "eval_loss")
        per_token = self.source.bytes_per_token()
        if per_token is not None:
            losses["bits_per_byte"] = losses["eval_loss"] / math.log(2) / per_token
        return losses

    def test_losses(self) -> dict[str, float | None]:
        """The same on the test split, where the run asks for it."""
        if self.test is None:
            return {"test_loss": None}
        return dict(self.test.losses(self.state, "test_loss"))


def open_session(
    run: RunConfig,
    execution: Execution,
    plan: Plan,
    source: Source,
    mesh: Mesh,
    directory: RunDirectory,
    checkpoints: Checkpoints,
) -> Session:
    """Restores or initialises the state, and starts compiling.

    Raises:
        InputError: too little data, a missing fork point, a bucket the devices cannot share.
    """
    seq_len, test_tokens = run.evaluation.seq_len or run.data.seq_len, run.evaluation.test_tokens
    held_out = source.held_out("validation", run.evaluation.tokens, seq_len)
    tested = source.held_out("test", test_tokens, seq_len) if test_tokens else None
    _note_execution(run, execution, mesh, directory)

    shapes = abstract(jax.eval_shape(lambda: init_state(run)), replicated(mesh))
    forks = fork_points(run, plan, execution.forks)
    missing = missing_forks(directory.path, forks)
    before = min(missing, default=None)
    state, position = _restore(run, execution, mesh, shapes, checkpoints, before)
    directory.cut_curve(position.tokens)
    programs = Programs(make_step(run), shapes, execution.ladder(run).capacity(plan), run, mesh)
    bucket = execution.evaluation_bucket
    return Session(
        run,
        execution,
        plan,
        source,
        mesh,
        checkpoints,
        state,
        position,
        programs,
        Evaluation(run, held_out, mesh, bucket, shapes),
        None if tested is None else Evaluation(run, tested, mesh, bucket, shapes),
        {plan.next_boundary(t) for t in run.evaluation_tokens()}
        | {segment.end_tokens for segment in plan.segments},
        forks,
    )


def fork_points(run: RunConfig, plan: Plan, asked: tuple[int, ...]) -> set[int]:
    """The step boundaries, in tokens, at which checkpoints for branches are kept."""
    return {plan.next_boundary(t) for t in asked if run.start < t <= plan.tokens}


def _restore(
    run: RunConfig,
    execution: Execution,
    mesh: Mesh,
    shapes: State,
    checkpoints: Checkpoints,
    before: int | None,
) -> tuple[State, Position]:
    """The newest checkpoint (before a fork point to be made), the parent's, or a fresh state."""
    found = checkpoints.restore_newest(shapes, before)
    if found is not None:
        return found.state, Position(**found.record)
    if run.parent is None:
        fresh = jax.jit(lambda: init_state(run), out_shardings=replicated(mesh))
        return fresh(), Position(0)
    parent = parent_path(execution.runs, run.parent)
    if parent.is_dir():
        _check_parent(run, parent)
    found = restore_fork(parent, run.parent.tokens, shapes)
    noise = {name: found.record.get(name, 0.0) for name in ("noise_trace", "noise_square")}
    return found.state, Position(found.tokens, found.record["step"], **noise)


def _check_parent(run: RunConfig, path: Path) -> None:
    """A branch goes on with its parent's state, so it must have the same shape."""
    parent = read_config(path)
    for name in ("model", "averages"):
        if getattr(run, name) != getattr(parent, name):
            raise InputError(
                f"{name} differs from that of the parent run {parent.id}; "
                "a branch goes on with its parent's state, so give it the same"
            )


def _note_execution(
    run: RunConfig, execution: Execution, mesh: Mesh, directory: RunDirectory
) -> None:
    record = describe(mesh, execution)
    before = directory.add_execution(record)
    changed = before and [k for k in record if k != "commit" and record[k] != before.get(k)]
    if changed:
        warnings.warn(
            f"run {run.id} continues under another execution ({', '.join(changed)}): "
            "not bit-identical to an uninterrupted run",
            RuntimeWarning,
            stacklevel=2,
        )
