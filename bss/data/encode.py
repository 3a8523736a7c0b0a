"""Documents to tokens in processes of their own, each a core's worth, in the documents' order.

    python -m bss.data.encode DIRECTORY NAME DTYPE     # what they run

A process is given pickled lists of texts and gives back their tokens, over its pipes: no library's
threads are trusted to share the cores, and a script that prepares needs no guard against being
imported again.
"""

import itertools
import os
import pickle
import queue
import subprocess
import sys
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from bss.data import tokenizers
from bss.data.tokenizers import Tokenizer
from bss.errors import InputError

ALONE = 2
"""Batches that are encoded here, before any process is started."""

_ENVIRONMENT = {"TOKENIZERS_PARALLELISM": "false", "OPENBLAS_NUM_THREADS": "1"}

Batch = tuple[str, ...]


class Ended(InputError):
    """A process that encodes is no more; what it was asked for is asked again another time."""


def tokens_of(tokenizer: Tokenizer, texts: Sequence[str], dtype: np.dtype) -> np.ndarray:
    """The tokens of some documents, each with its end, as one array."""
    end = np.array([tokenizer.end_of_document], dtype)
    pieces = ((ids.astype(dtype), end) for ids in tokenizer.encode_batch(texts))
    return np.concatenate([*itertools.chain.from_iterable(pieces)])


def encoded(
    batches: Iterable[Batch], tokenizer: Tokenizer, dtype: np.dtype, directory: Path, processes: int
) -> Iterator[tuple[Batch, np.ndarray]]:
    """Batches of documents and their tokens, in order.

    Args:
        batches: a few of them are encoded here, which is sooner than a process starts.
        tokenizer: saved in `directory`.
        dtype: of the tokens.
        directory: where processes find the tokenizer.
        processes: how many; none are started where they would not help.

    Raises:
        InputError: a text that the tokenizer cannot encode; `Ended` where a process was killed.
    """
    batches = iter(batches)
    few = None if processes < 2 or not tokenizer.is_slow else ALONE
    for batch in itertools.islice(batches, few):
        yield batch, tokens_of(tokenizer, batch, dtype)
    if (first := next(batches, None)) is None:
        return
    free: queue.SimpleQueue[subprocess.Popen] = queue.SimpleQueue()

    def ask(batch: Batch) -> np.ndarray:
        process = free.get()
        try:
            return _answer(process, batch)
        finally:
            free.put(process)  # one that ended too, or others would wait for it

    command = [sys.executable, "-m", "bss.data.encode"]
    command += [str(directory), tokenizer.name, dtype.str]
    with ExitStack() as stack:
        for _ in range(processes):
            started = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=os.environ | _ENVIRONMENT,
                start_new_session=True,  # an interrupt is for the one that asks
            )
            stack.callback(_end, started)
            free.put(started)
        pool = ThreadPoolExecutor(processes)
        stack.callback(pool.shutdown, cancel_futures=True)
        waiting: list = []
        for batch in itertools.chain([first], batches):
            waiting.append((batch, pool.submit(ask, batch)))
            if len(waiting) > 2 * processes:
                done, future = waiting.pop(0)
                yield done, future.result()
        for done, future in waiting:
            yield done, future.result()


def _answer(process: subprocess.Popen, batch: Batch) -> np.ndarray:
    """The tokens that a process gives back, or why it cannot."""
    assert process.stdin and process.stdout
    try:
        pickle.dump(batch, process.stdin)
        process.stdin.flush()
        answer = pickle.load(process.stdout)
    except (EOFError, OSError, pickle.UnpicklingError):
        raise Ended(
            "corpus: a process that encodes it has ended, perhaps for lack of memory; "
            "prepare it again, which goes on from here"
        ) from None
    if isinstance(answer, str):
        raise InputError(answer)
    return answer


def _end(process: subprocess.Popen) -> None:
    process.kill()
    process.communicate()


def main() -> None:
    """Encodes what comes, until the pipe is closed."""
    directory, name, dtype = sys.argv[1:]
    tokenizer = tokenizers.saved(Path(directory), name)
    while True:
        try:
            texts = pickle.load(sys.stdin.buffer)
        except EOFError:
            return
        try:
            answer = tokens_of(tokenizer, texts, np.dtype(dtype))
        except InputError as error:
            answer = str(error)
        pickle.dump(answer, sys.stdout.buffer)
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    main()
