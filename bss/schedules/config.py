"""ScheduleConfig: batch and learning rate of a run as settings, and the rate they name."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import check_rules
from bss.units import parse_tokens

RateName = Literal["wsd", "cosine", "constant", "linear"]
_SETTINGS = {"wsd": ("decay", "shape", "floor"), "cosine": ("floor",), "linear": (), "constant": ()}
"""Those that each rate has besides its warm-up."""


@dataclass(frozen=True)
class ScheduleConfig:
    """Batch and learning rate over the tokens consumed.

    Attributes:
        tokens: where the run stops.
        batch: sequences per step; "0:8 2M:16" or "0:8 50%:16" in JSON and on the command line.
        rate: shape of the learning rate.
        warmup: linear warm-up, in tokens.
        decay: length of the final decay of "wsd", in tokens.
        shape: of that decay.
        floor: the last learning rate as a fraction of the peak.
        lr_coupling: rule of the learning rate where the batch leaves `reference_batch`.
        weight_decay_coupling: the same of weight decay; both as in `bss.schedules.coupling`.
        reference_batch: in sequences; 0 means the first batch of the schedule.
    """

    tokens: int = 1_000_000
    batch: BatchSchedule = field(default=BatchSchedule.constant(8))
    rate: RateName = "wsd"
    warmup: int = 0
    decay: int = 0
    shape: rates.Shape = "linear"
    floor: float = 0.0
    lr_coupling: str = "none"
    weight_decay_coupling: str = "none"
    reference_batch: int = 0

    def __post_init__(self) -> None:
        check_rules(self.lr_coupling, self.weight_decay_coupling)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields of an entry, its batch resolved where starts are shares of the tokens.

        A constant batch may be an integer.
        """
        batch, tokens = entry.get("batch"), entry.get("tokens", cls.tokens)
        if isinstance(batch, int) and not isinstance(batch, bool):
            entry["batch"] = str(batch)
        if isinstance(batch, str) and "%" in batch:
            total = parse_tokens(tokens, field="schedule.tokens")
            entry["batch"] = BatchSchedule.parse(batch, total=total)
        return entry

    @property
    def unused(self) -> tuple[str, ...]:
        """The settings given that its rate does not have."""
        foreign = [name for name in _SETTINGS["wsd"] if name not in _SETTINGS[self.rate]]
        return tuple(n for n in foreign if getattr(self, n) != getattr(ScheduleConfig, n))

    def effective(self) -> "ScheduleConfig":
        """The same without settings that change nothing."""
        return replace(self, **{name: getattr(ScheduleConfig, name) for name in self.unused})

    def learning_rate(self, peak: float) -> rates.Rate:
        """The rate of these settings, a function of tokens.

        Raises:
            InputError: a value out of range, or warm-up and decay longer than the run.
        """
        if self.rate == "constant":
            return rates.constant(peak, self.warmup)
        named = {"wsd": rates.wsd, "cosine": rates.cosine, "linear": rates.linear_to_zero}
        own = {name: getattr(self, name) for name in _SETTINGS[self.rate]}
        return named[self.rate](peak, self.tokens, self.warmup, **own)
