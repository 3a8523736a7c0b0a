"""E(S) and its schedules with one thing changed at a time, and E(S) over model sizes.

    python -m experiments.es_ablations --config=configs/es_ablations.py:cpu

| size  | models                 | tokens of a run | what it needs                                |
|-------|------------------------|-----------------|----------------------------------------------|
| smoke | 12k parameters         | 60K             | a minute of CPU; for tests                   |
| cpu   | 12k to 99k parameters  | 1M              | about 25 minutes, 2 cores                    |
| gpu   | 10.6M, 25M and 49M     | 50M             | one accelerator, synthetic; not measured     |

The reference is the setting of `configs/es_wsd.py` at its shared rate; runs they have in common
are trained once where both use one directory (`--config.setup.engine.runs`).
"""

from ml_collections import ConfigDict

from configs import es_wsd

SIZES = ("smoke", "cpu", "gpu")


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    if size not in SIZES:
        raise ValueError(f"size {size!r}: expected one of {', '.join(SIZES)}")
    smoke, gpu = size == "smoke", size == "gpu"
    reference = es_wsd.get_config(size).to_dict()
    return ConfigDict(
        {
            "title": "E(S) over model sizes" if gpu else "E(S) with one thing changed",
            "variations": _sizes() if gpu else _changes(smoke, reference["setup"]),
            "seeds": reference["seeds"],
            "targets": reference["targets"],
            "ladders": ((8,), (16,), (32,)) if gpu else ((1,), (2,), (4,), (8,)),
            "ladder_batch": 32 if gpu else 8,
            "resamples": reference["resamples"],
            "results": f"runs/es_ablations_{size}/results",
            "setup": reference["setup"],
        }
    )


def _sizes() -> list[dict]:
    batches = ("8", "16", "32", "64", "128", "256")
    names = {"10M": "10.6M", "25M": "25M", "49M": "49M"}
    return [
        {"name": f"{shown} parameters", "model": name, "batches": batches}
        for name, shown in names.items()
    ]


def _changes(smoke: bool, setup: dict) -> list[dict]:
    constants = ("1", "2", "4", "8") if smoke else ("1", "2", "4", "8", "16", "32")
    late, growing = "0:4 70%:32", "0:2 25%:4 60%:8"
    contest = ("4", late, growing)
    longer = {
        "data.seq_len": 4 * setup["text"]["seq_len"],
        "evaluation.seq_len": setup["text"]["seq_len"],
    }
    plain_sgd = {"optimizer.name": "sgd", "optimizer.beta1": 0.0, "optimizer.lr": 1.0}
    found = [
        {"name": "as in E(S) under WSD", "batches": (*constants, late, growing)},
        {"name": "cosine", "batches": contest, "changes": {"schedule.rate": "cosine"}},
        {
            "name": "weight decay 0.1",
            "batches": contest,
            "changes": {"optimizer.weight_decay": 0.1},
        },
        {
            "name": "warm-up × 4",
            "batches": contest,
            "changes": {"schedule.warmup": 4 * setup["schedule"]["warmup"]},
        },
        {"name": "sequences × 4 at the switch", "batches": ("4", "0:4 70%:8"), "after": longer},
        {"name": "SGD", "batches": constants, "changes": plain_sgd},
    ]
    if not smoke:
        sizes = {"12k": "pico", "28k": "1x48"}
        found += [
            {"name": f"{shown} parameters", "model": model, "batches": constants}
            for shown, model in sizes.items()
        ]
    return found
