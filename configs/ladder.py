"""A series of model sizes, each predicted from smaller ones, in parts on one runs directory.

    python -m experiments.ladder --config=configs/ladder.py:es_99k --config.dry_run=True
    python -m experiments.ladder --config=configs/ladder.py:es_99k

| part           | models            | tokens     | runs                       | time              |
|----------------|-------------------|------------|----------------------------|-------------------|
| smoke          | 12k and a mixture | 20K        | 2 batches; for tests       | a minute          |
| pilot_rates    | 49k               | 250K       | 3 batches, 4 LRs           | 2 minutes         |
| pilots         | 12k, 25k, 49k     | 500K       | 6 batches                  | 4 minutes         |
| rates          | 99k, .38M         | an eighth  | 3 batches, 3 LRs           | 6 minutes, took   |
| es_99k         | 99k               | 1M         | 7 batches, 2 seeds         | 4.5 minutes, took |
| es_380k        | .38M              | 3.8M       | 7 batches, 2 seeds         | 43 minutes, took  |
| short_99k      | 99k               | 1M         | 5 small batches, 3 LRs     | 16 minutes, took  |
| short_380k     | .38M              | 3.8M       | 5 small batches, 2 seeds   | not run           |
| width          | 2 × 64, 2 × 128   | 1M         | 3 batches, 3 LRs           | 8 minutes, took   |
| standard       | 2 × 128           | 1M         | those, without "mup"       | 7 minutes, took   |
| width_seeds    | 2 × 64, 2 × 128   | 1M         | batch 4, 3 LRs, 3 seeds    | 7 minutes, took   |
| standard_seeds | 2 × 128           | 1M         | those, without "mup"       | 6 minutes, took   |
| mixture        | .4M active, 8e2   | 1M         | 5 batches, one late switch | 17 minutes, took  |
| es_790k        | .79M              | 7.9M       | 3 batches                  | 33 minutes, took  |
| more_790k      | .79M              | 7.9M       | 2 batches at lower LRs     | 17 minutes, took  |
| es_4.7M        | 4.7M              | 47M        | 7 batches, 3 seeds         | one H100; not run |
| late           | 4.7M              | 47M        | 3 fixed batches, 2 forks   | one H100; not run |
| width_gpu      | 2 × 256, 2 × 512  | 1M         | 3 batches, 3 LRs           | one H100; not run |
| large          | 12M, 25M          | 124M, 252M | 7 batches                  | one H100; not run |

A model of width d has 2 log2(d/32) layers and heads of 32. Sequences are 256 bytes of the text of
configs/packages.json (166.6M tokens). Only runs at 25M parameters read some of it twice. Adam's
beta1 is 0.9 per step, because the predictions of configs/momentum.py were inconclusive. LRs were
chosen by `pilot_rates` and transfer across widths by "mup". Times are on two cores: measured
("took"), or estimated from FLOP/s (a dry run estimates 1.6 times more). Predictions:
results/predictions/ladder.json, which the runs record.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from configs.overlays import PRICED, SETUP, sized

BATCHES = (1, 2, 4, 8, 16, 32, 64)
RATES = {1: 2e-3, 2: 2e-3, 4: 4e-3, 8: 4e-3, 16: 8e-3, 32: 8e-3, 64: 8e-3}
"""LR by batch size; other batch sizes use the LR of the next smaller one."""
AROUND = (0.5, 1.0, 2.0)
PER_PARAMETER = 10
"""Tokens per parameter."""


def model(layers: int, width: int, **fields: Any) -> dict:
    """Return the model of a width, with the LRs of width 64."""
    own = {"num_heads": max(width // 32, 1), "head_dim": 32, "d_ff": 4 * width}
    shape = {"num_layers": layers, "d_model": width, "vocab_size": 256, **own}
    return {**shape, "parametrization": "mup", "base_width": 64, **fields}


BFLOAT = {"dtype": "bfloat16"}
STACKED = {**BFLOAT, "scan_layers": True, "remat": True}
MODELS = {
    "12k": (12_000, model(1, 32)),
    "25k": (25_000, model(2, 32)),
    "49k": (49_000, model(1, 64)),
    "99k": (99_000, model(2, 64)),
    "0.38M": (380_000, model(3, 104)),
    "0.79M": (790_000, model(4, 128)),
    "4.7M": (4_700_000, model(6, 256, **BFLOAT)),
    "12M": (12_400_000, model(7, 384, **STACKED)),
    "25M": (25_200_000, model(8, 512, **STACKED)),
    "2x128": (393_000, model(2, 128)),
    "2x128, standard": (393_000, model(2, 128, parametrization="standard", base_width=None)),
    "2x256": (1_570_000, model(2, 256, **BFLOAT)),
    "2x512": (6_290_000, model(2, 512, **BFLOAT)),
    "2x128, experts": (
        395_000,
        model(2, 128, family="mixture", num_experts=8, top_k=2) | {"d_ff": 256},
    ),
    "12k, experts": (
        12_000,
        model(1, 32, family="mixture", num_experts=4, top_k=2) | {"d_ff": 64},
    ),
}
"""Parameters that a token meets, and the model."""


def grid(batches: Iterable[int], factors: Sequence[float] = (1.0,)) -> list[dict]:
    """Return fixed batch sizes, each at multiples of its LR."""
    rates = {b: RATES[max(known for known in RATES if known <= b)] for b in batches}
    return [{"batch": b, "rates": tuple(rate * f for f in factors)} for b, rate in rates.items()]


def rung(name: str, batches: list[dict], tokens: float = 0, **more: Any) -> dict:
    """Return a model with its token budget, by default 10 tokens per parameter."""
    params, shape = MODELS[name]
    budget = round(tokens or PER_PARAMETER * params)
    changes = {"model": shape, **more.pop("changes", {})}
    return {"name": name, "tokens": budget, "grid": batches, "changes": changes, **more}


def eighth(name: str) -> dict:
    """Return three batch sizes with three LRs each, at an eighth of a model's budget."""
    return rung(name, grid((1, 4, 16), AROUND), PER_PARAMETER * MODELS[name][0] / 8)


