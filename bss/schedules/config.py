"""ScheduleConfig: batch and learning rate of a run as settings, and the rate they name."""

from dataclasses import dataclass, field
from typing import Any, Literal

from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import check_rules
from bss.units import parse_tokens


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
    rate: Literal["wsd", "cosine", "constant", "linear"] = "wsd"
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
        """The fields of an entry, its batch resolved where starts are shares of the tokens."""
        batch, tokens = entry.get("batch"), entry.get("tokens", cls.tokens)
        if isinstance(batch, str) and "%" in batch:
            total = parse_tokens(tokens, field="schedule.tokens")
            entry["batch"] = BatchSchedule.parse(batch, total=total)
        return entry

    def learning_rate(self, peak: float) -> rates.Rate:
        """The rate of these settings, a function of tokens.

        Raises:
            InputError: warm-up and decay are longer than the run; see `rates.Rate`.
        """
        if self.rate == "wsd":
            shape, floor = self.shape, self.floor
            return rates.wsd(peak, self.tokens, self.warmup, self.decay, shape, floor)
        if self.rate == "cosine":
            return rates.cosine(peak, self.tokens, self.warmup, self.floor)
        if self.rate == "linear":
            return rates.linear_to_zero(peak, self.tokens, self.warmup)
        return rates.constant(peak, self.warmup)
