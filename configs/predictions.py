"""Schedules drawn from a seed, predicted before they are trained.

    python -m experiments.predictions.register --config=configs/predictions.py:cpu
    python -m experiments.predictions --config=configs/predictions.py:cpu

| size  | pilots                                 | schedules × seeds   | tokens           |
|-------|----------------------------------------|---------------------|------------------|
| smoke | a test's own, at 12k parameters        | 6 × 1               | 60K each         |
| cpu   | results/late_switch, 99k parameters    | 24 × 3              | 1M each, 72M     |

The set-up is that of the pilots, the second moment's half-life of 7K tokens with it. The law is
fitted to 45 of their mean curves: constants of three batches at three rates each, and schedules
that change their batch, each at constant rate, under WSD and under a cosine. Their first half is
left out of it, as late_switch's left-out pilots had it.
"""

from ml_collections import ConfigDict

from configs import es_wsd
from configs.overlays import at_size

BASE = {
    "title": "Drawn schedules, predicted before they were trained",
    "name": "schedules",
    "predictions": "results/predictions",
    "pilots": "results/late_switch",
    "fitted": (
        *("constant 1", "constant 4", "constant 16"),
        *("early", "middle", "late", "stages"),
    ),
    "exclusions": (
        "constants of batch 32 are no pilots: with 1, 8 and 32 in place of 1, 4 and 16 the law's "
        "error of log loss at the ends of left-out pilots is .032, not .016",
    ),
    "since": 0.5,
    "schedules": 24,
    "draw": 20261122,
    "batches": (1, 2, 3, 4, 6, 8, 12, 16, 24, 32),
    "peaks": (1e-3, 8e-3),
    "switches": (0.1, 0.9),
    "decay": 0.2,
    "seeds": (10, 11, 12),
    "resamples": 100,
    "results": "runs/predictions/results/{size}",
    "engine": "local",
}
SIZES = {
    "smoke": {
        "predictions": "runs/predictions_smoke",
        "pilots": "runs/predictions_smoke/pilots",
        "fitted": ("constant 1", "constant 8", "late"),
        "exclusions": (),
        "schedules": 6,
        "batches": (1, 2, 4, 8),
        "peaks": (4e-3, 8e-3),
        "seeds": (10,),
        "resamples": 5,
        "setup.engine.runs": "runs/predictions_smoke",
    },
    "cpu": {"setup.engine.runs": "runs/predictions"},
}


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    return at_size(size, BASE | {"setup": es_wsd.get_config(size).setup.to_dict()}, SIZES)
