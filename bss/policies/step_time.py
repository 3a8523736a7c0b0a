"""Batch sizes at which a target loss is reached soonest and cheapest, from seconds per step.

Time to a target is S(B) steps of t(B) seconds, cost is time × devices × price. For the hyperbola
S = a + b/B and t = t_0 + t_1·B the least time is at B = √(b·t_0/(a·t_1)) = √(B_crit·t_0/t_1), with
B_crit = b/a (derived here). Other laws are minimized on a grid of batch sizes. B is in sequences.
"""

import re
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.base import Estimate, interval

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_NUMBER = r"(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)\s*(us|ms|s|)"
FORMULA = re.compile(rf"{_NUMBER}\s*\+\s*{_NUMBER}\s*\*\s*B")
EXPECTED = "'a + b*B' in seconds, such as '0.05 + 0.002*B', or a table with batch and seconds"
GRID = 961  # batch sizes, 0.7% apart over three decades
CRITERIA = ("tokens", "time", "cost")


@dataclass(frozen=True)
class StepTime:
    """Seconds per step against the batch size.

    Attributes:
        batches: measured batch sizes in sequences, ascending; empty for a formula.
        seconds: seconds per step of each; (a, b) of a + b·B for a formula.
        devices: devices of each, or one number for all.
    """

    batches: tuple[float, ...]
    seconds: tuple[float, ...]
    devices: tuple[float, ...] = (1.0,)

    @classmethod
    def parse(cls, text: str, devices: float = 1.0) -> "StepTime":
        """Read a formula `a + b*B`; each number may have a unit: s, ms or us.

        Raises:
            InputError: If the text is no such formula, or one number has a unit and one has none.

        Examples:
            >>> StepTime.parse("50ms + 2ms*B").seconds
            (0.05, 0.002)
        """
        found = FORMULA.fullmatch(text.strip())
        if found is None:
            raise InputError(f"step_time: {text!r} given; write {EXPECTED}")
        a, unit_a, b, unit_b = found.groups()
        if bool(unit_a) != bool(unit_b):
            raise InputError(
                f"step_time: {text!r} has one unit; write both, or neither for seconds"
            )
        terms = float(a) * UNITS[unit_a], float(b) * UNITS[unit_b]
        if not sum(terms) > 0:
            raise InputError(f"step_time: {text!r} is zero; write {EXPECTED}")
        return cls((), terms, (float(devices),))

    @classmethod
    def from_table(cls, table: pd.DataFrame, origin: str = "step_time") -> "StepTime":
        """Read columns batch (sequences), seconds (per step) and, if there, devices.

        Several rows of a batch size count with their median.

        Raises:
            InputError: If a column is missing or a value is no positive number, or if more
                sequences on as many devices take less time.
        """
        names = [name for name in ("batch", "seconds", "devices") if name in table]
        if missing := [name for name in ("batch", "seconds") if name not in table]:
            raise InputError(f"{origin}: no column {missing[0]}; expected {EXPECTED}")
        values = table[names].apply(pd.to_numeric, errors="coerce")
        bad = ~(np.isfinite(values) & (values > 0)).all(axis=1)
        if bad.any():
            row = table.loc[bad, names].iloc[0].to_dict()
            raise InputError(f"{origin}: row {row}; expected positive numbers in each column")
        known = values.groupby("batch", as_index=False).median().sort_values("batch")
        if len(known) < 2:
            raise InputError(f"{origin}: {len(known)} batch size; expected 2 or more")
        devices = known.get("devices", pd.Series(1.0, known.index)).to_numpy(float)
        batch, seconds = (known[name].to_numpy(float) for name in ("batch", "seconds"))
        falls = (np.diff(seconds) < 0) & (np.diff(devices) <= 0)
        if falls.any():
            small, large = (int(np.argmax(falls)) + i for i in (0, 1))
            raise InputError(
                f"{origin}: {seconds[large]:g} s at batch {batch[large]:g}, {seconds[small]:g} at "
                f"{batch[small]:g}; expected times that do not fall; check units, or add devices"
            )
        return cls(tuple(batch.tolist()), tuple(seconds.tolist()), tuple(devices.tolist()))

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Return seconds per step; linear in B between measured batch sizes, NaN outside them."""
        if not self.batches:
            return self.seconds[0] + self.seconds[1] * np.asarray(batch, float)
        return np.interp(batch, self.batches, self.seconds, np.nan, np.nan)

    def devices_at(self, batch: np.ndarray) -> np.ndarray:
        """Return devices at batch sizes: those of the smallest measured one that is not smaller."""
        if len(self.devices) == 1:
            return np.full(np.shape(batch), self.devices[0])
        at = np.searchsorted(self.batches, np.asarray(batch) * (1 - 1e-12))
        return np.asarray(self.devices)[np.minimum(at, len(self.devices) - 1)]


def best_batches(
    fit: EsFit, target_loss: float, step_time: StepTime, price: float = 1.0
) -> pd.DataFrame:
    """Return the batch sizes with the fewest tokens, least time and least cost to a target.

    They are sought among the batch sizes that were measured and have a step time.

    Args:
        fit: E(S), with draws.
        target_loss: one of the targets of the fit, in nats.
        step_time: seconds per step.
        price: of a device-hour.

    Returns:
        One row per criterion (tokens, time, cost): criterion; batch with low and high (sequences,
        interval of the level of the fit); tokens, steps, hours and cost at that batch; at_boundary,
        whether the smallest or the largest of those batch sizes is the best.

    Raises:
        InputError: If the law is unidentified at the target, or no measured batch has a step time.
    """
    low, high = min(fit.batches), max(fit.batches)
    if step_time.batches:
        low, high = max(low, step_time.batches[0]), min(high, step_time.batches[-1])
    if not low < high:
        raise InputError(
            f"step_time: batches {step_time.batches} given; the runs have {min(fit.batches):g} to "
            f"{max(fit.batches):g}; time at least two of them"
        )
    batch = np.geomspace(low, high, GRID)
    draws = token_draws(fit, batch, target_loss)  # [GRID, draws], the fit first
    steps = draws / (batch * fit.seq_len)[:, None]
    hours = steps * step_time(batch)[:, None] / 3600
    cost = hours * step_time.devices_at(batch)[:, None] * price
    rows = []
    for name, values in zip(CRITERIA, (draws, hours, cost), strict=True):
        at, *others = np.nanargmin(values, axis=0)
        best = Estimate(float(batch[at]))
        if others:
            best = interval(float(batch[at]), batch[others], level=fit.level)
        row = {"criterion": name, "batch": batch[at], "low": best.low, "high": best.high}
        row |= {"tokens": draws[at, 0], "steps": steps[at, 0]}
        row |= {"hours": hours[at, 0], "cost": cost[at, 0]}
        rows.append(row | {"at_boundary": bool(at in (0, GRID - 1))})
    return pd.DataFrame(rows)


def token_draws(fit: EsFit, batch: np.ndarray, target_loss: float) -> np.ndarray:
    """Return tokens [n, 1 + draws] to a target at batch sizes [n], of the fit and of each refit."""
    return np.column_stack([fit.tokens(batch, target_loss), fit.token_draws(batch, target_loss)])
