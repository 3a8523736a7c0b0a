"""Three E(S) under WSD, at a shared rate and at tuned rates, and who wins.

    python -m experiments.es_wsd --config=configs/es_wsd.py:cpu
    python -m experiments.es_wsd --config=configs/es_wsd.py:paper --config.dry_run=True

| size  | model            | tokens of a run | what it needs                                |
|-------|------------------|-----------------|----------------------------------------------|
| smoke | 12k parameters   | 60K             | a minute of CPU; for tests                   |
| cpu   | 99k parameters   | 1M              | 167M tokens in all, 2 cores, 80 minutes      |
| gpu   | 10.6M parameters | 50M             | one accelerator, synthetic; not measured     |
| paper | 151M parameters  | 20B             | C4; prints its price with --config.dry_run   |

Every batch is tried at three rates, a factor 2 apart, about its own optimum, and at the shared one.
The second moment has one half-life in tokens for all batches; there is no weight decay. The paper's
sizes are 122M to 1B [secondary]; its rates, lengths and sequence length are not known to us, so
those of `paper` are our choice. E(S) over model sizes: `configs/es_ablations.py`.
"""

from ml_collections import ConfigDict

SIZES = ("smoke", "cpu", "gpu", "paper")
LARGE = ("gpu", "paper")


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    if size not in SIZES:
        raise ValueError(f"size {size!r}: expected one of {', '.join(SIZES)}")
    smoke, paper, large = size == "smoke", size == "paper", size in LARGE
    rates = {
        "smoke": {batch: (4e-3, 8e-3) for batch in (1, 2, 4, 8)},
        "cpu": {
            1: (5e-4, 1e-3, 2e-3),
            2: (1e-3, 2e-3, 4e-3),
            4: (1e-3, 2e-3, 4e-3),
            8: (2e-3, 4e-3, 8e-3),
            16: (2e-3, 4e-3, 8e-3),
            32: (2e-3, 4e-3, 8e-3),
            64: (4e-3, 8e-3, 1.6e-2),
        },
        "gpu": {batch: (1e-3, 2e-3, 4e-3) for batch in (8, 16, 32, 64, 128, 256, 512)},
        "paper": {batch: (5e-4, 1e-3, 2e-3) for batch in (32, 64, 128, 256, 512, 1024, 2048)},
    }[size]
    shared_rate = {"gpu": 2e-3, "paper": 1e-3}.get(size, 4e-3)
    return ConfigDict(
        {
            "title": "Three E(S) under WSD",
            "grid": [{"batch": batch, "rates": tried} for batch, tried in rates.items()],
            "shared_rate": shared_rate,
            "seeds": (0, 1, 2) if size == "cpu" else (0,),
            "horizons": (0.25, 0.4, 0.63, 1.0),
            "decay": 0.2,
            "targets": 3 if smoke else 5,
            "stages": 2 if smoke else 4,
            "settle": 0.25,
            "late_at": 0.7,
            "late_factor": 8,
            "resamples": 50 if smoke else 500,
            "results": f"runs/es_wsd_{size}/results",
            "dry_run": False,
            "peak_flops": 989e12,
            "mfu": 0.4,
            "setup": {
                "model": {"smoke": "pico", "cpu": "nano", "gpu": "10M", "paper": "151M"}[size],
                "text": {
                    "corpus": {"gpu": "synthetic", "paper": "c4/en"}.get(size, "stdlib"),
                    "tokenizer": "data/gpt-neox/tokenizer.json" if paper else "bytes",
                    "root": "data",
                    "seq_len": {"gpu": 256, "paper": 2048}.get(size, 64),
                },
                "optimizer": {
                    "lr": shared_rate,
                    "beta1": 0.9,
                    "beta2_half_life": {"gpu": 100_000, "paper": 10_000_000}.get(size, 7_000),
                    "weight_decay": 0.0,
                },
                "schedule": {
                    "tokens": {
                        "smoke": 60_000,
                        "cpu": 1_000_000,
                        "gpu": 50_000_000,
                        "paper": 20_000_000_000,
                    }[size],
                    "warmup": {
                        "smoke": 3_000,
                        "cpu": 50_000,
                        "gpu": 1_000_000,
                        "paper": 200_000_000,
                    }[size],
                },
                "evaluation": {
                    "tokens": {"smoke": 2_048, "cpu": 16_384}.get(size, 262_144),
                    "test_tokens": {"smoke": 2_048, "cpu": 131_072}.get(size, 1_048_576),
                    "per_efold": 15,
                    "first": {
                        "smoke": 8_000,
                        "cpu": 80_000,
                        "gpu": 3_000_000,
                        "paper": 500_000_000,
                    }[size],
                },
                "averages": ("4%",),
                "engine": {
                    "runs": f"runs/es_wsd_{size}",
                    "workers": 1 if large else 0,
                    "pin": not large,
                    "buckets": (8, 16, 32, 64) if large else (1, 2, 3, 4, 5, 6, 7, 8),
                    "checkpoint_seconds": 600.0 if paper else 60.0,
                },
            },
        }
    )
