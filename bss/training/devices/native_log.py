"""What JAX's libraries print while several processes train, on stdin; what matters, on stderr.

    python -m bss.training.devices.native_log DIED MISSING

Where JAX ends the process because another died, or because not all came, that line alone is left.
"""

import re
import sys
from collections.abc import Iterable, Iterator

_ENTRY = re.compile(r"[IWEF]\d{4} \d\d:\d\d:")
_NOISE = re.compile(r"[IWE]\d{4} .*(coordination|preemption|distributed)")
_GREETING = "[Gloo] "
END = "Terminating process because the JAX distributed service"
_JOINING = "RegisterTask"


def readable(lines: Iterable[str], died: str, missing: str) -> Iterator[str]:
    """The lines that matter.

    >>> list(readable(["[Gloo] Rank 0 is connected", "a warning"], "died", "missing"))
    ['a warning']
    >>> list(readable([f"F1122 12:00:00 {END}", "RPC: RegisterTask"], "died", "missing"))
    ['missing']
    """
    lines, dropping = iter(lines), False
    for line in lines:
        if END in line:
            yield missing if any(_JOINING in rest for rest in lines) else died
            return
        if _ENTRY.match(line):
            dropping = bool(_NOISE.match(line))  # with the lines that belong to it
        if not dropping and not line.startswith(_GREETING):
            yield line


if __name__ == "__main__":
    for each in readable(map(str.rstrip, sys.stdin), *sys.argv[1:]):
        print(each, file=sys.stderr, flush=True)
