"""Runs that may be done, written as a grid or as a table, and what they cost."""

import itertools
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from bss.design.goals import Runs
from bss.errors import InputError, check
from bss.tables import Reading
from bss.tables.columns import Origin, need, positive
from bss.tables.storage import read_table
from bss.units import parse_tokens

AXES = ("params", "tokens", "batch", "batch_tokens", "lr", "seeds")
WRITE = "as batch=32..512,lr=1e-3..8e-3,params=60M|120M,tokens=2B,seeds=2"
MOST = 4000
COSTS = ("tokens", "flops", "hours")


@dataclass(frozen=True)
class Candidates:
    """Runs [m], each in so many seeds, and what all of its seeds cost in the unit asked.

    Attributes:
        runs: where they are.
        seeds: [m], runs of each.
        cost: [m].
        unit: of the cost.
    """

    runs: Runs
    seeds: np.ndarray
    cost: np.ndarray
    unit: str

    @classmethod
    def of(cls, table: pd.DataFrame, rates: bool, unit: str, speed: str | None) -> "Candidates":
        """Of a table with params, tokens, batch_tokens, lr where rates vary, and seeds or 1."""
        names = ("params", "tokens", "batch_tokens")
        params, tokens, batch = (table[name].to_numpy(float) for name in names)
        runs = Runs(params, tokens, batch, table["lr"].to_numpy(float) if rates else None)
        seeds = table["seeds"].to_numpy(float) if "seeds" in table else np.ones(len(table))
        return cls(runs, seeds, seeds * cost_of(runs, unit, speed), unit)


def cost_of(runs: Runs, unit: str, speed: str | None = None) -> np.ndarray:
    """[m], of one run each: tokens, FLOPs by 6·N·D, or hours at a speed.

    Args:
        runs: where they are.
        unit: one of `COSTS`.
        speed: for hours, as 40K tokens/s or 2e14 FLOP/s.

    Raises:
        InputError: hours without a speed, or a malformed one.
    """
    check(unit in COSTS, "--cost", unit, f"one of {', '.join(COSTS)}")
    flops = 6 * runs.params * runs.tokens
    if unit != "hours":
        return runs.tokens if unit == "tokens" else flops
    check(speed is not None, "--speed", "nothing", "for --cost hours, as 40Ktokens/s or 2e14FLOP/s")
    found = re.fullmatch(r"\s*(.*?)\s*(tokens|FLOP)/s\s*", str(speed))
    check(found is not None, "--speed", speed, "tokens or FLOPs a second, as 40Ktokens/s")
    assert found
    rate = _number("--speed", found[1])
    return (runs.tokens if found[2] == "tokens" else flops) / rate / 3600


def read_candidates(text: str, seq_len: float | None, reading: Reading) -> pd.DataFrame:
    """What a grid or a file says of params, tokens, batch_tokens, lr and seeds of candidates.

    Args:
        text: axes joined by commas, each a value, values with | between them, or two ends with ..
            between them, in steps of 2, or of √2 with :sqrt2 behind; or the name of a CSV or
            Parquet file.
        seq_len: tokens of a sequence, by which a batch is one in tokens.
        reading: of a file.

    Raises:
        InputError: it is malformed, too large, or names a batch in sequences of unknown length.
    """
    if "=" not in text:
        table, origin = read_table(Path(text), reading)
        size = "batch_tokens" if "batch_tokens" in table else "batch"
        need(table, origin, "params", "tokens", size)
        known = {name: positive(table, name, origin) for name in AXES if name in table}
        return _in_tokens(pd.DataFrame(known), _length(table, origin, seq_len))
    axes: dict[str, list[float]] = {}
    for part in text.split(","):
        name, equals, values = part.strip().partition("=")
        if name not in AXES or not equals or name in axes:
            raise InputError(f"--candidates {part!r}: no axis of {', '.join(AXES)}; write {WRITE}")
        axes[name] = [x for one in values.split("|") for x in _values(part, name, one)]
    count = int(np.prod([len(values) for values in axes.values()]))
    check(count <= MOST, "--candidates", f"{count} runs", f"{MOST} or fewer")
    return _in_tokens(pd.DataFrame(itertools.product(*axes.values()), columns=[*axes]), seq_len)


def _length(table: pd.DataFrame, origin: Origin, seq_len: float | None) -> float | None:
    return float(positive(table, "seq_len", origin)[0]) if "seq_len" in table else seq_len


def _in_tokens(table: pd.DataFrame, seq_len: float | None) -> pd.DataFrame:
    if "batch" not in table:
        return table
    if "batch_tokens" in table or seq_len is None:
        why = "both batch and batch_tokens" if seq_len else "batch in sequences of unknown length"
        raise InputError(f"--candidates: {why}; give batch_tokens alone, or --seq-len")
    return table.assign(batch_tokens=table["batch"] * seq_len).drop(columns="batch")


def _values(part: str, name: str, text: str) -> list[float]:
    """A value, or those from one end to the other."""
    span, _, step = text.partition(":")
    ends = [_number(f"--candidates {part!r}", end) for end in span.split("..")]
    if len(ends) > 2 or step not in ("", "2", "sqrt2") or (step and len(ends) == 1):
        raise InputError(f"--candidates {part!r}: no value or range; write {WRITE}")
    factor = 2**0.5 if step == "sqrt2" else 2.0
    low, high = ends[0], ends[-1]
    check(low <= high, "--candidates", repr(part), "the smaller end first")
    steps = int(np.floor(np.log(high / low) / np.log(factor) + 1e-6))
    values = low * factor ** np.arange(steps + 1)
    return (values if name == "lr" else np.round(values)).tolist()


def _number(field: str, text: str) -> float:
    """A number above 0, as 1e-3, 60M or 32."""
    try:
        value = float(text)
    except ValueError:
        value = float(parse_tokens(text, field=field))
    check(0 < value < np.inf, field, text, "a number above 0")
    return value
