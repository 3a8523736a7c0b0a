"""Batch ramps of published runs, as batch schedules of this project.

A ramp is kept in tokens, because a run may change its sequence length, and converted to sequences
of any length. If a report writes a batch of 4M or 16M tokens, M is read as 2^20. Llama 3 has 64
groups of 32 sequences of 8192 for 16M (arXiv 2407.21783, Table 4).
"""

from dataclasses import dataclass

from bss.errors import check
from bss.registry import Registry
from bss.schedules.batch import BatchSchedule

_MI = 2**20


@dataclass(frozen=True)
class Ramp:
    """A batch size in tokens over tokens consumed.

    Attributes:
        source: the report and its section.
        tokens: token budget of the run.
        batch_tokens: schedule of batch sizes, in tokens.
    """

    source: str
    tokens: int
    batch_tokens: BatchSchedule

    def schedule(self, seq_len: int, tokens: int | None = None) -> BatchSchedule:
        """Return the ramp in whole sequences of `seq_len`, at least one.

        Args:
            seq_len: tokens per sequence.
            tokens: another token budget; each start keeps its share of the budget, and the batch
                sizes stay the same.

        Examples:
            >>> print(RAMPS["minimax-01"].schedule(8192))
            0:2048 69B:4096 790B:8192 4.7T:16384
        """
        check(seq_len >= 1, "seq_len", seq_len, "1 or more")
        budget = self.tokens if tokens is None else tokens
        starts = (start * budget // self.tokens for start in self.batch_tokens.starts)
        batches = (max(1, round(batch / seq_len)) for batch in self.batch_tokens.batches)
        whole = dict(zip(starts, batches, strict=True))
        return BatchSchedule(tuple(whole), tuple(whole.values()))


def _deepseek_v3() -> Ramp:
    """Return 3072 to 15360 sequences in 469B tokens; "gradually increased" is 16 steps here."""
    ramp = BatchSchedule.linear(3072 * 4096, 15360 * 4096, 469 * 10**9, 768 * 4096)
    return Ramp("arXiv 2412.19437, Sec. 4.2", 14_800 * 10**9, ramp)


def _modded_nanogpt() -> Ramp:
    """Return batches in the ratio 8:16:24 for 428, 429 and 428 + 15 steps."""
    units = [factor * 2048 * 8 for factor in (8, 16, 24)]
    first, second = 428 * units[0], 429 * units[1]
    ramp = BatchSchedule((0, first, first + second), tuple(units))
    return Ramp(
        "KellerJordan/modded-nanogpt, train_gpt.py (0016a3c)",
        first + second + (428 + 15) * units[2],
        ramp,
    )


RAMPS: Registry[Ramp] = Registry(
    "ramp",
    {
        "deepseek-v3": _deepseek_v3(),
        "llama-3-405b": Ramp(
            "arXiv 2407.21783, Sec. 3.4.1",
            15_600 * 10**9,
            BatchSchedule((0, 252 * 10**6, 2870 * 10**9), (4 * _MI, 8 * _MI, 16 * _MI)),
        ),
        "minimax-01": Ramp(
            "arXiv 2501.08313, Sec. 4.2",
            11_400 * 10**9,
            BatchSchedule(
                (0, 69 * 10**9, 790 * 10**9, 4700 * 10**9),
                (16 * _MI, 32 * _MI, 64 * _MI, 128 * _MI),
            ),
        ),
        "modded-nanogpt": _modded_nanogpt(),
    },
    Ramp,
)
