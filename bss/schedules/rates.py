"""Learning rate (LR) schedules; a custom one is named `package.module:ATTRIBUTE`.

A schedule is a plain optax schedule, a callable of a count, and works with any optax optimizer:
`optax.adamw(wsd(1e-3, 1000, 100, 200))`. The count may be steps or tokens, in the same unit as the
lengths.

"cosine" is half a cosine to the end (Loshchilov & Hutter, arXiv 1608.03983). "linear" decays to
exactly zero (Bergsma et al., "Straight to Zero", arXiv 2502.15938). "1-sqrt" is the decay of Hägele
et al. (arXiv 2405.18392) over the whole run. The shapes of a final decay are theirs too.

The exponent of the power law is from Shen et al., "Power Scheduler" (arXiv 2408.13359), who found
the same one over token counts and batch sizes. Their form, a·n^b, is limited by a largest learning
rate (LR). Here the peak is given, and the power law begins after the warm-up (derived here). The
inverse square root is from Vaswani et al. (arXiv 1706.03762, eq. 3), with a decay at its end as in
Zhai et al. (arXiv 2106.04560).

A schedule that does not take `tokens` cannot depend on the end of the run.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, get_args

import numpy as np

from bss.arrays import array_module
from bss.errors import InputError, check, check_number
from bss.registry import Registry, attempt
from bss.schedules.batch import BatchSchedule
from bss.schedules.lengths import Budget, check_plain
from bss.units import parse_number, parse_tokens

SETTINGS = ("tokens", "warmup", "decay", "shape", "floor")
"""Settings of a `ScheduleConfig` that an LR schedule may take; lengths are in tokens."""
LOOKS = 32
"""Positions at which a custom LR schedule is checked before training."""


@dataclass(frozen=True)
class LearningRate:
    """An LR schedule, made from any function of tokens, e.g. an optax schedule.

    Attributes:
        make: function of the peak and of those SETTINGS that it names as parameters; it returns the
            LR, a callable of the tokens consumed. Other settings have no effect. The LR may also
            have `stages`, a `WarmupStableDecay` for trainers that have settings for one, and
            `code`, as `WarmupStableDecay.code`.
        stable: function of settings, by name, to the tokens up to which the LR does not depend on
            the end of the run; 0 by default. Unused without `tokens`.
        late: settings that have no effect before that position.

    Raises:
        InputError: If one of the functions has a parameter that is not a setting.

    Examples:
        >>> import optax
        >>> cooled = LearningRate(lambda peak, tokens: optax.linear_schedule(peak, 0, tokens))
        >>> cooled.takes, float(cooled.make(1.0, tokens=100)(75))
        (('tokens',), 0.25)
    """

    make: Callable[..., Callable[[Any], Any]]
    stable: Callable[..., float] | None = None
    late: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _ = self.takes, self._stable_takes

    @cached_property
    def takes(self) -> tuple[str, ...]:
        """The SETTINGS that its function takes."""
        return _taken("make", self.make, 1)

    @cached_property
    def _stable_takes(self) -> tuple[str, ...]:
        return _taken("stable", self.stable, 0) if self.stable else ()

    def stable_tokens(self, settings: Mapping[str, Any]) -> float:
        """Return the tokens up to which the LR does not depend on the end of the run; infinite if
        never.
        """
        if "tokens" not in self.takes:
            return math.inf
        given = {name: settings[name] for name in self._stable_takes}
        length = self.stable(**given) if self.stable else 0
        return math.inf if length >= settings["tokens"] else length

    def effects(self, settings: Mapping[str, Any], *, stable: bool = False) -> tuple[str, ...]:
        """Return the SETTINGS that have an effect, in the run or only in its stable part."""
        stable = stable or self.stable_tokens(settings) == math.inf
        without = ("tokens", *self.late) if stable else ()
        return tuple(name for name in self.takes if name not in without)

    def __call__(self, name: str, peak: float, settings: Mapping[str, Any]) -> Callable[[Any], Any]:
        """Return the LR of a run, a function of tokens.

        Args:
            name: Name of this schedule, for errors and exports.
            peak: the largest LR.
            settings: all SETTINGS.

        Raises:
            InputError: If the schedule fails, or an LR is negative or not finite.
        """
        given = {key: settings[key] for key in self.takes}
        rate = attempt("rate", name, lambda: self.make(peak, **given))
        if not callable(rate):
            raise InputError(
                f"rate: {name} makes {type(rate).__name__}; expected a function of the tokens"
            )
        if hasattr(rate, "code"):
            return rate
        own = OwnRate(name, peak, tuple(given.items()), rate)
        for look in range(LOOKS):
            own((look + 0.5) / LOOKS * settings["tokens"])
        return own


@dataclass(frozen=True)
class OwnRate:
    """A custom function of tokens, evaluated on the host and checked; under jit it is the function.

    Attributes:
        name: `package.module:ATTRIBUTE` of its schedule.
        peak, settings: its arguments.
        rate: the function.
    """

    name: str
    peak: float
    settings: tuple[tuple[str, Any], ...]
    rate: Callable[[Any], Any]

    def __call__(self, count: Any) -> Any:
        """Return the LR at a count, of its shape; in float64 for a number or a NumPy array.

        Raises:
            InputError: If the function fails, or the LR is negative or not finite.
        """
        jax = sys.modules.get("jax")
        if jax and isinstance(count, jax.Array):
            return self.rate(count)
        # On an accelerator the result would wait for the steps in progress.
        on_host: AbstractContextManager[Any] = jax.default_device("cpu") if jax else nullcontext()
        with on_host:
            value = attempt("rate", self.name, lambda: np.asarray(self.rate(count), float)[()])
        good = np.isfinite(value) & (value >= 0)
        if not np.all(good):
            at = np.broadcast_to(count, np.shape(good))[~good].flat[0]
            bad = np.broadcast_to(value, np.shape(good))[~good].flat[0]
            raise InputError(
                f"rate: {self.name} is {bad:g} at {at:,.0f} tokens; "
                "expected a finite number of 0 or more"
            )
        return value

    def code(self) -> Iterator[str]:
        """Yield code; see `WarmupStableDecay.code`. The custom module must be importable."""
        module, _, attribute = self.name.partition(":")
        given = "".join(f", {key}={value!r}" for key, value in self.settings)
        yield f"from {module} import {attribute.partition('.')[0]}"
        yield f"value = float({attribute}.make({self.peak!r}{given})(middle))"


def _taken(field: str, function: Callable[..., Any], first: int) -> tuple[str, ...]:
    """Return the settings that a function takes, after its first parameters."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        raise InputError(f"rate: {field} is {function!r}; expected a function") from None
    if len(parameters) < first:
        raise InputError(f"rate: {field} takes nothing; expected the peak first")
    for parameter in parameters[first:]:
        if parameter.name not in SETTINGS and parameter.default is parameter.empty:
            raise InputError(
                f"rate: {field} takes {parameter}; expected some of {', '.join(SETTINGS)}"
            )
    return tuple(p.name for p in parameters[first:] if p.name in SETTINGS)


