"""The effect of beta2 on the optimal batch size, in parts on one runs directory.

    python -m experiments.second_moment --config=configs/second_moment.py:rules

| part   | asks                                                | tokens | runs                     |
|--------|-----------------------------------------------------|--------|--------------------------|
| smoke  | rules, at 12k parameters; for tests                 | 0.4M   | a minute of CPU          |
| rules  | beta2 .95 per step against a half-life of 7K tokens | 160M   | 2 × 6 batches, 12 seeds  |
| slower | the same at .99 and 28K; momentum and clipping      | 65M    | 2 × 6 batches, 7 seeds   |
| short  | sequences of 16 tokens: below 64 tokens a step      | 40M    | 2 × 5 batches, 7 seeds   |

LRs are tried on the first two seeds, a factor 2 apart, until the best is bracketed. Other seeds are
trained at the chosen LRs and compared. Models have 99k parameters, on two cores.
"""

from collections.abc import Mapping, Sequence

from configs.overlays import SETUP, sized


def arms(rates: Mapping[int, Sequence[float]], *rules: str) -> list[dict]:
    """Return fixed batch sizes under each rule, with the LRs tried at each."""
    return [
        {"rule": rule, "batch": str(batch), "rates": tried}
        for rule in rules
        for batch, tried in rates.items()
    ]


def per_step(beta2: float) -> dict:
    """Return the rule that keeps beta2 whatever the batch."""
    changes = {"optimizer.beta2": beta2, "optimizer.beta2_half_life": 0}
    return {"name": f"{beta2:g} per step", "changes": changes}


def in_tokens(name: str, half_life: int, **changes: float) -> dict:
    """Return the rule with a half-life in tokens, and other changes of the optimizer."""
    own = {f"optimizer.{field}": value for field, value in changes.items()}
    return {"name": name, "changes": {"optimizer.beta2_half_life": half_life, **own}}


STEP = "0.95 per step"
TOKENS = "half-life 7K"
RULES = [per_step(0.95), in_tokens(TOKENS, 7_000)]
RATES = {
    1: (1e-3, 2e-3, 4e-3),
    2: (1e-3, 2e-3, 4e-3),
    4: (2e-3, 4e-3, 8e-3),
    8: (2e-3, 4e-3, 8e-3),
    16: (2e-3, 4e-3, 8e-3),
    32: (4e-3, 8e-3, 1.6e-2),
}
TWO_RATES = {batch: rates[1:] if batch == 32 else rates[:2] for batch, rates in RATES.items()}
CONTROLS = {
    # Momentum's .9 per step at batch 4 as a half-life of 1,685 tokens, at the other batches.
    "half-life 7K, beta1 .974": ("1", {"beta1": 0.974}),
    "half-life 7K, beta1 .43": ("32", {"beta1": 0.43}),
    "half-life 7K, unclipped": ("1", {"clip": 0.0}),
    "half-life 7K, unclipped at 32": ("32", {"clip": 0.0}),
}

BASE = {
    "title": "The second moment and the best batch",
    "rules": RULES,
    "arms": arms(RATES, STEP, TOKENS),
    "seeds": tuple(range(12)),
    "choosing": 2,
    "widen": 2,
    "decay": 0.2,
    "results": "runs/second_moment/results/{size}",
    "engine": "local",
    "setup": SETUP,
    "setup.schedule": {"tokens": 500_000, "warmup": 50_000},
    "setup.evaluation": {"per_efold": 5, "first": 80_000},
    "setup.engine.runs": "runs/second_moment",
}
SIZES = {
    "smoke": {
        "arms": arms(dict.fromkeys((1, 4), (4e-3, 8e-3)), STEP, TOKENS),
        "seeds": (0, 1),
        "choosing": 1,
        "widen": 1,
        "results": "runs/second_moment_smoke/results",
        "setup.model": "pico",
        "setup.schedule": {"tokens": 20_000, "warmup": 2_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 8_000},
        "setup.engine": {"runs": "runs/second_moment_smoke", "buckets": (1, 2), "workers": 1},
    },
    "rules": {},
    "slower": {
        "title": "Slower second moments; momentum and clipping",
        "rules": [
            per_step(0.99),
            in_tokens("half-life 28K", 28_000),
            *(in_tokens(name, 7_000, **changes) for name, (_, changes) in CONTROLS.items()),
        ],
        "arms": arms(TWO_RATES, "0.99 per step", "half-life 28K")
        + [
            {"rule": name, "batch": batch, "rates": RATES[int(batch)][1:2]}
            for name, (batch, _) in CONTROLS.items()
        ],
        "seeds": tuple(range(7)),
        "widen": 1,
    },
    "short": {
        "title": "Steps of 16 to 256 tokens",
        "arms": arms(dict.fromkeys((1, 2, 4, 8, 16), (1e-3, 2e-3)), STEP, TOKENS),
        "seeds": tuple(range(7)),
        "setup.text.seq_len": 16,
    },
}

get_config = sized(BASE, SIZES, default="rules")
