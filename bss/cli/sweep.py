"""bss sweep: train a sweep from one config; write tables, E(S) and a report."""

import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from bss.cells import Table
from bss.cli.options import Repeated
from bss.cli.output import Output, Show

if TYPE_CHECKING:
    from bss.sweeps.config import SweepConfig

SHOWN = 12  # runs that a dry run lists


def sweep(
    config: str,
    /,
    *,
    changes: Annotated[Repeated, Parameter(name="--set")] = (),
    axes: Annotated[Repeated, Parameter(name="--axis")] = (),
    out: Annotated[Path | None, Parameter(name="--out")] = None,
    dry_run: bool = False,
    show: Show = Show(),
) -> Output | int:
    """Train a sweep, or estimate its cost; Ctrl-C and SIGTERM save every run and exit.

    Args:
        config: FILE.json, FILE.py or FILE.py:SIZE: {"setup": {...}, "axes":
            {"schedule.batch": [4]}}
        changes: change the setup, e.g. optimizer.lr=2e-3; may be repeated
        axes: one more axis, e.g. schedule.batch=4,8,16; every combination is trained
        out: directory for the tables and the report; its runs go to DIR/runs
        dry_run: print the cost and train nothing

    Examples:
        bss sweep SWEEP.json --out runs/mine --dry-run
        bss sweep SWEEP.json --axis optimizer.lr=1e-3,2e-3 --out runs/mine
    """
    from bss.sweeps.config import sweep_config

    requested = sweep_config(config, changes, axes, results=out, dry_run=dry_run)
    if requested.dry_run:
        return _priced(requested)
    from bss.cli.answers import run_sweep

    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return run_sweep(requested) or 0
    finally:
        signal.signal(signal.SIGTERM, before)


def _priced(config: "SweepConfig") -> Output:
    """The cost of the sweep, and its runs."""
    from bss.sweeps.cost import estimate_cost
    from bss.sweeps.engines import engine_of
    from bss.sweeps.sweep import planned
    from bss.sweeps.table import differing

    runs = planned(config.setup, config.every_axis(), engine_of(config.engine))
    cost = estimate_cost(runs)
    varied = differing(runs)
    shown = [
        {"seed": run.seed, "peak_lr": run.optimizer.lr, **own}
        for run, own in zip(runs[:SHOWN], varied, strict=False)
    ]
    title = f"{len(shown)} of {len(runs)} runs"
    return Output(asdict(cost), str(cost), [Table.of_records(title, shown)])
