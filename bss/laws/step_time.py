"""Batch sizes at which a target loss is reached soonest and cheapest, from seconds per step.

Time to a target is S(B) steps of t(B) seconds, cost is time × devices × price. For the hyperbola
S = a + b/B and t = t_0 + t_1·B the time has its minimum at B = √(B_crit·t_0/t_1), B_crit = b/a
(derived here). Other laws are minimized on a grid of batch sizes. B is in sequences.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.cells import number
from bss.errors import InputError, check
from bss.laws.base import DRAWS, BestBatch, Estimate, Options, interval
from bss.laws.critical.law import Shape
from bss.laws.critical.values import CriticalBatch, CriticalFit
from bss.laws.es.values import EsFit
from bss.laws.inference import over_forms
from bss.tables.columns import Origin, need
from bss.tables.storage import read_table

UNITS = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}  # in seconds
_NUMBER = r"(\d+\.?\d*(?:e[-+]?\d+)?|\.\d+(?:e[-+]?\d+)?)\s*(us|ms|s|)"
FORMULA = re.compile(rf"{_NUMBER}\s*\+\s*{_NUMBER}\s*\*\s*B")
EXPECTED = "'a + b*B' in seconds, such as '0.05 + 0.002*B', or a table with batch and seconds"
GRID = 961  # batch sizes, 0.7% apart over three decades
SLACK = 0.05  # a larger batch may measure as this much faster, by noise
WORDS = {"tokens": "fewest tokens at batch", "time": "soonest at", "cost": "cheapest at"}
CRITERIA = tuple(WORDS)
OF_RUNS = "runs"


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
            InputError: If the text is not a formula, or only one number has a unit.

        Examples:
            >>> StepTime.parse("50ms + 2ms*B").seconds
            (0.05, 0.002)
        """
        found = FORMULA.fullmatch(text.strip())
        if found is None:
            raise InputError(f"step_time: {text!r} given; write {EXPECTED}")
        a, unit_a, b, unit_b = found.groups()
        check(bool(unit_a) == bool(unit_b), "step_time", repr(text), "both units, or none for s")
        terms = float(a) * UNITS[unit_a], float(b) * UNITS[unit_b]
        check(sum(terms) > 0, "step_time", repr(text), EXPECTED)
        return cls((), terms, (float(devices),))

    @classmethod
    def read(cls, text: str, devices: float = 1.0) -> "StepTime":
        """Read a formula, or the table in a file (CSV or Parquet).

        Raises:
            InputError: If the text is neither, or `parse` or `from_table` refuses it.
        """
        if Path(text).suffix not in (".csv", ".tsv", ".parquet"):
            return cls.parse(text, devices)
        frame = read_table(text)[0]
        if "devices" not in frame:
            frame = frame.assign(devices=devices)
        return cls.from_table(frame.rename(columns={"step_time": "seconds"}), text)

    @classmethod
    def from_runs(cls, runs: pd.DataFrame, devices: float = 1.0) -> "StepTime":
        """Read a run table's column step_time (seconds per step) or seconds (since its start).

        Raises:
            InputError: If the table has neither, or `from_table` refuses the times.
        """
        if "step_time" in runs:
            seconds = pd.to_numeric(runs["step_time"], errors="coerce")
        elif "seconds" in runs:
            by_run = runs.groupby("run")
            seconds = by_run["seconds"].diff() / by_run["step"].diff()
        else:
            raise InputError(f"step_time: the runs have no column step_time or seconds; {EXPECTED}")
        table = pd.DataFrame({"batch": runs["batch"], "seconds": seconds, "devices": devices})
        known = np.asarray(seconds, float) > 0
        return cls.from_table(table.loc[known], "step_time of the runs")

    @classmethod
    def from_table(cls, table: pd.DataFrame, origin: str = "step_time") -> "StepTime":
        """Read columns batch (sequences), seconds (per step) and, if there, devices.

        Several rows of a batch size count with their median. Times that fall by up to 5% count
        as equal.

        Raises:
            InputError: If a column is missing, a value is not positive, or more sequences take less
                time on the same devices.
        """
        names = [name for name in ("batch", "seconds", "devices") if name in table]
        need(table, Origin(origin), "batch", "seconds")
        values = table[names].apply(pd.to_numeric, errors="coerce")
        good = (np.isfinite(values) & (values > 0)).all(axis=1)
        row = table.loc[~good, names][:1].to_dict("records")
        check(bool(good.all()), origin, row, "positive numbers in each column")
        known = values.groupby("batch", as_index=False).median().sort_values("batch")
        if len(known) < 2:
            raise InputError(f"{origin}: {len(known)} batch size; expected 2 or more")
        devices = known.get("devices", pd.Series(1.0, known.index)).to_numpy(float)
        batch = known["batch"].to_numpy(float)
        seconds = known["seconds"].to_numpy(float)
        falls = (np.diff(seconds) < -SLACK * seconds[1:]) & (np.diff(devices) <= 0)
        if falls.any():
            small = int(np.argmax(falls))
            large = small + 1
            raise InputError(
                f"{origin}: {seconds[large]:g} s at batch {batch[large]:g}, {seconds[small]:g} at "
                f"{batch[small]:g}; expected times that do not fall; check units, or add devices"
            )
        if (np.diff(devices) <= 0).all():
            seconds = np.maximum.accumulate(seconds)
        return cls(tuple(batch.tolist()), tuple(seconds.tolist()), tuple(devices.tolist()))

    def __call__(self, batch: np.ndarray) -> np.ndarray:
        """Return seconds per step; linear in B between measured batch sizes, NaN outside them."""
        if not self.batches:
            return self.seconds[0] + self.seconds[1] * np.asarray(batch, float)
        return np.interp(batch, self.batches, self.seconds, np.nan, np.nan)

    def devices_at(self, batch: np.ndarray) -> np.ndarray:
        """Return devices at batch sizes, from the next larger batch size that was measured."""
        if len(self.devices) == 1:
            return np.full(np.shape(batch), self.devices[0])
        rounding = 1e-12  # of a grid of batch sizes
        larger = np.searchsorted(self.batches, np.asarray(batch) * (1 - rounding))
        return np.asarray(self.devices)[np.minimum(larger, len(self.devices) - 1)]


