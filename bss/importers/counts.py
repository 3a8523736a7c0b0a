"""Counts under any name: which column is the step, and what other counts say about tokens.

Steps may count calls of a logger or micro-batches. Then tokens, which are steps × batch × sequence
length, are wrong by a whole factor, and other counts of a log contradict them.
"""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pandas as pd

from bss.importers.attempts import SETTING
from bss.importers.lines import Cells
from bss.importers.log import Columns, Rows
from bss.importers.names import plain_name
from bss.tables.likeness import kind_of_name, words_of_name

STEPS = (
    "global_step", "iteration", "iter", "step", "global_steps", "num_updates", "iterations",
    "iters", "steps", "update", "updates", "step_count",
)  # fmt: skip
"""Ends of names of a step, the likelier first."""
EVENLY = 0.8
"""Share of equal distances from which on a column grows evenly."""
CLAIM = "count "
"""Beginning of the names of columns that are only compared with the tokens of a table."""
NEAR = 0.02
"""Relative difference up to which a factor is whole."""
SAME = 1e-4
"""Relative difference up to which a factor is one in all rows, as that of padding is not."""

_TOKENS = {"token", "tokens", "tok", "toks", "ntok", "ntoks", "ntokens", "mtok", "mtokens", "gtok",
           "gtokens", "btok", "btokens", "ktok", "ktokens"}  # fmt: skip
_SAMPLES = {"sample", "samples", "sequence", "sequences", "seqs", "examples"}
_RATES = {
    "per",
    "second",
    "sec",
    "throughput",
    "loss",
    "size",
    "batch",
    "max",
    "total_batch",
    "mfu",
}
_SETTINGS = {"batch", "batchsize", "gbs", "mbs", "bsz", "bs", "seed"}
_NO_SETTINGS = {"idx", "index", "id", "number", "num", "time", "per", "second", "in", "epoch"}
_OF_STEPS = {"micro", "epoch", "log", "substep"}
_UNIT = re.compile(
    r"(?:[_/ (-])(K|M|B|G|T)\)?$|^(K|M|B|G|T)[_ -]?tok|(thousand|million|billion|trillion)", re.I
)
_UNITS = {"k": 1e3, "m": 1e6, "b": 1e9, "g": 1e9, "t": 1e12,
          "thousand": 1e3, "million": 1e6, "billion": 1e9, "trillion": 1e12}  # fmt: skip


def step_by_name(names: Iterable[str], values: Mapping[str, np.ndarray]) -> str | None:
    """Return the column that is named like a step and grows evenly; None if there is none."""
    there = [name for name in names if not name.startswith("_") and name in values]
    there = [name for name in there if kind_of_name(name) == "step"]
    for end in STEPS:
        for name in there:
            plain = plain_name(name)
            ends = plain == end or plain.endswith(f"_{end}")
            if ends and not words_of_name(name) & _OF_STEPS and _grows_evenly(values[name]):
                return name
    return None


def named_like_steps(names: Iterable[str]) -> list[str]:
    """Return the names that end like the name of a step."""
    ends = tuple(f"_{end}" for end in STEPS)
    return [name for name in names if f"_{plain_name(name)}".endswith(ends)]


def _grows_evenly(values: np.ndarray) -> bool:
    """Return whether most distances of values are one, above 0; a log may begin anew."""
    more = np.diff(values[np.isfinite(values)])
    up = more[more > 0]
    return 2 * len(up) > len(more) and bool(np.mean(up == np.median(up)) >= EVENLY)


def claims_of(cells: Cells, read: Collection[str]) -> Columns:
    """Return the columns that are not read and compared: counts and settings.

    Counts of tokens and samples are called CLAIM NAME; batch sizes and seeds, SETTING NAME.
    """
    claims: Columns = {}
    for name, values in cells.numbers.items():
        if name in read:
            continue
        if _counts(name) and _rises(values):
            claims[f"{CLAIM}{name}"] = values
        if is_setting(name):
            claims[f"{SETTING}{name}"] = values
    return claims


def with_claims(rows: Rows, claims: Columns) -> Rows:
    """Return the rows of a run with the claims of its table."""
    own = {name: values[rows.index] for name, values in claims.items()}
    return rows.assign(**own) if own else rows


def counted_names(names: Iterable[str]) -> list[str]:
    """Return the names of counts of tokens or samples, of accumulation and of settings."""
    return [n for n in names if _counts(n) or is_accumulation(n) or is_setting(n)]


def is_setting(name: str) -> bool:
    """Return whether a name is of a batch size or a seed, in any unit and of any part.

    Examples:
        >>> [is_setting(n) for n in ("batch_size", "gbs", "data_seed", "batch_idx", "batch_loss")]
        [True, True, True, False, False]
    """
    words = words_of_name(name)
    return bool(words & _SETTINGS) and not words & _NO_SETTINGS and not kind_of_name(name)


def is_accumulation(name: str) -> bool:
    """Return whether a name is the number of micro-batches in a step.

    Examples:
        >>> [is_accumulation(n) for n in ("accum", "grad_acc", "num_microbatches", "ga_steps")]
        [True, True, True, True]
        >>> [is_accumulation(n) for n in ("accuracy", "train_acc", "micro_batch_size", "grad_norm")]
        [False, False, False, False]
    """
    words = words_of_name(name)
    counts_parts = words & {"num", "n", "number", "per"} and not words & {"size", "token", "tokens"}
    return bool(
        any(word.startswith("accum") for word in words)
        or words & {"gradacc", "gas"}
        or (words & {"acc", "ga"} and words & {"grad", "gradient", "steps"})
        or (counts_parts and (words & {"microbatches"} or {"micro", "batches"} <= words))
    )


