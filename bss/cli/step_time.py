"""Options and output of the batch sizes that are soonest and cheapest, by seconds per step."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group, Parameter

from bss.cells import number
from bss.cli.options import Positive
from bss.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from bss.laws.step_time import StepTime
    from bss.tables import Reading

WORDS = {"tokens": "fewest tokens at batch", "time": "soonest at", "cost": "cheapest at"}


@Parameter(name="*", group=Group("Time", sort_key=5))
@dataclass(frozen=True)
class TimeOptions:
    """Time and cost to a target.

    Attributes:
        step_time: seconds per step, "0.05 + 0.002*B" or "50ms + 2ms*B"; a CSV with the columns
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

    def read(self, runs: Path | None = None, how: "Reading | None" = None) -> "StepTime | None":
        """Return seconds per step, from the run table if requested; None without the option."""
        if self.step_time is None:
            return None
        from bss.laws.step_time import OF_RUNS, StepTime

        if self.step_time != OF_RUNS:
            return StepTime.read(self.step_time, self.devices)
        if runs is None:
            raise InputError("--step-time runs: needs a run table; write '0.05 + 0.002*B'")
        from bss.cli.options import read_run_table
        from bss.tables import Reading

        return StepTime.from_runs(read_run_table(runs, how or Reading())[0], self.devices)


def equal_time(
    fit: Any, step_time: "StepTime", price: float
) -> "tuple[pd.DataFrame, str, list[str]]":
    """Return the batch sizes with the fewest tokens, least time and least cost.

    Args:
        fit: of E(S), or of critical batch sizes.
        step_time: seconds per step.
        price: of a device-hour.

    Returns:
        The rows of each target loss or curve, the last of them as a sentence, and a warning if
        measured batch sizes have no step time.
    """
    import pandas as pd

    from bss.laws import EsFit
    from bss.laws.step_time import best_batches, critical_batches

    if isinstance(fit, EsFit):
        losses = [at.target_loss for at in fit.fits]
        tables = {f"loss {x:.4g}": best_batches(fit, x, step_time, price) for x in losses}
        batches = fit.batches
    else:
        known = [at for at in fit.fits if at.B_crit.value is not None]
        tables = {str(at.curve.name): critical_batches(at, step_time, price) for at in known}
        batches = sorted({float(x) for at in known for x in at.curve.batch})
    times = step_time.batches
    untimed = [f"{x:g}" for x in batches if times and not times[0] <= x <= times[-1]]
    warnings = [f"no step time, not considered: batch {', '.join(untimed)}"] if untimed else []
    if not tables:
        return pd.DataFrame(), "", warnings
    name, last = list(tables.items())[-1]
    rows = pd.concat(tables, names=["at"]).reset_index(level="at")
    return rows, f"{name}: {sentence(last)}", warnings


def sentence(table: "pd.DataFrame") -> str:
    """Return a table of `best_batches` in one line.

    Examples:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"criterion": ["tokens", "time", "cost"], "batch": [16, 64, 24.4],
        ...     "low": [16, 50, 20], "high": [16, 64, 30], "at_boundary": [True, False, False]})
        >>> print(sentence(table))
        fewest tokens at batch 16 (at the boundary), soonest at 64 (50 to 64), cheapest at 24.4
        (20 to 30)
    """
    parts = []
    for row in table.to_dict("records"):
        ends = f"{number(row['low'], 3)} to {number(row['high'], 3)}"
        note = " (at the boundary)" if row["at_boundary"] else f" ({ends})" if row["low"] else ""
        parts.append(f"{WORDS[row['criterion']]} {number(row['batch'], 3)}{note}")
    return ", ".join(parts)