def short(name: str, factors: Sequence[float] = (1.0,)) -> dict:
    """Return a model with sequences of 64, from a quarter of the usual smallest batch size on."""
    rates = {1: 1e-3, 2: 1.4e-3, 4: 2e-3, 8: 2.8e-3, 16: 4e-3}
    batches = [{"batch": b, "rates": tuple(r * f for f in factors)} for b, r in rates.items()]
    return rung(name, batches, changes={"data.seq_len": 64})


def late(batch: int, *ats: float, grow: int = 2) -> list[dict]:
    """Return late switches from a fixed batch size."""
    return [{"batch": batch, "grow": grow, "at": at} for at in ats]


BASE = {
    "title": "A ladder of sizes",
    "registration": "results/predictions/ladder.json",
    "rungs": [],
    "seeds": (0,),
    "ends": (0.5, 1.0),
    "decay": 0.2,
    "results": "results/ladder/{size}",
    "engine": "local",
    **PRICED,
    "peak_flops": 1.2e11,
    "setup": SETUP,
    "setup.model": model(2, 64),
    "setup.text": {"corpus": "packages:configs/packages.json", "seq_len": 256},
    "setup.optimizer": {"beta2": 0.95, "beta2_half_life": 0},
    "setup.averages": (),
    "setup.schedule.tokens": 1_000_000,
    "setup.evaluation": {"per_efold": 8, "first": 50_000, "test_tokens": 65_536},
    "setup.engine": {"runs": "runs/ladder", "buckets": (1, 2, 4, 8), "vmap_runs": 0},
}
GPU = {
    "peak_flops": PRICED["peak_flops"],
    "setup.engine": {"buckets": (1, 2, 4, 8, 16, 32, 64), "vmap_runs": 1},
    "setup.evaluation": {"tokens": 131_072, "test_tokens": 1_048_576, "first": 2_000_000},
}
SIZES = {
    "smoke": {
        "registration": "",
        "rungs": [
            rung("12k", grid((1, 2)), 20_000),
            rung("12k, experts", grid((1, 2)), 10_000, switches=late(1, 0.5)),
        ],
        "results": "runs/ladder_smoke/results",
        "setup.engine": {"runs": "runs/ladder_smoke", "buckets": (1, 2), "workers": 1},
        "setup.text": {"corpus": "stdlib", "seq_len": 128},
        "setup.evaluation": {"tokens": 2_048, "test_tokens": 2_048, "first": 5_000},
    },
    "pilot_rates": {
        "title": "Rates of a pilot",
        "registration": "",
        "rungs": [
            rung(
                "49k",
                [{"batch": b, "rates": (2e-3, 4e-3, 8e-3, 1.6e-2)} for b in (1, 4, 16)],
                250_000,
            )
        ],
        "ends": (1.0,),
    },
    "pilots": {
        "title": "Pilots below the ladder",
        "registration": "",
        "rungs": [rung(name, grid(BATCHES[:6]), 500_000) for name in ("12k", "25k", "49k")],
        "ends": (0.25, 0.5, 1.0),
    },
    "rates": {"rungs": [eighth("99k"), eighth("0.38M")], "ends": (1.0,)},
    "es_99k": {"rungs": [rung("99k", grid(BATCHES))], "seeds": (0, 1)},
    "es_380k": {"rungs": [rung("0.38M", grid(BATCHES))], "seeds": (0, 1)},
    "es_790k": {"rungs": [rung("0.79M", grid((1, 2, 4)))]},
    "short_99k": {"rungs": [short("99k", AROUND)], "seeds": (0, 1)},
    "short_380k": {"rungs": [short("0.38M")], "seeds": (0, 1)},
    "more_790k": {
        "title": "Lower rates of larger batches",
        "registration": "",
        "rungs": [
            rung("0.79M", [{"batch": 4, "rates": (2e-3,)}, {"batch": 8, "rates": (2.8e-3,)}])
        ],
    },
    "width": {
        "rungs": [rung(name, grid((1, 4, 16), AROUND), 990_000) for name in ("99k", "2x128")],
        "ends": (1.0,),
    },
    "standard": {
        "title": "Rates without a parametrization",
        "registration": "",
        "rungs": [rung("2x128, standard", grid((1, 4, 16), AROUND), 990_000)],
        "ends": (1.0,),
    },
    "width_seeds": {
        "title": "More seeds of rates over widths",
        "registration": "",
        "rungs": [rung(name, grid((4,), AROUND), 990_000) for name in ("99k", "2x128")],
        "seeds": (1, 2, 3),
        "ends": (1.0,),
    },
    "standard_seeds": {
        "title": "More seeds of rates without a parametrization",
        "registration": "",
        "rungs": [rung("2x128, standard", grid((4,), AROUND), 990_000)],
        "seeds": (1, 2, 3),
        "ends": (1.0,),
    },
    "mixture": {
        "rungs": [
            rung("2x128, experts", grid((1, 2, 4, 8, 16)), 990_000, switches=late(4, 0.7, grow=8))
        ],
        "ends": (1.0,),
    },
    "es_4.7M": GPU | {"rungs": [rung("4.7M", grid(BATCHES))], "seeds": (0, 1, 2)},
    "late": GPU
    | {
        "rungs": [rung("4.7M", grid((4, 6, 8)), switches=late(4, 0.5, 0.7))],
        "seeds": (0, 1, 2, 3),
        "ends": (1.0,),
    },
    "width_gpu": GPU
    | {
        "rungs": [rung(name, grid((1, 4, 16), AROUND), 990_000) for name in ("2x256", "2x512")],
        "ends": (1.0,),
    },
    "large": GPU
    | {
        "rungs": [
            rung("12M", grid(2 * b for b in BATCHES)),
            rung("25M", grid(2 * b for b in BATCHES), changes={"data.repeat": True}),
        ],
    },
}

get_config = sized(BASE, SIZES, default="es_99k")
