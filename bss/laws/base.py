"""Estimates with their intervals, outliers, and the base class of fits.

All are values: what fits return, and pages, tables, JSON, advice and schedules print and read back.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from importlib import metadata
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from bss import values
from bss.cells import fit_html, number
from bss.errors import InputError, check, check_number
from bss.files import finite, write_json
from bss.installation import DISTRIBUTION, from_above
from bss.laws.resampling import rms
from bss.registry import UntrustedError, reading_data
from bss.units import parse_number
from bss.values import SLACK, Count, Finite, Share

if TYPE_CHECKING:
    import pandas as pd  # loaded where a table is made
    from matplotlib.axes import Axes

UNIDENTIFIED = "unidentified: "
DRAWS = 200  # kept by a fit: ten beyond each end of a 90% interval, in 150 kB of JSON
Status = Literal[
    "ok", "at_boundary", "within_noise", "too_few_batches", "interval_too_wide", "single_lr"
]


@dataclass(frozen=True)
class Estimate:
    """A number with its interval, or the reason why there is none.

    Attributes:
        value: the estimate; None if the design does not identify it.
        low, high: ends of the interval, or bounds where the value is None.
        level: nominal coverage of the interval.
        note: why a value is missing ("unidentified: ..."), else empty.
    """

    may_lack: ClassVar[tuple[str, ...]] = ("note",)

    value: Finite | None
    low: Finite | None = None
    high: Finite | None = None
    level: Share = 0.90  # the level of all intervals by default
    note: str = ""

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        low = -math.inf if self.low is None else self.low
        high = math.inf if self.high is None else self.high
        slack = SLACK * abs(self.value or 0.0)
        if self.value is None and not self.note:
            raise InputError(f"{where}value is None without a note why")
        if low > high or (self.value is not None and not low - slack <= self.value <= high + slack):
            raise InputError(f"{where}value is {self.value}, outside of {self.low} to {self.high}")

    @classmethod
    def variant(cls, entry: Mapping[str, Any]) -> type["Estimate"]:
        """Return the class of an entry: a best batch has a status."""
        return BestBatch if "status" in entry else cls

    @property
    def why(self) -> str:
        """The reason, as text, if the value is missing; empty otherwise."""
        return self.note.removeprefix(UNIDENTIFIED)

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON form; `note` only if it is not empty."""
        return plain if self.note else {key: x for key, x in plain.items() if key != "note"}


