"""What a study of one change at a time asks, and what it refuses."""

from dataclasses import dataclass, field

from bss.errors import InputError
from bss.models.sizes import ModelSpec, model_of
from experiments.study import PricedStudy, check_counts, check_names


@dataclass(frozen=True)
class Variation:
    """One change, and what is trained under it.

    Attributes:
        name: of the change.
        batches: constants and schedules as text, "4" or "0:4 70%:32".
        changes: fields of every run, by dotted names.
        after: fields changed at the switch of a two-stage schedule whose first batch is a
            constant of the variation.
        model: as in the setup; by default the setup's.
    """

    name: str
    batches: tuple[str, ...]
    changes: dict = field(default_factory=dict)
    after: dict = field(default_factory=dict)
    model: ModelSpec = ""

    def __post_init__(self) -> None:
        if self.model:
            model_of(self.model)

    @property
    def constants(self) -> list[str]:
        """Its constant batches, as text."""
        return [batch for batch in self.batches if batch.isdigit()]


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """The question.

    Attributes:
        variations: the first is the reference.
        targets: target losses of each E(S).
        ladders: bucket ladders on which the first seed of one constant batch is repeated.
        ladder_batch: that batch, in sequences.
    """

    variations: tuple[Variation, ...]
    targets: int = 5
    ladders: tuple[tuple[int, ...], ...] = ()
    ladder_batch: int = 8

    def __post_init__(self) -> None:
        super().__post_init__()
        check_counts(self, "targets", "ladder_batch")
        check_names("variations", [variation.name for variation in self.variations])
        self.check_averages()
        for ladder in self.ladders:
            if all(self.ladder_batch % bucket for bucket in ladder):
                raise InputError(
                    f"ladders: none of {list(ladder)} divides ladder_batch {self.ladder_batch}; "
                    "add a bucket that does"
                )