Shape = Literal["linear", "1-sqrt", "cosine", "exponential"]


@dataclass(frozen=True)
class WarmupStableDecay:
    """A warmup-stable-decay learning rate (LR), as a value that is also a callable.

    The LR is peak · count/warmup in the warm-up and peak in the stable phase. With x the completed
    part of the decay (0 at its start, 1 from `total` on), it is then

        peak · (floor + (1 − floor) · s(x)),   s = 1 − x, 1 − √x or (1 + cos πx)/2,
        peak · floor^x                         for "exponential".

    Without a decay it stays at the peak.

    Attributes:
        peak: the LR of the stable phase.
        total: the count at which the decay ends.
        warmup: the length of the linear warm-up from zero; 0 for none.
        decay: the length of the decay; 0 for none.
        shape: Shape of the decay.
        floor: the final LR, as a fraction of the peak.

    Raises:
        InputError: If a value is NaN, infinite or negative, warm-up and decay are longer than the
            total, the shape is unknown, or the decay is exponential to zero.

    Examples:
        >>> rate = WarmupStableDecay(peak=1.0, total=10, warmup=2, decay=4)
        >>> [float(rate(count)) for count in (0, 1, 2, 6, 8, 10)]
        [0.0, 0.5, 1.0, 1.0, 0.5, 0.0]
    """

    peak: float
    total: float
    warmup: float = 0
    decay: float = 0
    shape: Shape = "linear"
    floor: float = 0.0

    def __post_init__(self) -> None:
        for name in ("peak", "total", "warmup", "decay", "floor"):
            check_number(name, getattr(self, name))
        for name in ("peak", "total"):
            value = getattr(self, name)
            check(0 < value < math.inf, name, value, "a positive number")
        for name in ("warmup", "decay"):
            value = getattr(self, name)
            check(0 <= value < math.inf, name, value, "a length of 0 or more")
        if self.warmup + self.decay > self.total:
            raise InputError(
                f"warmup, decay: {self.warmup} and {self.decay} are together longer than the "
                f"total of {self.total}; shorten one of them"
            )
        if self.shape not in get_args(Shape):
            raise InputError(
                f"shape: {self.shape!r} is unknown; choose one of {', '.join(get_args(Shape))}"
            )
        check(0 <= self.floor <= 1, "floor", self.floor, "a fraction of the peak, 0 to 1")
        if self.shape == "exponential" and self.decay and not self.floor:
            raise InputError("floor: an exponential decay never reaches 0; write a floor above 0")

    def __call__(self, count: Any) -> Any:
        """Return the LR at a count, of its shape.

        A number or NumPy array is evaluated in float64 by NumPy, exact for counts below 2^53; a jax
        array, traced or not, in jax's default float.
        """
        count, xp = numbers(count)
        rate = xp.full_like(count, self.peak)[()]
        if self.warmup:
            rate = rate * xp.clip(count / float(self.warmup), 0.0, 1.0)
        if self.decay:
            # The remaining part, not the completed one, keeps the digits near the end, at zero.
            left = xp.clip((float(self.total) - count) / float(self.decay), 0.0, 1.0)
            rate = rate * self._fall(left, xp)
        return rate

    def _fall(self, left: Any, xp: Any) -> Any:
        """Return the fraction of the peak when a part `left` = 1 − x of the decay remains."""
        match self.shape:
            case "exponential":
                return self.floor ** (1.0 - left)
            case "1-sqrt":
                left = 1.0 - xp.sqrt(1.0 - left)
            case "cosine":
                left = (1.0 - xp.cos(math.pi * left)) / 2.0
        return self.floor + (1.0 - self.floor) * left

    @property
    def stages(self) -> Self:
        """Itself, for trainers with settings for it."""
        return self

    @property
    def lr_phase(self) -> str:
        """The LR phase at the end, as in tables: constant, decayed or cosine."""
        if self.shape == "cosine" and self.warmup + self.decay == self.total:
            return "cosine"
        return "decayed" if self.decay else "constant"

    def code(self) -> Iterator[str]:
        """Yield Python lines that set `value` to the LR at `middle` tokens; `math` is imported."""
        yield f"value = {self.peak!r}"
        if self.warmup:
            yield f"value *= min(middle / {self.warmup!r}, 1.0)"
        if not self.decay:
            return
        yield f"left = min(max(({self.total!r} - middle) / {self.decay!r}, 0.0), 1.0)"
        if self.shape == "exponential":
            yield f"value *= {self.floor!r} ** (1 - left)"
            return
        if self.shape in _CODE:
            yield f"left = {_CODE[self.shape]}"
        yield f"value *= {self.floor!r} + (1 - {self.floor!r}) * left"


