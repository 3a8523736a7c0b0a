"""Planted steps to one loss at 5 to 9 batch sizes, of S = a + b/B and of laws with another bend.

Each law is log S of x = κ/B, up to a constant. `hyperbola` is S = a + b/B with κ = b/a. `sharp` is
√(a² + (b/B)²), and `slow` is a(1 + √x)². `never` and `slower` end at B^-0.5 and B^-0.3, and `pure`
is a power of B. `power` is a + b/B^p. At `normal` and `parabola` the exponent of B rises from -1 to
0 as a normal distribution of log B, and linearly in log B (all derived here).
"""

from collections.abc import Callable, Mapping

import numpy as np
import pandas as pd
from scipy import special

OVERHEAD = 0.2
DESIGNS = tuple((sizes, seeds) for sizes in (5, 7, 9) for seeds in (1, 2, 3))
"""Batch sizes and seeds of each."""


def _normal(x: np.ndarray, p: Mapping[str, float]) -> np.ndarray:
    z = np.log(x) / p["width"]
    density = np.exp(-(z**2) / 2) / np.sqrt(2 * np.pi)
    return p["width"] * (z * special.ndtr(z) + density)


def _parabola(x: np.ndarray, p: Mapping[str, float]) -> np.ndarray:
    share = np.maximum((np.log(x) / p["width"] + 1) / 2, 0.0)
    return np.where(share < 1, p["width"] * share**2, np.log(x))


SHAPES: dict[str, Callable[[np.ndarray, Mapping[str, float]], np.ndarray]] = {
    "hyperbola": lambda x, p: np.log1p(x),
    "sharp": lambda x, p: np.log1p(x**2) / 2,
    "slow": lambda x, p: 2 * np.log1p(np.sqrt(x)),
    "never": lambda x, p: np.log(x) + 0.5 * np.log1p(1 / x),
    "pure": lambda x, p: p["pure"] * np.log(x),
    "slower": lambda x, p: np.log(x) + 0.7 * np.log1p(1 / x),
    "power": lambda x, p: np.log1p(x ** p["power"]),
    "normal": _normal,
    "parabola": _parabola,
}
"""The first five are those on which the rule was chosen."""


def planted(shape: str, sizes: int, seeds: int, index: int) -> tuple[pd.DataFrame, float]:
    """Return points of a curve, and its critical batch size from its smallest batch size.

    The critical batch size is 5% above the smallest batch size at least, and inside.
    """
    generator = np.random.default_rng([index, sizes, seeds, [*SHAPES].index(shape)])
    law = SHAPES[shape]
    true = 0.0
    batch = np.ones(sizes)
    while not batch[0] * 1.05 < true < batch[-1] / 1.2:
        ratio = float(generator.choice([2, 4])) if sizes < DESIGNS[-1][0] else 2.0
        batch = 2.0 ** generator.integers(2, 7) * ratio ** np.arange(sizes)
        kappa = batch[0] * (batch[-1] / batch[0]) ** generator.uniform(0.2, 0.8)
        p = {
            "power": generator.choice([0.8, 0.9, 1.1, 1.2]),
            "pure": generator.uniform(0.5, 0.95),
            "width": generator.uniform(0.5, 3.0),
        }
        fine = np.geomspace(batch[0], batch[-1], 20_001)
        tokens = law(kappa / fine, p) + np.log(fine)
        true = float(fine[np.flatnonzero(tokens - tokens[0] <= np.log1p(OVERHEAD))[-1]])
    noise = generator.uniform(0.01, 0.05)
    runs = np.repeat(batch, seeds)
    logs = law(kappa / runs, p) + noise * generator.standard_normal(len(runs))
    steps = np.round(10 ** generator.uniform(2.5, 4) * np.exp(logs - logs.min()))
    columns = {"model": "m", "lr_phase": "constant", "weights": "last", "target_loss": 3.0}
    numbers = {"params": 1e6, "budget_tokens": np.nan, "seq_len": 512.0, "peak_lr": np.nan}
    seed = np.tile(np.arange(seeds), sizes)
    table = pd.DataFrame({"batch": runs, "steps": steps, "seed": seed, "reached": True})
    return table.assign(**columns, **numbers), true
