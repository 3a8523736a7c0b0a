"""How long and how often the language is learnt, and what the truth is taken from."""

from dataclasses import dataclass

from bss.errors import InputError
from bss.training.batches import SYNTHETIC
from experiments.study import SweepStudy


@dataclass(frozen=True, kw_only=True)
class Study(SweepStudy):
    """The question.

    Attributes:
        batches: constant batches, in sequences.
        seeds: as in every sweep; the language stays.
        vocab_size: of the language and the model.
        targets: target losses of each seed's points.
        target_warmup: the highest target is below every run's loss at twice these tokens.
        share: the lowest target is one that this share of the batches reaches.
        entropy_sequences: behind the true L_0.
        reference_tokens: length of a reference run; its rate falls linearly to zero.
        reference_batch: in sequences.
        references: how many reference runs, at the first seeds.
    """

    batches: tuple[int, ...]
    seeds: tuple[int, ...] = tuple(range(10))
    vocab_size: int = 16
    targets: int = 8
    target_warmup: int = 30_000
    share: float = 0.6
    entropy_sequences: int = 65_536
    reference_tokens: int = 4_000_000
    reference_batch: int = 32
    references: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.setup.text.corpus != SYNTHETIC:
            raise InputError(
                f"setup.text.corpus is {self.setup.text.corpus!r}; expected {SYNTHETIC!r}, the "
                "one whose irreducible loss is known"
            )
        if len(self.seeds) < 2:
            raise InputError(f"seeds are {list(self.seeds)}; expected 2 or more, for an error")
        if not 1 <= self.references <= len(self.seeds):
            raise InputError(
                f"references is {self.references}; expected 1 to {len(self.seeds)}, one per seed"
            )