_CODE = {
    "1-sqrt": "1 - math.sqrt(1 - left)",
    "cosine": "(1 - math.cos(math.pi * left)) / 2",
}


def numbers(count: Any) -> tuple[Any, Any]:
    """Return counts as real numbers and their array module: NumPy, or jax.numpy for a jax array."""
    xp = array_module(count)
    return xp.asarray(count, dtype=float), xp


def constant(peak: float, warmup: float = 0) -> WarmupStableDecay:
    """Return a warm-up, then the peak forever."""
    check_number("warmup", warmup)
    return WarmupStableDecay(peak, max(warmup, 1), warmup)


def cosine(peak: float, total: float, warmup: float = 0, floor: float = 0.0) -> WarmupStableDecay:
    """Return a warm-up, then one half cosine down to `floor · peak` at the total.

    Args:
        peak: The LR after the warm-up.
        total: The count at which the cosine ends, in the unit of its argument, e.g. tokens.
        warmup: Length of the linear warm-up from zero.
        floor: The last LR as a fraction of the peak.

    Raises:
        InputError: If a value is negative or not a number, or the warm-up is longer than the total.

    Examples:
        >>> [round(float(cosine(1.0, total=10, warmup=2)(count)), 2) for count in (0, 2, 6, 10)]
        [0.0, 1.0, 0.5, 0.0]
    """
    check_number("total", total)
    check_number("warmup", warmup)
    return WarmupStableDecay(peak, total, warmup, total - warmup, "cosine", floor)


