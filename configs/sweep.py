"""Fixed batch sizes over one set-up, on real text: a template for a sweep.

    python -m experiments.sweep --config=configs/sweep.py:nano

| size  | models          | runs | tokens | time on 2 CPU cores | for           |
|-------|-----------------|------|--------|---------------------|---------------|
| smoke | 29k parameters  | 4    | 0.2M   | under a minute      | tests         |
| nano  | 131k parameters | 6    | 6M     | about 3 minutes     | a first sweep |

The time of nano is estimated from the tokens per second of `configs/es_curve.py:demo`.

Every field is an option: axes by `--config.axes.schedule.batch="(2,4,8)"`, the set-up by
`--config.setup.optimizer.lr=2e-3`.
"""

from configs.overlays import SETUP, sized

BASE = {
    "title": "A sweep over batches",
    "axes": {"schedule": {"batch": (1, 2, 4, 8, 16, 32)}},
    "axis": (),
    "engine": "local",
    "targets": 5,
    "resamples": 500,
    "results": "runs/sweep_{size}/results",
    "dry_run": False,
    "setup": SETUP,
    "setup.schedule": {"tokens": 1_000_000, "warmup": 50_000},
    "setup.evaluation": {"per_efold": 20, "first": 100_000},
    "setup.engine": {"runs": "runs/sweep_{size}", "checkpoint_seconds": 30.0},
}
SIZES = {
    "smoke": {
        "axes.schedule.batch": (1, 2, 4, 8),
        "targets": 3,
        "resamples": 100,
        "setup.model": "pico",
        "setup.schedule": {"tokens": 50_000, "warmup": 5_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 10_000},
    },
    "nano": {},
}

get_config = sized(BASE, SIZES, default="nano")
