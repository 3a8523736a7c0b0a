"""Gradients of a batch of any size in one compiled program, for anybody's loss and loop.

`microbatch_grad` wraps `optax.microbatching.microbatch`: the number of micro-batches is traced, so
a batch schedule compiles nothing after its first step. optax takes rows with a stride. In a buffer
with N micro-batches, micro-batch i has the rows i, i + N, i + 2 N, and so on. This keeps the
sharding of rows over devices. It also means that a buffer that is filled from the front would train
on its padding. `pack` lays rows out so that the first `count` micro-batches are the real rows.

The mesh may have any axes of type Auto. With Explicit axes optax 0.2.8 fails on jax 0.10 and later,
because it compares versions as text.
"""

from collections.abc import Callable, Sequence
from numbers import Integral
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from optax import microbatching

from bss.errors import InputError, check_type
from bss.training.noise_scale import noise_estimates

Tree = Any


class Weighted(NamedTuple):
    """A loss as a sum over what it counts, e.g. the targets that a mask keeps.

    The gradient of a batch is the gradient of its sum divided by its weight, however its targets
    are spread over micro-batches. A mean per micro-batch would weight targets unequally.

    Attributes:
        sum: Sum of the losses, a scalar.
        weight: What the sum is divided by, a scalar that does not depend on the parameters.

    Examples:
        >>> mask, losses = jnp.array([1.0, 1.0, 0.0]), jnp.array([2.0, 4.0, 9.0])
        >>> loss = Weighted(sum=(mask * losses).sum(), weight=mask.sum())
        >>> float(loss.sum / loss.weight)
        3.0
    """

    sum: jax.Array
    weight: jax.Array


class GradStats(NamedTuple):
    """Statistics of the gradient of a step; scalars.

    Attributes:
        grad_norm: Norm of the gradient of the whole batch.
        weight: Examples, or the sum of the weights of `Weighted`.
        noise_trace: Unbiased estimate of tr Σ of one example's gradient; None without
            `noise_scale`, NaN in a step with one micro-batch.
        noise_square: Unbiased estimate of |G|², likewise.
    """

    grad_norm: jax.Array
    weight: jax.Array
    noise_trace: jax.Array | None
    noise_square: jax.Array | None


class _Sums(NamedTuple):
    """The sums over micro-batches, in float32."""

    gradients: Tree
    loss: jax.Array
    weight: jax.Array
    aux: Tree
    squares: jax.Array | None