def _wsd(
    peak: float, tokens: float, warmup: float, decay: float, shape: Shape, floor: float
) -> WarmupStableDecay:
    return WarmupStableDecay(peak, tokens, warmup, decay, shape, floor)


LATE = ("decay", "shape", "floor")
WSD = LearningRate(_wsd, stable=lambda tokens, decay: tokens - decay, late=LATE)


@dataclass(frozen=True)
class PowerRate:
    """The LR peak · (warmup / count)^exponent after the warm-up, as a callable of a count.

    Attributes:
        within: its warm-up, which is above 0, its peak and its decay.
        exponent: Exponent of the fall, above 0.

    Examples:
        >>> rate = PowerRate(WarmupStableDecay(peak=1.0, total=64, warmup=4), exponent=0.5)
        >>> [float(rate(count)) for count in (0, 2, 4, 16, 64)]
        [0.0, 0.5, 1.0, 0.5, 0.25]
    """

    within: WarmupStableDecay
    exponent: float

    def __post_init__(self) -> None:
        if not self.within.warmup:
            raise InputError(
                "warmup: 0; a power law of the tokens begins where it ends, so give one"
            )

    def __call__(self, count: Any) -> Any:
        """Return the LR at a count, as `WarmupStableDecay`."""
        real, xp = numbers(count)
        warmup = float(self.within.warmup)  # JAX takes no integer above 2^31
        return self.within(count) * (warmup / xp.maximum(real, warmup)) ** self.exponent

    def code(self) -> Iterator[str]:
        """See `WarmupStableDecay.code`."""
        yield from self.within.code()
        warmup = self.within.warmup
        yield f"value *= ({warmup!r} / max(middle, {warmup!r})) ** {self.exponent!r}"


def power_law(exponent: float) -> LearningRate:
    """Return the schedule of a power law, whose stable part ends at the start of the decay."""

    def make(
        peak: float, tokens: float, warmup: float, decay: float, shape: Shape, floor: float
    ) -> PowerRate:
        return PowerRate(WarmupStableDecay(peak, tokens, warmup, decay, shape, floor), exponent)

    return LearningRate(make, stable=lambda tokens, decay: tokens - decay, late=LATE)


POWER = power_law(0.51)
INVERSE_SQRT = power_law(0.5)


def _to_the_end(shape: Shape) -> LearningRate:
    """Return warm-up, then a decay of that shape to the end of the run."""
    return LearningRate(
        lambda peak, tokens, warmup, floor: WarmupStableDecay(
            peak, tokens, warmup, tokens - warmup, shape, floor
        )
    )


