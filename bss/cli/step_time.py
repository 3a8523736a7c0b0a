"""Options and output of the batch sizes that are soonest and cheapest, by seconds per step."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cyclopts import Group, Parameter

from bss.cells import number
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
        step_time: seconds per step, "0.05 + 0.002*B" or "50ms + 2ms*B"; or a CSV of batch, seconds,
            devices; or "runs" for those of the run table
        devices: devices that take a step, where a table has no such column
        price: of a device-hour
    """

    step_time: str | None = None
    devices: float = 1.0
    price: float = 1.0

    def __post_init__(self) -> None:
        for name, value in (("devices", self.devices), ("price", self.price)):
            if not 0 < value < float("inf"):
                raise InputError(f"--{name} {value}: expected a positive number")
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


@dataclass(frozen=True)
class EqualTime:
    """The batch sizes with the fewest tokens, least time and least cost, by target or curve.

    Attributes:
        tables: of `bss.laws.step_time`, by the name of the target or curve.
        answers: a line each.
        warnings: measured batch sizes without a step time.
    """

    tables: "Mapping[str, pd.DataFrame]"
    answers: tuple[str, ...]
    warnings: tuple[str, ...] = ()

    @property
    def shown(self) -> "dict[str, pd.DataFrame]":
        """All in one table, by its title; empty without a step time."""
        import pandas as pd

        if not self.tables:
            return {}
        frames = [frame.assign(at=name) for name, frame in self.tables.items()]
        every = pd.concat(frames, ignore_index=True)
        return {"Time and cost": every[["at", *every.columns.drop("at")]]}

    @property
    def entry(self) -> dict[str, Any]:
        """The JSON form."""
        rows = [row for frame in self.shown.values() for row in frame.to_dict("records")]
        return {"equal_time": rows} if rows else {}


def equal_time(fit: Any, step_time: "StepTime", price: float) -> EqualTime:
    """Return the answers of a fit of E(S) or of critical batch sizes, for each target or curve."""
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
    answers = tuple(f"{name}: {sentence(table)}" for name, table in tables.items())
    times = step_time.batches
    untimed = [f"{x:g}" for x in batches if times and not times[0] <= x <= times[-1]]
    warning = f"batches without a step time are not considered: {', '.join(untimed)}"
    return EqualTime(tables, answers[-1:], (warning,) if untimed else ())


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
