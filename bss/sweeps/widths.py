"""How many processes train a run together: a number, or more for larger models."""

from bisect import bisect_right
from functools import cache

from bss.errors import check
from bss.training.run_config import RunConfig
from bss.units import parse_tokens


@cache
def parse_processes(written: str | int) -> tuple[tuple[int, int], ...]:
    """Pairs of a least size, in non-embedding parameters, and a number of processes.

    Raises:
        InputError: the text is neither a number nor such pairs, "0:1 500M:2".

    Examples:
        >>> parse_processes(2), parse_processes("0:1 500M:2")
        (((0, 2),), ((0, 1), (500000000, 2)))
    """
    field = "setup.engine.processes"
    expected = 'a number, or by the parameters of the model, "0:1 500M:2"'
    pairs = [part.partition(":")[::2] for part in str(written).split()]
    if len(pairs) == 1 and not pairs[0][1]:
        pairs = [("0", pairs[0][0])]
    check(all(count.isdecimal() and int(count) for _, count in pairs), field, written, expected)
    parsed = tuple((parse_tokens(size, field=field), int(count)) for size, count in pairs)
    sizes = [size for size, _ in parsed]
    check(bool(sizes) and sizes[0] == 0 and sizes == sorted({*sizes}), field, written, expected)
    return parsed


def width(written: str | int, run: RunConfig) -> int:
    """How many processes train a run."""
    pairs = parse_processes(written)
    return pairs[bisect_right([size for size, _ in pairs], run.model.counts().non_embedding) - 1][1]
