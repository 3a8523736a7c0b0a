"""bss: batch-size scaling laws, from training sweeps to batch schedules.

The names below, and the options and files of the `bss` command, are kept from release to release;
everything else may change. A sweep, its law and the schedule that it calls for:

    import bss

    setup = bss.Setup(model="pico", schedule=bss.ScheduleConfig(tokens=200_000))
    swept = bss.sweep(setup, {"schedule.batch": [1, 2, 4, 8, 16, 32]}, runs="runs")
    points, told = bss.measure_points(swept.runs)
    fit = bss.fit_es(points)
    schedule, law, why = bss.derive_schedule(fit, points, tokens=1_000_000, limits=bss.Limits(4))

A name is imported from its room once it is asked for, so that `import bss` loads nothing.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bss.data.corpus import Corpus
    from bss.errors import InputError
    from bss.laws import (
        CriticalFit,
        CurveFit,
        EsFit,
        TableFit,
        check_losses,
        fit_critical,
        fit_curve,
        fit_es,
        fit_table,
    )
    from bss.laws.fitting.estimate import Options
    from bss.points.curve import default_targets
    from bss.points.measuring import measure_points
    from bss.policies.derived import derive_schedule
    from bss.policies.policy import Limits
    from bss.report.page import write_report
    from bss.schedules.batch import BatchSchedule
    from bss.schedules.config import ScheduleConfig
    from bss.schedules.coupling import Coupling
    from bss.schedules.export import export
    from bss.schedules.plan import Plan
    from bss.schedules.plan import resolve as plan
    from bss.schedules.rates import LearningRate, Rate, cosine, wsd
    from bss.sweeps.grid import overlay, product, zipped
    from bss.sweeps.price import price
    from bss.sweeps.setup import EngineConfig, Setup, TextConfig
    from bss.sweeps.sweep import Sweep, sweep, train
    from bss.sweeps.table import list_runs
    from bss.tables import Reading, check_runs, read_points, read_runs, write_table
    from bss.training.config import EvaluationConfig, RunConfig
    from bss.training.optimizers import AdamW

__all__ = [
    "AdamW",
    "BatchSchedule",
    "Corpus",
    "Coupling",
    "CriticalFit",
    "CurveFit",
    "EngineConfig",
    "EsFit",
    "EvaluationConfig",
    "InputError",
    "LearningRate",
    "Limits",
    "Options",
    "Plan",
    "Rate",
    "Reading",
    "RunConfig",
    "ScheduleConfig",
    "Setup",
    "Sweep",
    "TableFit",
    "TextConfig",
    "check_losses",
    "check_runs",
    "cosine",
    "default_targets",
    "derive_schedule",
    "export",
    "fit_critical",
    "fit_curve",
    "fit_es",
    "fit_table",
    "list_runs",
    "measure_points",
    "overlay",
    "plan",
    "price",
    "product",
    "read_points",
    "read_runs",
    "sweep",
    "train",
    "version",
    "write_report",
    "write_table",
    "wsd",
    "zipped",
]

_ROOMS = {
    "AdamW": "training.optimizers",
    "BatchSchedule": "schedules.batch",
    "Corpus": "data.corpus",
    "Coupling": "schedules.coupling",
    "CriticalFit": "laws",
    "CurveFit": "laws",
    "EngineConfig": "sweeps.setup",
    "EsFit": "laws",
    "EvaluationConfig": "training.config",
    "InputError": "errors",
    "LearningRate": "schedules.rates",
    "Limits": "policies.policy",
    "Options": "laws.fitting.estimate",
    "Plan": "schedules.plan",
    "Rate": "schedules.rates",
    "Reading": "tables",
    "RunConfig": "training.config",
    "ScheduleConfig": "schedules.config",
    "Setup": "sweeps.setup",
    "Sweep": "sweeps.sweep",
    "TableFit": "laws",
    "TextConfig": "sweeps.setup",
    "check_losses": "laws",
    "check_runs": "tables",
    "cosine": "schedules.rates",
    "default_targets": "points.curve",
    "derive_schedule": "policies.derived",
    "export": "schedules.export",
    "fit_critical": "laws",
    "fit_curve": "laws",
    "fit_es": "laws",
    "fit_table": "laws",
    "list_runs": "sweeps.table",
    "measure_points": "points.measuring",
    "overlay": "sweeps.grid",
    "plan": "schedules.plan:resolve",
    "price": "sweeps.price",
    "product": "sweeps.grid",
    "read_points": "tables",
    "read_runs": "tables",
    "sweep": "sweeps.sweep",
    "train": "sweeps.sweep",
    "write_report": "report.page",
    "write_table": "tables",
    "wsd": "schedules.rates",
    "zipped": "sweeps.grid",
}

DISTRIBUTION = "batch-size-scaling"
"""What package indexes know it as; `bss` is somebody else's there."""


def version() -> str:
    """Of the installed package; what looks it up takes longer to load than most that asks."""
    from importlib.metadata import version as of

    return of(DISTRIBUTION)


def install(extra: str) -> str:
    """The command that adds an extra to the installation there is, a wheel's or a checkout's."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"


def __getattr__(name: str) -> Any:
    """What is exported, from its room."""
    if name not in _ROOMS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    room, _, inside = _ROOMS[name].partition(":")
    return getattr(importlib.import_module(f"{__name__}.{room}"), inside or name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
