"""The number of runs that share a program, and of processes that train a run."""

from bisect import bisect_right
from functools import cache
from typing import TYPE_CHECKING

from bss.errors import check
from bss.training.run_config import RunConfig
from bss.units import parse_tokens

if TYPE_CHECKING:
    from bss.sweeps.setup import EngineConfig

SMALL_MODEL = 1_000_000
"""Number of parameters below which a model does not fill an accelerator."""
VMAPPED_RUNS = 64
"""Number of runs of such a model that share a program on an accelerator."""


def runs_per_program(run: RunConfig, config: "EngineConfig", *, accelerators: bool) -> int:
    """Return how many runs like this one are trained in one program.

    It is `config.fleet` if that is set. Else small models share a program on accelerators; on CPUs
    each core trains one run. A run of several processes is trained alone.
    """
    if processes_per_run(config.processes, run) > 1:
        return 1
    one_device = config.fsdp == 1 and config.devices < 2
    small = run.model.counts().total < SMALL_MODEL
    return config.fleet or (VMAPPED_RUNS if accelerators and small and one_device else 1)


@cache
def parse_processes(written: str | int) -> tuple[tuple[int, int], ...]:
    """Parse pairs of a smallest model, in non-embedding parameters, and a number of processes.

    Raises:
        InputError: If the text is neither a number nor such pairs, "0:1 500M:2".

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


def processes_per_run(written: str | int, run: RunConfig) -> int:
    """Return how many processes train a run together."""
    pairs = parse_processes(written)
    return pairs[bisect_right([size for size, _ in pairs], run.model.counts().non_embedding) - 1][1]
