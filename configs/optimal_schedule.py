"""Optimal batch schedules in theory: switch points, catch-up, exponents, the law; no training.

    python -m experiments.optimal_schedule --config=configs/optimal_schedule.py:cpu

| size  | largest exact budget | modes | time on one CPU core | for                           |
|-------|----------------------|-------|----------------------|-------------------------------|
| smoke | 2^18 samples         | 32    | seconds              | tests                         |
| cpu   | 2^24 samples         | 128   | 10 seconds           | results/optimal_schedule      |

Expected at cpu size: D − P* ∝ D^0.7475 for the hard task (theory 0.743) and P* = 0 for the easy
task. The gap closes as δ^−0.76 (theory −0.75). Exponents of the optimum are within 0.02 of theory
for (0.3, 4).
"""

from configs.overlays import sized

BASE = {
    "title": "Optimal batch schedules in theory",
    "hard": [{"source": 0.3, "capacity": 4.0}, {"source": 0.5, "capacity": 4.0}],
    "easy": [{"source": 1.0, "capacity": 2.0}, {"source": 1.5, "capacity": 2.0}],
    "modes": 128,
    "lr": 0.1,
    "noise": 1.0,
    "min_batch": 1,
    "max_batch": 8,
    "exact_powers": (12, 24),
    "law_decades": (10, 14),
    "switch_steps": 2**22,
    "results": "results/optimal_schedule",
}
SIZES = {
    "smoke": {
        "modes": 32,
        "exact_powers": (12, 18),
        "switch_steps": 2**16,
        "results": "runs/optimal_schedule_smoke/results",
    },
    "cpu": {},
}

get_config = sized(BASE, SIZES, default="cpu")
