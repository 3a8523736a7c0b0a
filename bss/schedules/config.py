"""ScheduleConfig: batch size and learning rate of a run as settings."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from bss.errors import InputError
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import check_rules, idle_rules
from bss.schedules.lengths import Budget
from bss.schedules.momentum import share_of
from bss.schedules.notation import UNITS, pairs_of, split_unit
from bss.schedules.rates import RATES, SETTINGS, Shape
from bss.units import parse_tokens
from bss.values import read_fields


def without_units(entry: dict[str, Any], seq_len: int) -> dict[str, Any]:
    """Return the fields of a schedule with steps and samples as tokens, e.g. warmup "2000steps".

    Args:
        entry: Fields of a `ScheduleConfig` as they are in JSON.
        seq_len: Tokens per sequence of the run.

    Raises:
        InputError: If a text is invalid.
    """
    names = [name for name in ("tokens", "warmup", "decay") if _has_unit(entry.get(name))]
    batch = entry.get("batch", ScheduleConfig.batch)
    if not names and not (isinstance(batch, str) and any(map(_has_unit, _starts(batch)))):
        return entry
    batch = str(batch) if isinstance(batch, int) else batch
    tokens = entry.get("tokens", ScheduleConfig.tokens)
    run = Budget.read(batch, tokens, seq_len, field="schedule.tokens")
    lengths: dict[str, Any] = {"tokens": run.tokens}
    for name, resolve in (("warmup", run.from_start), ("decay", run.to_end)):
        if name in entry:
            lengths[name] = resolve(entry[name], f"schedule.{name}")
    return {**entry, **lengths, "batch": str(run.schedule)}


def _starts(batch: str) -> list[str]:
    """Return where the stages of a text begin, and where its ramp ends."""
    return [part for pair in pairs_of(batch) for part in pair.split(":")]


def _has_unit(length: Any) -> bool:
    return split_unit(length)[1] in UNITS


@dataclass(frozen=True)
class ScheduleConfig:
    """Batch size and learning rate (LR) as functions of the tokens consumed.

    Attributes:
        tokens: tokens of the run.
        batch: sequences per step; also an integer, or a text as "0:8 2M:16" or "0:8 50%:16".
        rate: LR schedule, registered in `bss.schedules.rates` or `package.module:ATTRIBUTE`.
        warmup: linear warm-up, in tokens.
        decay: length of the final decay, in tokens, for an LR schedule that has one.
        shape: shape of the decay.
        floor: the last LR as a fraction of the peak.
        lr_coupling: rule that scales the LR if the batch size differs from `reference_batch`.
        weight_decay_coupling: rule that scales weight decay; both as in `bss.schedules.coupling`.
        beta1_coupling: rule that sets the optimizer's beta1 from the number of steps, as in
            `bss.schedules.momentum`.
        reference_batch: in sequences; 0 means the first batch size of the schedule.
        dynamic_fields: class attribute, fields that may differ between vmapped runs whose plans
            have the same steps.

    Raises:
        InputError: If a setting is out of its range, or the LR schedule does not take it.

    Examples:
        >>> ScheduleConfig(tokens=1_000_000, warmup=10_000, decay=100_000).stable_tokens
        900000
        >>> str(ScheduleConfig(tokens="1M", batch="0:8 50%:16").batch)
        '0:8 500K:16'
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
        read_fields(self, "schedule.")
        if self.batch.seq_lens:
            raise InputError(
                f"schedule.batch: {self.batch} changes the length of sequences, and a run has one; "
                "write batches alone, and data.seq_len"
            )
        check_rules(self.lr_coupling, self.weight_decay_coupling)
        share_of(self.beta1_coupling)
        RATES.load(self.rate)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an entry, with percentages resolved as shares of the tokens.

        A fixed batch size may be an integer.
        """
        batch = entry.get("batch")
        tokens = entry.get("tokens", cls.tokens)
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
        """The given settings that the LR schedule never takes."""
        return self._given_but(RATES[self.rate].takes)

    @property
    def unused(self) -> tuple[str, ...]:
        """The given LR settings that have no effect; the end of the run is never among them."""
        return self._given_but(RATES[self.rate].effects(self._settings))

    @property
    def stable_tokens(self) -> float:
        """Tokens up to which the LR does not depend on the end of the run; infinite if it never
        does.
        """
        return RATES[self.rate].stable_tokens(self._settings)

    @property
    def beta1_by(self) -> tuple[str, int] | None:
        """The rule of beta1 and the tokens of the run that it uses; None without a rule."""
        return None if self.beta1_coupling == "none" else (self.beta1_coupling, self.tokens)

    def check_decay(self) -> None:
        """Raise InputError if the LR schedule has no final decay."""
        if "decay" not in RATES[self.rate].takes:
            raise InputError(
                f"schedule.rate is {self.rate}, which takes no decay; choose one that does, as "
                f"{', '.join(name for name, rate in RATES.items() if 'decay' in rate.takes)}"
            )

    @property
    def lr_schedule(self) -> str:
        """The name of the LR schedule; "constant" if it could decay but does not."""
        return "constant" if "decay" in RATES[self.rate].takes and not self.decay else self.rate

    def effective(self, weight_decay: float = math.inf) -> "ScheduleConfig":
        """Return the config without settings that have no effect.

        Args:
            weight_decay: Weight decay of the optimizer; if 0, the weight decay rule has no effect.
        """
        reference = self.reference_batch or self.batch.batches[0]
        ratios = [batch / reference for batch in self.batch.batches]
        idle = idle_rules(self.lr_coupling, self.weight_decay_coupling, weight_decay, ratios)
        if len(idle) == 2 or reference == self.batch.batches[0]:
            idle = (*idle, "reference_batch")
        return self.without((*self.unused, *idle))

    def without(self, names: Iterable[str]) -> "ScheduleConfig":
        """Return the config with some settings at their defaults."""
        return replace(self, **{name: getattr(ScheduleConfig, name) for name in names})

    def one_rate(self, other: "ScheduleConfig") -> float:
        """Return the tokens up to which two configs certainly have the same LR and beta1: 0 to
        infinity.
        """
        if self.rate != other.rate or self.beta1_by != other.beta1_by:
            return 0
        if self._effects() == other._effects():
            return math.inf
        one_stable = self._effects(stable=True) == other._effects(stable=True)
        return min(self.stable_tokens, other.stable_tokens) if one_stable else 0

    def learning_rate(self, peak: float) -> Callable[[Any], Any]:
        """Return the LR, a function of tokens.

        Raises:
            InputError: If a value is out of range, warm-up and decay are longer than the run, or a
                custom LR schedule is invalid.
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
