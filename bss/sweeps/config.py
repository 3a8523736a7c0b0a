"""A sweep with its tables and report, as a config file has it."""

from dataclasses import dataclass, field
from typing import Any

from bss.errors import InputError, check_least
from bss.sweeps.axes import read_axes
from bss.sweeps.engines import ENGINES
from bss.sweeps.grid import Axis
from bss.sweeps.setup import Setup


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """A sweep as a config file has it.

    Attributes:
        setup: the run that the axes overlay, and what trains.
        axes: {"schedule.batch": [4, 8]}, a list of overlays, or "module:AXIS"; none for one run.
        axis: more axes as a command line has them, "schedule.batch=4,8".
        title: of the report.
        engine: what trains; see `bss.sweeps.engines`.
        targets: number of target losses.
        resamples: number of bootstrap refits of each interval.
        results: directory of the tables and the report.
        dry_run: print the cost and train nothing.

    Raises:
        InputError: If a field is out of range.
    """

    setup: Setup = field(default_factory=Setup)
    axes: Any = field(default_factory=dict)
    axis: tuple[str, ...] = ()
    title: str = "A sweep"
    engine: str = "local"
    targets: int = 5
    resamples: int = 500
    results: str = ""
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_least("config", self, targets=1, resamples=10)
        ENGINES[self.engine]
        if callable(self.axes):
            raise InputError('axes is a function; a config names it: write "module:AXIS"')
        if not (self.results or self.dry_run):
            raise InputError("results is empty, --out is missing; name a directory for the results")

    def every_axis(self) -> list[Axis]:
        """Return the axes of `axes`, then those of `axis`."""
        return read_axes(self.axes, self.axis)
