"""How fast all cores encode the sources of the installed packages, beside one pinned core.

    python -m benchmarks.encoding --tokens 50M    # of a tokenizer of 4,096 tokens, made first

Both are what a preparation runs, without its reading and its files: on one core in this process,
whose tokenizer has no threads of its own; then in a process for each core. The tokens are compared.
"""

import argparse
import json
import os
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # before it is imported

import numpy as np

from bss.data import tokenizers
from bss.data.encode import encoded
from bss.data.prepare import batches_of
from bss.data.python_files import PythonFiles
from bss.machines.slots import cores
from bss.units import parse_tokens

PACKAGES = PythonFiles(Path(sysconfig.get_path("purelib")))
_CHARACTERS = 3.5
"""Of a token, at a guess: how much is read."""


def main() -> None:
    """Prints tokens per second of both, and their ratio."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.encoding", description=__doc__)
    parser.add_argument("--tokens", type=parse_tokens, default=parse_tokens("50M"))
    wanted = parser.parse_args().tokens * _CHARACTERS
    batches = [*batches_of(_first(PACKAGES.open()("train"), wanted))]
    with tempfile.TemporaryDirectory() as folder:
        made = tokenizers.make("bpe-4096", _first(PACKAGES.open()("train"), 5e6))
        made.save(Path(folder))
        dtype, every = np.dtype("<u2"), os.sched_getaffinity(0)
        took, found = [], []
        for count in (1, cores()):
            os.sched_setaffinity(0, {min(every)} if count == 1 else every)
            start = time.perf_counter()
            pieces = [ids for _, ids in encoded(batches, made, dtype, Path(folder), count)]
            took.append(time.perf_counter() - start)
            found.append(np.concatenate(pieces))
    assert np.array_equal(*found)
    row = {"tokens": len(found[0]), "cores": len(every), "load": os.getloadavg()[0]}
    row |= {"one_core": len(found[0]) / took[0], "all_cores": len(found[0]) / took[1]}
    print(json.dumps(row | {"ratio": took[0] / took[1]}))


def _first(texts: Iterator[str], characters: float) -> Iterator[str]:
    total = 0
    for text in texts:
        yield text
        if (total := total + len(text)) >= characters:
            return


if __name__ == "__main__":
    main()
