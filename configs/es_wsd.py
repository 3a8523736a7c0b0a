"""E(S), B_min, B_opt and the batch schedule of arXiv 2601.05034, at one learning rate.

    python -m experiments.es_wsd --config=configs/es_wsd.py:a1

| part  | trains                                                   | tokens | runs          |
|-------|----------------------------------------------------------|--------|---------------|
| smoke | a1 at 4 batch sizes and 40K tokens; for tests            | .5M    | 4 × 2         |
| pilot | a1 with other seeds, to choose targets and evaluation    | 33M    | 11 × 2        |
| a1    | E(S) of 12k parameters, LR 8e-3, sequences of 16         | 83M    | 11 × 5        |
"""

from configs.overlays import PRICED, SETUP, sized

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)


def constants(*batches: int) -> list[dict]:
    """Constant batch sizes in sequences."""
    return [{"batch": str(batch)} for batch in batches]


BASE = {
    "title": "E(S) at one learning rate",
    "models": {"12k": "pico"},
    "arms": constants(*BATCHES),
    "seeds": (10, 11, 12, 13, 14),
    "ends": (0.25, 0.5, 1.0),
    "decay": 0.2,
    "registration": "results/predictions/es_wsd.json",
    "results": "results/es_wsd/{size}",
    "resamples": 500,
    "engine": "local",
    "setup": SETUP,
    "setup.model": "pico",
    "setup.text.seq_len": 16,
    "setup.optimizer": {"lr": 8e-3, "beta2": 0.95},
    "setup.schedule": {"tokens": 1_500_000, "warmup": 50_000},
    "setup.evaluation": {
        "per_efold": 10,
        "first": 60_000,
        "tokens": 65_536,
        "test_tokens": 131_072,
    },
    "setup.engine.runs": "runs/es_wsd",
    "setup.engine.workers": 1,
    "setup.engine.fleet": 6,
    "setup.engine.evaluation_bucket": 256,
    "setup.engine.buckets": (1, 2, 3, 4, 6, 8, 12, 16, 32),
    **PRICED,
}
SIZES = {
    "smoke": {
        "arms": constants(1, 2, 4, 8),
        "seeds": (0, 1),
        "ends": (1.0,),
        "registration": "",
        "results": "runs/es_wsd_smoke/results",
        "setup.schedule": {"tokens": 40_000, "warmup": 3_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 8_000},
        "setup.engine.runs": "runs/es_wsd_smoke",
    },
    "pilot": {
        "seeds": (0, 1),
        "ends": (),
        "registration": "",
        "results": "runs/es_wsd_pilot/results",
    },
    "a1": {"results": "results/es_wsd/stages"},
}

get_config = sized(BASE, SIZES, default="a1")
