"""Pool the best batch sizes of published sources: a value, and an interval for another lab.

A source is the published table of final losses, or a rule fitted to measured best batch sizes. The
log2 of the best batch size that source s predicts for N parameters and D tokens has the variance

    v_s = between² + (growth · distance_s)²

- between: standard deviation between sources (data, optimizer, schedule), with the error of each
  source's own fit, 0.05 for the table.
- distance_s: from (N, D) to the nearest point of the measured range, in doublings of D. A doubling
  of N counts as `params_weight` doublings, because it changes the best batch size that much less.

The pooled value is the mean weighted by 1/v_s. The optimum of another lab lies around it with
variance between² + 1/Σ(1/v_s): a random-effects model with its prediction interval (Higgins,
Thompson and Spiegelhalter, J. R. Stat. Soc. A 172, 137, 2009). Outside its range a source is
extended from the nearest point by D^exponent, the mean exponent of the sources. What it states at
the setting itself is in the interval too.
`python -m benchmarks.advice --write` estimates the numbers in calibration.json by leaving one
source out at a time.
"""

import itertools
import json
import math
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bss.laws.base import Estimate
from bss.rules import Hyperparameters, Rule, Setting

LEVEL = 0.90
TABLE = "published table"
POOLED = ("power-lines", "deepseek")
"""Rules fitted to best batch sizes that were measured with AdamW. step-law is fitted to the runs of
the published table, nanochat trains matrices with Muon, marin fixes the number of steps, and
minicpm needs the loss on one corpus."""
AXES = {
    "params": (1.0, 0.0, 0.0),
    "tokens": (0.0, 1.0, 0.0),
    "tokens_per_param": (-1.0, 1.0, 0.0),
    "compute": (1.0, 1.0, math.log2(6)),
}
"""log2 of an attribute of a setting: coefficients of (log2 N, log2 D), and a constant."""
ROUNDING = 1e-9  # of logs


class Constants(NamedTuple):
    """Estimated numbers of the model; batch sizes are in log2.

    Attributes:
        between: standard deviation between sources.
        growth: standard deviation per doubling of D outside the range.
        exponent: exponent of D outside the range.
        params_weight: doublings of D that a doubling of N counts as.
    """

    between: float
    growth: float
    exponent: float
    params_weight: float


class Pooled(NamedTuple):
    """The pooled best batch size.

    Attributes:
        batch: in tokens, with the interval of another lab's optimum.
        weights: share of each source, by name.
        inside: names of the sources whose range holds the setting.
    """

    batch: Estimate
    weights: dict[str, float]
    inside: tuple[str, ...]


def pool(sources: Mapping[str, Rule], setting: Setting, constants: Constants) -> Pooled:
    """Return the pooled best batch size of a setting.

    The interval holds what every source that is out of its range states at the setting, because
    sources disagree by more there than the model of their errors has it.
    """
    found = {name: predict(rule, setting, constants) for name, rule in sources.items()}
    total = sum(1 / variance for _, variance, _ in found.values())
    weights = {name: 1 / variance / total for name, (_, variance, _) in found.items()}
    value = sum(weights[name] * log for name, (log, _, _) in found.items())
    half = NormalDist().inv_cdf((1 + LEVEL) / 2) * math.hypot(constants.between, total**-0.5)
    far = [rule for name, rule in sources.items() if found[name][-1] > ROUNDING]
    stated = [size for rule in far if (size := rule(setting).batch_tokens) is not None]
    low = min([2.0 ** (value - half), *stated])
    high = max([2.0 ** (value + half), *stated])
    batch = Estimate(2.0**value, low, high, LEVEL)
    inside = tuple(name for name, (*_, far) in found.items() if far <= ROUNDING)
    return Pooled(batch, weights, inside)


def predict(rule: Rule, setting: Setting, constants: Constants) -> tuple[float, float, float]:
    """Return log2 of a rule's best batch size in tokens, its variance, and the distance."""
    n, d, distance = nearest(rule.fitted, setting, constants.params_weight)
    there = replace(setting, params=2.0**n, tokens=max(2.0**d, setting.seq_len))
    batch = rule(there).batch_tokens
    assert batch is not None  # a rule of a best batch
    value = math.log2(batch) + constants.exponent * (math.log2(setting.tokens) - d)
    return value, constants.between**2 + (constants.growth * distance) ** 2, distance


def nearest(
    fitted: Mapping[str, tuple[float, float]], setting: Setting, params_weight: float
) -> tuple[float, float, float]:
    """Return the nearest log2 N and log2 D in a range, and the distance in doublings of D.

    The nearest point is the setting, its projection on an edge of the range, or a corner.
    """
    scale = np.array([params_weight, 1.0])
    edges = []
    for name in fitted:
        *row, constant = AXES[name]
        for end, sign in zip(fitted[name], (1, -1), strict=True):
            edges.append((np.array(row) / scale, math.log2(end) - constant, sign))
    at = np.log2([setting.params, setting.tokens]) * scale
    points = [at, *(at + (end - row @ at) / (row @ row) * row for row, end, _ in edges)]
    for (one, end, _), (other, last, _) in itertools.combinations(edges, 2):
        if abs(np.linalg.det([one, other])) > ROUNDING:
            points.append(np.linalg.solve([one, other], [end, last]))
    inside = [p for p in points if all(s * (row @ p - end) > -ROUNDING for row, end, s in edges)]
    best = min(inside or points[1:], key=lambda point: float(np.sum((point - at) ** 2)))
    n, d = (best / scale).tolist()
    return n, d, float(np.hypot(*(best - at)))


def calibration() -> tuple[Constants, Rule]:
    """Return the committed numbers of the model, and the published table as a rule."""
    entry = json.loads((Path(__file__).parent / "calibration.json").read_text())
    return Constants(**entry["constants"]), power_law(**entry["table"])


def power_law(
    constant: float, params: float, tokens: float, fitted: Mapping[str, tuple[float, float]]
) -> Rule:
    """Return the published table as a rule: the power law through its measured optima."""

    def best(setting: Setting) -> Hyperparameters:
        return Hyperparameters(2.0**constant * setting.params**params * setting.tokens**tokens)

    return Rule("arXiv 2503.04715", best, fitted=fitted)
