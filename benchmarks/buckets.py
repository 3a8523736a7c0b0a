"""What accumulating a batch from buckets costs against a program compiled for the whole batch.

    python -m benchmarks.buckets                 # writes benchmarks/results/buckets.json

Variants are interleaved, so that a machine whose speed drifts slows them all; the ratio of
medians is what counts. A matrix product beside them says how fast the machine was.
"""

import datetime
import json
import statistics
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from bss.files import write_json
from bss.models.sizes import named
from bss.provenance import commit, machine
from bss.training.config import DataConfig, RunConfig
from bss.training.optimizers.base import StepSettings
from bss.training.step import init_state, make_step

BATCHES, BUCKET, SEQ_LEN, ROUNDS = (8, 16, 32, 64), 8, 128, 15
LR, BETA1, BETA2, DECAY = map(np.float32, (1e-3, 0.1, 0.05, 0.0))
SETTINGS = StepSettings(LR, BETA1, BETA2, DECAY, np.zeros(0, np.float32))


def main() -> None:
    """Times whole steps, and prints and saves the ratios."""
    run = RunConfig(named("nano", 256), DataConfig(seq_len=SEQ_LEN))
    step = jax.jit(make_step(run))
    state = jax.jit(lambda: init_state(run))()
    rows = np.random.default_rng(0).integers(0, 256, (max(BATCHES), SEQ_LEN + 1)).astype(np.int32)
    capacity = max(BATCHES) // BUCKET
    bucketed = rows.reshape(capacity, BUCKET, -1)
    variants = {}
    for batch in BATCHES:
        variants[batch, "buckets"] = (bucketed, np.int32(batch // BUCKET))
        variants[batch, "whole"] = (rows[:batch][None], np.int32(1))
    matrix = jnp.ones((1024, 1024))
    product = jax.jit(jnp.matmul)

    def seconds(call) -> float:
        start = time.perf_counter()
        jax.block_until_ready(call())
        return time.perf_counter() - start

    times: dict = {key: [] for key in variants}
    products = []
    for round_ in range(ROUNDS + 2):
        for key, (sequences, count) in variants.items():
            took = seconds(lambda s=sequences, c=count: step(state, s, c, SETTINGS))
            if round_ >= 2:  # the first compile and warm up
                times[key].append(took)
        products.append(seconds(lambda: product(matrix, matrix)))

    median = {key: statistics.median(values) for key, values in times.items()}
    result = {
        "command": "python -m benchmarks.buckets",
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "device": machine(),
        "model": "nano (2 layers, d 64), sequences of 128 tokens",
        "bucket": BUCKET,
        "rounds": ROUNDS,
        "matmul_gflops": round(2 * 1024**3 / statistics.median(products[2:]) / 1e9),
        "table": [_row(batch, median) for batch in BATCHES],
    }
    write_json(Path("benchmarks/results/buckets.json"), result)
    print(json.dumps(result, indent=1))


def _row(batch: int, median: dict[tuple[int, str], float]) -> dict[str, float]:
    """Speed of a batch's steps, from the median seconds of its variants."""
    buckets, whole = (median[batch, variant] for variant in ("buckets", "whole"))
    return {
        "batch": batch,
        "tokens_per_second_buckets": round(batch * SEQ_LEN / buckets),
        "tokens_per_second_whole": round(batch * SEQ_LEN / whole),
        "time_ratio": round(buckets / whole, 3),
    }


if __name__ == "__main__":
    main()
