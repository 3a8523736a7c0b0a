"""The effect of beta1 at each batch size, in parts on one runs directory.

    python -m experiments.momentum --config=configs/momentum.py:grid

| part  | trains                                             | tokens of a run | runs             |
|-------|----------------------------------------------------|-----------------|------------------|
| smoke | three arms and a switch, 12k parameters; for tests | 20K             | 22 runs          |
| grid  | beta1 × batch at the better of two LRs; 4 → 8      | 500K            | 32 arms, 8 seeds |
| late  | 4 → 32 with beta1 kept and following the batch     | 1M              | 4 arms, 8 seeds  |
| long  | beta1 at batches 8 and 32                          | 2M              | 6 arms, 5 seeds  |
| cuts  | batch × 4 and LR cuts, from one checkpoint         | 1M to 1.9M      | 6 arms, 8 seeds  |

LRs are chosen on seeds 0 and 1, annealed, at 500K tokens. Seeds from 5 on are compared; no pilot
used them. The choice is read from the results; --config.chosen= trains it again. Models have 99k
parameters, on two cores, with beta2 0.95 per step; its half-life in part `late` is 7,000 tokens.
Predictions: results/predictions/momentum.json.
"""

from collections.abc import Iterable, Sequence

from configs.overlays import SETUP, sized

RATES = {
    **dict.fromkeys((1, 2), (2e-3, 4e-3)),
    **dict.fromkeys((4, 5, 6, 8, 16, 32), (4e-3, 8e-3)),
}
BETAS = (0.6, 0.7, 0.8, 0.9, 0.95)
FAST = 8e-3
"""Another LR at which beta1 = 0.9 is trained on all seeds, for batch sizes 16 and 32."""


def arms(batches: Iterable[int], betas: Sequence[float]) -> list[dict]:
    """Return fixed batch sizes with each beta1, and the two LRs tried at each."""
    return [
        {
            "batch": batch,
            "beta1": beta1,
            "rates": RATES[batch],
            "judged": (FAST,) if batch >= 16 and beta1 == 0.9 else (),
        }
        for batch in batches
        for beta1 in betas
    ]


def one(batch: int, rate: float) -> dict:
    """Return a fixed batch size with beta1 0.9 at one LR."""
    return {"batch": batch, "beta1": 0.9, "rates": (rate,), "judged": ()}


def fork(name: str, at: float, *, grow: int = 1, stop: float = 1.0, **changes: float) -> dict:
    """Return the forked runs from a checkpoint of batch 4 with beta1 0.9; see `Fork`."""
    own = {f"optimizer.{field}": value for field, value in changes.items()}
    return {"name": name, "batch": 4, "at": at, "grow": grow, "stop": stop, "changes": own}


BASE = {
    "title": "Momentum: what decides the large batch",
    "registration": "results/predictions/momentum.json",
    "arms": arms((1, 2, 4, 8, 16, 32), BETAS) + arms((5, 6), (0.9,)),
    "forks": [fork("4 → 8", 0.5, grow=2), fork("4 → 8, beta1 .81", 0.5, grow=2, beta1=0.81)],
    "choosing": (0, 1),
    "choosing_tokens": 500_000,
    "chosen": "results/momentum/finals.csv",
    "seeds": tuple(range(5, 13)),
    "together": 4,
    "decay": 0.2,
    "results": "runs/momentum/results/{size}",
    "engine": "local",
    "setup": SETUP,
    "setup.optimizer": {"beta2": 0.95, "beta2_half_life": 0},
    "setup.schedule": {"tokens": 500_000, "warmup": 50_000},
    "setup.evaluation": {"per_efold": 5, "first": 80_000},
    "setup.engine": {"runs": "runs/momentum", "vmap_runs": 10},
}
SIZES = {
    "smoke": {
        "registration": "",
        "results": "runs/momentum_smoke/results",
        "arms": [
            {"batch": batch, "beta1": beta1, "rates": (4e-3, 8e-3), "judged": ()}
            for batch, beta1 in ((2, 0.7), (2, 0.9), (4, 0.9))
        ],
        "forks": [fork("4 → 8", 0.5, grow=2)],
        "choosing": (0,),
        "choosing_tokens": 20_000,
        "chosen": "",
        "seeds": (5, 6),
        "setup.model": "pico",
        "setup.schedule": {"tokens": 20_000, "warmup": 2_000},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 8_000},
        "setup.engine": {
            "runs": "runs/momentum_smoke",
            "vmap_runs": 2,
            "buckets": (2,),
            "workers": 1,
        },
    },
    "grid": {},
    "late": {
        "title": "Late switching with beta1 that follows the batch",
        "arms": [one(1, 2e-3), one(4, 2e-3)],
        "forks": [
            fork("4 → 32", 0.7, grow=8),
            fork("4 → 32, beta1 .43", 0.7, grow=8, beta1=0.9**8),
        ],
        "choosing": (),
        "setup.optimizer.beta2_half_life": 7_000,
        "setup.schedule.tokens": 1_000_000,
    },
    "long": {
        "title": "beta1 with four times the tokens",
        "arms": [arm | {"judged": ()} for arm in arms((8, 32), BETAS[1:4])],
        "forks": [],
        "seeds": tuple(range(5, 10)),
        "setup.schedule.tokens": 2_000_000,
    },
    "cuts": {
        "title": "Which rate cut a batch change equals",
        "arms": [one(4, 4e-3)],
        "forks": [
            fork("rate / 2", 0.7, stop=1.3, lr=2e-3),
            fork("rate / 4", 0.7, stop=1.9, lr=1e-3),
            fork("batch × 4", 0.7, grow=4, stop=1.9),
            fork("batch × 4, betas per token", 0.7, grow=4, stop=1.9, beta1=0.9**4, beta2=0.95**4),
            fork("batch × 4, beta1 per token", 0.7, grow=4, stop=1.9, beta1=0.9**4),
        ],
        "choosing": (),
        "decay": 0.0,
        "setup.schedule.tokens": 1_000_000,
        "setup.evaluation": {"tokens": 65_536, "per_efold": 15, "first": 716_531},
    },
}

get_config = sized(BASE, SIZES, default="grid")
