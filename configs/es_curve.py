"""E(S) at one learning rate (LR), and the batch schedule derived from it, on real text.

    python -m experiments.es_curve --config=configs/es_curve.py:demo

| size  | models           | tokens | time on 2 CPU cores | for                    |
|-------|------------------|--------|---------------------|------------------------|
| smoke | 131k parameters  | 0.9M   | under a minute      | tests                  |
| demo  | 131k parameters  | 4.4M   | under 2 minutes     | `make demo`            |

Expected at demo size: curves of different batch sizes cross. B_opt is at most 4 sequences and
grows as the target loss falls. At constant LR a late switch beats every fixed batch size. One seed
tests none of this.
"""

from configs.overlays import SETUP, sized

BASE = {
    "title": "E(S) of a small language model under WSD",
    "seeds": (0,),
    "batches": (1, 2, 4, 8, 16, 32),
    "targets": 6,
    "stages": 4,
    "decay": 0.2,
    "late_at": 0.7,
    "late_factor": 8,
    "resamples": 100,
    "results": "runs/{size}/results",
    "engine": "local",
    "setup": SETUP,
    "setup.optimizer.beta2": 0.95,
    "setup.schedule": {"tokens": 500_000, "warmup": 30_000},
    "setup.evaluation": {
        "tokens": 8_192,
        "test_tokens": 16_384,
        "per_efold": 10,
        "first": 100_000,
    },
    "setup.engine": {
        "runs": "runs/{size}",
        "checkpoint_seconds": 30.0,
        "buckets": (1, 2, 4, 8),
    },
}
SIZES = {
    "smoke": {
        "batches": (1, 2, 4, 8),
        "targets": 3,
        "stages": 2,
        "resamples": 50,
        "setup.model": "pico",
        "setup.schedule": {"tokens": 100_000, "warmup": 5_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 20_000},
        "setup.engine": {"buckets": (1, 2), "workers": 1},
    },
    "demo": {},
}

get_config = sized(BASE, SIZES, default="demo")
