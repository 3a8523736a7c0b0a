"""Late switches and catch-up of arXiv 2602.14208, in runs that are forked from one trunk.

    python -m experiments.late_switch --config=configs/late_switch.py:b1
    python -m experiments.late_switch --config=configs/late_switch.py:gpu     # prints its price
    python -m experiments.late_switch.analysis                                # tables, findings

| part  | trains                                                          | tokens | seeds |
|-------|-----------------------------------------------------------------|--------|-------|
| smoke | a trunk, one switch and decays, 40K tokens; for tests           | 0.2M   | 1     |
| pilot | b1 with two switches                                            | 8M     | 2     |
| b1    | 12k parameters: batch sizes 4, 8, 16 and switches by 2, 4 and 8 | 118M   | 12    |
| b1c   | the same under a cosine, with two switches by 4                 | 20M    | 5     |
| b1m   | b1 with 8 experts, 2 active, 12k active parameters              | 60M    | 12    |
| b1l   | b1 at 99k parameters                                            | 30M    | 6     |
| b2    | b1's large batch sizes up to the steps of a switched run        | 15M    | 5     |
| b3    | a switch by 8 at 6 points of 5 budgets, 0.25M to 4M tokens      | 62M    | 5     |
| b3l   | the same with a budget of 8M tokens                             | 30M    | 3     |
| b4    | b3 in a hard, a middle and an easy synthetic language, to 2M    | 110M   | 6     |
| b5    | 99k, the LR tuned: batch 4 and switches by 4, raw and decayed   | 12M    | 6     |
| b5c   | the same under a cosine                                         | 8M     | 6     |
| b5l   | b5 at 394k parameters                                           | 12M    | 6     |
| b5lc  | b5c at 394k parameters                                          | 8M     | 6     |
| gpu   | b1 at 4.7M parameters and 200M tokens; priced, not trained      | 5.6B   | 3     |

Batch sizes are in sequences of 64 tokens. The LR is 8e-3 (99k: 4e-3) for all batch sizes and
constant after the warm-up; Adam's beta2 is 0.95 per step, without weight decay. Runs have 1M tokens
except in b2 and b3. Evaluated seeds are 40 and above; seeds 0 and 1 were pilots. Parts b1, b1m and
b1l were repeated with seeds that no earlier part had. Questions and how they are decided:
experiments/late_switch/questions.toml; of b4 and b5: difficulty.toml and endings.toml beside it.
The tasks of b4 are named by `mode_decay`. In pilots (12k, batch 4, one seed, 2M tokens) the
averaged loss fell to its limit as tokens to the power -0.20, -0.49 and -0.72. TUNED is the LR of
the parts b5.
"""

from collections.abc import Sequence

from configs.ladder import model
from configs.overlays import PRICED, SETUP, sized

SMALL = 4
TUNED = 2e-3
"""LR of batch 4 with the lowest loss at 99k parameters and 0.99M tokens, of three a factor of 2
apart, and below those of batch sizes 1, 2, 8 and 16 at their own best LRs, decayed and at constant
LR (results/ladder/short_99k, 2 seeds). At 394k, 256 tokens per step have the same best LR
(results/ladder/width)."""
EXPERTS = {"family": "mixture", "num_layers": 1, "d_model": 32, "num_heads": 2, "d_ff": 64}
EXPERTS |= {"num_experts": 8, "top_k": 2}
STAGES = {"name": "stages 4, 8, 12, 16", "batch": "0:4 50%:8 70%:12 85%:16"}


def constant(batch: int, **fields: object) -> dict:
    """A run with a fixed batch size."""
    return {"name": f"constant {batch}", "batch": str(batch), **fields}


def switch(factor: int, share: float, small: int = SMALL, **fields: object) -> dict:
    """A switch by a factor after a share of the tokens, in percent."""
    name = f"x {factor} at {share:g}%"
    return {"name": name, "batch": f"0:{small} {share:g}%:{small * factor}", **fields}


