"""The set-up and grid of the earlier E(S) study (results/es_wsd, 2026-11-21), for late_switch.

Every batch size was tried at three LRs, a factor 2 apart, and at the shared one. The second moment
has one half-life in tokens for all batch sizes, without weight decay.
"""

from collections.abc import Mapping, Sequence

from configs.overlays import PRICED, SETUP, sized


def grid(rates: Mapping[int, Sequence[float]]) -> list[dict]:
    """Batch sizes, with the LRs tried at each."""
    return [{"batch": batch, "rates": tried} for batch, tried in rates.items()]


BASE = {
    "title": "Three E(S) under WSD",
    "grid": grid(
        {
            1: (5e-4, 1e-3, 2e-3),
            2: (1e-3, 2e-3, 4e-3),
            4: (1e-3, 2e-3, 4e-3),
            8: (2e-3, 4e-3, 8e-3),
            16: (2e-3, 4e-3, 8e-3),
            32: (2e-3, 4e-3, 8e-3),
            64: (4e-3, 8e-3, 1.6e-2),
        }
    ),
    "shared_rate": 4e-3,
    "seeds": (0,),
    "horizons": (0.25, 0.4, 0.63, 1.0),
    "decay": 0.2,
    "targets": 5,
    "stages": 4,
    "settle": 0.25,
    "late_at": 0.7,
    "late_factor": 8,
    "resamples": 500,
    "results": "runs/es_wsd_{size}/results",
    "engine": "local",
    "setup": SETUP,
    "setup.optimizer.beta2_half_life": 7_000,
    "setup.schedule": {"tokens": 1_000_000, "warmup": 50_000},
    "setup.evaluation": {"per_efold": 15, "first": 80_000},
    "setup.engine.runs": "runs/es_wsd_{size}",
    **PRICED,
}
ACCELERATOR = {
    "setup.evaluation": {"tokens": 262_144, "test_tokens": 1_048_576},
    "setup.engine.buckets": (8, 16, 32, 64),
}
SIZES = {
    "smoke": {
        "grid": grid(dict.fromkeys((1, 2, 4, 8), (4e-3, 8e-3))),
        "targets": 3,
        "stages": 2,
        "resamples": 50,
        "setup.model": "pico",
        "setup.schedule": {"tokens": 60_000, "warmup": 3_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 8_000},
    },
    "cpu": {"seeds": (0, 1, 2)},
    "gpu": ACCELERATOR
    | {
        "grid": grid(dict.fromkeys((8, 16, 32, 64, 128, 256, 512), (1e-3, 2e-3, 4e-3))),
        "shared_rate": 2e-3,
        "setup.model": "10M",
        "setup.text": {"corpus": "synthetic", "seq_len": 256},
        "setup.optimizer": {"lr": 2e-3, "beta2_half_life": 100_000},
        "setup.schedule": {"tokens": 50_000_000, "warmup": 1_000_000},
        "setup.evaluation.first": 3_000_000,
    },
    "paper": ACCELERATOR
    | {
        "grid": grid(dict.fromkeys((32, 64, 128, 256, 512, 1024, 2048), (5e-4, 1e-3, 2e-3))),
        "shared_rate": 1e-3,
        "setup.model": "151M",
        "setup.text.corpus": "c4/en",
        "setup.text.tokenizer": "data/gpt-neox/tokenizer.json",
        "setup.text.seq_len": 2048,
        "setup.optimizer": {"lr": 1e-3, "beta2_half_life": 10_000_000},
        "setup.schedule": {"tokens": 20_000_000_000, "warmup": 200_000_000},
        "setup.evaluation.first": 500_000_000,
        "setup.engine.checkpoint_seconds": 600.0,
    },
}

get_config = sized(BASE, SIZES, default="cpu")
