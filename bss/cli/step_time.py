"""Options of the batch sizes that are soonest and cheapest, by seconds per step."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import Group, Parameter

from bss.cli.options import Positive
from bss.errors import InputError

if TYPE_CHECKING:
    from bss.laws.step_time import StepTime
    from bss.tables import Reading


@Parameter(name="*", group=Group("Time", sort_key=5))
@dataclass(frozen=True)
class TimeOptions:
    """Time and cost to a target.

    Attributes:
        step_time: seconds per step, `"0.05 + 0.002*B"` or `"50ms + 2ms*B"`; a CSV with the columns
            batch, seconds, devices; or "runs" to read them from the run table
        devices: devices that take a step, where a table has no such column
        price: of a device-hour
    """

    step_time: str | None = None
    devices: Positive = 1.0
    price: Positive = 1.0

    def __post_init__(self) -> None:
        for name, value in (("devices", self.devices), ("price", self.price)):
            if value != 1 and self.step_time is None:
                raise InputError(f"--{name} {value}: needs --step-time, e.g. '0.05 + 0.002*B'")

    def read(self, runs: Sequence[Path] = (), how: "Reading | None" = None) -> "StepTime | None":
        """Return seconds per step, from run tables if requested; None without the option."""
        if self.step_time is None:
            return None
        from bss.laws.step_time import OF_RUNS, StepTime

        if self.step_time != OF_RUNS:
            return StepTime.read(self.step_time, self.devices)
        if not runs:
            raise InputError("--step-time runs: needs a run table; write '0.05 + 0.002*B'")
        from bss.reading import read_run_table
        from bss.tables import Reading

        return StepTime.from_runs(read_run_table(runs, how or Reading())[0], self.devices)