def accumulation(values: Mapping[str, Any]) -> dict[str, int]:
    """Return the numbers of micro-batches in a step that are one above 1, by name.

    Args:
        values: Values by name: numbers, or columns.
    """
    found: dict[str, int] = {}
    for name, value in values.items():
        if is_accumulation(name) and not isinstance(value, bool | str | Mapping):
            numbers = np.unique(np.asarray(value, dtype=float))
            numbers = numbers[np.isfinite(numbers)]
            if len(numbers) == 1 and numbers[0] > 1 and numbers[0] % 1 == 0:
                found[name] = int(numbers[0])
    return found


def token_factors(claims: Columns, table: Columns) -> dict[str, float]:
    """Return the factor between the tokens of a table and each count of tokens or samples.

    Args:
        claims: Columns called CLAIM NAME, a row for each row of the table.
        table: The run table of one run.

    Returns:
        By NAME: 1 if they agree, and 0 if they differ by no factor.
    """
    factors: dict[str, float] = {}
    for column, values in claims.items():
        name = column.removeprefix(CLAIM)
        count = values * _unit(name)
        if not words_of_name(name) & _TOKENS:
            count = count * table["seq_len"]
        factors[name] = _factor(table["tokens"].astype(float), count)
    return factors


def contradictions(factors: Mapping[str, float], accumulated: Mapping[str, int]) -> Iterator[str]:
    """Yield a warning for each count that contradicts the tokens of a table by one factor.

    Args:
        factors: As `token_factors` returns them.
        accumulated: As `accumulation` returns it.
    """
    for name, factor in factors.items():
        if factor not in (0, 1):
            larger = max(factor, 1 / factor)
            times = f"{larger:g} times as many" if factor > 1 else f"1/{larger:g} of them"
            why = [f"{other} is {n}" for other, n in accumulated.items() if n == larger]
            because = f"; {why[0]}, so steps may count micro-batches" if why else ""
            yield (
                f"{name} contradicts the tokens: steps x batch x sequence length make {times}"
                f"{because}; correct --columns step=NAME, --batch or --seq-len"
            )


def larger_batches(settings: Columns, table: Columns) -> Iterator[str]:
    """Yield a warning for each batch size that is not read and divides no batch of a table.

    A batch size of a device or of a micro-batch divides the batch.

    Args:
        settings: Columns called SETTING NAME.
        table: The run table of one run.
    """
    batches = pd.unique(table["batch"])
    in_tokens = batches * table["seq_len"][0]
    for column, values in settings.items():
        name = column.removeprefix(SETTING)
        sizes = np.unique(values[~np.isnan(values)])
        if column == name or words_of_name(name) & {"seed", *_TOKENS}:
            continue
        whole = len(sizes) == 1 and sizes[0] >= 1
        if whole and (batches % sizes[0]).all() and sizes[0] not in in_tokens:
            yield (
                f"{name} is {sizes[0]:g} and not read, but the batch is {batches[0]:g}; correct "
                f"--batch, or read {name} with --columns batch={name}"
            )


def _factor(tokens: np.ndarray, count: np.ndarray) -> float:
    """Return the factor between tokens and a count; 0 if it is not one, whole or the same.

    The count before the first row does not matter, because a log may count from 0.
    """
    there = np.isfinite(count)
    tokens = tokens[there]
    count = count[there]
    if len(count) > 2:
        increments = _one_factor(np.diff(tokens), np.diff(count))
        if increments:
            return increments
    return _one_factor(tokens, count)


def _one_factor(tokens: np.ndarray, count: np.ndarray) -> float:
    """Return the factor of all values that are positive; 0 if there is none."""
    there = (count > 0) & (tokens > 0)
    if not there.any():
        return 0
    ratios = tokens[there] / count[there]
    ratio = float(ratios[-1])
    apart = np.abs(ratios[len(ratios) // 2 :] - ratio).max() / ratio
    larger = max(ratio, 1 / ratio)
    whole = round(larger)
    if apart <= NEAR and abs(larger - whole) <= NEAR * whole:
        return float(whole) if ratio >= 1 or whole == 1 else 1 / whole
    return float(f"{ratio:.4g}") if apart <= SAME and len(ratios) > 2 else 0


def _counts(name: str) -> bool:
    """Return whether a name is a count of tokens or of samples."""
    words = words_of_name(name)
    return bool(words & (_TOKENS | _SAMPLES)) and not words & _RATES


def _rises(values: np.ndarray) -> bool:
    more = np.diff(values[np.isfinite(values)])
    return len(more) > 0 and bool((more >= 0).mean() >= EVENLY) and bool((more > 0).any())


def _unit(name: str) -> float:
    """Return what a count is multiplied by: 1e9 for tokens_B.

    Examples:
        >>> _unit("data/tokens_B"), _unit("tokens (M)"), _unit("billion_tokens"), _unit("tokens")
        (1000000000.0, 1000000.0, 1000000000.0, 1.0)
    """
    found = _UNIT.search(name)
    return _UNITS[next(filter(None, found.groups())).lower()] if found else 1.0
