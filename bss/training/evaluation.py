"""Evaluation on held-out sets: the loss, other metrics, and their standard errors.

A metric is a function of an `EvalModel`, its parameters and sequences (int32 [B, T+1]) to sums over
the T targets of each sequence, [B]. A custom one is named `package.module:ATTRIBUTE`. Means are per
target, over all sequences of a held-out set; standard errors are over its sequences. Sequences are
on the devices in micro-batches, and the last is padded: all sequences count, for any number of
devices.
"""

import math
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, PartitionSpec

from bss.data.shards import open_shards
from bss.data.synthetic import is_synthetic
from bss.errors import InputError
from bss.held_out import EVAL, TEST, HeldOutColumn
from bss.models.base import DEFAULT_COMPUTE, LOGITS_AT_ONCE, Compute, ModelFamily, Params
from bss.registry import Registry
from bss.training import sharding
from bss.training.batches import Source, open_source, other_shards
from bss.training.optimizers import Optimizer
from bss.training.out_of_memory import naming_size
from bss.training.program_cache import compile_cached, static_key
from bss.training.run_config import HeldOutSet, RunConfig
from bss.training.step import State, select_average, with_matmul_precision

F = TypeVar("F")

Measure = Callable[[Params, jax.Array], tuple[jax.Array, jax.Array]]
"""(params, sequences [B, T+1]) to the sum over all and the sum of each sequence, [B]."""


