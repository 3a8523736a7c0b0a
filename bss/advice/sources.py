"""Pool the best batch sizes of published sources: a value, and an interval for another lab.

A source is a table of final losses, or a rule fitted to measured best batch sizes. The log2 of the
best batch size that source s predicts for N parameters and D tokens has the variance

    v_s = (between² + (growth · distance_s)²) / weight_s

- between: standard deviation between sources (data, optimizer, schedule), with the error of each
  source's own fit, 0.05 to 0.07 for the tables.
- distance_s: from (N, D) to the nearest point of the measured range, in doublings of D. A doubling
  of N counts as `params_weight` doublings, because it changes the best batch size that much less.
- weight_s: as near to 1 as possible while no left-out source is predicted worse than by the best
  published rule. The geometric mean is 1.

The pooled value is the mean weighted by 1/v_s. The optimum of another lab lies around it with
variance between² + 1/Σ(1/v_s): a random-effects model with its prediction interval (Higgins,
Thompson and Spiegelhalter, J. R. Stat. Soc. A 172, 137, 2009). Outside its range a source is
extended from the nearest point by D^exponent, the mean exponent of the sources. The interval
contains what the source states at the setting itself, too. `python -m benchmarks.advice --write`
estimates the numbers in calibration.json by leaving one source out at a time, in range and beyond
the ranges cut at a size or a budget.
"""

import itertools
import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from bss.laws.base import Estimate
from bss.rules import RULES, Hyperparameters, Rule, Setting

LEVEL = 0.90
DEVIATIONS = NormalDist().inv_cdf((1 + LEVEL) / 2)
TABLE = "step-law table"
EUROLLM = "openeurollm"
POOLED = ("power-lines", "deepseek")
"""Rules fitted to best batch sizes that were measured with AdamW. step-law is fitted to the runs of
the step-law table, nanochat trains matrices with Muon, marin fixes the number of steps, and
minicpm needs the loss on one corpus."""
CERTAIN = {"power-lines": {"tokens": (1.0, 1280 * 1.11e8)}}
"""Limits of the range of a rule in the pool. No text states that its largest models were trained at
1280 tokens per parameter, 4.2T tokens; its smallest were."""
UNCOVERED = "no source measured Muon, mixtures of experts or other optimizers than AdamW"
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


@dataclass(frozen=True)
class Source:
    """A source of best batch sizes.

    Attributes:
        rule: its best batch size, peak LR if known, and measured range.
        weight: of its precision, relative to the other sources.
        beta2: (least parameters, beta2 there) ascending; empty if unknown.
    """

    rule: Rule
    weight: float = 1.0
    beta2: tuple[tuple[float, float], ...] = ()


class Prediction(NamedTuple):
    """The prediction of one source for a setting.

    Attributes:
        log2: of its best batch size in tokens.
        variance: of log2.
        distance: from its range, in doublings of D.
        params, tokens: nearest point of its range.
        lr: peak LR at the nearest point; None if unknown.
        beta2: there; None if unknown.
    """

    log2: float
    variance: float
    distance: float
    params: float
    tokens: float
    lr: float | None
    beta2: float | None


class Extrapolation(NamedTuple):
    """The distance of a setting from the nearest measured range.

    Attributes:
        source: whose range it is.
        params, tokens: ratio of parameters, and of tokens, to the nearest point of the range.
    """

    source: str
    params: float
    tokens: float

    @property
    def factor(self) -> float:
        """The larger ratio, up or down; 1 inside a range."""
        return max(2.0 ** abs(math.log2(ratio)) for ratio in (self.params, self.tokens))


def rounded_ratio(ratio: float) -> str:
    """Return a ratio in two digits, without an exponent.

    Examples:
        >>> [rounded_ratio(x) for x in (0.05123, 1.0, 6.67, 50.2, 233.4)]
        ['0.051', '1', '6.7', '50', '230']
    """
    digits = 1 - math.floor(math.log10(ratio))
    return f"{round(ratio, digits):g}"


