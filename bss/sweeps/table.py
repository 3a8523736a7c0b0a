"""Read run directories: list runs, loss curves as a tidy run table, and final losses."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import as_path
from bss.sweeps.grid import distinct, longest
from bss.training.run_config import RunConfig
from bss.training.run_directory import (
    RunStatus,
    curve_at,
    is_being_written,
    read_config,
    read_curve,
    read_executions,
    read_status,
    run_path,
)
from bss.training.step_log import STEPS, read_steps
from bss.values import dotted, to_dict

ORIGIN = ("commit", "started", "registration")
NOT_RECORDED = "not recorded"


def list_runs(runs: str | Path) -> list[dict[str, Any]]:
    """Return one record per run directory: id, status, token_budget, batch, lr, seeds, loss.

    A run with status "running" but without a live process is reported as "interrupted".

    Raises:
        InputError: If `runs` is not a directory or has no runs.

    Args:
        runs: Directory of run directories.

    Examples:
        >>> list_runs("runs/mine/runs")[0]["status"]  # doctest: +SKIP
        'finished'
    """
    runs = as_path(runs, "runs")
    if not runs.is_dir():
        raise InputError(f"runs directory {runs} does not exist; name the one a sweep wrote")
    paths = sorted(p.parent for p in runs.glob("*/config.json"))
    if not paths:
        raise InputError(f"runs directory {runs}: holds no run; name the one a sweep wrote")
    records: list[dict[str, Any]] = []
    for path in paths:
        run = read_config(path)
        status = read_status(path)
        last = [{}, *read_curve(path)][-1]
        state: str = status.status
        if state == "running" and not is_being_written(path):
            state = "interrupted"
        records.append(
            {
                "run": run.id,
                "status": state,
                "tokens": status.tokens,
                "token_budget": run.schedule.tokens,
                "batch": str(run.schedule.batch),
                "peak_lr": run.optimizer.lr,
                "lr_schedule": run.schedule.lr_schedule,
                "seed": run.seed,
                "data_seed": run.data.seed,
                "parent": run.parent.run if run.parent else None,
                "eval_loss": last.get("eval_loss"),
                "eval_loss_se": last.get("eval_loss_se"),
            }
        )
    return records


def lineage_curve(runs: Path, run: RunConfig) -> list[dict[str, Any]]:
    """Return the rows of a run, with the rows of its parents before each fork.

    They end with the run's token budget, also if the directory has a longer run.
    """
    rows = curve_at(run_path(runs, run), run.plan())
    if run.parent is None:
        return rows
    before = lineage_curve(runs, read_config(runs / run.parent.run))
    return [row for row in before if row["tokens"] <= run.parent.tokens] + rows


def run_table(runs: Path, chosen: Sequence[RunConfig]) -> pd.DataFrame:
    """Return the tidy run table: each row of each curve, with the identity of its run.

    The curve of a forked run starts with the curve of its parent, so tokens and steps count from
    zero. Fields that differ among the runs are added as columns with dotted names (`differing`). If
    runs differ only in their token budgets, the longest has all rows.

    Raises:
        InputError: If `runs` is empty.
    """
    if not chosen:
        raise InputError(f"runs: none of {runs} finished, so there is nothing to measure")
    chosen = longest(chosen)
    rows: list[dict[str, Any]] = []
    for run, own in zip(chosen, differing(chosen), strict=True):
        known = _identity(run)
        rows += [known | row | own for row in lineage_curve(runs, run)]
    return pd.DataFrame(rows)


def step_table(runs: Path) -> pd.DataFrame:
    """Return the logged steps of all runs of a directory, with the run's id; see `StepLog`.

    Raises:
        InputError: If no run has logged a step.
    """
    logged = {file.parent.name: read_steps(file.parent) for file in sorted(runs.glob(f"*/{STEPS}"))}
    rows = [{"run": run} | row for run, own in logged.items() for row in own]
    if not rows:
        raise InputError(f"{runs}: no run has logged steps; train with execution.log_every")
    return pd.DataFrame(rows)


def trained_table(runs: Path, *, only_finished: bool = False) -> tuple[pd.DataFrame, list[str]]:
    """Return the run table of the trained runs of a directory, and the number of unfinished runs.

    Unfinished runs are included up to their last row, unless `only_finished` is True.

    Raises:
        InputError: If no run finished.
    """
    paths = [file.parent for file in sorted(runs.glob("*/config.json"))]
    chosen = distinct(read_config(path) for path in paths if read_curve(path))
    if not chosen:
        raise InputError(
            f"{runs}: found no run table, no experiment.json and no trained run; "
            "name a table of `bss import`, a results directory or a directory of runs"
        )
    states = Counter(str(record["status"]) for record in list_runs(runs))
    others = [f"{count} {state}" for state, count in sorted(states.items()) if state != "finished"]
    if not states["finished"]:
        raise InputError(f"{runs}: no run finished ({', '.join(others)}); train one to its end")
    if only_finished:
        chosen = [run for run in chosen if read_status(run_path(runs, run)).status == "finished"]
    done = "left out" if only_finished else "read as far as they went"
    remark = f"{', '.join(others)} of {states.total()} runs: {done}"
    return run_table(runs, chosen), [remark] if others else []


def finals(runs: Sequence[RunConfig], statuses: Sequence[RunStatus]) -> pd.DataFrame:
    """Return final results of finished runs, one row per run and token budget.

    Args:
        runs: Finished runs.
        statuses: Status of each run at its own token budget.

    Returns:
        The columns of identity as in a run table, batch (the schedule as text), token_budget and
        the fields that differ. Then tokens, steps, eval_loss and test_loss with their weight
        averages, and seconds. A cell is empty if the value was not measured at the end of the token
        budget.
    """
    rows: list[dict[str, Any]] = []
    for run, status, own in zip(runs, statuses, differing(runs), strict=True):
        losses = {name: loss for name, loss in status.losses.items() if name != "loss"}
        schedule = {"batch": str(run.schedule.batch), "token_budget": run.schedule.tokens}
        ended = {"tokens": status.tokens, "steps": status.step, **losses}
        ended["seconds"] = status.seconds or None
        rows.append(_identity(run) | schedule | own | ended)
    return pd.DataFrame(rows)


def differing(runs: Iterable[RunConfig]) -> list[dict[str, Any]]:
    """Return for each run the fields in which runs differ, by dotted name, and the parent.

    Fields that are columns of every run table are left out. Lists are converted to text. A field
    that a run does not have is None.
    """
    runs = list(runs)
    changing = [field for field in fields(RunConfig) if _differs(runs, field.name)]
    flat = [_leaves(run, [field.name for field in changing]) for run in runs]
    names = dict.fromkeys(name for fields in flat for name in fields)
    varied = [
        name
        for name in names
        if name not in _IDENTITY and len({fields.get(name) for fields in flat}) > 1
    ]
    return [{_COLUMNS.get(name, name): fields.get(name) for name in varied} for fields in flat]


_IDENTITY = ("seed", "data.seed", "data.seq_len", "optimizer.lr")
_COLUMNS = {"parent.run": "parent"}


def _identity(run: RunConfig) -> dict[str, Any]:
    return {
        "run": run.id,
        "model": run.model.label,
        "params": run.model.counts().active or run.model.counts().total,  # of embeddings alone
        "seq_len": run.data.seq_len,
        "seed": run.seed,
        "data_seed": run.data.seed,
        "peak_lr": run.optimizer.lr,
        "beta2": None if run.optimizer.beta2_half_life else run.optimizer.beta2,
        "beta2_half_life": run.optimizer.beta2_half_life or None,
    }


def _differs(runs: Sequence[RunConfig], field: str) -> bool:
    """Return False if all runs share the value of a field."""
    return len({id(getattr(run, field)) for run in runs}) > 1


def _leaves(run: RunConfig, fields: Iterable[str]) -> dict[str, Any]:
    """Return what is in some fields of a run by dotted name, with lists as text."""
    plain = {field: to_dict(getattr(run, field)) for field in fields}
    leaves: dict[str, Any] = {}
    for name, value in dotted(plain):
        if isinstance(value, list | tuple):
            leaves[name] = " ".join(map(str, value))
        elif value is not None and not isinstance(value, Mapping):
            leaves[name] = value
    return leaves


def origins(runs: Path, ids: Sequence[str]) -> pd.DataFrame:
    """Return `commit`, `registration` and `started` (first start) of runs, by run id.

    `commit` lists the commits of every start of a run and of its parents, `registration` the
    registrations of every start of the run: without duplicates, separated by spaces. Values that
    are missing in a run's record are NOT_RECORDED.
    """
    rows = [{"run": run, **_origin(runs, runs / run)} for run in dict.fromkeys(ids)]
    return pd.DataFrame(rows, columns=["run", *ORIGIN]).replace("", NOT_RECORDED)


def _origin(runs: Path, path: Path) -> dict[str, str]:
    own = read_executions(path)
    starts = list(own)
    while parent := read_config(path).parent:
        path = runs / parent.run
        starts += read_executions(path)
    return {
        "commit": " ".join(dict.fromkeys(record.get("commit") or "unknown" for record in starts)),
        "started": own[0].get("started", "") if own else "",
        "registration": " ".join(dict.fromkeys(one.get("registration") or "none" for one in own)),
    }
