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

# ruff: noqa: F401 - the imports are for type checkers
import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bss.data.corpus import Corpus
    from bss.errors import InputError
    from bss.exports import export
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
    from bss.policies.measured import derive_schedule
    from bss.policies.policy import Limits
    from bss.report.page import write_report
    from bss.schedules.batch import BatchSchedule
    from bss.schedules.config import ScheduleConfig
    from bss.schedules.coupling import Coupling
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

_EXPORTS = {
    "data.corpus": ("Corpus",),
    "errors": ("InputError",),
    "laws": (
        "CriticalFit",
        "CurveFit",
        "EsFit",
        "TableFit",
        "check_losses",
        "fit_critical",
        "fit_curve",
        "fit_es",
        "fit_table",
    ),
    "laws.fitting.estimate": ("Options",),
    "points.curve": ("default_targets",),
    "points.measuring": ("measure_points",),
    "policies.measured": ("derive_schedule",),
    "policies.policy": ("Limits",),
    "report.page": ("write_report",),
    "schedules.batch": ("BatchSchedule",),
    "schedules.config": ("ScheduleConfig",),
    "schedules.coupling": ("Coupling",),
    "exports": ("export",),
    "schedules.plan": ("Plan", "plan"),
    "schedules.rates": ("LearningRate", "Rate", "cosine", "wsd"),
    "sweeps.grid": ("overlay", "product", "zipped"),
    "sweeps.price": ("price",),
    "sweeps.setup": ("EngineConfig", "Setup", "TextConfig"),
    "sweeps.sweep": ("Sweep", "sweep", "train"),
    "sweeps.table": ("list_runs",),
    "tables": ("Reading", "check_runs", "read_points", "read_runs", "write_table"),
    "training.config": ("EvaluationConfig", "RunConfig"),
    "training.optimizers": ("AdamW",),
}
"""By room, the names that are exported: those of the imports above."""

_ROOMS = {name: room for room, names in _EXPORTS.items() for name in names}
_CALLED = {"plan": "resolve"}
"""Names that are others in their room."""

__all__ = sorted([*_ROOMS, "version"])  # pyright: ignore[reportUnsupportedDunderAll]

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
    room = importlib.import_module(f"{__name__}.{_ROOMS[name]}")
    return getattr(room, _CALLED.get(name, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
