"""Batch ramps of published runs, as batch schedules of this project.

A ramp is kept in tokens, because a run may change its sequence length, and converted to sequences
of any length. If a report writes a batch of 4M or 16M tokens, M is read as 2^20. Llama 3 has 64
groups of 32 sequences of 8192 for 16M (arXiv 2407.21783, Table 4).
"""

from dataclasses import dataclass

from bss.errors import check
from bss.registry import Registry
from bss.schedules.batch import BatchSchedule


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


def _ramp(source: str, tokens: int, batch: BatchSchedule, unit: int) -> Ramp:
    """Return the ramp of a schedule whose batch sizes are in units of tokens."""
    return Ramp(source, tokens, BatchSchedule(batch.starts, tuple(unit * b for b in batch.batches)))


# DeepSeek-V3 increases its batch "gradually"; this is 16 steps. modded-nanogpt trains for 428, 429
# and 428 + 15 steps of 8, 16 and 24 times 8 sequences.
_DEEPSEEK_V3 = BatchSchedule.linear(3072, 15360, 469 * 10**9, 768)
_LLAMA_3 = BatchSchedule.parse("0:4 252M:8 2870B:16")
_MINIMAX_01 = BatchSchedule.parse("0:16 69B:32 790B:64 4700B:128")
_MODDED_NANOGPT = BatchSchedule.parse("0:8 56098816:16 168558592:24")
_NANOGPT = "KellerJordan/modded-nanogpt, train_gpt.py (0016a3c)"
_RAMPS = {
    "deepseek-v3": _ramp("arXiv 2412.19437, Sec. 4.2", 14_800 * 10**9, _DEEPSEEK_V3, 4096),
    "llama-3-405b": _ramp("arXiv 2407.21783, Sec. 3.4.1", 15_600 * 10**9, _LLAMA_3, 2**20),
    "minimax-01": _ramp("arXiv 2501.08313, Sec. 4.2", 11_400 * 10**9, _MINIMAX_01, 2**20),
    "modded-nanogpt": _ramp(_NANOGPT, 342_753_280, _MODDED_NANOGPT, 8 * 2048),
}
RAMPS: Registry[Ramp] = Registry("ramp", _RAMPS, Ramp)
