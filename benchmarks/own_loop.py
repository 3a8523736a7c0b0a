"""A step of `bss.microbatch_grad` compared with one program for the whole batch, in turns.

`python -m benchmarks.own_loop` times d 128 at batch 64 in micro-batches of 8 on this machine, with
`plan.pack` and AdamW. It prints median and quartiles of the ratios of neighbouring turns.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
import optax
from flax import nnx

import bss
from benchmarks.step.plain import Transformer, loss_of
from bss.models.sizes import named

BATCH = 64
MICRO_BATCH = 8
SEQ_LEN = 128
Turn = Callable[[], float]


def turns() -> tuple[Turn, Turn]:
    """Return a step in micro-batches and a step of the whole batch; each returns its loss."""
    config = named("micro")
    graph, start = nnx.split(jax.jit(lambda: Transformer(config, nnx.Rngs(0)))())
    rows = np.random.default_rng(0).integers(0, config.vocab_size, (BATCH, SEQ_LEN + 1), np.int32)
    plan = bss.plan(BATCH, tokens="1M", seq_len=SEQ_LEN)
    tx = optax.adamw(1e-3)

    def loss_fn(params: nnx.State, rows: jax.Array) -> jax.Array:
        return loss_of(nnx.merge(graph, params), rows)

    def turn(gradients: Callable[..., tuple[Any, Any]], laid_out: Callable[[], tuple]) -> Turn:
        @jax.jit
        def step(params: Any, moments: Any, *batch: Any) -> tuple[Any, Any, Any]:
            loss, grads = gradients(params, *batch)
            updates, moments = tx.update(grads, moments, params)
            return optax.apply_updates(params, updates), moments, loss

        state = [start, jax.jit(tx.init)(start)]

        def run() -> float:
            *state[:], loss = jax.block_until_ready(step(*state, *laid_out()))
            return float(loss)

        return run

    in_parts = bss.microbatch_grad(loss_fn, MICRO_BATCH)
    return (
        turn(lambda *given: in_parts(*given)[:2], lambda: plan.pack(rows, MICRO_BATCH)),
        turn(jax.value_and_grad(loss_fn), lambda: (rows,)),
    )


def main() -> None:
    """Time both in turns and print the ratio of their times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=41)
    in_parts, whole = turns()
    assert abs(in_parts() - whole()) < 1e-4  # and compile
    ratios = []
    for _ in range(parser.parse_args().turns):
        seconds = []
        for turn in (in_parts, whole):
            began = time.perf_counter()
            turn()
            seconds.append(time.perf_counter() - began)
        ratios.append(seconds[0] / seconds[1])
    low, median, high = np.quantile(ratios, [0.25, 0.5, 0.75])
    print(f"in micro-batches / whole batch: {median:.3f} ({low:.3f} to {high:.3f})")


if __name__ == "__main__":
    main()