class Pooled(NamedTuple):
    """The pooled best batch size.

    Attributes:
        batch: in tokens, with the interval of another lab's optimum.
        weights: share of each source, by name.
        inside: names of the sources whose range holds the setting.
        extrapolation: from the nearest range; None inside one.
        predictions: of each source, by name.
    """

    batch: Estimate
    weights: dict[str, float]
    inside: tuple[str, ...]
    extrapolation: Extrapolation | None
    predictions: dict[str, Prediction]


def pool(sources: Mapping[str, Source], setting: Setting, constants: Constants) -> Pooled:
    """Return the pooled best batch size of a setting.

    The interval contains what every source out of its range states at the setting. Sources disagree
    more there than the model of their errors predicts.
    """
    found = {name: predict(source, setting, constants) for name, source in sources.items()}
    total = sum(1 / one.variance for one in found.values())
    weights = {name: 1 / one.variance / total for name, one in found.items()}
    value = sum(weights[name] * one.log2 for name, one in found.items())
    half = DEVIATIONS * math.hypot(constants.between, total**-0.5)
    far = [sources[name].rule for name, one in found.items() if one.distance > ROUNDING]
    stated = [size for rule in far if (size := rule(setting).batch_tokens) is not None]
    low = min([2.0 ** (value - half), *stated])
    high = max([2.0 ** (value + half), *stated])
    batch = Estimate(2.0**value, low, high, LEVEL)
    inside = tuple(name for name, one in found.items() if one.distance <= ROUNDING)
    beyond = None if inside else _extrapolation(found, setting)
    return Pooled(batch, weights, inside, beyond, found)


def _extrapolation(found: Mapping[str, Prediction], setting: Setting) -> Extrapolation:
    """Return how far a setting lies from the nearest range."""
    name = min(found, key=lambda one: found[one].distance)
    at = found[name]
    return Extrapolation(name, setting.params / at.params, setting.tokens / at.tokens)


def predict(source: Source, setting: Setting, constants: Constants) -> Prediction:
    """Return what a source predicts for a setting, from the nearest point of its range."""
    n, d, distance = nearest(source.rule.fitted, setting, constants.params_weight)
    there = replace(setting, params=2.0**n, tokens=max(2.0**d, setting.seq_len))
    known = source.rule(there)
    assert known.batch_tokens is not None  # a rule of a best batch
    value = math.log2(known.batch_tokens) + constants.exponent * (math.log2(setting.tokens) - d)
    variance = constants.between**2 + (constants.growth * distance) ** 2
    steps = [beta2 for least, beta2 in source.beta2 if there.params >= least * (1 - ROUNDING)]
    beta2 = steps[-1] if steps else known.beta2
    return Prediction(
        value, variance / source.weight, distance, there.params, there.tokens, known.lr, beta2
    )


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


def calibration() -> tuple[Constants, dict[str, Source]]:
    """Return the committed numbers of the model, and the sources by name."""
    entry = json.loads((Path(__file__).parent / "calibration.json").read_text())
    sources = {}
    for name, known in entry["sources"].items():
        rule = measured_rule(name) if name in RULES else power_law(**known["law"])
        beta2 = tuple((float(least), float(beta)) for least, beta in known["beta2"])
        sources[name] = Source(rule, known["weight"], beta2)
    return Constants(**entry["constants"]), sources


def measured_rule(name: str) -> Rule:
    """Return a published rule with the range that it certainly was measured in."""
    rule = RULES[name]
    return replace(rule, fitted={**rule.fitted, **CERTAIN.get(name, {})})


def power_law(
    batch: Sequence[float],
    fitted: Mapping[str, tuple[float, float]],
    lr: Sequence[float] | None = None,
    origin: str = "derived here",
) -> Rule:
    """Return a table as a rule: power laws through its measured optima.

    Args:
        batch: [3], log2 of the constant, exponents of N and of D, of the best batch size.
        fitted: measured range.
        lr: [3], likewise of the best peak LR.
        origin: source of the table.
    """

    def power(log2: Sequence[float], setting: Setting) -> float:
        constant, params, tokens = log2
        return 2.0**constant * setting.params**params * setting.tokens**tokens

    def best(setting: Setting) -> Hyperparameters:
        return Hyperparameters(power(batch, setting), power(lr, setting) if lr else None)

    return Rule(origin, best, fitted=fitted)
