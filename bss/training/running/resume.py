"""Where runs go on: at the newest checkpoint that is whole, those of a fleet at one that all have.

A process that is killed while a fleet saves leaves some of its runs a checkpoint ahead. They were
trained by one program, whose numbers are those of its size, so they go on by one.
"""

from collections.abc import Sequence
from math import inf
from pathlib import Path

import jax

from bss.errors import InputError
from bss.training.config import RunConfig
from bss.training.devices.mesh import shardings_of
from bss.training.record.checkpoint import missing_forks, restore_fork
from bss.training.record.directory import read_config, read_executions
from bss.training.record.ledger import Ledger, Position
from bss.training.step import State, init_state


def resume(ledgers: Sequence[Ledger], shapes: State) -> list[tuple[Ledger, State]]:
    """The states of runs, by tokens, where their books stand from then on.

    Each is of the newest checkpoint (before a fork to be made) that is whole and that all of its
    fleet have, the parent's fork point, or fresh. It lies on the devices as the shapes' shardings
    say.

    Raises:
        InputError: a branch's parent has no such fork point, or is of another shape.
    """
    groups: dict[str, list[Ledger]] = {}
    for ledger in ledgers:
        groups.setdefault(_mates(ledger), []).append(ledger)
    states = {}
    for group in groups.values():
        states |= _restored(group, shapes)
    restored = [(ledger, states[ledger.run.id]) for ledger in ledgers]
    return sorted(restored, key=lambda one: one[0].position.tokens)


def _mates(ledger: Ledger) -> str:
    records = read_executions(ledger.directory.path)
    return (records[-1] if records else {}).get("mates") or ledger.run.id


def _restored(group: Sequence[Ledger], shapes: State) -> dict[str, State]:
    while tokens := max(set.intersection(*map(_candidates, group)), default=None):
        found = [ledger.checkpoints.take(tokens, shapes) for ledger in group]
        whole = [one for one in found if one is not None]
        if len(whole) == len(group):
            for ledger, (_, record) in zip(group, whole, strict=True):
                books = {name: record[name] for name in vars(Position(0)) if name in record}
                ledger.begin(Position(**books), record)
            return {ledger.run.id: state for ledger, (state, _) in zip(group, whole, strict=True)}
    return {ledger.run.id: _begun(ledger, shapes) for ledger in group}


def _candidates(ledger: Ledger) -> set[int]:
    before = min(missing_forks(ledger.directory.path, ledger.forks), default=inf)
    return {tokens for tokens in ledger.checkpoints.tokens() if tokens < before}


def _begun(ledger: Ledger, shapes: State) -> State:
    run = ledger.run
    if run.parent is None:
        fresh = jax.jit(lambda: init_state(run), out_shardings=shardings_of(shapes))
        ledger.begin(Position(0), None)
        return fresh()
    parent = Path(ledger.execution.runs) / run.parent.run
    if parent.is_dir():
        _check_parent(run, read_config(parent))
    state, record = restore_fork(parent, run.parent.tokens, shapes)
    noise = {name: record.get(name, 0.0) for name in ("noise_trace", "noise_square")}
    ledger.begin(Position(run.parent.tokens, record["step"], **noise), None)
    return state


def _check_parent(run: RunConfig, parent: RunConfig) -> None:
    """A branch goes on with its parent's state, so it must have the same shape."""
    for name in ("model", "averages"):
        if getattr(run, name) != getattr(parent, name):
            raise InputError(
                f"{name} differs from that of the parent run {parent.id}; "
                "a branch goes on with its parent's state, so give it the same"
            )
