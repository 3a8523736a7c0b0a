"""The plan and the rows of the examples: each token follows from the one before, with noise."""

import numpy as np

import bss

SEQ_LEN, VOCABULARY = 32, 64
PLAN = bss.plan("0:8 8K:16 32K:64", tokens="128K", seq_len=SEQ_LEN, lr=bss.wsd(0.02, 128000, 8000))


class Rows:
    """Tokens [rows, SEQ_LEN + 1] and a mask of the targets that count, by position."""

    def __init__(self, plan: bss.Plan, first: int = 0) -> None:
        """Go on after the steps of a plan before the step `first`."""
        self.taken = plan.tokens_at(first) // plan.seq_len

    def take(self, count: int) -> dict[str, np.ndarray]:
        """Return the next rows; each depends on its number only."""
        numbers = range(self.taken, self.taken + count)
        self.taken += count
        return {name: np.stack([_row(n)[name] for n in numbers]) for name in ("tokens", "mask")}


def _row(number: int) -> dict[str, np.ndarray]:
    draw = np.random.default_rng(number)
    steps = draw.choice([1, 3, 7], p=[0.8, 0.1, 0.1], size=SEQ_LEN + 1)
    steps[0] = draw.integers(VOCABULARY)
    mask = draw.uniform(size=SEQ_LEN) < 0.7
    return {"tokens": (steps.cumsum() % VOCABULARY).astype(np.int32), "mask": mask}
