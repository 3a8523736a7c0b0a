"""E(S), B_min, B_opt and the batch schedule of arXiv 2601.05034, at one learning rate.

    python -m experiments.es_wsd --config=configs/es_wsd.py:a1
    python -m experiments.es_wsd --config=configs/es_wsd.py:gpu     # prints its price
    python -m experiments.es_wsd.analysis                           # tables, figures, findings

| part  | trains                                                    | tokens | runs           |
|-------|-----------------------------------------------------------|--------|----------------|
| smoke | a1 at 4 batch sizes and 20K tokens; for tests             | 0.2M   | 4 × 2          |
| a1    | E(S) of 12k parameters, sequences of 16                   | 83M    | 11 × 5         |
| a1r   | a1 on new seeds, which decide its questions               | 198M   | 11 × 12        |
| a2    | the same at 27k and 99k (muP), 1M tokens                  | 42M    | 2 × 7 × 3      |
| a2r   | a1's batch sizes at 99k (muP), 1M tokens, new seeds       | 55M    | 11 × 5         |
| a2l   | a2 at 394k (muP), from batch 2 on                         | 18M    | 6 × 3          |
| a3    | B_opt ramp, late switch, fixed; sequences of 64, 3M       | 144M   | 5 × 8, decayed |
| a3r   | B_opt ramp of a1r and fixed batch sizes, as in a1r        | 230M   | 4 × 32, decayed|
| speed | seconds per step of a3's batch sizes, alone on a core     | 3M     | 8 × 5          |
| a4    | ramp and fixed batch, one change each, 1M tokens          | 108M   | 9 × 12         |
| a5    | a1 with 8 experts, 2 active, 12k active parameters        | 32M    | 7 × 3          |
| a5s   | a3 with those experts                                     | 144M   | 5 × 8, decayed |
| gpu   | a1 at 4.7M and 25M parameters; priced, not trained        | 9.8B   | 2 × 7 × 3      |
| beta2 | 7 batch sizes, 3 rules for beta2 and 4 LRs each           | 504M   | 84 × 10        |
| beta2l| the same at 99k (muP): 4 batch sizes, 2 rules, 3 LRs      | 144M   | 24 × 10        |
| longer| batch 1 up to 16M and batch 2 up to 8M tokens             | 120M   | 2 × 5          |
| start | the ramp of a3r, its last switch alone, a larger one      | 165M   | 7 × 16, decayed|
| beta2g| beta2 at 4.7M and 25M parameters; priced, not trained     | 9.6B   | 2 × 24 × 1     |

The LR is 8e-3 for all batch sizes and constant after the warm-up; Adam's beta2 is 0.95 per step,
without weight decay, as in the paper's trainers [secondary]. Evaluated seeds are 10 and above;
seeds 0 and 1 were pilots. a1 left five of six questions open, so a1r decides them with new seeds.
So do a2r for 99k parameters and a3r for the final losses of a3. a3 and later parts train the
schedules in the file SCHEDULES. `python -m experiments.es_wsd.analysis --schedules` derives it from
a1 and a1r. Questions and how they are decided: experiments/es_wsd/questions.toml.

beta2, beta2l, longer and start ask what a1r and a3r left open: experiments/es_wsd/conditions.toml.
In beta2 the LR is chosen for each batch size and rule on the first two seeds; the others decide.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ml_collections import ConfigDict

from configs.overlays import PRICED, SETUP, at_size

SCHEDULES = Path("results/es_wsd/stages/schedules.json")
RAMP = "B_opt ramp"
LATE = "late switch"

BATCHES = (1, 2, 3, 4, 6, 8, 12, 16, 32, 64, 128)
EXPERTS = {"family": "mixture", "num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64}
EXPERTS |= {"num_experts": 8, "top_k": 2}
EXPERTS_AT = {"models": {"12k active": EXPERTS}, "setup.model": EXPERTS}


PER_STEP = "0.95 per step"
SHORT = "half-life 7K"
SLOW = "half-life 20K"
BETA2 = {
    PER_STEP: {"optimizer.beta2": 0.95, "optimizer.beta2_half_life": 0},
    SHORT: {"optimizer.beta2_half_life": 7_000},
    SLOW: {"optimizer.beta2_half_life": 20_000},
}
"""Rules for Adam's beta2: a value per step, or a half-life in tokens for all batch sizes."""
LOW = (1e-3, 2e-3, 4e-3, 8e-3)
MIDDLE = (2e-3, 4e-3, 8e-3, 1.6e-2)
HIGH = (4e-3, 8e-3, 1.6e-2, 3.2e-2)
RATES = {1: LOW, 2: LOW, 4: MIDDLE, 8: MIDDLE, 16: HIGH, 32: HIGH, 64: HIGH}
LARGE_RATES = {batch: RATES[batch][1:] for batch in (1, 4, 16, 64)}


