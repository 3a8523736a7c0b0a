"""One run of a named size under WSD and a batch schedule, on real text.

    python -m experiments.train --config=configs/train.py:nano \
        --config.schedule.batch="0:8 40K:16" --config.schedule.tokens=100000

The argument is a named size (`bss models` lists them); every field is an option. The command takes
less than two minutes on 2 CPU cores, with the preparation of the corpus. Expect a held-out loss of
2.54.
"""

from bss.models.sizes import SIZES as NAMED
from configs.overlays import sized

BASE = {
    "model": "{size}",
    "text": {"corpus": "stdlib", "tokenizer": "bytes", "root": "data", "seq_len": 64},
    "optimizer": {
        "name": "adamw",
        "lr": 4e-3,
        "beta1": 0.9,
        "beta2": 0.95,
        "beta2_half_life": 0,
        "weight_decay": 0.0,
        "clip": 1.0,
    },
    "schedule": {
        "tokens": 1_000_000,
        "batch": "0:8 40%:16",
        "rate": "wsd",
        "warmup": 10_000,
        "decay": 50_000,
        "shape": "linear",
        "lr_coupling": "none",
        "beta1_coupling": "none",
    },
    "evaluation": {"tokens": 16_384, "test_tokens": 0, "per_efold": 10, "first": 10_000},
    "averages": (),
    "seed": 0,
    "buckets": (),
    "checkpoint_seconds": 30.0,
    "fsdp": 1,
    "engine": "local",
    "runs": "runs/train_{size}",
    "results": "runs/train_{size}/results",
}
SIZES = {name: {} for name in NAMED}

get_config = sized(BASE, SIZES, default="nano")
