"""Whether the numbers are right: compared with float32, and with themselves again."""

import functools
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from benchmarks.accelerator.timing import timed
from benchmarks.accelerator.trainer import BUCKETS, Trainer, run_of, tokens
from bss.models.base import Compute
from bss.training.execution import Execution
from bss.training.sharding import mesh_of

STEPS = 20
Row = dict[str, Any]


def gradients(*, model: str, bucket: int, seq_len: int, attention: str) -> Iterator[Row]:
    """Loss and gradients of one bucket in bfloat16, relative to the reference in float32.

    The errors are norms of differences over norms: of each tensor, and of each row of the
    embedding that was looked up.
    """
    exact_loss, exact = _gradients(model, bucket, seq_len, "reference", "float32")
    loss, ours = _gradients(model, bucket, seq_len, attention, "bfloat16")
    errors = {name: _error(ours[name], exact[name]) for name in exact}
    rows = ours["embedding"]
    exact_rows = exact["embedding"]
    size = np.linalg.norm(exact_rows, axis=-1)
    row_errors = np.linalg.norm(rows - exact_rows, axis=-1)[size > 0] / size[size > 0]
    worst = max(errors, key=lambda name: errors[name])
    yield {
        "loss_error": abs(loss - exact_loss) / exact_loss,
        "worst_tensor": worst,
        "worst_error": errors[worst],
        "worst_embedding_row_error": float(row_errors.max()),
        "tensors": errors,
    }


@functools.cache
def _gradients(
    model: str, bucket: int, seq_len: int, attention: str, dtype: str
) -> tuple[float, dict[str, np.ndarray]]:
    """Mean loss and its gradients by name, as float64; float32 is multiplied at full precision."""
    run = run_of(model, seq_len, dtype=dtype)
    mesh = mesh_of(jax.local_devices()[:1])
    loss_sums = run.model.loss_fn(Compute(Execution(attention=attention).attention_of(run, mesh)))

    def loss(params, sequences):
        return loss_sums(params, sequences)[0] / (bucket * seq_len)

    with jax.default_matmul_precision("highest" if dtype == "float32" else "default"):
        value, slopes = jax.jit(jax.value_and_grad(loss))(run.model.init(0), tokens(run, bucket))
    named = jax.tree.leaves_with_path(slopes)
    arrays = {_name(path): np.asarray(array, np.float64) for path, array in named}
    return float(value), arrays


def _name(path: tuple[Any, ...]) -> str:
    return ".".join(str(entry.key) for entry in path)


def _error(ours: np.ndarray, exact: np.ndarray) -> float:
    return float(np.linalg.norm(ours - exact) / max(np.linalg.norm(exact), 1e-300))


def repeats(
    *, model: str, bucket: int, seq_len: int, attention: str, repeatable: bool
) -> Iterator[Row]:
    """Yield the same steps twice from the same state: equal to the bit, or how far apart."""
    execution = Execution(repeatable=repeatable, attention=attention)
    trainer = Trainer(run_of(model, seq_len), bucket, execution)
    losses, params = _trained(trainer)
    again, params_again = _trained(trainer)
    pairs = list(zip(*map(jax.tree.leaves, (params_again, params)), strict=True))
    took = timed(lambda: trainer.step(BUCKETS), trainer.wait)
    yield {
        "steps": STEPS,
        "identical": losses == again and all(map(np.array_equal, *zip(*pairs, strict=True))),
        "loss_difference": _relative(again, losses),
        "worst_parameter_difference": max(_error(a, b) for a, b in pairs),
        "seconds_per_step": took.seconds,
        "spread": took.spread,
        "compile_seconds": round(trainer.compile_seconds, 2),
    }


def _trained(trainer: Trainer) -> tuple[list[float], Any]:
    """Losses of the steps, and the parameters after them."""
    trainer.start()
    losses = []
    for _ in range(STEPS):
        trainer.step(BUCKETS)
        losses.append(trainer.metrics.loss)
    assert trainer.state is not None
    return [float(loss) for loss in losses], jax.tree.map(np.asarray, trainer.state.params)


def _relative(ours: list[float], exact: list[float]) -> float:
    return max(abs(a - b) / abs(b) for a, b in zip(ours, exact, strict=True))
