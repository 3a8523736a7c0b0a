"""E(S) and its schedules with one thing changed at a time, and E(S) over model sizes.

    python -m experiments.es_ablations --config=configs/es_ablations.py:cpu

| size  | models                 | tokens of a run | what it needs                                |
|-------|------------------------|-----------------|----------------------------------------------|
| smoke | 12k parameters         | 60K             | a minute of CPU; for tests                   |
| cpu   | 12k to 99k parameters  | 1M              | about 25 minutes, 2 cores                    |
| gpu   | 10.6M, 25M and 49M     | 50M             | 0.15 H100-hours, synthetic (a dry run)       |

The reference is the setting of `configs/es_wsd.py` at its shared rate; runs they have in common
are trained once where both use one directory (`--config.setup.engine.runs`).
"""

from ml_collections import ConfigDict

from configs import es_wsd
from configs.overlays import PRICED, at_size

CONSTANTS = ("1", "2", "4", "8", "16", "32")
LATE, GROWING = "0:4 70%:32", "0:2 25%:4 60%:8"
CONTEST = ("4", LATE, GROWING)


def changes(constants: tuple[str, ...], warmup: int) -> list[dict]:
    """The reference, and one thing changed at a time.

    `constants` are the batches of a whole E(S), `warmup` is 4 times the reference's, in tokens.
    """
    longer = {"data.seq_len": 256, "evaluation.seq_len": 64}
    plain_sgd = {"optimizer.name": "sgd", "optimizer.beta1": 0.0, "optimizer.lr": 1.0}
    changed = {
        "cosine": {"schedule.rate": "cosine"},
        "weight decay 0.1": {"optimizer.weight_decay": 0.1},
        "warm-up × 4": {"schedule.warmup": warmup},
    }
    return [
        {"name": "as in E(S) under WSD", "batches": (*constants, LATE, GROWING)},
        *(
            {"name": name, "batches": CONTEST, "changes": fields}
            for name, fields in changed.items()
        ),
        {"name": "sequences × 4 at the switch", "batches": ("4", "0:4 70%:8"), "after": longer},
        {"name": "SGD", "batches": constants, "changes": plain_sgd},
    ]


def models(named: dict[str, str], batches: tuple[str, ...]) -> list[dict]:
    """E(S) of other sizes, by how many parameters they have."""
    return [
        {"name": f"{shown} parameters", "model": model, "batches": batches}
        for shown, model in named.items()
    ]


BASE = {
    "title": "E(S) with one thing changed",
    "variations": changes(CONSTANTS, 200_000) + models({"12k": "pico", "28k": "1x48"}, CONSTANTS),
    "ladders": ((1,), (2,), (4,), (8,)),
    "ladder_batch": 8,
    "results": "runs/es_ablations_{size}/results",
    "engine": "local",
    **PRICED,
}
SIZES = {
    "smoke": {"variations": changes(CONSTANTS[:4], 12_000)},
    "cpu": {},
    "gpu": {
        "title": "E(S) over model sizes",
        "variations": models(
            {"10.6M": "10M", "25M": "25M", "49M": "49M"}, ("8", "16", "32", "64", "128", "256")
        ),
        "ladders": ((8,), (16,), (32,)),
        "ladder_batch": 32,
    },
}


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    config = at_size(size, BASE, SIZES)
    reference = es_wsd.get_config(size)
    config.update({name: reference[name] for name in ("seeds", "targets", "resamples", "setup")})
    return config
