"""Runs, from their configs to their curves: opened, restored, stepped, ended.

A run is trained by itself, or side by side with others of its `fleet_key`: programs differ, all
else is one.
"""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from threading import Event
from typing import Any

import jax
from jax.sharding import Mesh

from bss.errors import InputError, check
from bss.provenance import commit
from bss.schedules.plan import Plan
from bss.training.config import DataConfig, RunConfig
from bss.training.devices.mesh import make_mesh
from bss.training.devices.processes import (
    check_same,
    check_seen,
    first,
    in_turn,
    several,
    together,
)
from bss.training.execution import Execution
from bss.training.record.background import Background, Queued, in_background
from bss.training.record.checkpoint import missing_forks, open_checkpoints, saved
from bss.training.record.directory import open_run, read_status, run_path
from bss.training.record.ledger import Ledger, fork_points
from bss.training.record.status import RunStatus
from bss.training.running.buckets import check_split
from bss.training.running.resume import resume
from bss.training.running.session import Session
from bss.training.running.steps import AllEnded, Doubted, Interrupted, Report, Steps
from bss.training.source import Source, open_source
from bss.training.step import State, state_shapes
from bss.values import dotted, to_dict


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
    if several():
        check_same(_facts(run, execution))
        check_seen(lambda: _on_disk(run, execution))
    plan = execution.plan(run)
    if not is_done(run, plan, execution):
        mesh = together(lambda: make_mesh(execution.devices, execution.fsdp))
        _train([run], execution, mesh, report, stop or Event(), fleet=False)
    return read_status(run_path(execution.runs, run))


def train_fleet(
    runs: Sequence[RunConfig],
    execution: Execution,
    *,
    report: Report = lambda _: None,
    stop: Event | None = None,
) -> dict[str, RunStatus]:
    """Trains runs of one `fleet_key` in one program; else as `train`, on one device.

    Interrupted comes before the next dispatch. Returns the final status of each run, by id.
    """
    if several():
        raise InputError("a fleet is trained by one process; train its runs one by one")
    check(execution.fsdp == 1, "execution.fsdp", execution.fsdp, "1: a fleet is trained with it")
    mesh = make_mesh(execution.devices)
    check(mesh.size == 1, "execution.devices", mesh.size, "1: a fleet is trained on it")
    left = [run for run in runs if not is_done(run, execution.plan(run), execution)]
    if left:
        _train(left, execution, mesh, report, stop or Event(), fleet=True)
    return {run.id: read_status(run_path(execution.runs, run)) for run in runs}


def _train(
    runs: Sequence[RunConfig],
    execution: Execution,
    mesh: Mesh,
    report: Report,
    stop: Event,
    *,
    fleet: bool,
) -> None:
    """Trains those that stand at the same tokens together, one such group after another."""
    sources = together(lambda: _sources(runs, execution, mesh))
    with contextlib.ExitStack() as stack:
        watched = stack.enter_context(in_background(execution.trackers if first() else ()))
        ledgers = [_ledger(run, execution, stack, watched) for run in runs]

        def take(restored: Sequence[tuple[Ledger, State]]) -> None:
            Steps(Session(restored, sources, mesh, fleet=fleet), report, stop).run()

        try:
            shapes = state_shapes(runs[0], mesh)
            while left := [ledger for ledger in ledgers if not ledger.ended]:
                _take_groups(resume(left, shapes), take)
        except Interrupted:
            _tell(ledgers, lambda ledger: RunStatus("interrupted", ledger.position.tokens))
            raise
        except (InputError, OSError) as error:
            message = str(error)
            with contextlib.suppress(OSError):  # a full disk has no room for a status either
                _tell(ledgers, lambda ledger: ledger.failed(message))
            raise


def _take_groups(restored: list[tuple[Ledger, State]], take: Callable[[Any], None]) -> None:
    """The steps of those that stand at the same tokens, group after group.

    It ends early where a checkpoint is doubted: whatever has not ended is to be resumed again.
    """
    for _, group in groupby(restored, key=lambda one: one[0].position.tokens):
        with contextlib.suppress(AllEnded):
            try:
                take([*group])
            except Doubted as doubted:
                doubted.ledger.doubt()
                return


def _tell(ledgers: Sequence[Ledger], status: Callable[[Ledger], RunStatus]) -> None:
    """Writes what became of the runs that have not ended."""
    for ledger in ledgers:
        if not ledger.ended:
            ledger.end(status(ledger))


def _ledger(
    run: RunConfig,
    execution: Execution,
    stack: contextlib.ExitStack,
    watched: Sequence[Background],
) -> Ledger:
    path = run_path(execution.runs, run)
    directory = together(lambda: stack.enter_context(open_run(path)))
    in_turn(lambda: directory.check_config(run))
    checkpoints = stack.enter_context(open_checkpoints(path))
    trackers = [Queued(one, run.id) for one in watched]
    return Ledger(run, execution, execution.plan(run), directory, checkpoints, trackers)


def _sources(
    runs: Sequence[RunConfig], execution: Execution, mesh: Mesh
) -> dict[DataConfig, Source]:
    """By what a run reads; all have one plan's steps."""
    plan, sources = execution.plan(runs[0]), dict[DataConfig, Source]()
    check_split(execution.ladder(runs[0]).capacity(plan), mesh)
    for run in {run.data: run for run in runs}.values():
        sources[run.data] = source = open_source(run, Path(execution.data), mesh)
        source.check(plan.tokens // run.data.seq_len)
    return sources


def _facts(run: RunConfig, execution: Execution) -> dict[str, Any]:
    """In what the processes that train a run together may not differ."""
    own = {"data": ""}  # each may have its own copy of the same content
    values = {**to_dict(run), "execution": asdict(execution) | own}
    leaves = {name: x for name, x in dotted(values) if not isinstance(x, Mapping)}
    return {"commit": commit(), "jax": jax.__version__, **leaves}


def _on_disk(run: RunConfig, execution: Execution) -> dict[str, Any]:
    """What of a run's directory decides what is done next."""
    path = run_path(execution.runs, run)
    return {"the run's status": to_dict(read_status(path)), "what it has saved": saved(path)}


def is_done(run: RunConfig, plan: Plan, execution: Execution) -> bool:
    """Whether nothing of the plan is left to train, and every fork point asked for is kept."""
    path = run_path(execution.runs, run)
    status = read_status(path)
    if status.status == "diverged":
        return status.tokens <= plan.tokens
    if not status.finished or status.tokens < plan.tokens:
        return False
    return not missing_forks(path, fork_points(run, plan, execution.forks))