def constants(*batches: int, **fields: object) -> list[dict]:
    """Return runs with fixed batch sizes, in sequences."""
    return [{"batch": str(batch), "name": f"constant {batch}", **fields} for batch in batches]


def schedules(of: Mapping[str, Any]) -> list[dict]:
    """Return fixed batch sizes, the ramp and, in a3, the late switch."""
    late = [{"batch": of["late"], "name": LATE, "role": "late"}] if "late" in of else []
    ramp = {"batch": of["ramp"], "name": RAMP, "role": "schedule"}
    return [*constants(*of["constants"]), ramp, *late]


def changed(of: Mapping[str, Any]) -> list[dict]:
    """Return the arms of a4: the ramp and one constant under each change; sqrt changes the ramp
    alone.
    """
    (constant,) = of["constants"]
    ramp = of["ramp"]
    longer = " ".join(_quarter(stage) for stage in ramp.split())
    groups = {
        "base": ({}, constant, ramp),
        "weight decay 0.1": ({"optimizer.weight_decay": 0.1}, constant, ramp),
        "cosine": ({"schedule.rate": "cosine"}, constant, ramp),
        "sequences x 4": ({"data.seq_len": 64, "evaluation.seq_len": 16}, constant // 4, longer),
    }
    arms = []
    for group, (changes, fixed, growing) in groups.items():
        common = {"group": group, "changes": changes}
        arms += constants(max(1, fixed), **common)
        arms.append({"batch": growing, "name": RAMP, "role": "schedule", **common})
    sqrt = {"schedule.lr_coupling": "sqrt", "schedule.reference_batch": constant}
    arms.append(
        {"batch": ramp, "name": RAMP, "role": "schedule", "group": "LR x sqrt", "changes": sqrt}
    )
    return arms


def _quarter(stage: str) -> str:
    start, batch = stage.split(":")
    return f"{start}:{max(1, round(int(batch) / 4))}"


def tuned(rates: Mapping[int, Sequence[float]], *rules: str) -> list[dict]:
    """Return fixed batch sizes under rules for beta2, each at some LRs."""
    return [
        {
            "batch": str(batch),
            "name": f"constant {batch}, LR {rate:g}",
            "group": rule,
            "changes": {"optimizer.lr": rate, **BETA2[rule]},
        }
        for rule in rules
        for batch, tried in rates.items()
        for rate in tried
    ]


def mup(name: str) -> dict:
    """Return a named size whose LR follows from that of 12k parameters."""
    return {"name": name, "parametrization": "mup", "base_width": 32}


BASE = {
    "title": "E(S) at one learning rate",
    "arms": constants(*BATCHES),
    "seeds": (10, 11, 12, 13, 14),
    "ends": (0.25, 0.5, 1.0),
    "forks": (),
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
        "vmap_runs": 6,
        "evaluation_bucket": 256,
        "buckets": (1, 2, 3, 4, 6, 8, 12, 16, 32),
    },
    **PRICED,
}
CONTROLS = {
    "registration": "results/predictions/es_wsd_conditions.json",
    "setup.engine.runs": "runs/es_wsd_conditions",
}
ON_GPU = {
    "setup.model": "25M",
    "setup.text": {"corpus": "synthetic", "seq_len": 256},
    "setup.schedule": {"tokens": 200_000_000, "warmup": 2_000_000},
    "setup.evaluation": {"tokens": 1_048_576, "test_tokens": 4_194_304, "first": 5_000_000},
    "setup.engine.buckets": (1, 2, 4, 8, 16, 32, 64),
}
SEVEN = {"arms": constants(1, 2, 4, 8, 16, 32, 64), "seeds": (10, 11, 12), "ends": ()}
SIZES = {
    "smoke": {
        "arms": constants(1, 2, 4, 8),
        "seeds": (0, 1),
        "ends": (1.0,),
        "registration": "",
        "results": "runs/es_wsd_smoke/results",
        "setup.schedule": {"tokens": 20_000, "warmup": 1_500},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 4_000},
        "setup.engine.runs": "runs/es_wsd_smoke",
    },
    "a1": {"results": "results/es_wsd/stages"},
    "a1r": {
        "title": "E(S) at one learning rate, new seeds",
        "seeds": tuple(range(40, 52)),
        "ends": (),
        "registration": "results/predictions/es_wsd_seeds.json",
        "results": "results/es_wsd/repeat",
        "setup.engine.runs": "runs/es_wsd_seeds",
    },
    "a2": {
        "title": "E(S) at two more model sizes",
        "models": {"27k": mup("1x48"), "99k": mup("nano")},
        "results": "results/es_wsd/sizes",
        "setup.schedule.tokens": 1_000_000,
        **SEVEN,
    },
    "a2r": {
        "title": "E(S) at 99k parameters, new seeds",
        "models": {"99k": mup("nano")},
        "seeds": (100, 101, 102, 103, 104),
        "ends": (),
        "registration": "results/predictions/es_wsd_99k.json",
        "results": "results/es_wsd/large",
        "setup.schedule.tokens": 1_000_000,
        "setup.engine.runs": "runs/es_wsd_99k",
    },
    "a2l": {
        "title": "E(S) at a larger model size",
        "models": {"394k": mup("2x128")},
        "results": "results/es_wsd/larger",
        "setup.schedule.tokens": 1_000_000,
        "setup.evaluation.tokens": 32_768,
        **SEVEN,
        "arms": constants(2, 4, 8, 16, 32, 64),
    },
    "speed": {
        "title": "Seconds per step",
        "arms": constants(1, 2, 4, 8, 16, 32, 64, 128),
        "seeds": (0, 1, 2, 3, 4),
        "ends": (),
        "registration": "",
        "results": "results/es_wsd/speed",
        "setup.text.seq_len": 64,
        "setup.schedule": {"tokens": 80_000, "warmup": 3_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 40_000},
        "setup.engine.runs": "runs/es_wsd_speed",
        "setup.engine.vmap_runs": 1,
    },
    "a5": {
        "title": "E(S) with experts",
        "results": "results/es_wsd/experts",
        **SEVEN,
        **EXPERTS_AT,
    },
    "beta2": {
        "title": "E(S) with the LR tuned, by rule for beta2",
        "arms": tuned(RATES, PER_STEP, SHORT, SLOW),
        "seeds": tuple(range(110, 120)),
        "ends": (),
        "setup.schedule.tokens": 600_000,
        **CONTROLS,
        "results": "results/es_wsd/beta2",
    },
    "beta2l": {
        "title": "E(S) at 99k parameters with the LR tuned, by rule for beta2",
        "models": {"99k": mup("nano")},
        "arms": tuned(LARGE_RATES, PER_STEP, SLOW),
        "seeds": tuple(range(110, 120)),
        "ends": (),
        "setup.schedule.tokens": 600_000,
        **CONTROLS,
        "results": "results/es_wsd/beta2_large",
    },
    "longer": {
        "title": "Small batch sizes over more tokens",
        "arms": [
            *constants(1, changes={"schedule.tokens": 16_000_000}),
            *constants(2, changes={"schedule.tokens": 8_000_000}),
        ],
        "seeds": tuple(range(120, 125)),
        "ends": (),
        "setup.schedule.tokens": 16_000_000,
        **CONTROLS,
        "results": "results/es_wsd/longer",
    },
    "start": {
        "title": "The start of the ramp, and its last switch",
        "arms": [
            *constants(8, 12, 16, 24),
            {"batch": "0:8 1.15M:12", "name": "switch to 12", "role": "late"},
            {"batch": "0:8 1.15M:32", "name": "switch to 32", "role": "late"},
            {"batch": "0:1 93:2 1890:4 38.8K:8 1.15M:12", "name": RAMP, "role": "schedule"},
        ],
        "seeds": tuple(range(130, 146)),
        "ends": (1.0,),
        "forks": (1_150_000,),
        **CONTROLS,
        "results": "results/es_wsd/start",
    },
    "beta2g": {
        "title": "E(S) at 4.7M and 25M parameters with the LR tuned, by rule for beta2",
        "models": {"4700k": "mini", "25000k": "25M"},
        "arms": tuned(LARGE_RATES, PER_STEP, SLOW),
        "seeds": (10,),
        "ends": (),
        "dry_run": True,
        "registration": "",
        "results": "results/es_wsd/beta2_gpu",
        **ON_GPU,
    },
    "gpu": {
        "title": "E(S) at 4.7M and 25M parameters",
        "models": {"4700k": "mini", "25000k": "25M"},
        "arms": constants(1, 2, 4, 8, 16, 64, 256),
        "seeds": (10, 11, 12),
        "dry_run": True,
        "registration": "",
        "results": "results/es_wsd/gpu",
        **ON_GPU,
    },
}

