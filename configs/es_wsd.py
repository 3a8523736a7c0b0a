"""E(S), B_min, B_opt and the batch schedule of arXiv 2601.05034, at one learning rate.

    python -m experiments.es_wsd --config=configs/es_wsd.py:a1
    python -m experiments.es_wsd --config=configs/es_wsd.py:gpu     # prints its price
    python -m experiments.es_wsd.analysis                           # tables, figures, findings

| part  | trains                                                    | tokens | runs           |
|-------|-----------------------------------------------------------|--------|----------------|
| smoke | a1 at 4 batch sizes and 40K tokens; for tests             | 0.3M   | 4 × 2          |
| a1    | E(S) of 12k parameters, sequences of 16                   | 83M    | 11 × 5         |
| a2    | the same at 27k, 99k and 394k (muP), 1M tokens            | 63M    | 3 × 7 × 3      |
| a3    | B_opt ramp, late switch, constants; sequences of 64, 3M   | 145M   | 5 × 8, decayed |
| a4    | ramp and constant with one change each, 1M tokens         | 108M   | 9 × 12         |
| a5    | a1 and a3 with 8 experts, 2 active, 12k active parameters | 90M    | 7 × 3, 3 × 8   |
| gpu   | a1 at 4.7M and 25M parameters; priced, not trained        | 9.8B   | 2 × 7 × 3      |

The LR is 8e-3 for all batch sizes and constant after the warm-up; Adam's beta2 is 0.95 per step,
without weight decay, as in the paper's trainers [secondary]. Judged seeds are 10 and above; seeds 0
and 1 were pilots. Questions and how they are decided: experiments/es_wsd/questions.toml.
"""

from configs.overlays import PRICED, SETUP, sized

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
EXPERTS = {"family": "mixture", "num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64}
EXPERTS |= {"num_experts": 8, "top_k": 2}


def constants(*batches: int, **fields: object) -> list[dict]:
    """Constant batch sizes in sequences."""
    return [{"batch": str(batch), "name": f"constant {batch}", **fields} for batch in batches]


def mup(name: str) -> dict:
    """A named size whose LR follows from that of 12k parameters."""
    return {"name": name, "parametrization": "mup", "base_width": 32}


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
    "setup.engine": {
        "runs": "runs/es_wsd",
        "workers": 1,
        "fleet": 6,
        "evaluation_bucket": 256,
        "buckets": (1, 2, 3, 4, 6, 8, 12, 16, 32),
    },
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
    "a1": {"results": "results/es_wsd/stages"},
    "a2": {
        "title": "E(S) at three more model sizes",
        "models": {"27k": mup("1x48"), "99k": mup("nano"), "394k": mup("2x128")},
        "arms": constants(1, 2, 4, 8, 16, 32, 64),
        "seeds": (10, 11, 12),
        "ends": (),
        "results": "results/es_wsd/sizes",
        "setup.schedule.tokens": 1_000_000,
    },
    "gpu": {
        "title": "E(S) at 4.7M and 25M parameters",
        "models": {"4700k": "mini", "25000k": "25M"},
        "arms": constants(1, 2, 4, 8, 16, 64, 256),
        "seeds": (10, 11, 12),
        "dry_run": True,
        "registration": "",
        "results": "results/es_wsd/gpu",
        "setup.model": "25M",
        "setup.text": {"corpus": "synthetic", "seq_len": 256},
        "setup.schedule": {"tokens": 200_000_000, "warmup": 2_000_000},
        "setup.evaluation": {"tokens": 1_048_576, "test_tokens": 4_194_304, "first": 5_000_000},
        "setup.engine.buckets": (1, 2, 4, 8, 16, 32, 64),
    },
}

get_config = sized(BASE, SIZES, default="a1")