def microbatch_grad(
    loss_fn: Callable[..., Any],
    micro_batch: int,
    *,
    has_aux: bool = False,
    aux: Literal["mean", "sum"] = "mean",
    noise_scale: bool = False,
) -> Callable[..., tuple[Any, Tree, GradStats]]:
    """Return a function that computes loss and gradient of a batch, micro-batch by micro-batch.

    Args:
        loss_fn: Maps (params, batch), or (params, batch, rng), to the mean loss of the batch's
            examples, a scalar, or to a `Weighted`.
        micro_batch: Rows in a micro-batch.
        has_aux: Whether `loss_fn` returns (loss, aux).
        aux: "mean" averages aux over micro-batches as the loss is averaged; "sum" adds it.
        noise_scale: Whether to estimate the gradient noise scale.

    Returns:
        `grad_fn(params, batch, count=None, *, rng=None)`, to be used in a jitted train step. It
        returns (loss, grads, stats), or ((loss, aux), grads, stats) with `has_aux`. `batch` is a
        tree of arrays [rows, ...] in the layout of `pack`. `count` is the number of real
        micro-batches, which may be traced; None takes all rows. `rng` is a key, which is folded
        with the number of the micro-batch. Gradients have the dtype of the parameters and are
        summed in float32. A loss that is not finite is returned as it is.

    Raises:
        InputError: If `micro_batch` is not positive or `aux` is unknown. By `grad_fn`: if rows
            differ between arrays or are not a multiple of `micro_batch`, parameters are not floats,
            the loss is not a scalar, or `count` is not between 1 and rows / micro_batch.

    Examples:
        >>> import jax, jax.numpy as jnp
        >>> def loss_fn(params, batch):
        ...     return jnp.mean((batch["x"] @ params["w"] - batch["y"]) ** 2)
        >>> params = {"w": jnp.ones(3)}
        >>> rows = {"x": jnp.eye(6, 3), "y": jnp.zeros(6)}
        >>> grad_fn = microbatch_grad(loss_fn, micro_batch=2)
        >>> batch, count = pack(rows, micro_batch=2, largest=8)
        >>> loss, grads, stats = jax.jit(grad_fn)(params, batch, count)
        >>> round(float(loss), 6), round(float(stats.grad_norm), 4)
        (0.5, 0.5774)
    """
    check_type("micro_batch", micro_batch, Integral, "the rows that fit")
    if micro_batch < 1:
        raise InputError(f"micro_batch: {micro_batch} is not positive; give the rows that fit")
    if aux not in ("mean", "sum"):
        raise InputError(f"aux: {aux!r} is unknown; write 'mean' or 'sum'")

    def grad_fn(
        params: Tree, batch: Tree, count: Any = None, *, rng: jax.Array | None = None
    ) -> tuple[Any, Tree, GradStats]:
        _check_params(params)
        rows = _rows_of(batch, micro_batch)
        total = rows // micro_batch
        _check_count(count, total)

        def sums_of(batch: Tree, numbers: jax.Array) -> _Sums:
            key = () if rng is None else (jax.random.fold_in(rng, numbers[0]),)
            return _sums(loss_fn, params, batch, key, has_aux, aux, noise_scale)

        summed = microbatching.microbatch(
            sums_of,
            argnums=(0, 1),
            microbatch_size=micro_batch,
            accumulator=microbatching.AccumulationType.SUM,
            num_real_microbatches=count,
        )
        # By the stride, the first row of a micro-batch has the number of the micro-batch.
        sums = summed(batch, jnp.arange(rows))
        return _results(params, sums, total if count is None else count, micro_batch, has_aux, aux)

    return grad_fn


def _sums(
    loss_fn: Callable[..., Any],
    params: Tree,
    batch: Tree,
    key: tuple[jax.Array, ...],
    has_aux: bool,
    aux: str,
    noise_scale: bool,
) -> _Sums:
    """Return the sums of one micro-batch."""
    examples = jax.tree.leaves(batch)[0].shape[0]

    def objective(params: Tree) -> tuple[jax.Array, tuple[jax.Array, Tree]]:
        value = loss_fn(params, batch, *key)
        loss, extra = value if has_aux else (value, None)
        weighted = loss if isinstance(loss, Weighted) else Weighted(loss * examples, examples)
        if jnp.shape(weighted.sum) or jnp.shape(weighted.weight):
            raise InputError(
                f"loss_fn: its loss has shape {jnp.shape(weighted.sum)}; return a scalar, or "
                "(scalar, aux) with has_aux=True"
            )
        weight = jax.lax.stop_gradient(jnp.asarray(weighted.weight, jnp.float32))
        return weighted.sum, (weight, extra)

    (loss, (weight, extra)), gradients = jax.value_and_grad(objective, has_aux=True)(params)
    gradients = jax.tree.map(lambda g: g.astype(jnp.float32), gradients)
    if aux == "mean":
        extra = jax.tree.map(lambda x: x * weight, extra)
    squares = optax.tree.norm(gradients, squared=True) / weight if noise_scale else None
    return _Sums(gradients, loss.astype(jnp.float32), weight, extra, squares)


def _results(
    params: Tree, sums: _Sums, count: Any, micro_batch: int, has_aux: bool, aux: str
) -> tuple[Any, Tree, GradStats]:
    """Return loss, gradients and statistics of a batch from its sums."""
    mean = jax.tree.map(lambda g: g / sums.weight, sums.gradients)
    norm = optax.tree.norm(mean)
    trace = square = None
    if sums.squares is not None:
        # Weighted by their weights, squared norms of unequal micro-batches have the same excess.
        trace, square = noise_estimates(sums.squares / sums.weight, norm**2, micro_batch, count)
        several = jnp.asarray(count) > 1
        trace = jnp.where(several, trace, jnp.nan)
        square = jnp.where(several, square, jnp.nan)
    loss = sums.loss / sums.weight
    extra = sums.aux
    if aux == "mean":
        extra = jax.tree.map(lambda x: x / sums.weight, extra)
    gradients = jax.tree.map(lambda g, p: g.astype(p.dtype), mean, params)
    stats = GradStats(norm, sums.weight, trace, square)
    return ((loss, extra) if has_aux else loss), gradients, stats