def best_batches(
    fit: EsFit, target_loss: float, step_time: StepTime, price: float = 1.0
) -> pd.DataFrame:
    """Return the batch sizes with the fewest tokens, least time and least cost to a target.

    They are sought among the batch sizes that were measured and have a step time. The batch size
    with the fewest tokens is B_opt of the fit.

    Args:
        fit: E(S), with draws.
        target_loss: one of the targets of the fit, in nats.
        step_time: seconds per step.
        price: of a device-hour.

    Returns:
        One row per criterion (tokens, time, cost), with the columns:

        - criterion: "tokens", "time" or "cost".
        - batch, low, high: the best batch size and its interval at the level of the fit, in
          sequences.
        - tokens, steps, hours, cost: values at this batch size.
        - at_boundary: whether it is the smallest or the largest batch size.

    Raises:
        InputError: If the target was not fitted, or fewer than two measured batch sizes have a
            step time.
    """
    batch, curves = by_criterion(fit, target_loss, step_time, price)
    best = fit.at(target_loss).best
    table = _optima(batch, curves, fit.seq_len, fit.level, best)
    if _has_law(fit, target_loss) or best.high is None or best.status != "at_boundary":
        return table
    # The smallest batch size is best, as by S = a + b/B: too few batch sizes choose between forms.
    tokens = _bend(fit, batch, target_loss)
    bent = _measures(batch, tokens, fit.seq_len, step_time, price)
    other = _optima(batch, bent, fit.seq_len, fit.level)
    for i in table.index[~(table["at_boundary"] | other["at_boundary"])]:
        row = table.loc[i]
        values = [float(row["batch"]), float(other.loc[i, "batch"])]
        ends = over_forms(values, float(row["low"]), float(row["high"]), fit.level)
        table.loc[i, ["low", "high"]] = np.clip(ends, batch[0], batch[-1])
    return table


