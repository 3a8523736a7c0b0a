"""bss models: the named sizes."""

from bss.cells import Table
from bss.cli.options import Count
from bss.cli.output import Output, Show


def models(*, seq_len: Count = 512, vocab_size: Count | None = None, show: Show = Show()) -> Output:
    """List the named models.

    Args:
        seq_len: tokens per sequence, for the FLOPs of attention
        vocab_size: instead of each model's usual one

    Examples:
        bss models
        bss models --seq-len 2048 --vocab-size 50257
    """
    from bss.models import sizes

    rows = sizes.table(seq_len, vocab_size)
    title = f"named models; training FLOPs at {seq_len} tokens per sequence"
    return Output({"models": rows}, tables=[Table.of_records(title, rows)])