def _check_params(params: Tree) -> None:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
            raise InputError(
                f"params{jax.tree_util.keystr(path)}: dtype {jnp.result_type(leaf)} has no "
                "gradient; keep counters and keys outside of params"
            )


def _rows_of(batch: Tree, micro_batch: int) -> int:
    """Return the number of rows of a batch."""
    shapes = {
        jax.tree_util.keystr(path): np.shape(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(batch)
    }
    if not shapes or not all(shapes.values()):
        raise InputError("batch: expected arrays with a leading axis of rows")
    rows = {shape[0] for shape in shapes.values()}
    if len(rows) > 1:
        listed = ", ".join(f"batch{path}: {shape[0]}" for path, shape in shapes.items())
        raise InputError(f"batch: arrays differ in rows ({listed}); give each the same number")
    (count,) = rows
    if not count or count % micro_batch:
        raise InputError(
            f"batch: {count} rows are no multiple of micro_batch {micro_batch}; take another "
            "micro_batch, or a batch size that it divides"
        )
    return count


def _check_count(count: Any, total: int) -> None:
    if isinstance(count, int | np.integer) and not 1 <= count <= total:
        raise InputError(f"count: {count} micro-batches of {total} that the batch holds")


def check_injected(opt_state: Any, names: Sequence[str]) -> None:
    """Raise InputError for a name that is not a hyperparameter of an optimizer's state."""
    for name in names:
        if not optax.tree.get_all_with_path(opt_state, name):
            raise InputError(
                f"hyperparams: the optimizer has no {name!r}; wrap the one that takes it, e.g. "
                "optax.inject_hyperparams(optax.adamw)(learning_rate=0.0, b2=0.95)"
            )


def pack(
    rows: Tree, micro_batch: int, largest: int, *, octaves: bool = False
) -> tuple[Tree, np.int32]:
    """Lay out the rows of a step in a buffer for `microbatch_grad`, padded with zeros.

    Args:
        rows: A tree of arrays [batch, ...].
        micro_batch: Rows in a micro-batch.
        largest: Rows of the largest batch of the run; all its steps have buffers of this size, so
            that one program is compiled.
        octaves: Whether the buffer is the next power of two of micro-batches instead, at most
            `largest`: less to transfer, and one program per power of two.

    Returns:
        The buffer, a tree of NumPy arrays [largest, ...], and the number of real micro-batches.

    Raises:
        InputError: If `micro_batch` does not divide the rows or `largest`, or the rows are more
            than `largest`.

    Examples:
        >>> batch, count = pack({"x": np.arange(1, 5)}, micro_batch=2, largest=6)
        >>> batch["x"].tolist(), int(count)  # micro-batches: rows 0 and 3, 1 and 4, 2 and 5
        ([1, 3, 0, 2, 4, 0], 2)
    """
    count = _rows_of(rows, micro_batch) // micro_batch
    if largest % micro_batch:
        raise InputError(f"largest: {largest} rows are no multiple of micro_batch {micro_batch}")
    most = largest // micro_batch
    if count > most:
        raise InputError(f"rows: {count * micro_batch} are more than the largest batch, {largest}")
    if octaves:
        most = min(most, 1 << (count - 1).bit_length())

    def laid_out(leaf: Any) -> np.ndarray:
        values = np.asarray(leaf)
        buffer = np.zeros((micro_batch, most, *values.shape[1:]), values.dtype)
        by_micro_batch = values.reshape(count, micro_batch, *values.shape[1:])
        buffer[:, :count] = by_micro_batch.swapaxes(0, 1)
        return buffer.reshape(micro_batch * most, *values.shape[1:])

    return jax.tree.map(laid_out, rows), np.int32(count)
