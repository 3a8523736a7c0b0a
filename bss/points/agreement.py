"""Whether two loss curves are of one training run: equal, scaled, or different from some step on.

For runs that should be equal, e.g. with and without gradient accumulation, or on one GPU and on
eight. All of this is derived here:

- The logs of the losses are subtracted, so that a loss that is summed over k micro-batches where it
  should be averaged is a constant, log k.
- The noise of the difference is estimated from neighbours: 1.4826 × the median absolute difference
  of successive values / √2. Runs with the same data have little noise, runs with other data much.
- Equal curves that round differently drift apart slowly. A difference counts only if it is larger
  than DRIFT of the noise of the curves themselves.
- The step from which curves differ minimizes the squared residuals of: zero before it, a line after
  it. It counts if it explains more than a search over all steps explains by chance.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from bss.errors import InputError, check_type

FEWEST = 8
"""Common steps below which nothing is said."""
DRIFT = 0.1
"""Share of the curves' own noise that equal runs may drift apart."""
MAD = 1.4826
"""SD of a normal distribution over its median absolute deviation."""
DIGITS = 1e-7
"""Least relative noise: logs of float32 have seven digits."""
CLIPPED = 6.0  # derived here, as GROWING
GROWING = 0.25
"""Differences are clipped to CLIPPED × steps^GROWING noise SDs, so that one spike is no change."""
LAST = 10
"""The difference that is told is the mean over this part of the steps, the last tenth."""
SURE = 8.0  # derived here, as SHORT
SHORT = 40.0
"""A change counts if it explains more than (SURE + 2 log n) (1 + SHORT / n) noise variances of n
differences. In 5,900 equal planted pairs chance explained more in fewer than 1 in 200 (n from 10,
where the noise itself is known badly, to 400)."""

Kind = Literal["equal", "scaled", "different"]


@dataclass(frozen=True)
class Agreement:
    """The agreement of two loss curves.

    Attributes:
        kind: "equal", "scaled", or "different".
        factor: Ratio of the first loss to the second, if it is scaled; else 1.
        step: First step from which they differ; None if they do not.
        difference: Mean of the last tenth of first minus second, in nats.
        noise: SD of one difference, relative to the loss.
        steps: Number of common steps.
    """

    kind: Kind
    factor: float
    step: int | None
    difference: float
    noise: float
    steps: int

    def __str__(self) -> str:
        if self.kind == "equal":
            return f"equal within their noise ({self.noise:.2g} of the loss) at {self.steps} steps"
        if self.kind == "scaled":
            return f"scaled: the first is {self.factor:.4g} times the second at all steps"
        return (
            f"different from step {self.step:,} on: first minus second is {self.difference:+.3g} "
            "at the end"
        )


def compare_curves(first: pd.DataFrame, second: pd.DataFrame, column: str = "loss") -> Agreement:
    """Compare two loss curves that should be equal, at the steps that both have.

    Args:
        first: Columns `step` and `column`.
        second: The same of the other run.
        column: Name of the loss, positive, in nats.

    Raises:
        InputError: If a column is missing, fewer than 8 steps are common, or a common loss is not
            positive. A loss that is not finite is a difference.

    Examples:
        >>> steps = np.arange(100)
        >>> curve = pd.DataFrame({"step": steps, "loss": 2 + 2 / (1 + steps)})
        >>> print(compare_curves(curve.assign(loss=8 * curve["loss"]), curve))
        scaled: the first is 8 times the second at all steps
    """
    check_type("column", column, str, "the name of a loss")
    for name, table in (("first", first), ("second", second)):
        check_type(name, table, pd.DataFrame, f"a table with the columns step and {column}")
        missing = [one for one in ("step", column) if one not in table]
        if missing:
            raise InputError(f"{name}: column {missing[0]} is missing; it has {[*table.columns]}")
    both = (
        first[["step", column]]
        .dropna()
        .drop_duplicates("step", keep="last")
        .merge(second[["step", column]].dropna().drop_duplicates("step", keep="last"), on="step")
    )
    both = both.sort_values("step")
    if len(both) < FEWEST:
        raise InputError(
            f"curves: {len(both)} common steps with a {column}; expected {FEWEST} or more"
        )
    return _compare(*(both[name].to_numpy(float) for name in both))


def _compare(step: np.ndarray, first: np.ndarray, second: np.ndarray) -> Agreement:
    finite = np.isfinite(first) & np.isfinite(second)
    until = len(step) if finite.all() else int(np.argmin(finite))
    a = first[:until]
    b = second[:until]
    if not ((a > 0) & (b > 0)).all():
        raise InputError("curves: a loss is not positive; expected losses in nats")
    only_one = np.isfinite(first) != np.isfinite(second)
    ends = int(step[until]) if only_one.any() else None
    if until < FEWEST:
        kind = "equal" if ends is None else "different"
        return Agreement(kind, 1.0, ends, math.nan, math.nan, len(step))
    apart = np.log(a) - np.log(b)
    noise = _noise(apart)
    floor = DRIFT * min(_noise(np.log(a)), _noise(np.log(b)))
    found: dict[str, Any] = {
        "difference": float(np.mean((a - b)[-max(1, until // LAST) :])),
        "noise": noise,
        "steps": len(step),
    }
    change = _change(apart, noise, floor)
    if change is None:
        return Agreement("equal" if ends is None else "different", 1.0, ends, **found)
    scale = float(np.median(apart))
    if ends is None and _change(apart - scale, noise, floor) is None:
        return Agreement("scaled", math.exp(scale), None, **found)
    return Agreement("different", 1.0, int(step[change]), **found)


def _noise(values: ArrayLike) -> float:
    """Return the SD of independent noise on a smooth curve, from successive differences."""
    return MAD * float(np.median(np.abs(np.diff(values)))) / math.sqrt(2)


def _change(apart: np.ndarray, noise: float, floor: float) -> int | None:
    """Return the first index from which differences are not zero; None if they are zero."""
    count = len(apart)
    most = CLIPPED * count**GROWING
    values = np.clip(apart / max(noise, DIGITS), -most, most)
    place = np.arange(count, dtype=float)
    best = 0.0
    at = None
    for first in range(count - FEWEST // 2 + 1):
        rest = values[first:]
        ramp = place[first:] - place[first:].mean()
        slope = float(ramp @ rest) / float(ramp @ ramp) if len(rest) > 1 else 0.0
        mean = float(rest.mean())
        explained = len(rest) * mean**2 + slope**2 * float(ramp @ ramp)
        if explained > best:
            best = explained
            at = first
    if at is None or best < (SURE + 2 * math.log(count)) * (1 + SHORT / count):
        return None
    late = apart[at:]
    return at if abs(np.mean(late[len(late) // 2 :])) > floor else None
