"""The critical batch size: with model and data, with either alone, and what else it hangs on.

    python -m experiments.critical_batch --config=configs/critical_batch.py:cpu
    python -m experiments.critical_batch --config=configs/critical_batch.py:paper \
        --config.dry_run=True

| size  | models         | budgets        | what it needs                                      |
|-------|----------------|----------------|----------------------------------------------------|
| smoke | 7k, 12k        | 15K to 30K     | about a minute of CPU; for tests                   |
| cpu   | 7k to 62k      | 50K to 500K    | estimated 20 to 25 minutes on 2 quiet cores        |
| gpu   | 50k to 0.8M    | 0.5M to 7.9M   | one accelerator, synthetic language; not measured  |
| paper | 85M to 1.2B    | 1.7B to 25B    | 5,300 H100-hours at 40% of 989 TFLOP/s (dry run)   |

--config.dry_run=True prints the price of any. Batches are a factor of 2 apart, in tokens, from half
the reference to 4 times the guessed bend. `paper` has the sizes, budgets, batches, rates, beta2 and
warm-up of Zhang et al. (arXiv 2410.21676); which model its context lengths were compared at is not
known, 151M is our choice, and its averages are a bank of half-lives in parts of the tokens consumed
instead of the paper's tau by batch. The others warm up over one fixed number of tokens, so that a
run serves all budgets of its model.
"""

import math
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

SIZES = ("smoke", "cpu", "gpu", "paper")


def get_config(size: str = "cpu") -> ConfigDict:
    """The experiment at one of its sizes."""
    if size not in SIZES:
        raise ValueError(f"size {size!r}: expected one of {', '.join(SIZES)}")
    study = {"smoke": _smoke, "cpu": _cpu, "gpu": _gpu, "paper": _paper}[size]()
    setup = {"averages": ("1%", "4%", "16%"), **study.pop("setup")}
    engine = {
        "runs": f"runs/critical_batch_{size}",
        "workers": 1 if size in ("gpu", "paper") else 0,
        "pin": size in ("smoke", "cpu"),
        "buckets": {"gpu": (2, 4, 8, 16, 32, 64), "paper": (8, 16, 32, 64)}.get(size, (1, 2, 4, 8)),
        "checkpoint_seconds": 60.0,
    }
    return ConfigDict(
        {
            "title": "The critical batch size with model and data",
            "overhead": 0.2,
            "margin": 1.3,
            "rounds": 2,
            "seeds": (0, 1, 2),
            "warmup_share": 0.0,
            "noise_split": False,
            "resamples": 2000,
            "results": f"runs/critical_batch_{size}/results",
            "dry_run": False,
            "peak_flops": 989e12,
            "mfu": 0.4,
            **study,
            "setup": {**setup, "engine": engine},
        }
    )


def _smoke() -> dict:
    return {
        "designs": [
            _design("together", {"1x24": 15_000, "pico": 30_000}),
            _design("data", {"pico": 15_000}, {"pico": 30_000}),
        ],
        "grid": _grid(64, 512, reference=64, rate=4e-3, tried=2, half_life=20_000),
        "reference": 64,
        "bend": {"tokens": 300.0, "budget": 30_000.0, "exponent": 0.5},
        "rounds": 1,
        "seeds": (0, 1),
        "resamples": 50,
        "noise_half_life": 4_000,
        "schedules": {"model": "1x24", "tokens": 15_000, "batches": (256,), "factors": (1.0,)},
        "setup": _small(32, warmup=1_500, tokens=30_000, evaluated=1_024, averages=("4%", "16%")),
    }


def _cpu() -> dict:
    family = ("1x24", "pico", "1x48", "1x72")
    together = dict(zip(family, (56_000, 99_000, 223_000, 500_000), strict=True))
    data = [{"pico": tokens} for tokens in (50_000, 99_000, 200_000, 400_000)]
    size = dict.fromkeys(family, 200_000)
    return {
        "designs": [
            _design("together", together),
            _design("data", *data),
            _design("size", size),
            _design("both", together, *data, size),
            _design("shape", {"pico": 99_000, "4x16": 99_000}),
            _context("pico", 99_000, (16, 32, 64)),
        ],
        "grid": _grid(32, 16_384, reference=64, rate=3e-3, tried=3, half_life=20_000),
        "reference": 64,
        "bend": {"tokens": 900.0, "budget": 124_000.0, "exponent": 0.6},
        "margin": 1.2,
        "noise_half_life": 20_000,
        "schedules": {"model": "pico", "tokens": 99_000, "batches": (64, 512, 2_048)},
        "peak_flops": 1.2e11,
        "setup": _small(32, warmup=5_000, tokens=5_000_000, evaluated=8_192),
    }


