"""Three E(S) under WSD, at a shared rate and at tuned rates, on text and on the synthetic language.

    python -m experiments.es_wsd --config=configs/es_wsd.py:cpu

| size  | models                  | tokens of a run | what it needs                       |
|-------|-------------------------|-----------------|-------------------------------------|
| smoke | 12k parameters          | 60K             | a minute of CPU; for tests          |
| cpu   | 99k parameters          | 1.5M            | about 270M tokens in all, 2 cores   |
| gpu   | 10.6M parameters        | 100M            | one accelerator; not measured       |

Every batch is tried at rates a factor 2 apart around the square-root rule, and at the shared one.
The second moment has one half-life in tokens for all batches; there is no weight decay.
"""

from ml_collections import ConfigDict

SIZES = ("smoke", "cpu", "gpu")


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    if size not in SIZES:
        raise ValueError(f"size {size!r}: expected one of {', '.join(SIZES)}")
    smoke, gpu = size == "smoke", size == "gpu"
    rates = {
        "smoke": {1: (4e-3, 8e-3), 2: (4e-3, 8e-3), 4: (4e-3, 8e-3), 8: (4e-3, 8e-3)},
        "cpu": {
            1: (5e-4, 1e-3, 2e-3),
            2: (1e-3, 2e-3, 4e-3),
            4: (1e-3, 2e-3, 4e-3),
            8: (2e-3, 4e-3, 8e-3),
            16: (2e-3, 4e-3, 8e-3),
            32: (2e-3, 4e-3, 8e-3),
            64: (4e-3, 8e-3, 1.6e-2),
        },
        "gpu": {b: (5e-4, 1e-3, 2e-3, 4e-3) for b in (8, 16, 32, 64, 128, 256, 512)},
    }[size]
    return ConfigDict(
        {
            "title": "Three E(S) under WSD",
            "grid": [{"batch": batch, "rates": tried} for batch, tried in rates.items()],
            "shared_rate": 2e-3 if gpu else 4e-3,
            "seeds": (0,) if smoke else (0, 1, 2),
            "horizons": (0.25, 0.4, 0.63, 1.0),
            "decay": 0.2,
            "targets": 3 if smoke else 5,
            "stages": 2 if smoke else 4,
            "settle": 0.25,
            "late_at": 0.7,
            "late_factor": 8,
            "resamples": 50 if smoke else 500,
            "results": f"runs/es_wsd_{size}/results",
            "setup": {
                "model": {"smoke": "pico", "cpu": "nano", "gpu": "10M"}[size],
                "text": {
                    "corpus": "synthetic" if gpu else "stdlib",
                    "tokenizer": "bytes",
                    "root": "data",
                    "seq_len": 256 if gpu else 64,
                },
                "optimizer": {
                    "lr": 4e-3,
                    "beta1": 0.9,
                    "beta2_half_life": 100_000 if gpu else 7_000,
                    "weight_decay": 0.0,
                },
                "schedule": {
                    "tokens": {"smoke": 60_000, "cpu": 1_000_000, "gpu": 100_000_000}[size],
                    "warmup": {"smoke": 3_000, "cpu": 50_000, "gpu": 2_000_000}[size],
                },
                "evaluation": {
                    "tokens": {"smoke": 2_048, "cpu": 16_384, "gpu": 262_144}[size],
                    "test_tokens": {"smoke": 2_048, "cpu": 131_072, "gpu": 1_048_576}[size],
                    "per_efold": 15,
                    "first": {"smoke": 8_000, "cpu": 80_000, "gpu": 5_000_000}[size],
                },
                "averages": ("4%",),
                "engine": {
                    "runs": f"runs/es_wsd_{size}",
                    "workers": 1 if gpu else 0,
                    "pin": not gpu,
                    "buckets": (8, 16, 32, 64) if gpu else (1, 2, 3, 4, 5, 6, 7, 8),
                    "checkpoint_seconds": 60.0,
                },
            },
        }
    )
