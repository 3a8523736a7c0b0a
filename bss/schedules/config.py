"""ScheduleConfig: batch and learning rate of a run as settings, and the rate they name."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import check_rules, idle_rules
from bss.schedules.momentum import BETA1_RULES
from bss.schedules.rates import RATES, SETTINGS, Shape
from bss.units import parse_tokens


@dataclass(frozen=True)
class ScheduleConfig:
    """Batch and learning rate over the tokens consumed.

    Attributes:
        tokens: where the run stops.
        batch: sequences per step; "0:8 2M:16" or "0:8 50%:16" in JSON and on the command line.
        rate: the learning rate, registered in `bss.schedules.rates` or `package.module:ATTRIBUTE`.
        warmup: linear warm-up, in tokens.
        decay: length of the final decay, in tokens, of a rate that takes one.
        shape: of that decay.
        floor: the last learning rate as a fraction of the peak.
        lr_coupling: rule of the learning rate where the batch leaves `reference_batch`.
        weight_decay_coupling: the same of weight decay; both as in `bss.schedules.coupling`.
        beta1_coupling: rule of the optimizer's beta1 by the steps of the run, as in
            `bss.schedules.momentum`.
        reference_batch: in sequences; 0 means the first batch of the schedule.
        dynamic_fields: class attribute, fields that may differ between vmapped runs whose plans
            have the same steps.
    """

    dynamic_fields: ClassVar[tuple[str, ...]] = (
        *("batch", "rate", "warmup", "decay", "shape", "floor"),
        *("lr_coupling", "weight_decay_coupling", "beta1_coupling", "reference_batch"),
    )

    tokens: int = 1_000_000
    batch: BatchSchedule = field(default=BatchSchedule.constant(8))
    rate: str = "wsd"
    warmup: int = 0
    decay: int = 0
    shape: Shape = "linear"
    floor: float = 0.0
    lr_coupling: str = "none"
    weight_decay_coupling: str = "none"
    beta1_coupling: str = "none"
    reference_batch: int = 0

    def __post_init__(self) -> None:
        check_rules(self.lr_coupling, self.weight_decay_coupling)
        _ = BETA1_RULES[self.beta1_coupling]
        _ = RATES[self.rate]

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an entry, percentages resolved as shares of the tokens.

        A constant batch may be an integer.
        """
        batch, tokens = entry.get("batch"), entry.get("tokens", cls.tokens)
        for name in ("warmup", "decay"):
            if isinstance(text := entry.get(name), str) and "%" in text:
                total = parse_tokens(tokens, field="schedule.tokens")
                entry[name] = parse_tokens(text, field=f"schedule.{name}", total=total)
        if isinstance(batch, int) and not isinstance(batch, bool):
            entry["batch"] = str(batch)
        if isinstance(batch, str) and "%" in batch:
            total = parse_tokens(tokens, field="schedule.tokens")
            entry["batch"] = BatchSchedule.parse(batch, total=total)
        return entry

    @property
    def foreign(self) -> tuple[str, ...]:
        """The settings given that its rate never takes."""
        return self._given_but(RATES[self.rate].takes)

    @property
    def unused(self) -> tuple[str, ...]:
        """The settings of the rate given that have no effect; where the run stops is none."""
        return self._given_but(RATES[self.rate].effects(self._settings))

    @property
    def stable_tokens(self) -> float:
        """Tokens up to which the rate is the same wherever the run stops; infinite if all are."""
        return RATES[self.rate].stable_tokens(self._settings)

    @property
    def beta1_by(self) -> tuple[str, int] | None:
        """The rule of beta1, and the tokens of the run, by which it goes; None for no rule."""
        return None if self.beta1_coupling == "none" else (self.beta1_coupling, self.tokens)

    def check_decay(self) -> None:
        """Refuses a rate that cannot be decayed at the end of the run."""
        if "decay" not in RATES[self.rate].takes:
            raise InputError(
                f"schedule.rate is {self.rate}, which takes no decay; choose one that does, as "
                f"{', '.join(name for name, rate in RATES.items() if 'decay' in rate.takes)}"
            )

    @property
    def told_rate(self) -> str:
        """The name of its rate, or "stable" where one that may decay does not."""
        return "stable" if "decay" in RATES[self.rate].takes and not self.decay else self.rate

    def effective(self, weight_decay: float = math.inf) -> "ScheduleConfig":
        """Return the same without settings that change nothing.

        Args:
            weight_decay: of the optimizer; without one it follows no batch.
        """
        reference = self.reference_batch or self.batch.batches[0]
        ratios = [batch / reference for batch in self.batch.batches]
        idle = idle_rules(self.lr_coupling, self.weight_decay_coupling, weight_decay, ratios)
        if len(idle) == 2 or reference == self.batch.batches[0]:
            idle = (*idle, "reference_batch")
        return self.without((*self.unused, *idle))

    def without(self, names: Iterable[str]) -> "ScheduleConfig":
        """Return the same with some settings at their defaults."""
        return replace(self, **{name: getattr(ScheduleConfig, name) for name in names})

    def one_rate(self, other: "ScheduleConfig") -> float:
        """Tokens up to which two surely have one learning rate and beta1: 0 to infinity."""
        if self.rate != other.rate or self.beta1_by != other.beta1_by:
            return 0
        if self._effects() == other._effects():
            return math.inf
        one_stable = self._effects(stable=True) == other._effects(stable=True)
        return min(self.stable_tokens, other.stable_tokens) if one_stable else 0

    def learning_rate(self, peak: float) -> Callable[[Any], Any]:
        """Return the rate of these settings, a function of tokens.

        Raises:
            InputError: a value out of range, warm-up and decay longer than the run, or a user's
                rate that is none.
        """
        return RATES[self.rate](self.rate, peak, self._settings)

    @property
    def _settings(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in SETTINGS}

    def _effects(self, *, stable: bool = False) -> dict[str, Any]:
        names = RATES[self.rate].effects(self._settings, stable=stable)
        return {name: getattr(self, name) for name in names}

    def _given_but(self, names: tuple[str, ...]) -> tuple[str, ...]:
        others = (n for n in SETTINGS if n not in (*names, "tokens"))
        return tuple(n for n in others if getattr(self, n) != getattr(ScheduleConfig, n))
