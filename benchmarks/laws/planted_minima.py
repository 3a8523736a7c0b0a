"""Planted tokens to one loss, of which B_opt is the measured minimum.

`flat` and `rising` have one run per batch size, no B_opt, and noise of 1, 2 or 4 times the usual
one. At other kinds four of six batch sizes reach the loss within the budget: two small ones miss it
(`small`), one at each end (`both`), or two small ones below B_min of L = L_0 + a S^-α + b/B
(`cliff`). The first two are (1 + B/B_c)(1 + (b/B)^q), a law that is not the package's (all derived
here).
"""

from collections.abc import Callable, Iterator

import numpy as np

from bss.laws.minimum import excess_noise, measured_minimum

FLAT = ("flat", "rising")
MISSED = {"small": {0, 1}, "both": {0, 5}, "cliff": {0, 1}}
"""Which of six batch sizes miss the loss."""
BATCHES = 2.0 ** np.arange(2, 8)
USUAL = 0.02  # noise of log tokens
TYPICAL = 0.03  # of tables with missed losses, whose noise is 0.01 to 0.05
TARGETS = 5


def flat(kind: str, noise: int, seed: int) -> Iterator[tuple[float, float | None]]:
    """Yield no B_opt, and the estimate, at each target of a set whose runs share their luck."""
    generator = np.random.default_rng([seed, len(kind), noise])
    batch = 2.0 ** np.arange(1, 9)
    one = np.ones(len(batch))
    rise = kind == "rising"
    slope = rise * noise * USUAL * generator.uniform(0, 3) / np.log(batch[-1] / batch[0])
    shared = generator.standard_normal(len(batch)) * np.sqrt(0.7)
    for _ in range(TARGETS):
        luck = shared + np.sqrt(0.3) * generator.standard_normal(len(batch))
        value = slope * np.log(batch) + noise * USUAL * luck
        typical = USUAL * excess_noise(batch, value, one, one, USUAL)
        yield np.nan, measured_minimum(batch, value, typical=typical).batch.value


def missed(kind: str, seeds: int, seed: int) -> tuple[float, float | None, float, float]:
    """Return B_opt of a table, the estimate and its interval."""
    generator = np.random.default_rng([seed, len(kind), seeds])
    fine = np.geomspace(BATCHES[0], BATCHES[-1], 4000)
    while True:
        law = _law(kind, generator)
        noise = generator.uniform(0.01, 0.05)
        tokens = law(BATCHES)
        order = np.argsort(tokens)
        best = float(fine[law(fine).argmin()])
        ends = np.sort(BATCHES[order[:4]])[[0, -1]]
        deep = law(ends).min() - law(fine).min() > 3 * noise
        inside = ends[0] * 1.2 < best < ends[1] / 1.2
        if {*order[4:].tolist()} == MISSED[kind] and deep and inside:
            break
    gap = min(tokens[order[4]] - tokens[order[3]], 1.0)
    budget = tokens[order[3]] + gap * generator.uniform(0.3, 0.9)
    batch = np.repeat(BATCHES, seeds)
    value = law(batch) + noise * generator.standard_normal(len(batch))
    late = value > budget
    found = measured_minimum(
        batch,
        np.where(late, budget, value),
        typical=TYPICAL,
        censored=late,
        seed=np.tile(np.arange(seeds), len(BATCHES)),
    ).batch
    return best, found.value, found.low or 0.0, found.high or np.inf


def _law(kind: str, generator: np.random.Generator) -> Callable[[np.ndarray], np.ndarray]:
    """Return log tokens of a law."""
    if kind == "cliff":
        alpha = generator.uniform(0.3, 0.8)
        smallest = 2 ** generator.uniform(1.5, 4.5)
        return lambda B: np.log(B) - np.log(np.maximum(1 - smallest / B, 1e-30)) / alpha
    B_c = 2 ** generator.uniform(3, 7)
    small = 2 ** generator.uniform(1, 5)
    power = generator.uniform(0.8, 2.0)
    return lambda B: np.log1p(B / B_c) + np.log1p((small / B) ** power)
