"""A ramp from a measured gradient noise scale: the batch doubles where the noise scale passes it.

The gradient noise scale is the batch size at which noise and signal of a gradient are equal
(McCandlish et al., arXiv 1812.06162). It grows during training, and a batch above it wastes tokens.
So the batch size doubles at the position from which on the smooth noise scale stays above the
doubled batch size (derived here). The curve is that of `bss.laws.ramps.smooth` in log noise scale.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.installation import from_above
from bss.laws.base import Estimate
from bss.laws.ramps.smooth import SmoothCurve, smooth
from bss.policies.derive import DerivedSchedule
from bss.schedules.batch import BatchSchedule
from bss.tables import Reading
from bss.tables.columns import Origin, as_numbers, refuse_odd, renamed
from bss.tables.reading import only
from bss.tables.storage import read_table
from bss.units import parse_tokens, rounded_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

NAMES = {
    "noise_scale": (
        *("gns", "grad_noise_scale", "gradient_noise_scale", "noise_scale_tokens", "b_simple"),
        *("gradient_noise", "noisescale", "b_noise", "simple_noise_scale"),
    ),
    "tokens": ("tokens_seen", "consumed_tokens", "total_tokens", "train_tokens", "n_tokens"),
    "step": ("steps", "iter", "iteration", "global_step", "update"),
    "batch": ("batch_size", "global_batch_size", "gbs"),
    "batch_tokens": ("tokens_per_step", "batch_size_tokens", "tokens_per_batch"),
    "seq_len": ("sequence_length", "context_length", "block_size", "max_seq_len", "seqlen"),
}
"""Other names of the columns, where a table has none of ours."""

LEAST_ROWS = 8
"""Below it the noise of the rows is not known well enough for an interval."""


@dataclass(frozen=True)
class BatchSwitch:
    """A position from which on a batch size is used.

    Attributes:
        batch_tokens: the batch size, in tokens.
        tokens: the position with its interval; without a value if it is not identified.
        step: the first step of the measured run at or after it; None if the table has no steps.
        step_low, step_high: ends of the interval as steps.
    """

    batch_tokens: int
    tokens: Estimate
    step: int | None = None
    step_low: int | None = None
    step_high: int | None = None

    def to_dict(self, seq_len: int | None) -> dict[str, Any]:
        """Return the row of a table."""
        at = self.tokens
        sizes: dict[str, Any] = {"batch_tokens": self.batch_tokens}
        if seq_len:
            sizes["batch"] = self.batch_tokens // seq_len
        ends = {"tokens": at.value, "tokens_low": at.low, "tokens_high": at.high}
        steps = {"step": self.step, "step_low": self.step_low, "step_high": self.step_high}
        return {**sizes, **ends, **steps, "note": at.why}


@dataclass(frozen=True, repr=False)
class NoiseRamp(DerivedSchedule):
    """A ramp from a measured noise scale; `bss.plan` takes it.

    Without a sequence length its batch sizes are in tokens, as sequences of one token.

    Attributes:
        switches: every doubling that the noise scale may pass, with its position.
        seq_len: tokens per sequence; None if it is unknown.
        level: coverage of the intervals.
        rows: the measured noise scales: tokens, noise_scale (tokens) and step, if the table has it.
        curve: the smooth curve of the log of the noise scale.

    Examples:
        >>> step = np.arange(100, 4100, 100)
        >>> table = {"step": step, "tokens": step * 65_536, "noise_scale": 819.2 * step**.5}
        >>> str(noise_ramp(pd.DataFrame(table), seq_len=1024))
        '0:8 26.2144M:16 104.8576M:32'
    """

    switches: tuple[BatchSwitch, ...] = ()
    seq_len: int | None = None
    level: float = 0.90
    rows: pd.DataFrame = field(default_factory=pd.DataFrame, compare=False, repr=False)
    curve: SmoothCurve | None = field(default=None, compare=False, repr=False)

    @property
    def answer(self) -> str:
        """The switches in one line, in tokens per batch."""
        texts = [f"{self.first:,} tokens per batch from the start"]
        for one in self.switches:
            at = one.tokens
            if at.value is None:
                continue
            step = f" (step {one.step:,})" if one.step is not None else ""
            ends = " to ".join(rounded_tokens(end or 0) for end in (at.low, at.high))
            texts.append(
                f"{one.batch_tokens:,} from {rounded_tokens(at.value, 4)} tokens on{step}, "
                f"{at.level:.0%} interval {ends}"
            )
        return "\n".join(texts)

    def __repr__(self) -> str:
        lines = [str(self), self.answer, *(f"warning: {text}" for text in self.warnings)]
        return "\n".join(lines)

    @property
    def first(self) -> int:
        """The first batch size, in tokens."""
        return self.schedule.batches[0] * (self.seq_len or 1)

    def summary(self) -> pd.DataFrame:
        """Return a row per doubling: batch size, position, interval, steps of the measured run."""
        return pd.DataFrame([one.to_dict(self.seq_len) for one in self.switches])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Plot the noise scale, its smooth curve, the batch size and the switches' intervals."""
        return from_above("plots.ramps:plot_noise")(self, ax)


