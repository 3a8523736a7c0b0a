"""Resuming: the states from which runs continue.

A run continues from its newest intact checkpoint before a missing fork point; else from its
parent's fork point, or from fresh parameters.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import jax

from bss.errors import InputError
from bss.training import run_directory
from bss.training.checkpoint import missing_forks, restore_fork
from bss.training.program_cache import compile_cached, step_key
from bss.training.recorder import RunRecorder, TrainPosition
from bss.training.sharding import shardings_of
from bss.training.step import State, init_state


def resume(recorders: Sequence[RunRecorder], shapes: State) -> list[tuple[RunRecorder, State]]:
    """Return the states from which runs continue, in the order of their tokens.

    Runs that were trained in one program continue from a checkpoint that all of them have, because
    their numbers depend on the program's size.

    Raises:
        InputError: If a parent has no such fork point, or its state has another shape.
    """
    groups: dict[str, list[RunRecorder]] = {}
    for recorder in recorders:
        records = run_directory.read_executions(recorder.directory.path)
        vmapped_with = records[-1].get("mates") if records else None
        groups.setdefault(vmapped_with or recorder.run.id, []).append(recorder)
    restored = [one for group in groups.values() for one in _resume_group(group, shapes)]
    return sorted(restored, key=lambda one: one[0].position.tokens)


def _resume_group(group: Sequence[RunRecorder], shapes: State) -> list[tuple[RunRecorder, State]]:
    while tokens := max(set.intersection(*map(_list_resumable, group)), default=None):
        # A damaged checkpoint is moved aside when it is read, so the next turn finds an older one.
        found = [one.checkpoints.restore(tokens, shapes) for one in group]
        intact = [one for one in found if one is not None]
        if len(intact) == len(group):
            for recorder, (_, record) in zip(group, intact, strict=True):
                recorder.resume(_read_position(record), record["curve"])
            return [(one, state) for one, (state, _) in zip(group, intact, strict=True)]
    return [(recorder, _start(recorder, shapes)) for recorder in group]


def _read_position(record: Mapping[str, Any]) -> TrainPosition:
    # Records of earlier versions have no sums of the last row.
    return TrainPosition(
        **{f.name: record[f.name] for f in fields(TrainPosition) if f.name in record}
    )


def _list_resumable(recorder: RunRecorder) -> set[int]:
    """Return the tokens of the checkpoints from which no missing fork point is skipped."""
    before = min(missing_forks(recorder.directory.path, recorder.forks), default=math.inf)
    return {tokens for tokens in recorder.checkpoints.tokens() if tokens < before}


def _start(recorder: RunRecorder, shapes: State) -> State:
    """Return fresh parameters, or the state of the parent's fork point."""
    run = recorder.run
    if run.parent is None:
        fresh = jax.jit(lambda: init_state(run), out_shardings=shardings_of(shapes))
        key = "start", step_key(run), run.optimizer.beta1, run.seed, *jax.tree.leaves(shapes)
        recorder.resume(TrainPosition(0), [])
        return compile_cached(key, fresh)()
    path = Path(recorder.execution.runs) / run.parent.run
    if path.is_dir():
        parent = run_directory.read_config(path)
        for name in ("model", "averages", "spike_policy"):
            if getattr(run, name) != getattr(parent, name):
                raise InputError(
                    f"{name} differs from the parent run {parent.id}; "
                    "a branch goes on with its parent's state, so give it the same"
                )
    state, record = restore_fork(path, run.parent.tokens, shapes)
    noise = {name: record[name] for name in ("noise_trace", "noise_square")}
    recorder.resume(TrainPosition(run.parent.tokens, record["step"], **noise), [])
    return state
