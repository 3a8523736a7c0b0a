"""The critical batch size as a function of model size, data and other settings.

    python -m experiments.critical_batch --config=configs/critical_batch.py:cpu
    python -m experiments.critical_batch --config=configs/critical_batch.py:paper \
        --config.dry_run=True

| size  | models         | budgets        | what it needs                                      |
|-------|----------------|----------------|----------------------------------------------------|
| smoke | 7k, 12k        | 15K to 30K     | about a minute of CPU; for tests                   |
| cpu   | 7k to 62k      | 50K to 500K    | estimated 20 to 25 minutes on 2 quiet cores        |
| gpu   | 50k to 0.8M    | 0.5M to 7.9M   | one accelerator, synthetic language; not measured  |
| paper | 85M to 1.2B    | 1.7B to 25B    | 5,300 H100-hours at 40% of 989 TFLOP/s (dry run)   |

--config.dry_run=True prints the cost of any size. Batch sizes are a factor of 2 apart, from half
the reference to 4 times the expected critical batch size. `paper` has the sizes, budgets, batch
sizes, LRs, beta2 and warm-up of Zhang et al. (arXiv 2410.21676). The model of its context lengths
is unknown; 151M is our choice. Its averages have half-lives in shares of the tokens consumed
instead of the paper's tau by batch size. Other sizes warm up over a fixed number of tokens, so that
a run serves all budgets of its model.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from configs.overlays import DEVICES, PRICED, sized

CHINCHILLA = (1_741_000_000, 3_072_000_000, 6_144_000_000, 12_288_000_000, 24_576_000_000)


def design(name: str, *points: Mapping[Any, int]) -> dict:
    """Points by model and budget, each once."""
    pairs = list(dict.fromkeys(pair for part in points for pair in part.items()))
    return {"name": name, "points": [{"model": model, "tokens": d} for model, d in pairs]}


def designs(
    together: Mapping[str, int], model: str, budgets: Iterable[int], fixed: int
) -> list[dict]:
    """Model and data grown together, the data at one model, the model at one budget, and all."""
    data, size = [{model: budget} for budget in budgets], dict.fromkeys(together, fixed)
    return [
        design("together", together),
        design("data", *data),
        design("size", size),
        design("both", together, *data, size),
    ]


def context(model: str, tokens: int, lengths: Sequence[int]) -> dict:
    """One model and budget at several sequence lengths."""
    points = [{"model": model, "tokens": tokens, "seq_len": length} for length in lengths]
    return {"name": "context", "unit": "tokens", "points": points}


def grid(
    low: int, high: int, *, reference: int, rate: float, tried: int, half_life: int
) -> list[dict]:
    """Return batch sizes from `low` to `high` tokens and the LRs of each, both a factor of 2 apart.

    `rate` is the middle LR at the reference batch size. It grows with the batch size to the power
    0.37, as in a pilot (pico, 62K and 124K tokens, 64 to 4096 tokens per step). beta2 has a
    half-life in tokens, but is not below 0.95.
    """
    entries = []
    for tokens in (low << k for k in range(round(math.log2(high / low)) + 1)):
        lowest = rate * (tokens / reference) ** 0.37 / 2 ** (tried // 2)
        rates = tuple(float(f"{lowest * 2**i:.3g}") for i in range(tried))
        beta2 = round(max(0.95, 2 ** (-tokens / half_life)), 5)
        entries.append({"tokens": tokens, "rates": rates, "beta2s": (beta2,)})
    return entries


def published_grid() -> list[dict]:
    """Return the paper's batch sizes, in sequences of 512, with one LR and beta2 each."""
    beta2s = {64: 0.999, 128: 0.999, 256: 0.995, 512: 0.99, 1024: 0.99}
    batches = [64 << k for k in range(9)]
    rates = [(b, 3.16e-3, {}) for b in batches]
    largest = {"models": ("1.2B",)}
    rates += [(b, 1e-3, largest) for b in batches[:4]] + [(b, 1e-2, largest) for b in (4096, 8192)]
    return [
        {"tokens": 512 * b, "rates": (lr,), "beta2s": (beta2s.get(b, 0.95),), **only}
        for b, lr, only in rates
    ]


