"""E(S) at one shared learning rate, and the batch schedule it calls for, on real text.

    python -m experiments.es_curve --config=configs/es_curve.py:demo

| size  | models           | tokens | time on 2 CPU cores | for                    |
|-------|------------------|--------|---------------------|------------------------|
| smoke | 131k parameters  | 0.9M   | under a minute      | tests                  |
| demo  | 131k parameters  | 19M    | under 10 minutes    | `make demo`            |

Expect, at demo size: curves of different batches that cross, B_opt between 2 and 8 sequences
that grows as the target loss falls, and a growing batch that wins at constant learning rate.
"""

from ml_collections import ConfigDict


def get_config(size: str = "demo") -> ConfigDict:
    """The experiment at one of its sizes."""
    if size not in ("smoke", "demo"):
        raise ValueError(f"size {size!r}: expected smoke or demo")
    return ConfigDict(
        {
            "title": "E(S) of a small language model under WSD",
            "seeds": (0,),
            "batches": (1, 2, 3, 4, 6, 8, 12, 16, 32) if size == "demo" else (1, 2, 4, 8),
            "targets": 6 if size == "demo" else 3,
            "stages": 4 if size == "demo" else 2,
            "decay": 0.2,
            "late_at": 0.7,
            "late_factor": 8,
            "resamples": 500 if size == "demo" else 100,
            "results": f"runs/{size}/results",
            "setup": {
                "model": "nano" if size == "demo" else "pico",
                "text": {"corpus": "stdlib", "tokenizer": "bytes", "root": "data", "seq_len": 64},
                "optimizer": {"lr": 4e-3, "beta1": 0.9, "beta2": 0.95, "weight_decay": 0.0},
                "schedule": {
                    "tokens": 1_500_000 if size == "demo" else 100_000,
                    "warmup": 50_000 if size == "demo" else 5_000,
                },
                "evaluation": {
                    "tokens": 16_384 if size == "demo" else 2_048,
                    "test_tokens": 131_072 if size == "demo" else 2_048,
                    "per_efold": 20,
                    "first": 100_000 if size == "demo" else 20_000,
                },
                "averages": ("4%",),
                "engine": {
                    "runs": f"runs/{size}",
                    "workers": 0,
                    "pin": True,
                    "buckets": (1, 2, 3, 4, 5, 6, 7, 8),
                    "checkpoint_seconds": 30.0,
                },
            },
        }
    )