def compared(small: int, shares: Sequence[float], others: Sequence[float]) -> list[dict]:
    """Fixed batch sizes, switches by 4 at some shares of the tokens, and by 2 and 8 at others."""
    arms = [constant(small * factor, decayed=True) for factor in (1, 2, 4)]
    arms += [switch(4, share, small, decayed=True) for share in shares]
    return arms + [switch(factor, share, small) for factor in (2, 8) for share in others]


def continued(tokens: int) -> list[dict]:
    """Runs of b1 and the large batch sizes, to the steps of a switch at 30% of the tokens."""
    arms = [constant(batch) for batch in (4, 8, 16)]
    for factor in (2, 4):
        large = factor * SMALL
        early = f"x {factor} at 10%"
        last = round(tokens * (0.3 * factor + 0.7)) + 64 * large
        sooner = round(tokens * (0.1 + 0.2 * factor + 0.7)) + 64 * large
        start = f"0:4 {tokens // 10}:{large}"
        arms.append({"name": f"constant {large} on", "batch": str(large), "tokens": last})
        if factor == 4:
            arms.append(switch(factor, 10))
        arms.append({"name": f"{early} on", "batch": start, "tokens": sooner})
        arms.append(switch(factor, 30, joins=f"constant {large} on"))
    return arms


def points(budgets: Sequence[int], after: Sequence[float], factor: int = 8) -> list[dict]:
    """The small batch up to the largest budget, and switches before the end of each budget."""
    arms = [constant(SMALL, tokens=max(budgets))]
    for budget in budgets:
        for share in after:
            at = budget - round(budget * share)
            name = f"x {factor}, last {share:.0%} of {budget}"
            arms.append({"name": name, "batch": f"0:4 {at}:{4 * factor}", "tokens": budget})
    return arms


def by_task(decays: Sequence[float], arms: Sequence[dict]) -> list[dict]:
    """The same runs on synthetic languages: hard if `mode_decay` is small, easy if it is large."""
    return [
        arm
        | {
            "group": f"mode_decay {decay:g}",
            "changes": {"data.content": f"synthetic:mode_decay={decay:g}"},
        }
        for decay in decays
        for arm in arms
    ]


def cosine(arms: Sequence[dict]) -> list[dict]:
    """The same runs under a cosine."""
    return [arm | {"decayed": False, "changes": {"schedule.rate": "cosine"}} for arm in arms]


ENDINGS = [constant(SMALL, decayed=True), *(switch(4, at, decayed=True) for at in (70, 95))]


def tuned(shape: dict) -> dict[str, object]:
    """Return the fields of a part whose LR is TUNED."""
    return {
        "seeds": tuple(range(70, 76)),
        "registration": "results/predictions/late_switch_endings.json",
        "setup.model": shape,
        "setup.optimizer.lr": TUNED,
        "setup.evaluation.per_efold": 4,
        "setup.engine.runs": "runs/late_switch_endings",
    }


AFTER = (0.02, 0.04, 0.08, 0.15, 0.3, 0.5)
BUDGETS = (250_000, 500_000, 1_000_000, 2_000_000, 4_000_000)
FEW = [*compared(SMALL, (30, 70), ())]


def repeated(seeds: int) -> dict[str, object]:
    """Return the fields of a part that is decided on new seeds, 50 and above."""
    return {
        "seeds": tuple(range(50, 50 + seeds)),
        "registration": "results/predictions/late_switch_seeds.json",
        "setup.engine.runs": "runs/late_switch_seeds",
    }