def noise_ramp(
    table: Any,
    tokens: str | int | None = None,
    *,
    seq_len: str | int | None = None,
    stages: int | None = None,
    multiple_of: int = 1,
    min_batch: float | None = None,
    max_batch: float | None = None,
    unit: str | None = None,
    columns: str | Mapping[str, str] | None = None,
    keep: Sequence[str] = (),
    level: float = 0.90,
    resamples: int = 400,
    seed: int = 0,
) -> NoiseRamp:
    """Return the ramp whose batch size doubles where the smooth noise scale passes it.

    Args:
        table: Noise scales of one run, or of several equal ones: a DataFrame, or a path of CSV or
            Parquet. Columns noise_scale, and tokens (consumed) or step with batch_tokens.
        tokens: Token budget; by default the last tokens measured.
        seq_len: Tokens per sequence, if no column has it; without it batches are in tokens.
        stages: Constant stages at most; by default one for each doubling.
        multiple_of: Batch sizes are multiples of it, in sequences.
        min_batch: The batch size to double, in sequences; by default a power of two.
        max_batch: The largest batch size, in sequences; by default there is none.
        unit: Of the noise scale: "tokens" or "sequences". By default tokens; in a table with batch
            sizes the one that is nearer to them.
        columns: The table's names of columns, by the names here.
        keep: Rows to keep, e.g. "run=web-1".
        level: Coverage of the intervals.
        resamples: Draws of the curve.
        seed: Of the draws.

    Raises:
        InputError: If a column is missing, there are too few noise scales, or several runs differ.

    Examples:
        >>> step = np.arange(100, 4100, 100)
        >>> table = {"step": step, "tokens": step * 65_536, "noise_scale": 819.2 * step**.5}
        >>> noise_ramp(pd.DataFrame(table), "300M").summary()["step"].tolist()[:2]
        [400.0, 1600.0]
    """
    rows, length, warnings = _read(table, columns, keep, seq_len, unit)
    budget = int(rows["tokens"].max()) if tokens is None else parse_tokens(tokens, field="tokens")
    check(budget >= 1, "tokens", budget, "a positive budget")
    check(multiple_of >= 1, "multiple_of", multiple_of, "1 or more")
    check(0 < level < 1, "level", level, "a coverage between 0 and 1")
    where = rows["tokens"].to_numpy(float)
    curve = smooth(where, np.log(rows["noise_scale"].to_numpy(float)), resamples, seed)
    ladder = _ladder(curve, length or 1, multiple_of, min_batch, max_batch)
    first, switches = _switches(curve, ladder, level, stages)
    warnings += _remarks(curve, first, switches)
    last = int(where.max())
    if budget > last * 1.001:
        text = f"beyond {rounded_tokens(last)} tokens nothing was measured, and the batch stays"
        warnings.append(text)
    used = [one for one in switches if one.tokens.value is not None]
    # A thousandth of a token is rounding, which differs between versions of numpy.
    starts = (0, *(math.ceil(round(one.tokens.value or 0, 3)) for one in used))
    sizes = (first, *(one.batch_tokens for one in used))
    schedule = BatchSchedule(starts, sizes, (1,) * len(sizes))
    if length is not None:
        schedule = BatchSchedule(starts, tuple(size // length for size in sizes))
    note = "the batch doubles where the noise scale passes it for the last time"
    return NoiseRamp(
        schedule,
        "noise scale",
        note,
        tuple(warnings),
        "noise-scale",
        switches=tuple(_with_steps(one, rows) for one in switches),
        seq_len=length,
        level=level,
        rows=rows,
        curve=curve,
    )


def _ladder(
    curve: SmoothCurve, unit: int, multiple_of: int, low: float | None, high: float | None
) -> list[int]:
    """Return doublings in tokens: from `low` sequences, or powers of two times the unit."""
    base = unit * multiple_of * (1 if low is None else math.ceil(low / multiple_of))
    top = float(np.exp(curve.values.max())) * 4  # one doubling is beyond every noise scale
    if high is not None:
        top = min(top, high * unit)
    if top < base:
        raise InputError(
            f"min_batch: {base} tokens per batch are above every noise scale or max_batch; lower it"
        )
    return [base * 2**k for k in range(int(math.log2(top / base)) + 1)]


def _switches(
    curve: SmoothCurve, ladder: Sequence[int], level: float, stages: int | None
) -> tuple[int, list[BatchSwitch]]:
    """Return the first batch size and the later ones with their positions, in tokens."""

    def crossing(batch: int) -> Estimate:
        return curve.last_crossing(math.log(batch), rising=True, coverage=level)

    found = {batch: crossing(batch) for batch in ladder}
    begun = [batch for batch, at in found.items() if at.value == 0]
    first = max(begun, default=ladder[0])
    later = [batch for batch in ladder if batch > first]
    passed = sum(found[batch].value is not None for batch in later)
    stride = 1
    if stages is not None:
        check(stages >= 1, "stages", stages, "1 or more")
        stride = passed + 1 if stages == 1 else max(1, math.ceil(passed / (stages - 1)))
    chosen = later[stride - 1 :: stride]
    switches: list[BatchSwitch] = []
    for batch in chosen:
        switches.append(BatchSwitch(batch, found[batch]))
        if found[batch].value is None:
            break  # those above it are not passed either
    return first, switches


def _remarks(curve: SmoothCurve, first: int, switches: Sequence[BatchSwitch]) -> list[str]:
    """Return which switches are left out, and where the noise scale is low or falls."""
    found = []
    if math.log(first) > curve.values[0]:
        found.append(f"at the start the noise scale is below the first batch of {first:,} tokens")
    for one in switches:
        if one.tokens.value is None:
            least = one.tokens.low
            bound = f", not before {rounded_tokens(least)} tokens" if least else ""
            size = f"{one.batch_tokens:,}"
            found.append(f"left out: the switch to {size} tokens{bound}: {one.tokens.why}")
    if curve.values[-1] < curve.values.max() - max(2 * curve.noise, 0.05):
        peak = int(np.argmax(curve.values))
        found.append(
            f"the noise scale falls after {rounded_tokens(curve.tokens[peak])} tokens; a batch is "
            "used only from where it stays below the noise scale"
        )
    return found


def _with_steps(switch: BatchSwitch, rows: pd.DataFrame) -> BatchSwitch:
    """Return a switch with the first steps of the measured run at or after its positions."""
    if "step" not in rows:
        return switch
    place = rows.drop_duplicates("tokens").sort_values("tokens")

    def step(tokens: float | None) -> int | None:
        if tokens is None:
            return None
        at = np.interp(tokens, [0, *place["tokens"]], [0, *place["step"]])
        return math.ceil(at - 1e-6)

    at = switch.tokens
    return BatchSwitch(switch.batch_tokens, at, step(at.value), step(at.low), step(at.high))


def _read(
    table: Any,
    columns: str | Mapping[str, str] | None,
    keep: Sequence[str],
    seq_len: str | int | None,
    unit: str | None,
) -> tuple[pd.DataFrame, int | None, list[str]]:
    """Return rows of tokens and noise scale in tokens, the sequence length, and warnings."""
    length = None if seq_len is None else parse_tokens(seq_len, field="seq_len")
    how = Reading.parse(columns) if isinstance(columns, str) else Reading(columns or {})
    if isinstance(table, str | PathLike):
        frame, origin = read_table(Path(table), how)
    else:
        origin = Origin("from_noise")
        refuse_odd(table, origin)
        frame = how.read(table.reset_index(drop=True), origin)
    frame = only(renamed(frame, NAMES), keep)
    if "noise_scale" not in frame:
        raise InputError(
            f"{origin.source}: no column noise_scale; it has {', '.join(map(str, frame.columns))}; "
            "name it with --columns noise_scale=THEIRS"
        )
    _refuse_several(frame, origin)
    length = _length(frame, length, origin)
    rows = pd.DataFrame({"tokens": _tokens(frame, length, origin)})
    if "step" in frame:
        rows["step"] = as_numbers(frame["step"])
    noise = as_numbers(frame["noise_scale"]).astype(float)
    rows["noise_scale"] = noise
    good = np.isfinite(noise) & (noise > 0) & np.isfinite(rows["tokens"]) & (rows["tokens"] > 0)
    lost = int((~good).sum())
    rows = rows.loc[good].reset_index(drop=True)
    places = rows["tokens"].nunique()
    if places < LEAST_ROWS:
        raise InputError(
            f"{origin.source}: {places} positions with a noise scale above 0; a ramp needs "
            f"{LEAST_ROWS} or more"
        )
    factor, warnings = _unit(frame, noise[good], length, unit)
    rows["noise_scale"] *= factor
    if lost:
        warnings.append(
            f"left out: {lost} of {len(good)} rows, whose noise scale is missing or not above 0"
        )
    return rows, length, warnings


def _refuse_several(frame: pd.DataFrame, origin: Origin) -> None:
    """Refuse runs that differ in what the noise scale depends on."""
    if "run" not in frame or frame["run"].nunique() < 2:
        return
    for name in ("batch", "batch_tokens", "lr", "peak_lr", "params", "model"):
        if name in frame and frame.groupby("run")[name].first().nunique() > 1:
            runs = ", ".join(map(str, frame["run"].unique()[:4]))
            raise InputError(
                f"{origin.source}: runs {runs} differ in {name}; choose one, e.g. --keep "
                f"run={frame['run'].iloc[0]}"
            )


def _length(frame: pd.DataFrame, given: int | None, origin: Origin) -> int | None:
    """Return tokens per sequence, from the table or as given; None if unknown."""
    if "seq_len" not in frame:
        return given
    lengths = pd.Series(as_numbers(frame["seq_len"])).dropna().unique()
    if len(lengths) != 1 or (given is not None and given != lengths[0]):
        shown = ", ".join(f"{length:g}" for length in lengths[:4])
        raise InputError(f"{origin.source}: seq_len is {shown}, and {given} was given; write one")
    return int(lengths[0])


def _tokens(frame: pd.DataFrame, length: int | None, origin: Origin) -> np.ndarray:
    """Return tokens consumed at each row, from tokens, or from steps of a fixed batch size."""
    if "tokens" in frame:
        return as_numbers(frame["tokens"]).astype(float)
    size = None
    if "batch_tokens" in frame:
        size = as_numbers(frame["batch_tokens"])
    elif "batch" in frame and length is not None:
        size = as_numbers(frame["batch"]) * length
    if size is None or "step" not in frame:
        raise InputError(
            f"{origin.source}: no column tokens, and no step with batch_tokens (or batch and "
            "--seq-len); add one, or name it with --columns tokens=THEIRS"
        )
    if len(np.unique(size)) > 1:
        raise InputError(
            f"{origin.source}: the batch changes, so a column tokens is needed; add it"
        )
    return as_numbers(frame["step"]).astype(float) * size


def _unit(
    frame: pd.DataFrame, noise: np.ndarray, length: int | None, unit: str | None
) -> tuple[float, list[str]]:
    """Return the tokens of one unit of the noise scale, and a warning if it was chosen here."""
    check(unit in (None, "tokens", "sequences"), "unit", unit, "tokens or sequences")
    if unit == "tokens" or (unit is None and (length is None or "batch" not in frame)):
        return 1.0, []
    if unit == "sequences":
        if length is None:
            raise InputError("unit: sequences need their tokens; give --seq-len")
        return float(length), []
    assert length is not None
    batch = float(np.nanmedian(as_numbers(frame["batch"])))
    typical = float(np.median(noise))
    if abs(math.log(typical / batch)) < abs(math.log(typical / (batch * length))):
        return float(length), ["the noise scale is read in sequences; --unit tokens reads tokens"]
    return 1.0, ["the noise scale is read in tokens; --unit sequences reads sequences"]


def schedule(
    fit: Any = None,
    tokens: str | int | None = None,
    *,
    from_noise: Any = None,
    **how: Any,
) -> DerivedSchedule:
    """Return the batch schedule of a fit, or of a measured gradient noise scale.

    Args:
        fit: A fit of `bss.fit_es`, `bss.fit_loss`, `bss.fit_curve` or `bss.fit_branches`.
        tokens: Token budget, e.g. "10B". With `from_noise` the last tokens measured by default.
        from_noise: Noise scales over tokens, as a table or a path; a fit is then not needed.
            Columns are those of `bss.policies.from_noise.noise_ramp`.
        **how: Further arguments of `fit.schedule`, e.g. stages; or of `noise_ramp`, e.g. seq_len.

    Raises:
        InputError: If both or none of them are given, or an argument is wrong.

    Source: derived here.

    Examples:
        >>> step = np.arange(100, 4100, 100)
        >>> table = {"step": step, "tokens": step * 65_536, "noise_scale": 819.2 * step**.5}
        >>> ramp = schedule(from_noise=pd.DataFrame(table), seq_len=1024)
        >>> ramp.schedule.batches, ramp.summary()["step"].tolist()[:2]
        ((8, 16, 32), [400.0, 1600.0])
    """
    if (fit is None) == (from_noise is None):
        raise InputError("schedule: give a fit, or from_noise=TABLE, and one of them only")
    if from_noise is not None:
        return noise_ramp(from_noise, tokens, **how)
    if tokens is None:
        raise InputError("tokens: missing; give the token budget, e.g. '10B'")
    if not hasattr(fit, "schedule"):
        raise InputError(f"fit: {type(fit).__name__} has no schedule; give a fit")
    return fit.schedule(tokens, **how)
