"""The held-out numbers of runs that are compared: of which sequences, in which columns."""

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np

from bss.data.shards import open_shards
from bss.errors import InputError
from bss.held_out import ALONG, AT_THE_END, HeldOutColumn
from bss.training import metrics
from bss.training.config import HeldOutSet, RunConfig
from bss.training.devices.mesh import by_position
from bss.training.evaluation import Evaluation, MetricSums
from bss.training.source import Source, shards_of
from bss.training.step import State


class HeldOut:
    """The held-out sets of runs that differ in no set or metric, and the programs over them."""

    def __init__(self, run: RunConfig, source: Source, shards: Path):
        """Reads the sequences and finds the metrics; those of other content lie beside `shards`.

        Raises:
            InputError: too few sequences, no such shards, a metric that cannot be measured.
        """
        config, self._run = run.evaluation, run
        seq_len = config.seq_len or run.data.seq_len
        self._metrics = metrics.by_column_name(config.metrics)
        sets = [HeldOutSet(ALONG, tokens=config.tokens), *config.sets]
        if config.test_tokens:
            sets.append(HeldOutSet(AT_THE_END, split="test", tokens=config.test_tokens))
        _check_columns([one.name for one in sets], [*self._metrics])
        self._read = {one.name: _read(one, run, source, shards, seq_len) for one in sets}
        for *_, bytes_per_token in self._read.values():
            model = metrics.Evaluated(run.model, bytes_per_token=bytes_per_token)
            for name, metric in self._metrics.items():
                metrics.check(name, metric, model, seq_len)

    def compile(self, evaluation: Evaluation) -> None:
        """Compiles the programs."""
        self._fleet = evaluation.fleet
        self._choose = evaluation.chooser()
        if self._run.averages:
            self._pick = evaluation.picker()
        self._sets = {name: self._compiled(name, evaluation) for name in self._read}

    def _compiled(self, name: str, evaluation: Evaluation) -> tuple[jax.Array, dict[str, Any]]:
        """A set on the devices, int32 [N, b, T+1]; by metric, (params, sequences) -> MetricSums."""
        n, width, rows, bytes_per_token = self._read[name]
        measures = {"loss": evaluation.loss} | {
            name: evaluation.metric(metric, bytes_per_token)
            for name, metric in self._metrics.items()
        }
        programs = {m: evaluation.sums_of(n, width, one) for m, one in measures.items()}
        mesh, shape = evaluation.mesh, evaluation.shape(n, width)
        return by_position(rows, n, shape, mesh), programs

    def along(self, state: State) -> dict[str, Any]:
        """Columns of a curve: numbers, or arrays over a fleet; bits per byte for text."""
        columns: dict[str, Any] = {}
        for name in self._sets:
            columns |= self._columns(name, state) if name != AT_THE_END else {}
        if (per_token := self._read[ALONG].bytes_per_token) is not None:
            loss = HeldOutColumn()
            for name, column in (("bits_per_byte", str(loss)), ("bits_per_byte_se", loss.error)):
                nats = columns[column]
                columns[name] = None if nats is None else metrics.per_byte(nats, per_token)
        return columns

    def at_the_end(self, state: State) -> dict[str, Any]:
        """Those of the test split, where the run asks for it."""
        return self._columns(AT_THE_END, state) if AT_THE_END in self._sets else {"test_loss": None}

    def _columns(self, name: str, state: State) -> dict[str, Any]:
        """Of one set: means and their standard errors, of the weights and of every average."""
        (sequences, programs), columns = self._sets[name], {}
        n, width, *_ = self._read[name]
        for half_life, params in self._weights(state):
            for metric, program in programs.items():
                sums = jax.device_get(program(params, sequences))
                column = HeldOutColumn(metric, name, half_life)
                columns |= _numbers(column, sums, n, width - 1, fleet=self._fleet)
        return columns

    def _weights(self, state: State) -> Iterator[tuple[str, Any]]:
        """The weights that the optimizer says are evaluated, and the averages, one at a time."""
        yield "", self._choose(state.params, state.optimizer)
        for place, half_life in enumerate(self._run.averages):
            yield half_life, self._pick(state.averages, np.int32(place))


def loss_columns(run: RunConfig) -> frozenset[str]:
    """The columns of held-out losses: a run whose losses are not finite has diverged."""
    sets = ALONG, AT_THE_END, *(one.name for one in run.evaluation.sets)
    half_lives = "", *run.averages
    return frozenset(str(HeldOutColumn("loss", *own)) for own in product(sets, half_lives))


def _numbers(
    column: HeldOutColumn, sums: MetricSums, n: int, targets: int, *, fleet: bool
) -> dict[str, Any]:
    """The mean over n sequences of so many targets and its standard error; of each part, if any."""
    total, each = (np.asarray(x, float) for x in sums)
    parts = total.shape[fleet:]  # those of a sequence come last
    targets = targets // math.prod(parts)  # of a part
    mean = total / (n * targets)
    means = each.reshape(*total.shape[:fleet], -1, *parts) / targets
    of_sequences = means[:, :n] if fleet else means[:n]
    with np.errstate(invalid="ignore"):  # of what is not finite
        error = of_sequences.std(int(fleet), ddof=1) / math.sqrt(n) if n > 1 else None
    if not parts:
        return {str(column): mean, column.error: error}
    numbers: dict[str, Any] = {}
    for k in range(*parts):
        part = replace(column, part=k + 1)
        numbers[str(part)] = mean[..., k]
        numbers[part.error] = None if error is None else error[..., k]
    return numbers


class _Read(NamedTuple):
    """A set of n sequences of T + 1 tokens; `rows` makes those of some numbers, int32 [k, T+1]."""

    n: int
    width: int
    rows: Callable[[Any], np.ndarray]
    bytes_per_token: float | None


def _read(one: HeldOutSet, run: RunConfig, source: Source, shards: Path, seq_len: int) -> _Read:
    """A set, of which the first sequence is made, and refused where there are too few."""
    made, per_token = _of_set(one, run, source, shards, seq_len)
    made([0])
    return _Read(one.tokens // seq_len, seq_len + 1, made, per_token)


def _of_set(
    one: HeldOutSet, run: RunConfig, source: Source, shards: Path, seq_len: int
) -> tuple[Callable[[Any], np.ndarray], float | None]:
    """What makes sequences of a set, and its bytes per token."""
    if one.content in ("", run.data.content):
        rows = partial(source.held_out, one.split, one.tokens, seq_len)
        return rows, source.bytes_per_token(one.split)
    from bss.data.stream import held_out  # here, so that only text needs grain

    other = shards_of(one, run, open_shards(shards))
    rows = partial(held_out, other, one.split, seq_len, one.tokens)
    return rows, other.bytes_per_token(one.split)


def _check_columns(sets: list[str], own: list[str]) -> None:
    """Refuses names of which two make one column."""
    seen: dict[str, str] = {}
    for name, metric in product(sets, ("loss", *own)):
        both = HeldOutColumn(metric, name)
        for column in (str(both), both.error):
            which = f"{metric} on {name}"
            if column in seen:
                raise InputError(
                    f"evaluation: {which} and {seen[column]} are both the column {column}; "
                    "rename a metric or a set"
                )
            seen[column] = which