@dataclass(frozen=True)
class Outlier:
    """A measurement far from what the others predict.

    Attributes:
        at: what it is of, by column, e.g. run, or model and batch.
        drop: what `--drop` takes to leave it out; empty if the fit left it out.
        off: measured minus predicted, in `unit`.
        times: its size over what is expected.
        unit: e.g. "log tokens".
        without: a batch estimated without it, by name.
    """

    at: dict[str, Finite | str]
    drop: str
    off: Finite
    times: Finite
    unit: str
    without: dict[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return a sentence with the measurement, its distance and how to leave it out."""
        values = (x if isinstance(x, str) else f"{x:.10g}" for x in self.at.values())
        place = ",".join(f"{name}={x}" for name, x in zip(self.at, values, strict=True))
        start, end = ("", f" (--drop '{self.drop}')") if self.drop else ("left out: ", "")
        side = "above" if self.off > 0 else "below"
        without = "".join(f"; without it {n} is {x:.4g}" for n, x in self.without.items())
        return (
            f"{start}{place}: {abs(self.off):.2g} {self.unit} {side} the others, {self.times:.0f} "
            f"times what is expected{without}{end}"
        )


# Above it an interval identifies no batch: a sweep of factors of 2 has few batches more.
WIDE = 10.0
SPANS = f"its interval spans more than a factor of {WIDE:g}"
"""Why an estimate that `too_wide` refuses has no value."""


def described(name: str, best: "Estimate", unit: str, method: str = "") -> str:
    """Return an estimate as a sentence: name, value, unit, interval and method.

    Examples:
        >>> described("B_opt at loss 1.7", Estimate(4.6, 3.6, 6.7), "sequences", "measured minimum")
        'B_opt at loss 1.7: 4.6 sequences, 90% interval 3.6 to 6.7 (measured minimum)'
    """
    digits = 3  # an interval of a factor of 1.01 still has two ends
    low = None if best.low is None else number(best.low, digits)
    high = None if best.high is None else number(best.high, digits)
    if best.value is not None:
        found = f"{number(best.value, digits)} {unit}"
        if low and high:
            found += f", {best.level:.0%} interval {low} to {high}"
    elif high:
        found = f"at most {high} {unit}"
    elif low:
        found = f"at least {low} {unit}"
    else:
        found = "not identified"
    return f"{name}: {found} ({method})" if method else f"{name}: {found}"


def too_wide(estimate: Estimate) -> bool:
    """Return whether an interval of a positive quantity is so wide that it identifies nothing."""
    return not (estimate.high or np.inf) < WIDE * (estimate.low or 0.0)


def disjoint(one: Estimate, other: Estimate) -> bool:
    """Return whether two intervals do not meet."""
    low = max(one.low or 0, other.low or 0)
    high = min(one.high or np.inf, other.high or np.inf)
    return low > high


def sure(batch: Estimate, least: float = 1.0) -> Estimate:
    """Return a batch, without its value if nothing identifies it; no bound is below `least`."""
    if batch.value is None or not too_wide(batch):
        return batch
    low = batch.low if (batch.low or 0.0) > least else None
    return replace(batch, value=None, low=low, note=f"{UNIDENTIFIED}{SPANS}")


@dataclass(frozen=True)
class ToleranceRange:
    """Batches within `rise` of the best, in nats or in log tokens; None if an end is open."""

    low: float | None
    high: float | None
    rise: float


@dataclass(frozen=True)
class BestBatch(Estimate):
    """The best batch with its interval, or why the runs do not identify it, with its bounds.

    Attributes:
        status: "ok", or why it has no value.
        method: its source: "law", "measured", "power law" or the name of a law.
        ranges: ranges of batches within tolerance of the best; empty if no best batch is resolved,
            or if the ranges do not contain it.
    """

    status: Status = "ok"
    method: str = ""
    ranges: tuple[ToleranceRange, ...] = ()

    def check(self, where: str) -> None:
        """See `Estimate`; it has a value where its status is ok."""
        super().check(where)
        if (self.status == "ok") != (self.value is not None):
            raise InputError(f"{where}status is {self.status!r} with the value {self.value}")

    def __post_init__(self) -> None:
        spans = ((one, one.low or 0.0, one.high or math.inf) for one in self.ranges)
        held = tuple(one for one, low, high in spans if low <= (self.value or -1) <= high)
        object.__setattr__(self, "ranges", held)

    def at_least(self, least: float) -> "BestBatch":
        """With no batch below the smallest there is, one sequence."""
        ends = {name: getattr(self, name) for name in ("value", "low", "high")}
        spans = [(one.low and max(one.low, least), one.high and max(one.high, least), one.rise)
                 for one in self.ranges]  # fmt: skip
        clipped = {name: end and max(end, least) for name, end in ends.items()}
        return replace(self, **clipped, ranges=tuple(ToleranceRange(*span) for span in spans))

    def within(self, rise: float) -> ToleranceRange | None:
        """Batches whose loss is up to `rise` above the best; None if they are unknown."""
        return next((one for one in self.ranges if one.rise == rise), None)

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The JSON form; it always has a note."""
        return plain

    def unknown(self, status: Status, why: str) -> "BestBatch":
        """Without a value; an end of the interval may remain as a bound."""
        return replace(self, value=None, status=status, note=f"{UNIDENTIFIED}{why}")


def bounded(
    best: BestBatch,
    draws: np.ndarray,
    ends: tuple[float, float],
    *,
    below: bool = False,
    above: bool = False,
    unit: str = "sequences",
    least: float = 1.0,
) -> BestBatch:
    """Return a best batch, or what is left of it if it may lie beyond the batches measured.

    Args:
        best: with its interval.
        draws: [R], of the batch.
        ends: the smallest and the largest batch measured.
        below, above: whether it is known that it may lie there, whatever the draws.
        unit: of batches, for people.
        least: the smallest batch there is, one sequence.
    """
    value = best.value or 0.0
    slack = 1 + 1e-9  # of rounding
    digits = 3  # as in `described`
    tail = tails(best.level)[0]
    below |= value <= ends[0] * slack or bool((draws <= ends[0] * slack).mean() > tail)
    above |= value * slack >= ends[1] or bool((draws * slack >= ends[1]).mean() > tail)
    if below and above:
        why = "no batch measured is surely better than another"
        return replace(best, low=None, high=None).unknown("within_noise", why)
    if below:
        low = None
        high = max(best.high or 0.0, ends[0])
        bound = f"smallest batch size: B_opt ≤ {number(high, digits)} {unit}"
    elif above:
        low = min(best.low or np.inf, ends[1])
        high = None
        bound = f"largest batch size: B_opt ≥ {number(low, digits)} {unit}"
    else:
        return best.unknown("interval_too_wide", SPANS) if too_wide(best) else best.at_least(least)
    why = f"not distinguishable from the {bound}"
    return replace(best, low=low, high=high).unknown("at_boundary", why)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """A fitted law, and how its intervals were made; its JSON form is that of `bss.values`.

    Attributes:
        level, resamples: of all intervals, and number of bootstrap refits.
        method: how they were made.
        warnings: what a reader must know.
        version: of the package that made the fit.
        constraints: parameters that a user fixed or bounded, as `parse_ranges` takes them.
    """

    KIND: ClassVar[str]
    SCHEMA: ClassVar[int] = 1
    RESIDUAL_UNIT: ClassVar[str]
    RESIDUAL_AXES: ClassVar[dict[str, str]]

    may_lack: ClassVar[tuple[str, ...]] = ("constraints",)

    level: Share = 0.90  # as of an estimate
    resamples: Count = 0
    method: str = ""
    warnings: tuple[str, ...] = ()
    version: str = field(default_factory=lambda: metadata.version(DISTRIBUTION))
    constraints: str = ""

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that the fit was read from contradicts itself."""

    def __repr__(self) -> str:
        return "\n".join([self.answer, *(f"warning: {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        """Return the answer, the tables and the warnings, as a notebook shows them."""
        return fit_html(self)

    @property
    def law_name(self) -> str:
        """Name of the law; by default the kind of fit."""
        return self.KIND

    @property
    def in_sequences(self) -> bool:
        """Whether tokens are sequences, because the sequence length is unknown."""
        return False

    @property
    def cv_error(self) -> float | None:
        """Root mean square residual of left-out measurements; None with none to leave out."""
        raise NotImplementedError

    @property
    def answer(self) -> str:
        """The answer of the fit in one line, with its interval and its method."""
        raise NotImplementedError

    @property
    def goal(self) -> str:
        """The quantity in the answer, which the next run should narrow."""
        raise NotImplementedError

    @property
    def noise(self) -> float:
        """Standard deviation of one measurement, in `RESIDUAL_UNIT`.

        Raises:
            InputError: If the fit keeps no residuals.
        """
        residuals = self.residuals()["residual"].to_numpy(float)
        if not np.isfinite(residuals).any():
            raise InputError("fit: it keeps no residuals; fit it again with --json")
        return rms(residuals)

    def draws_at(self, table: "pd.DataFrame") -> np.ndarray:
        """Return joint draws [R, n] of what the runs of a table [n] would measure.

        Args:
            table: columns of a run of this kind of fit; units as `noise`. R is 0 without draws.
        """
        raise NotImplementedError

    def details(self) -> "dict[str, pd.DataFrame]":
        """Return further tables by title, e.g. errors of cross-validation."""
        return {}

    def summary(self) -> "pd.DataFrame":
        """Return the estimates, a row per target, curve, size or parameter."""
        raise NotImplementedError

    def predict(self, *args: Any, **kwargs: Any) -> "pd.DataFrame":
        """Return predictions of new runs with the ends of their intervals, NAME_low and NAME_high.

        Args:
            *args: A table with one run per row, or nothing if the run is given by name.
            **kwargs: The run by name: numbers, texts such as "10B", or a sequence of them.

        Returns:
            One row per run, with the index of the table. `note` has what of the run is outside of
            what was measured, or why an interval is missing; empty otherwise.

        Raises:
            InputError: If a column is missing, or a value is not a positive number.
        """
        raise NotImplementedError

    def best_batch(self, *args: Any, **kwargs: Any) -> Estimate:
        """Return the best or critical batch size, with its interval, or why it has no value."""
        raise NotImplementedError

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside of what the fit was measured on, a line each.

        Args:
            run: Numbers by name, as `predict` takes them.
        """
        raise NotImplementedError

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Plot the measurements and the law.

        Args:
            ax: Axes to draw on; by default those of a new figure of pyplot.

        Returns:
            The axes, with units on both axes and a legend.
        """
        return from_above("plots.fits:plot_fit")(self, ax)

    def schedule(self, tokens: str | int, **how: Any) -> Any:
        """Return the batch schedule of the fit over a token budget.

        Args:
            tokens: Budget, e.g. "10B".
            **how: As `bss.policies.derive.schedule_of` takes them, e.g. stages, multiple_of,
                min_batch, max_batch; policy and its settings; lr.

        Returns:
            A `bss.policies.derive.DerivedSchedule`.

        Raises:
            InputError: If the fit does not identify a best batch size, or an argument is wrong.
        """
        return from_above("policies.derive:schedule_of")(self, tokens, **how)

    def save(self, path: str | Path) -> None:
        """Write the fit as JSON, which `bss.read_fit` and every command with --from read.

        Raises:
            InputError: If the directory does not exist.
        """
        path = Path(path)
        if path.is_dir() or not path.parent.is_dir():
            raise InputError(
                f"path: {path}; expected the name of a file in a directory that exists"
            )
        write_json(path, finite(self.to_dict()))

    def residuals(self) -> "pd.DataFrame":
        """Return a row per measurement: what it is of, measured, fitted and residual.

        Residuals are measured minus fitted, in `RESIDUAL_UNIT`; `RESIDUAL_AXES` names the columns
        that they are plotted against, with a label for each.
        """
        raise NotImplementedError

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The fields between kind and schema, and how the fit was made."""
        how = {one.name: plain.pop(one.name) for one in fields(Fit)}
        how = {name: x for name, x in how.items() if x or name != "constraints"}
        return {"kind": self.KIND, "schema": self.SCHEMA} | plain | how

    def to_dict(self) -> dict[str, Any]:
        """The JSON form: `{"kind", "schema", ...}`."""
        return values.to_dict(self)

    @classmethod
    def from_dict(cls, entry: dict[str, Any]) -> Self:
        """Reads `to_dict` back; other keys are ignored, null instead of a number is NaN.

        Raises:
            InputError: another kind or schema, or a field that is missing or damaged.
        """
        write = f"`bss fit {cls.KIND} --json`"
        kind = entry.get("kind"), entry.get("schema", cls.SCHEMA)
        if kind != (cls.KIND, cls.SCHEMA):
            raise InputError(
                f"fit: kind {kind[0]!r}, schema {kind[1]!r}; expected a fit of kind "
                f"{cls.KIND!r}, schema {cls.SCHEMA}, as {write} writes it"
            )
        try:
            with reading_data():
                return values.from_dict(cls, entry, "fit.", strict=False)
        except UntrustedError:
            raise
        except (LookupError, TypeError, AttributeError, ValueError) as error:
            kind = "" if isinstance(error, InputError) else f"{type(error).__name__} at "
            raise InputError(f"fit: damaged, {kind}{error}; write it again with {write}") from None


def run_table(
    runs: "pd.DataFrame | None",
    needed: Sequence[str],
    given: Mapping[str, Any],
    *,
    optional: Sequence[str] = (),
) -> "pd.DataFrame":
    """Return the runs that a prediction is for, as columns of positive numbers.

    Args:
        runs: A table of them; None if they are given by name.
        needed: Columns that it needs.
        given: The same by name; None for a value that is not given.
        optional: Further columns that are read if they are there.

    Raises:
        InputError: If a column is missing, is given twice, or has a value that is no positive
            number.
    """
    import pandas as pd

    own = {name: value for name, value in given.items() if value is not None}
    if runs is None:
        lengths = {np.size(values) for values in own.values()} - {1}
        if len(lengths) > 1:
            shown = ", ".join(f"{name} has {np.size(values)}" for name, values in own.items())
            raise InputError(f"predict: {shown} values; give one, or the same number of each")
        count = max(lengths, default=1)
        columns = {name: _listed(values, count) for name, values in own.items()}
        runs = pd.DataFrame(columns, index=range(count))
    elif not isinstance(runs, pd.DataFrame):
        raise InputError(f"runs: {type(runs).__name__} given; expected a table (DataFrame)")
    elif own:
        raise InputError(f"{next(iter(own))}: given with a table of runs; make it a column of it")
    if missing := [name for name in needed if name not in runs]:
        there = ", ".join(map(str, runs.columns)) or "nothing"
        raise InputError(f"predict: {', '.join(missing)} missing; found {there}")
    names = [*needed, *(name for name in optional if name in runs)]
    return pd.DataFrame({name: as_positive(name, runs[name]) for name in names}, runs.index)


def _listed(values: Any, count: int) -> list[Any]:
    """Return a value as often as needed, or the values of a sequence."""
    if isinstance(values, str) or np.ndim(values) == 0:
        return [values] * count
    several = list(values)
    return several * count if len(several) == 1 else several


def as_positive(name: str, values: Iterable[Any]) -> np.ndarray:
    """Return values as positive numbers [n], float64; texts as `bss.units.parse_number` reads them.

    Raises:
        InputError: If one is no positive number.
    """
    numbers = np.array([parse_number(value, field=name) for value in values], float)
    for i in np.flatnonzero(numbers <= 0)[:1]:
        raise InputError(f"{name}: {numbers[i]:g} given; write a number above 0")
    return numbers


def outside(name: str, value: float, measured: Sequence[float]) -> list[str]:
    """Return a line if a value is outside the range measured; none otherwise."""
    low = min(measured)
    high = max(measured)
    if low * (1 - SLACK) <= value <= high * (1 + SLACK):
        return []
    return [f"{name} {number(value)}: outside the measured {number(low)} to {number(high)}"]


def notes_of(fit: "Fit", runs: "pd.DataFrame", reasons: Sequence[str] = ()) -> list[str]:
    """Return the note of each run: reasons [n] that are known, and what was not tested."""
    rows = runs.to_dict("records")
    known = reasons if len(reasons) else [""] * len(rows)
    texts = [[why, *fit.untested(row)] for why, row in zip(known, rows, strict=True)]
    return ["; ".join(filter(None, lines)) for lines in texts]


@dataclass(frozen=True)
class Options:
    """Options of intervals: number of bootstrap refits, nominal coverage and seed.

    `draws` refits at most are kept in a fit E(S), for the intervals of its predictions.

    Raises:
        InputError: on construction, if one of the first two is out of range.

    Examples:
        >>> Options(resamples=100, level=0.95).seed
        0
    """

    resamples: int = 500  # 25 beyond each end of an interval
    level: float = 0.90  # as of an estimate
    seed: int = 0
    draws: int = 0

    def __post_init__(self) -> None:
        for name in ("resamples", "level", "seed", "draws"):
            check_number(name, getattr(self, name))
        for name in ("resamples", "seed", "draws"):
            value = getattr(self, name)
            check(value == value // 1 and value >= 0, name, value, "a whole number of 0 or more")
        check(self.resamples >= 1, "resamples", self.resamples, "1 or more, such as 500")
        check(0 < self.level < 1, "level", self.level, "a coverage between 0 and 1")


def check_status(status: str, where: str) -> None:
    """Raise InputError unless it is "converged", "not converged" or "unidentified: ..."."""
    if status not in ("converged", "not converged") and not status.startswith(UNIDENTIFIED):
        raise InputError(f"{where}status is {status!r}; expected converged or not converged")


def check_positive(estimates: Mapping[str, Estimate], where: str) -> None:
    """Raise InputError unless the values and the ends of estimates are above 0."""
    for name, one in estimates.items():
        for end in (one.value, one.low, one.high):
            if end is not None and end <= 0:
                raise InputError(f"{where}{name} is {end:g}; expected a number above 0")


def check_lengths(columns: Mapping[str, Any], where: str, length: int | None = None) -> None:
    """Raise InputError unless columns have one length, at least 1, or the given one."""
    lengths = {name: len(column) for name, column in columns.items()}
    wanted = next(iter(lengths.values()), 0) if length is None else length
    for name, found in lengths.items():
        if found != wanted or not found:
            raise InputError(f"{where}{name} has {found} values; expected {wanted or 'some'}")


def check_names(given: Iterable[str], expected: Iterable[str], where: str) -> None:
    """Raise InputError unless the names are those expected, in any order."""
    if {*given} != {*expected}:
        found = ", ".join(given) or "none"
        raise InputError(f"{where} has {found}; expected {', '.join(expected)}")


def refuse_mixed(table: "pd.DataFrame", source: str, *columns: str) -> None:
    """Raise InputError of the first of these columns that has several values."""
    for name in (name for name in columns if name in table):
        if len(values := table[name].drop_duplicates().tolist()) > 1:
            mixed = ", ".join(str(value) for value in values[:4])  # a line holds four
            raise InputError(f"{source}: {name} {mixed} are mixed; fit one at a time")


def rounded(
    values: Iterable[float],
    digits: int = 7,  # finer than any interval
) -> list[float]:
    """Return numbers rounded to significant digits, as in JSON."""
    return [float(f"{value:.{digits}g}") for value in values]


def tails(level: float) -> list[float]:
    """Return the shares below the two ends of an interval of this coverage."""
    return [(1 - level) / 2, (1 + level) / 2]


def deviations(level: float) -> float:
    """Return the standard deviations from the middle of a normal interval to its ends."""
    return NormalDist().inv_cdf(tails(level)[1])


def interval(value: float, draws: np.ndarray, *, level: float = Options.level) -> Estimate:
    """Return the bootstrap's percentile interval around an estimate, from its refits [R].

    Infinite refits leave their end open, NaN ones do not count. An end that the estimate lies
    beyond, as where the refits are biased, is the estimate: it lies in its interval, always.
    """
    least, most = np.nanquantile(draws, tails(level), method="nearest")
    low = _finite(np.minimum(least, value))
    high = _finite(np.maximum(most, value))
    return Estimate(float(value), low, high, level)


def _finite(end: float) -> float | None:
    """Return an end of an interval; None if it is open."""
    return float(end) if np.isfinite(end) else None