BASE = {
    "title": "Late switches",
    "arms": [*compared(SMALL, (10, 30, 50, 70, 85, 95), (30, 70)), STAGES],
    "seeds": (40, 41, 42, 43, 44),
    "decay": 0.2,
    "registration": "results/predictions/late_switch.json",
    "results": "results/late_switch/{size}",
    "resamples": 100,
    "engine": "local",
    "setup": SETUP,
    "setup.model": "pico",
    "setup.optimizer": {"lr": 8e-3, "beta2": 0.95},
    "setup.schedule": {"tokens": 1_000_000, "warmup": 50_000},
    "setup.evaluation": {
        "per_efold": 8,
        "first": 60_000,
        "tokens": 32_768,
        "test_tokens": 65_536,
    },
    "setup.engine": {
        "runs": "runs/late_switch",
        "workers": 1,
        "pin": False,
        "vmap_runs": 6,
        "evaluation_bucket": 256,
        "buckets": (4, 8, 12, 16, 32),
    },
    **PRICED,
}
PARTS = {
    "smoke": {
        "arms": [
            constant(2, decayed=True),
            constant(8, tokens=130_000),
            switch(4, 70, small=2, decayed=True, joins="constant 8"),
        ],
        "seeds": (0,),
        "registration": "",
        "results": "runs/late_switch_smoke/results",
        "setup.schedule": {"tokens": 40_000, "warmup": 3_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 8_000},
        "setup.engine": {"runs": "runs/late_switch_smoke", "buckets": (2, 4), "vmap_runs": 1},
    },
    "pilot": {
        "arms": FEW,
        "seeds": (0, 1),
        "registration": "",
        "results": "runs/late_switch_pilot/results",
        "setup.engine.runs": "runs/late_switch_pilot",
    },
    "b1": repeated(12),
    "b1c": {"title": "Late switches under a cosine", "arms": cosine(FEW)},
    "b1m": {
        "title": "Late switches with experts",
        "arms": FEW,
        "setup.model": EXPERTS,
        **repeated(12),
    },
    "b1l": {
        "title": "Late switches at 99k parameters",
        "arms": FEW,
        "setup.model": "nano",
        "setup.optimizer.lr": 4e-3,
        **repeated(6),
    },
    "b2": {"title": "Catch-up", "arms": continued(1_000_000)},
    "b3": {
        "title": "The best switch point",
        "arms": points(BUDGETS, AFTER),
        "setup.engine.runs": "runs/late_switch_points",
    },
    "b3l": {
        "setup.engine.runs": "runs/late_switch_points",
        "title": "The best switch point of a larger budget",
        "arms": points((8_000_000,), AFTER),
        "seeds": (40, 41, 42),
    },
    "b4": {
        "title": "The best switch point by the difficulty of the task",
        "arms": by_task((0, 0.5, 1), points(BUDGETS[:4], AFTER)),
        "seeds": tuple(range(60, 66)),
        "registration": "results/predictions/late_switch_difficulty.json",
        "setup.text.corpus": "synthetic",
        "setup.engine.runs": "runs/late_switch_difficulty",
    },
    "b5": {
        "title": "Late switches at 99k parameters, LR tuned",
        "arms": ENDINGS,
        **tuned(model(2, 64)),
    },
    "b5c": {
        "title": "Late switches at 99k parameters under a cosine",
        "arms": cosine(ENDINGS),
        **tuned(model(2, 64)),
    },
    "b5l": {
        "title": "Late switches at 394k parameters, LR tuned",
        "arms": ENDINGS,
        **tuned(model(2, 128)),
    },
    "b5lc": {
        "title": "Late switches at 394k parameters under a cosine",
        "arms": cosine(ENDINGS),
        **tuned(model(2, 128)),
    },
    "gpu": {
        "title": "Late switches at 4.7M parameters",
        "arms": compared(32, (10, 30, 50, 70, 85, 95), (30, 70)),
        "seeds": (40, 41, 42),
        "dry_run": True,
        "registration": "",
        "setup.model": "mini",
        "setup.text": {"corpus": "synthetic", "seq_len": 256},
        "setup.optimizer.lr": 4e-3,
        "setup.schedule": {"tokens": 200_000_000, "warmup": 2_000_000},
        "setup.evaluation": {"tokens": 1_048_576, "test_tokens": 4_194_304, "first": 5_000_000},
        "setup.engine.buckets": (32, 64, 128, 256),
    },
}

get_config = sized(BASE, PARTS, default="b1")