LONG = {"setup.text.seq_len": 64, "setup.schedule.tokens": 3_000_000, "ends": (1.0,)}


def scheduled(of: Mapping[str, Any]) -> dict[str, dict]:
    """Return the parts that train the schedules of SCHEDULES."""
    judged = {"seeds": (20, 21, 22, 23, 24, 25, 26, 27), **LONG, "arms": schedules(of["a3"])}
    return {
        "a3": {**judged, "title": "The schedule", "results": "results/es_wsd/scheduler"},
        "a3r": {
            "title": "The schedule, new seeds",
            "arms": schedules(of["a3r"]),
            "seeds": tuple(range(60, 92)),
            "ends": (1.0,),
            "registration": "results/predictions/es_wsd_schedule.json",
            "results": "results/es_wsd/schedule",
            "setup.engine.runs": "runs/es_wsd_schedule",
        },
        "a4": {
            "title": "What changes the ramp's gain",
            "arms": changed(of["a4"]),
            "seeds": tuple(range(20, 32)),
            "ends": (),
            "results": "results/es_wsd/ablations",
            "setup.schedule.tokens": 1_000_000,
        },
        "a5s": {
            **EXPERTS_AT,
            **judged,
            "title": "The schedule with experts",
            "results": "results/es_wsd/experts_scheduler",
        },
    }


def get_config(part: str = "a1") -> ConfigDict:
    """Return the config of a part.

    Raises:
        ValueError: If the part is unknown, or its schedules have not been written.
    """
    parts = dict(SIZES)
    if SCHEDULES.exists():
        parts |= scheduled(json.loads(SCHEDULES.read_text(encoding="utf-8")))
    elif part in ("a3", "a3r", "a4", "a5s"):
        raise ValueError(f"{part}: {SCHEDULES} is missing; train a1, then write it")
    parts = {name: {"models": {"12k": "pico"}, **one} for name, one in parts.items()}
    return at_size(part, BASE, parts)