def by_criterion(
    fit: EsFit, target_loss: float, step_time: StepTime, price: float = 1.0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return batch sizes [GRID], and tokens, hours and cost [GRID, 1 + draws] by criterion."""
    batch = _common(fit.batches, step_time)
    tokens = token_draws(fit, batch, target_loss)
    return batch, _measures(batch, tokens, fit.seq_len, step_time, price)


def critical_batches(at: CriticalBatch, step_time: StepTime, price: float = 1.0) -> pd.DataFrame:
    """Return the same of S = a + b/B with the interval of its critical batch size b/a.

    The best batch sizes grow with b/a, so the ends of its interval give theirs (derived here).

    Raises:
        InputError: If the critical batch size is not identified, or as `best_batches`.
    """
    bend = at.B_crit
    seq_len = at.curve.seq_len
    if bend.value is None or at.S_min.value is None:
        raise InputError(f"step_time: B_crit of {at.curve.model} is unidentified: {bend.why}")
    if not np.isfinite(seq_len):
        raise InputError("step_time: the table has no sequence length; give --seq-len")
    batch = _common(at.curve.batch.tolist(), step_time)
    far = 1e9 * bend.value  # an end that is open is beyond every batch
    ends = np.array([bend.value, bend.low or 0.0, bend.high or far])
    steps = at.S_min.value * (1 + ends / batch[:, None])
    tokens = steps * batch[:, None] * seq_len
    return _optima(batch, _measures(batch, tokens, seq_len, step_time, price), seq_len, bend.level)


def equal_time(
    fit: EsFit | CriticalFit, step_time: StepTime, price: float = 1.0
) -> tuple[pd.DataFrame, list[str]]:
    """Return the table of `best_batches` at each target loss or curve of a fit.

    Args:
        fit: of E(S), or of critical batch sizes; curves without one are left out.
        step_time: seconds per step.
        price: of a device-hour.

    Returns:
        The rows, with the target or curve in the column at, and a warning if measured batch sizes
        have no step time.

    Raises:
        InputError: As `best_batches` and `critical_batches`.
    """
    if isinstance(fit, EsFit):
        losses = [at.target_loss for at in fit.fits]
        tables = {f"loss {x:.4g}": best_batches(fit, x, step_time, price) for x in losses}
        batches = fit.batches
    else:
        known = [at for at in fit.fits if at.B_crit.value is not None]
        tables = {at.curve.name: critical_batches(at, step_time, price) for at in known}
        batches = sorted({float(x) for at in known for x in at.curve.batch})
    times = step_time.batches
    untimed = [f"{x:g}" for x in batches if times and not times[0] <= x <= times[-1]]
    warnings = [f"no step time, not considered: batch {', '.join(untimed)}"] if untimed else []
    if not tables:
        return pd.DataFrame(columns=["at"]), warnings
    return pd.concat(tables, names=["at"]).reset_index(level="at"), warnings


def equal_loss_batches(
    batch: np.ndarray, tokens: np.ndarray, seq_len: float, step_time: StepTime, price: float = 1.0
) -> pd.DataFrame:
    """Return the table of `best_batches` for given tokens to one loss.

    Args:
        batch: batch sizes [n] in sequences, ascending.
        tokens: [n, 3] of the estimate and of the ends of its 90% interval.
        seq_len: tokens per sequence.
        step_time: seconds per step.
        price: of a device-hour.

    Raises:
        InputError: If fewer than two of the batch sizes have a step time.
    """
    grid = _common(batch.tolist(), step_time)
    logs = [np.interp(np.log(grid), np.log(batch), one) for one in np.log(tokens).T]
    curves = _measures(grid, np.exp(np.column_stack(logs)), seq_len, step_time, price)
    return _optima(grid, curves, seq_len, Options.level)


def sentence(table: pd.DataFrame) -> str:
    """Return a table of `best_batches` in one line.

    Examples:
        >>> import pandas as pd
        >>> table = pd.DataFrame({"criterion": ["tokens", "time", "cost"], "batch": [16, 64, 24.4],
        ...     "low": [16, 50, 20], "high": [16, 64, 30], "at_boundary": [True, False, False]})
        >>> print(sentence(table))
        fewest tokens at batch 16 (at the boundary), soonest at 64 (50 to 64), cheapest at 24.4
        (20 to 30)
    """
    digits = 3  # finer than the grid of batch sizes
    parts = []
    for row in table.to_dict("records"):
        text = f"{WORDS[row['criterion']]} {number(row['batch'], digits)}"
        if row["at_boundary"]:
            text += " (at the boundary)"
        elif row["low"]:
            text += f" ({number(row['low'], digits)} to {number(row['high'], digits)})"
        parts.append(text)
    return ", ".join(parts)


def _common(batches: Sequence[float], step_time: StepTime) -> np.ndarray:
    """Return batch sizes [GRID] over the range that was measured and has a step time."""
    low = min(batches)
    high = max(batches)
    if step_time.batches:
        low = max(low, step_time.batches[0])
        high = min(high, step_time.batches[-1])
    if not low < high:
        raise InputError(
            f"step_time: batches {step_time.batches} given; the runs have {min(batches):g} to "
            f"{max(batches):g}; time at least two of them"
        )
    return np.geomspace(low, high, GRID)


def _measures(
    batch: np.ndarray, tokens: np.ndarray, seq_len: float, step_time: StepTime, price: float
) -> dict[str, np.ndarray]:
    """Return tokens, hours and cost [GRID, 1 + draws] by criterion; the estimate is first."""
    steps = tokens / (batch * seq_len)[:, None]
    hours = steps * step_time(batch)[:, None] / 3600  # seconds in an hour
    cost = hours * step_time.devices_at(batch)[:, None] * price
    return dict(zip(CRITERIA, (tokens, hours, cost), strict=True))


def _optima(
    batch: np.ndarray,
    curves: dict[str, np.ndarray],
    seq_len: float,
    level: float,
    B_opt: BestBatch | None = None,
) -> pd.DataFrame:
    """Return the table of `best_batches` from `_measures`; B_opt is the answer for tokens."""
    rows = []
    for name, values in curves.items():
        at, *others = np.nanargmin(values, axis=0)
        best = Estimate(float(batch[at]))
        if others:
            best = interval(float(batch[at]), batch[others], level=level)
        at_boundary = bool(at in (0, GRID - 1))
        if name == "tokens" and B_opt is not None and (B_opt.low or B_opt.high):
            bound = batch[-1 if B_opt.low else 0]
            at_boundary = B_opt.status == "at_boundary"
            best = replace(B_opt, value=B_opt.value or float(bound))
        at = int(np.argmin(np.abs(np.log(batch / best.value))))
        row = {"criterion": name, "batch": best.value, "low": best.low, "high": best.high}
        values_there = {criterion: float(curves[criterion][at, 0]) for criterion in CRITERIA}
        tokens = values_there["tokens"]
        row |= {"tokens": tokens, "steps": tokens / (batch[at] * seq_len)}
        row |= {"hours": values_there["time"], "cost": values_there["cost"]}
        rows.append(row | {"at_boundary": at_boundary})
    return pd.DataFrame(rows)


def token_draws(fit: EsFit, batch: np.ndarray, target_loss: float) -> np.ndarray:
    """Return tokens [n, 1 + draws] to a target at batch sizes [n], of the fit and of each refit.

    Without a law at the target, log tokens are a parabola in log B through the measured means.
    """
    if not _has_law(fit, target_loss):
        return _parabola(fit, batch, target_loss)
    return np.column_stack([fit.tokens(batch, target_loss), fit.token_draws(batch, target_loss)])


def _has_law(fit: EsFit, target_loss: float) -> bool:
    return fit.law.joint or bool(fit.at(target_loss).parameters)


def _log_tokens(fit: EsFit, target_loss: float) -> Any:
    """Return log tokens of the runs that reached a target, grouped by batch size."""
    rows = pd.DataFrame({name: fit.rows[name] for name in ("batch", "target_loss", "measured")})
    rows = rows[np.isclose(rows["target_loss"], target_loss)].astype(float)
    return np.log(rows["measured"]).groupby(rows["batch"])


def _bend(fit: EsFit, batch: np.ndarray, target_loss: float) -> np.ndarray:
    """Return tokens [n, 1] at batch sizes [n] by S = a + b/B through the means."""
    means = _log_tokens(fit, target_loss).mean()
    known = means.index.to_numpy(float)
    shape = Shape.of(known, means.to_numpy() - np.log(known))  # of steps times the length
    return (np.exp(shape.log_steps(batch)) * batch)[:, None]


def _parabola(fit: EsFit, batch: np.ndarray, target_loss: float) -> np.ndarray:
    """Return tokens [n, 1 + draws] by a parabola through the means, and by refits of it.

    Refits are to means redrawn with their standard errors. If the parabola does not fit the means,
    the errors are enlarged to the lack of fit (derived here).
    """
    logs = _log_tokens(fit, target_loss)
    mean = logs.mean().to_numpy()
    count = logs.size().to_numpy()
    freedom = max(int(count.sum()) - len(count), 1)
    noise = float(np.sqrt((logs.var(ddof=0).to_numpy() * count).sum() / freedom))
    known = np.log(logs.mean().index.to_numpy(float))
    degree = min(2, len(known) - 1)
    weight = np.sqrt(count)
    line = np.polyfit(known, mean, degree, w=weight)
    off = weight * (mean - np.polyval(line, known))
    spare = len(known) - degree - 1
    noise = max(noise, float(np.sqrt((off**2).sum() / spare)) if spare else 0.0)
    generator = np.random.default_rng(0)
    scale = noise * np.sqrt(freedom / generator.chisquare(freedom, DRAWS))[:, None] / weight
    redrawn = np.polyval(line, known) + scale * generator.standard_normal((DRAWS, len(known)))
    lines = np.column_stack([line, np.polyfit(known, redrawn.T, degree, w=weight)])
    return np.exp(np.vander(np.log(batch), degree + 1) @ lines)