@dataclass(frozen=True)
class EvalModel:
    """A model as it is passed to metrics. Its parameters may be sharded: use its methods.

    Attributes:
        family: the model.
        compute: Settings of the model's functions.
        bytes_per_token: Bytes per token of the held-out text; None if tokens are not text.
    """

    family: ModelFamily
    compute: Compute = DEFAULT_COMPUTE
    bytes_per_token: float | None = None

    def losses(self, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
        """Return the cross-entropy of each target in nats, [B, T].

        Raises:
            InputError: If the family has no `target_losses_fn`.
        """
        losses = self.family.target_losses_fn(self.compute)
        return self._defined(losses, "target_losses_fn")(params, sequences_BxT1)[1]

    def logits(self, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
        """Return the logits of the targets, [B, T, vocab_size].

        Raises:
            InputError: If the family has no `logits_fn`.
        """
        logits = self.family.logits_fn(self.compute)
        return self._defined(logits, "logits_fn")(params, sequences_BxT1)

    def _defined(self, function: F | None, name: str) -> F:
        if function is None:
            raise InputError(f"the model has no {name}; give {type(self.family).__name__} one")
        return function


Metric = Callable[[EvalModel, Params, jax.Array], jax.Array]


def accuracy(model: EvalModel, params: Params, sequences_BxT1: jax.Array) -> jax.Array:
    """Return the number of targets that are the most probable token."""
    predicted_BxT = jnp.argmax(model.logits(params, sequences_BxT1), axis=-1)
    return jnp.sum(predicted_BxT == sequences_BxT1[:, 1:], axis=-1, dtype=jnp.float32)


METRICS: Registry[Metric] = Registry("evaluation.metrics", {"accuracy": accuracy}, of=Callable)


def metrics_by_column(names: tuple[str, ...]) -> Mapping[str, Metric]:
    """Return metrics by their name in columns, which is the attribute of a custom one.

    Raises:
        InputError: If one is unknown, is not a function, or has the name of another.
    """
    metrics: dict[str, Metric] = {}
    for name in names:
        short = name.rpartition(":")[2]
        if short == "loss" or short in metrics:
            raise InputError(
                f"evaluation.metrics: {name} is called {short} as another is (the loss is always "
                "measured); rename it, or name it once"
            )
        metrics[short] = METRICS.load(name)
    return metrics


def check_metric(name: str, metric: Metric, model: EvalModel, seq_len: int) -> None:
    """Raise InputError if a metric fails on a model, or does not return sums per sequence."""
    params = jax.eval_shape(lambda: model.family.init(0))
    sequences = jax.ShapeDtypeStruct((2, seq_len + 1), jnp.int32)
    try:
        sums = jax.eval_shape(lambda *given: metric(model, *given), params, sequences)
    except Exception as error:  # a custom function may raise anything
        first = str(error).partition("\n")[0]
        what = first if isinstance(error, InputError) else f"{type(error).__name__}: {first}"
        raise InputError(f"evaluation.metrics: {name} cannot be measured: {what}") from None
    shape = sums.shape if isinstance(sums, jax.ShapeDtypeStruct) else type(sums).__name__
    if shape != (2,):
        raise InputError(
            f"evaluation.metrics: {name} returns {shape} of 2 sequences of {seq_len} targets; "
            "expected sums [2]"
        )


class MetricSums(NamedTuple):
    """Sums of a metric.

    Attributes:
        total: sum over all sequences.
        each: sum of each sequence, [N, b]; padding after the last one is ignored.
    """

    total: jax.Array
    each: jax.Array


@dataclass(frozen=True)
class Evaluation:
    """Compiles evaluation programs for the state of a run.

    Attributes:
        run: the run.
        mesh: the devices, which share each micro-batch.
        state: shapes and shardings.
        bucket: maximum of sequences that each device evaluates at once.
        options: compiler options.
        attention: name of the attention kernel.
        vmapped: the state, and so the sums, have a leading axis of runs.
    """

    run: RunConfig
    mesh: Mesh
    state: State
    bucket: int
    options: dict[str, Any] | None = None
    attention: str = "reference"
    vmapped: bool = False

    def shape(self, n: int, width: int) -> tuple[int, int, int]:
        """Return the shape of n sequences of a width in micro-batches, (N, b, width)."""
        size = min(self.bucket, -(-n // self.mesh.size)) * self.mesh.size
        return -(-n // size), size, width

    def sums_of(self, n: int, width: int, measure: Measure, key: Hashable) -> Any:
        """Compile a program (params, sequences [N, b, width]) -> MetricSums of n sequences.

        Args:
            n: number of sequences.
            width: T + 1.
            measure: what is summed.
            key: what it depends on in addition to the model, the mesh and the kernel.
        """
        mesh = self.mesh
        shape = self.shape(n, width)
        logits = math.prod(shape[1:]) // mesh.size * self.run.model.vocab_size
        add_up = partial(_add_up, measure, n, shape[1], at_once=logits <= LOGITS_AT_ONCE)
        split = (
            sharding.specs(self.run.model, self.state.params, mesh),
            sharding.sequence_split(mesh),
        )
        everywhere = sharding.sum_over_devices(add_up, mesh, *split, PartitionSpec(mesh.axis_names))

        def sums(params: Params, sequences_NxbxT1: jax.Array) -> MetricSums:
            return everywhere(params, sequences_NxbxT1, jnp.arange(shape[1]))

        sums = with_matmul_precision(self.run.model, sums)
        sums = jax.vmap(sums, (0, None)) if self.vmapped else sums
        shardings = sharding.shardings_of(self.state.params), sharding.sequence_sharding(mesh)
        sequences = jax.ShapeDtypeStruct(shape, jnp.int32)
        jitted = jax.jit(sums, in_shardings=shardings)
        key = "sums", n, key, static_key(self.run.model), self.attention, self.vmapped
        with naming_size("evaluation_bucket", shape[1] // mesh.size):
            return compile_cached(key, jitted, self.state.params, sequences, options=self.options)

    @property
    def loss(self) -> Measure:
        """Summed loss and per-sequence losses, recomputed if the model returns only the sum."""
        model = self.run.model
        gather, shard = sharding.all_gather_fn(model, self.mesh)
        compute = Compute(self.attention, gather)
        loss = model.loss_fn(compute)
        target_losses = model.target_losses_fn(compute)

        def measure(params: Params, sequences_bxT1: jax.Array) -> tuple[jax.Array, jax.Array]:
            params = shard(params)
            if target_losses:
                total, losses_bxT = target_losses(params, sequences_bxT1)
                return total, losses_bxT.sum(-1)
            each = jax.lax.map(lambda one: loss(params, one[None])[0], sequences_bxT1)
            return loss(params, sequences_bxT1)[0], each

        return measure

    def metric(self, metric: Metric, bytes_per_token: float | None) -> Measure:
        """Return the sums of a metric, by single sequences if a micro-batch has too many logits."""
        gather, shard = sharding.all_gather_fn(self.run.model, self.mesh)
        model = EvalModel(self.run.model, Compute(self.attention, gather), bytes_per_token)

        def measure(params: Params, sequences_bxT1: jax.Array) -> tuple[jax.Array, jax.Array]:
            params = shard(params)
            if sequences_bxT1.size * model.family.vocab_size <= LOGITS_AT_ONCE:
                each = metric(model, params, sequences_bxT1)
            else:
                each = jax.lax.map(lambda one: metric(model, params, one[None])[0], sequences_bxT1)
            return each.sum(0), each

        return measure

    def select_eval_params(self) -> Callable[..., Any]:
        """Return the function from parameters and optimizer state to the evaluated parameters."""
        choose = self.run.optimizer.evaluation_params
        # Parameters that are evaluated unchanged need no program and no copy.
        if type(self.run.optimizer).evaluation_params is Optimizer.evaluation_params:
            return choose
        key = static_key(self.run.optimizer)
        return self._compile_choice(key, choose, (0, 0), self.state.params, self.state.optimizer)

    def select_ema(self) -> Callable[..., Any]:
        """Return the function from all weight averages and an index to one of them."""
        whole = sharding.replicated(self.mesh)
        place = jax.ShapeDtypeStruct((), jnp.int32, sharding=whole)
        return self._compile_choice(
            select_average, select_average, (0, None), self.state.averages, place
        )

    def _compile_choice(self, key: Hashable, choose: Callable, axes: tuple, *shapes: Any) -> Any:
        choose = jax.vmap(choose, axes) if self.vmapped else choose
        split = sharding.shardings_of(self.state.params)
        jitted = jax.jit(choose, in_shardings=sharding.shardings_of(shapes), out_shardings=split)
        return compile_cached((key, self.vmapped), jitted, *shapes)


def _add_up(
    measure: Measure,
    n: int,
    size: int,
    params: Params,
    sequences_NxbxT1: jax.Array,
    places_b: jax.Array,
    *,
    at_once: bool,
) -> MetricSums:
    """Return a device's sums of n sequences in micro-batches of `size`; zeros for other devices'.

    Args:
        measure: maps params and sequences to sums.
        n: number of sequences of all devices.
        size: sequences in a micro-batch of all devices.
        params: parameters.
        sequences_NxbxT1: this device's sequences.
        places_b: their indices in a micro-batch.
        at_once: compute the logits of a whole micro-batch at once.
    """
    full, rest = divmod(n, size)

    def add(i: jax.Array, sums: MetricSums) -> MetricSums:
        total, each = measure(params, sequences_NxbxT1[i])
        return MetricSums(sums.total + total, sums.each.at[i, places_b].set(each))

    def one(sequence_T1: jax.Array) -> jax.Array:
        return measure(params, sequence_T1[None])[0]

    none = MetricSums(jnp.zeros(()), jnp.zeros((len(sequences_NxbxT1), size)))
    sums = jax.lax.fori_loop(0, full, add, none)
    if rest:
        each = (jax.vmap(one) if at_once else partial(jax.lax.map, one))(sequences_NxbxT1[full])
        total = sums.total + jnp.sum(each, axis=0, where=places_b < rest)
        sums = MetricSums(total, sums.each.at[full, places_b].set(each))
    return sums


class HeldOut(NamedTuple):
    """The held-out sets and metrics of runs that do not differ in them, read and checked.

    Attributes:
        sets: by name.
        metrics: metrics in addition to the loss, by their name in columns.
    """

    sets: dict[str, "Sequences"]
    metrics: Mapping[str, Metric]

    @classmethod
    def read(cls, run: RunConfig, source: Source, shards: Path) -> "HeldOut":
        """Read the sets; those of other content are in the folder of `shards`.

        Raises:
            InputError: If there are too few sequences or no such shards, or a metric fails.
        """
        own = metrics_by_column(run.evaluation.metrics)
        opened = open_sets(run, source, shards)
        for one in opened.values():
            model = EvalModel(run.model, bytes_per_token=one.bytes_per_token)
            for name, metric in own.items():
                check_metric(name, metric, model, one.width - 1)
        return cls(opened, own)


class Evaluator:
    """The compiled evaluation of runs on their held-out sets."""

    def __init__(self, held_out: HeldOut, evaluation: Evaluation) -> None:
        """Compile the programs."""
        self._held_out = held_out
        self._averages = evaluation.run.averages
        self._select = evaluation.select_eval_params()
        self._select_ema: Any = evaluation.select_ema() if self._averages else None
        self._programs = {name: self._compile_set(name, evaluation) for name in held_out.sets}

    def _compile_set(self, name: str, evaluation: Evaluation) -> tuple[jax.Array, dict[str, Any]]:
        """Return a set on the devices, int32 [N, b, T+1], and the program of each metric."""
        n, width, rows, bytes_per_token = self._held_out.sets[name]
        programs = {"loss": evaluation.sums_of(n, width, evaluation.loss, "loss")}
        for metric, function in self._held_out.metrics.items():
            own = function, bytes_per_token
            programs[metric] = evaluation.sums_of(n, width, evaluation.metric(*own), own)
        shape = evaluation.shape(n, width)
        return sharding.by_position(rows, n, shape, evaluation.mesh), programs

    def evaluate(self, state: State) -> dict[str, Any]:
        """Return the held-out columns of a curve row; arrays over runs if they are vmapped."""
        columns: dict[str, Any] = {}
        for name in self._programs:
            if name != TEST:
                columns |= self._columns(name, state)
        if (per_token := self._held_out.sets[EVAL].bytes_per_token) is not None:
            loss = HeldOutColumn()
            for name, column in (("bits_per_byte", str(loss)), ("bits_per_byte_se", loss.error)):
                nats = columns[column]
                columns[name] = None if nats is None else nats / math.log(2) / per_token
        return columns

    def evaluate_test(self, state: State) -> dict[str, Any]:
        """Return the columns of the test split, if the run evaluates it."""
        return self._columns(TEST, state) if TEST in self._programs else {"test_loss": None}

    def _columns(self, name: str, state: State) -> dict[str, Any]:
        """Return means and standard errors of a set, for the parameters and every average."""
        sequences, programs = self._programs[name]
        bucket = sequences.sharding.shard_shape(sequences.shape)[1]
        columns: dict[str, Any] = {}
        n, width, *_ = self._held_out.sets[name]
        for half_life, params in self._weights(state):
            for metric, program in programs.items():
                with naming_size("evaluation_bucket", bucket):
                    sums = jax.device_get(program(params, sequences))
                column = HeldOutColumn(metric, name, half_life)
                columns |= _numbers(column, sums, n, width - 1)
        return columns

    def _weights(self, state: State) -> Iterator[tuple[str, Any]]:
        """Yield the evaluated parameters and the averages, one at a time."""
        yield "", self._select(state.params, state.optimizer)
        for index, half_life in enumerate(self._averages):
            yield half_life, self._select_ema(state.averages, np.int32(index))


def loss_columns(run: RunConfig) -> frozenset[str]:
    """Return the columns of held-out losses: if one is not finite, the run has diverged."""
    sets = EVAL, TEST, *(one.name for one in run.evaluation.sets)
    half_lives = "", *run.averages
    return frozenset(str(HeldOutColumn("loss", *own)) for own in product(sets, half_lives))


def _numbers(column: HeldOutColumn, sums: MetricSums, n: int, targets: int) -> dict[str, Any]:
    """Return the mean over n sequences with a given number of targets, and its standard error."""
    total = np.asarray(sums.total, float)
    each = np.asarray(sums.each, float)
    per_sequence = each.reshape(*total.shape, -1)[..., :n] / targets
    with np.errstate(invalid="ignore"):  # not finite
        error = per_sequence.std(-1, ddof=1) / math.sqrt(n) if n > 1 else None
    return {str(column): total / (n * targets), column.error: error}


class Sequences(NamedTuple):
    """A held-out set.

    Attributes:
        n: number of sequences.
        width: T + 1.
        rows: maps sequence numbers [k] to sequences, int32 [k, T+1].
        bytes_per_token: None if tokens are not text.
    """

    n: int
    width: int
    rows: Callable[[Any], np.ndarray]
    bytes_per_token: float | None


def open_sets(run: RunConfig, source: Source, shards: Path) -> dict[str, Sequences]:
    """Return the held-out sets of a run by name; sets of other content are siblings of `shards`.

    Raises:
        InputError: If there are too few sequences or no such shards, or columns of one name.
    """
    config = run.evaluation
    sets = [HeldOutSet(EVAL, tokens=config.tokens), *config.sets]
    if config.test_tokens:
        sets.append(HeldOutSet(TEST, split="test", tokens=config.test_tokens))
    _check_columns([one.name for one in sets], [*metrics_by_column(config.metrics)])
    seq_len = config.seq_len or run.data.seq_len
    return {one.name: _read(one, run, source, shards, seq_len) for one in sets}


def _read(one: HeldOutSet, run: RunConfig, source: Source, shards: Path, seq_len: int) -> Sequences:
    """Open a set and read its first sequence, which checks that there are enough."""
    if one.content in ("", run.data.content):
        rows = partial(source.held_out, one.split, one.tokens, seq_len)
        per_token = source.bytes_per_token(one.split)
    else:
        from bss.data.stream import held_out  # imports grain, which only text needs

        other = other_shards(one.content, open_shards(shards))
        rows = partial(held_out, other, one.split, seq_len, one.tokens)
        per_token = other.bytes_per_token(one.split)
    rows([0])
    return Sequences(one.tokens // seq_len, seq_len + 1, rows, per_token)


def _check_columns(sets: list[str], own: list[str]) -> None:
    """Raise InputError if two metrics and sets have one column."""
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


def check_runs(runs: Sequence[RunConfig], shards: str = "") -> None:
    """Check that the shards of a directory suffice for runs; warn about repeated passes.

    Args:
        runs: the runs; the synthetic language needs no shards.
        shards: the directory; empty if it is not known yet.

    Raises:
        InputError: If one cannot be trained or evaluated on them.
    """
    for metrics in {run.evaluation.metrics for run in runs}:
        metrics_by_column(metrics)
    for run in sorted(runs, key=lambda run: -run.schedule.tokens) if shards else ():
        if not is_synthetic(run.data.content):
            source = open_source(run, Path(shards))
            source.check(run.schedule.tokens // run.data.seq_len)
            open_sets(run, source, Path(shards))
