"""LearningRate: the settings of a run that a learning rate (LR) schedule takes, and its function of
tokens.

A schedule that does not take `tokens` cannot depend on the end of the run.
"""

import inspect
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bss.errors import InputError
from bss.registry import attempt

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
            have `stages`, a `bss.schedules.rates.Rate` for trainers that have settings for one, and
            `code`, as `Rate.code`.
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
            at, bad = (np.broadcast_to(x, np.shape(good))[~good].flat[0] for x in (count, value))
            raise InputError(
                f"rate: {self.name} is {bad:g} at {at:,.0f} tokens; "
                "expected a finite number of 0 or more"
            )
        return value

    def code(self) -> Iterator[str]:
        """Yield code; see `bss.schedules.rates.Rate.code`. The custom module must be importable."""
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