def _gpu() -> dict:
    family = ("1x64", "nano", "2x96", "2x128", "micro")
    budgets = (500_000, 1_000_000, 2_200_000, 3_900_000, 7_900_000)
    together = dict(zip(family, budgets, strict=True))
    data = [{"2x96": tokens} for tokens in (550_000, 1_100_000, 2_200_000, 4_400_000)]
    size = dict.fromkeys(family, 2_200_000)
    setup = _small(128, warmup=50_000, tokens=100_000_000, evaluated=131_072)
    return {
        "designs": [
            _design("together", together),
            _design("data", *data),
            _design("size", size),
            _design("both", together, *data, size),
        ],
        "grid": _grid(256, 1 << 17, reference=512, rate=2e-3, tried=3, half_life=100_000),
        "reference": 512,
        "bend": {"tokens": 8_000.0, "budget": 4_400_000.0, "exponent": 0.6},
        "noise_half_life": 100_000,
        "schedules": {"model": "2x96", "tokens": 2_200_000, "batches": (512, 4_096, 16_384)},
        "mfu": 0.01,  # assumed: small float32 models wait for launches
        "setup": {**setup, "model": "micro", "text": _text("synthetic", 128)},
    }


def _paper() -> dict:
    family = ("85M", "151M", "302M", "604M", "1.2B")
    chinchilla = (1_741_000_000, 3_072_000_000, 6_144_000_000, 12_288_000_000, 24_576_000_000)
    together = dict(zip(family, chinchilla, strict=True))
    data = [{"302M": round(part * 6_144_000_000)} for part in (0.28, 0.5, 1, 2, 4)]
    beta2s = dict.fromkeys((64, 128), 0.999) | {256: 0.995, 512: 0.99, 1024: 0.99}
    batches = [64 << k for k in range(9)]
    grid = [
        {"tokens": 512 * b, "rates": (3.16e-3,), "beta2s": (beta2s.get(b, 0.95),)} for b in batches
    ]
    own = [(b, 1e-3 if b <= 512 else 1e-2) for b in batches if b <= 512 or b in (4096, 8192)]
    grid += [
        {"tokens": 512 * b, "rates": (lr,), "beta2s": (beta2s.get(b, 0.95),), "models": ("1.2B",)}
        for b, lr in own
    ]
    return {
        "designs": [
            _design("together", together),
            _design("data", *data),
            _design("size", dict.fromkeys(family, 3_072_000_000)),
            _context("151M", 3_072_000_000, (512, 1024, 2048, 4096)),
        ],
        "grid": grid,
        "reference": 512 * 256,
        "bend": {"tokens": 512 * 2_200.0, "budget": 1_741e6, "exponent": 0.625},
        "rounds": 0,
        "seeds": (0,),
        "warmup_share": 0.25,
        "noise_half_life": 20_000_000,
        "setup": {
            "model": "151M",
            "text": {**_text("c4/en", 512), "tokenizer": "data/gpt-neox/tokenizer.json"},
            "optimizer": {"lr": 3.16e-3, "beta1": 0.95, "beta2": 0.95, "weight_decay": 0.0},
            "schedule": {"tokens": 24_576_000_000},
            "evaluation": {"tokens": 4_194_304, "per_efold": 20, "first": 100_000_000},
            "averages": ("0.5%", "1%", "2%", "4%", "8%", "16%"),
        },
    }


def _design(name: str, *points: Mapping[Any, int]) -> dict:
    """Points by model and budget, each once."""
    pairs = list(dict.fromkeys(pair for part in points for pair in part.items()))
    return {"name": name, "points": [{"model": model, "tokens": d} for model, d in pairs]}


def _context(model: str, tokens: int, lengths: tuple[int, ...]) -> dict:
    points = [{"model": model, "tokens": tokens, "seq_len": length} for length in lengths]
    return {"name": "context", "unit": "tokens", "points": points}


def _grid(
    low: int, high: int, *, reference: int, rate: float, tried: int, half_life: int
) -> list[dict]:
    """Batches from `low` to `high` tokens and the rates of each, both a factor of 2 apart.

    `rate` is the middle of those tried at the reference batch; it grows as the batch to the power
    0.37, as the best rates of a pilot did (pico, 62K and 124K tokens, batches of 64 to 4096
    tokens). beta2 has a half-life in tokens, but is not below 0.95.
    """
    grid = []
    for k in range(round(math.log2(high / low)) + 1):
        tokens = low << k
        middle = rate * (tokens / reference) ** 0.37
        tried_here = [float(f"{middle * 2.0 ** (i - tried // 2):.3g}") for i in range(tried)]
        beta2 = round(max(0.95, 2 ** (-tokens / half_life)), 5)
        grid.append({"tokens": tokens, "rates": tuple(tried_here), "beta2s": (beta2,)})
    return grid


def _small(
    seq_len: int, *, warmup: int, tokens: int, evaluated: int, averages=("1%", "4%", "16%")
) -> dict:
    return {
        "model": "pico",
        "text": _text("stdlib", seq_len),
        "optimizer": {"lr": 4e-3, "beta1": 0.9, "weight_decay": 0.0},
        "schedule": {"tokens": tokens, "warmup": warmup},
        "evaluation": {"tokens": evaluated, "per_efold": 12, "first": 10_000},
        "averages": averages,
    }


def _text(corpus: str, seq_len: int) -> dict:
    return {"corpus": corpus, "tokenizer": "bytes", "root": "data", "seq_len": seq_len}