BASE = {
    "title": "The critical batch size with model and data",
    "designs": [
        *designs(
            {"1x24": 56_000, "pico": 99_000, "1x48": 223_000, "1x72": 500_000},
            "pico",
            (50_000, 99_000, 200_000, 400_000),
            200_000,
        ),
        design("shape", {"pico": 99_000, "4x16": 99_000}),
        context("pico", 99_000, (16, 32, 64)),
    ],
    "grid": grid(32, 16_384, reference=64, rate=3e-3, tried=3, half_life=20_000),
    "reference": 64,
    "bend": {"tokens": 900.0, "budget": 124_000.0, "exponent": 0.6},
    "overhead": 0.2,
    "margin": 1.3,
    "rounds": 2,
    "seeds": (0, 1, 2),
    "warmup_share": 0.0,
    "noise_half_life": 20_000,
    "noise_split": False,
    "resamples": 2000,
    "results": "runs/critical_batch_{size}/results",
    **PRICED,
    "engine": "local",
    "setup": {
        "model": "pico",
        "text": {"corpus": "stdlib", "tokenizer": "bytes", "root": "data", "seq_len": 32},
        "optimizer": {"lr": 4e-3, "beta1": 0.9, "weight_decay": 0.0},
        "schedule": {"tokens": 5_000_000, "rate": "wsd"},
        "evaluation": {"tokens": 8_192, "per_efold": 12, "first": 10_000},
        "averages": ("1%", "4%", "16%"),
        "engine": {
            "runs": "runs/critical_batch_{size}",
            "workers": 0,
            "pin": True,
            "buckets": (1, 2, 4, 8),
            "checkpoint_seconds": 60.0,
            **DEVICES,
        },
    },
}
SIZES = {
    "smoke": {
        "designs": [
            design("together", {"1x24": 15_000, "pico": 30_000}),
            design("data", {"pico": 15_000}, {"pico": 30_000}),
        ],
        "grid": grid(64, 512, reference=64, rate=4e-3, tried=2, half_life=20_000),
        "bend": {"tokens": 300.0, "budget": 30_000.0, "exponent": 0.5},
        "rounds": 1,
        "seeds": (0, 1),
        "resamples": 50,
        "noise_half_life": 4_000,
        "schedules": {"model": "1x24", "tokens": 15_000, "batches": (256,), "factors": (1.0,)},
        "setup.schedule": {"tokens": 30_000, "warmup": 1_500},
        "setup.evaluation.tokens": 1_024,
        "setup.averages": ("4%", "16%"),
        "setup.engine.buckets": (2,),
        "setup.engine.workers": 1,
    },
    "cpu": {
        "margin": 1.2,
        "schedules": {"model": "pico", "tokens": 99_000, "batches": (64, 512, 2_048)},
        "peak_flops": 1.2e11,
        "setup.schedule.warmup": 5_000,
    },
    "gpu": {
        "designs": designs(
            {
                "1x64": 500_000,
                "nano": 1_000_000,
                "2x96": 2_200_000,
                "2x128": 3_900_000,
                "micro": 7_900_000,
            },
            "2x96",
            (550_000, 1_100_000, 2_200_000, 4_400_000),
            2_200_000,
        ),
        "grid": grid(256, 1 << 17, reference=512, rate=2e-3, tried=3, half_life=100_000),
        "reference": 512,
        "bend": {"tokens": 8_000.0, "budget": 4_400_000.0, "exponent": 0.6},
        "noise_half_life": 100_000,
        "schedules": {"model": "2x96", "tokens": 2_200_000, "batches": (512, 4_096, 16_384)},
        "mfu": 0.01,  # assumed: small float32 models wait for launches
        "setup.model": "micro",
        "setup.text": {"corpus": "synthetic", "seq_len": 128},
        "setup.schedule": {"tokens": 100_000_000, "warmup": 50_000},
        "setup.evaluation.tokens": 131_072,
        "setup.engine.buckets": (2, 4, 8, 16, 32, 64),
    },
    "paper": {
        "designs": [
            *designs(
                dict(zip(("85M", "151M", "302M", "604M", "1.2B"), CHINCHILLA, strict=True)),
                "302M",
                [round(part * 6_144_000_000) for part in (0.28, 0.5, 1, 2, 4)],
                3_072_000_000,
            )[:3],
            context("151M", 3_072_000_000, (512, 1024, 2048, 4096)),
        ],
        "grid": published_grid(),
        "reference": 512 * 256,
        "bend": {"tokens": 512 * 2_200.0, "budget": 1_741e6, "exponent": 0.625},
        "rounds": 0,
        "seeds": (0,),
        "warmup_share": 0.25,
        "noise_half_life": 20_000_000,
        "setup.model": "151M",
        "setup.text.corpus": "c4/en",
        "setup.text.tokenizer": "data/gpt-neox/tokenizer.json",
        "setup.text.seq_len": 512,
        "setup.optimizer": {"lr": 3.16e-3, "beta1": 0.95, "beta2": 0.95},
        "setup.schedule.tokens": 24_576_000_000,
        "setup.evaluation": {"tokens": 4_194_304, "per_efold": 20, "first": 100_000_000},
        "setup.averages": ("0.5%", "1%", "2%", "4%", "8%", "16%"),
        "setup.engine.buckets": (8, 16, 32, 64),
    },
}

get_config = sized(BASE, SIZES, default="cpu")