RATES: Registry[LearningRate] = Registry(
    "rate",
    {
        "wsd": WSD,
        "cosine": _to_the_end("cosine"),
        "linear": LearningRate(
            lambda peak, tokens, warmup: WarmupStableDecay(peak, tokens, warmup, tokens - warmup)
        ),
        "constant": LearningRate(constant),
        "1-sqrt": _to_the_end("1-sqrt"),
        "inverse_sqrt": INVERSE_SQRT,
        "power": POWER,
    },
    LearningRate,
)

wsd = WarmupStableDecay
"""Warmup, stable phase, decay."""


@dataclass(frozen=True)
class LRSchedule:
    """An LR schedule by name, with lengths that may be shares of a run's budget.

    Attributes:
        name: "wsd", "cosine", "linear", "constant", "1-sqrt", "inverse_sqrt", "power", or
            `package.module:ATTRIBUTE`.
        peak: The largest LR.
        warmup: Length of the linear warm-up: tokens, e.g. "500M", a share of the budget, "5%", or
            "2000steps" or "80samples" of the batch schedule.
        decay: Length of the final decay, in the same form, for a schedule that has one.
        shape: Shape of the decay: "linear", "1-sqrt", "cosine" or "exponential".
        floor: The last LR as a fraction of the peak.
        horizon: Where the LR schedule ends, in the same form, if that is beyond the end of the run;
            percentages are then shares of it. By default it ends with the budget.

    Raises:
        InputError: On construction, if the schedule does not exist or the peak is not positive.

    Examples:
        >>> lr = LRSchedule("wsd", peak=1e-3, warmup="500M", decay="20%")
        >>> over = lr.over("10B")
        >>> float(over(250e6)), float(over(9e9)), over.decay
        (0.0005, 0.0005, 2000000000)
    """

    name: str = "wsd"
    peak: float = field(kw_only=True)
    warmup: str | int = field(default=0, kw_only=True)
    decay: str | int = field(default=0, kw_only=True)
    shape: Shape = field(default="linear", kw_only=True)
    floor: float = field(default=0.0, kw_only=True)
    horizon: str | int | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        if not isinstance(self.name, str):
            raise InputError(f"LR schedule: {self.name!r} given; write a name, e.g. 'wsd'")
        RATES.load(self.name)
        peak = parse_number(self.peak, field="peak")
        check(peak > 0, "peak", self.peak, "a positive LR, e.g. 1e-3")
        object.__setattr__(self, "peak", peak)

    @property
    def foreign(self) -> tuple[str, ...]:
        """The given settings that this schedule does not take."""
        given = {"warmup": 0, "decay": 0, "shape": "linear", "floor": 0.0, "horizon": None}
        takes = [*RATES[self.name].takes]
        if "tokens" in takes:
            takes.append("horizon")
        return tuple(n for n, x in given.items() if n not in takes and getattr(self, n) != x)

    def over(self, tokens: "str | int | Budget") -> Callable[[Any], Any]:
        """Return the LR over a budget, a function of the tokens consumed, as optax schedules are.

        Args:
            tokens: The budget in tokens; or a `Budget`, which resolves lengths in steps or samples.

        Raises:
            InputError: If a setting is not one of this schedule, or a custom schedule is invalid.
                If a length is longer than the budget, or the horizon is before its end.
        """
        for name in self.foreign:
            raise InputError(f"{name}: the LR schedule {self.name} has none; leave it out")
        if isinstance(tokens, Budget):
            run = tokens
        else:
            for name in ("warmup", "decay", "horizon"):
                check_plain(getattr(self, name), name, "the batch sizes, which are not given here")
            run = Budget(BatchSchedule.constant(1), 1, parse_tokens(tokens, field="tokens"))
        whole = run.over(self.horizon)
        lengths = {
            "warmup": whole.from_start(self.warmup, "warmup"),
            "decay": whole.to_end(self.decay, "decay"),
        }
        settings = {"tokens": whole.tokens, **lengths, "shape": self.shape, "floor": self.floor}
        return RATES[self.name](self.name, self.peak, settings)
