"""Calibrate `bss advise`: predict the best batch sizes of each source from the other sources.

    python -m benchmarks.advice            # print the table, write baselines/advice.csv
    python -m benchmarks.advice --write    # also estimate bss/advice/calibration.json again

Measured optima are in `benchmarks.optima`: two tables are sources, with one optimum per model and
budget. The optima of a rule are its values on a grid over its range. Sources that share runs are
one source. Tables with one learning rate, with bounds alone or with targets are checks: they do not
enter the model. marin_beta2.csv has neither N nor D.

*In range*: each source is left out, and its optima are predicted from the others. *Beyond*: the
ranges of all others are also cut at a budget or a size, and their power laws are fitted below it.
The optima of the left-out table above it are predicted.

The standard deviation `between` maximizes the likelihood of both kinds of errors; each left-out
source counts as one, whatever its number of optima. It is raised until the intervals hold 85% of
the optima of each source. `growth` is the largest that is about as likely. The weights are as near
to 1 as they can be such that no left-out source is predicted worse than by the best published rule.
If the smallest or largest batch size is best, the interval must reach this bound.
"""

import argparse
import itertools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize, minimize_scalar

from benchmarks.optima import (
    PUBLISHED,
    ROOT,
    Optimum,
    derived_optima,
    seesaw_optima,
    table_optima,
)
from bss.advice.sources import (
    DEVIATIONS,
    EUROLLM,
    LEVEL,
    POOLED,
    ROUNDING,
    TABLE,
    Constants,
    Source,
    calibration,
    measured_rule,
    power_law,
    predict,
)
from bss.files import write_json
from bss.laws.minimum import measured_minimum
from bss.rules import RULES, Rule, Setting

CALIBRATION = ROOT / "bss/advice/calibration.json"
TABLES = (TABLE, EUROLLM)
GRID = 6  # points per axis of a rule's range with its ends: 36, about as many as a table's optima
MLPERF = ("llama31_8b", "gpt_oss_20b", "bert_large")
"""Models of mlperf_rcp.csv that are trained from scratch; the others start from a checkpoint, so
their tokens are no budget."""
RUN_NOISE = 0.01  # standard deviation of log tokens to a target, if runs are not repeated
OWN = {TABLE: ("step-law",)}
"""Rules that are fitted to the runs of a table."""
CUTS = {"tokens": (4e9, 8e9, 16e9, 32e9, 64e9, 128e9), "params": (1.25e8, 3.1e8, 6e8)}
FEWEST = 6  # optima below a cut, for a power law
GROWTHS = np.arange(0.05, 1.01, 0.05).round(2).tolist()
FLAT = 0.03
"""Mean log likelihood, per source and twice, by which a growth is as likely as the best one."""
LEAST_HELD = 0.85  # share of the optima of each left-out source in its intervals
START = Constants(between=0.4, growth=0.2, exponent=0.5, params_weight=0.2)
BETA2 = {
    TABLE: ((0.0, 0.95),),
    EUROLLM: ((0.0, 0.99), (3.0e8, 0.95)),
    "power-lines": ((0.0, 0.95),),
    "deepseek": ((0.0, 0.95),),
}
"""Adam's beta2 of each source from a number of parameters on; openeurollm has .99 at its two
smallest sizes, 48M and 124M."""


def mlperf_optima() -> list[Optimum]:
    """Return the batch of the fewest tokens to the target loss of each model."""
    runs = pd.read_csv(PUBLISHED / "mlperf_rcp.csv")
    found = []
    for name in MLPERF:
        model = runs[runs["model"] == name]
        batch = (model["batch"] * model["seq_len"]).to_numpy(float)
        tokens = batch * model["steps"].to_numpy()
        best = measured_minimum(batch, np.log(tokens), typical=RUN_NOISE).batch
        fewest = min(float(tokens[batch == size].mean()) for size in np.unique(batch))
        params = float(model["params"].to_numpy()[0])
        found.append(Optimum(params, fewest, best.value, best.low, best.high))
    return found


def rule_optima(name: str) -> list[Optimum]:
    """Return the best batch sizes of a rule on a grid over its range."""
    fitted = RULES[name].fitted
    (first, ends), (_, ratios) = fitted.items()
    found = []
    for size in np.geomspace(*ends, GRID):
        for ratio in np.geomspace(*ratios, GRID):
            params = {"params": size, "compute": math.sqrt(size / 6 / ratio)}.get(
                first, size / ratio
            )
            setting = Setting(float(params), float(params * ratio), 1)
            found.append(Optimum(setting.params, setting.tokens, RULES[name](setting).batch_tokens))
    return found


def source_optima() -> dict[str, list[Optimum]]:
    """Return the optima of each pooled source."""
    tables = {TABLE: table_optima(), EUROLLM: derived_optima(EUROLLM)}
    return tables | {name: rule_optima(name) for name in POOLED}


def checked_optima() -> dict[str, list[Optimum]]:
    """Return the optima of the sources that are checks."""
    tuned = derived_optima("optimizer_batch")
    return {
        "nqs_lm1b (one LR)": derived_optima("nqs_lm1b"),
        "seesaw": seesaw_optima(),
        "optimizer_batch (Adam)": [at for at in tuned if at.optimizer.startswith("Adam,")],
        "mlperf_rcp": mlperf_optima(),
        "nanochat": rule_optima("nanochat"),
    }


def table_law(optima: Sequence[Optimum]) -> dict[str, Any]:
    """Return the power laws through the measured optima of a table, and its range."""
    known = [at for at in optima if at.value]
    sizes = np.array([(at.params, at.tokens) for at in optima])
    low = sizes.min(axis=0)
    high = sizes.max(axis=0)
    return {
        "batch": _power(known, [at.value for at in known]),
        "lr": _power(known, [at.lr for at in known]),
        "fitted": {
            name: [float(low[i]), float(high[i])] for i, name in enumerate(("params", "tokens"))
        },
    }


def _power(optima: Sequence[Optimum], values: Sequence[float | None]) -> list[float]:
    """Return log2 of the constant and the exponents of N and D, by least squares."""
    logs = np.log2([(at.params, at.tokens) for at in optima])
    design = np.column_stack([np.ones(len(logs)), logs])
    return np.linalg.lstsq(design, np.log2(np.array(values, float)))[0].tolist()


def all_sources(
    optima: Mapping[str, Sequence[Optimum]], weights: Mapping[str, float] | None = None
) -> dict[str, Source]:
    """Return the sources, the power laws of the tables fitted to their optima."""
    rules = {name: measured_rule(name) for name in POOLED}
    laws = {name: power_law(**table_law(optima[name])) for name in TABLES}
    return {
        name: Source(rule, (weights or {}).get(name, 1.0), BETA2[name])
        for name, rule in {**laws, **rules}.items()
    }


def cut_sources(
    optima: Mapping[str, Sequence[Optimum]], axis: str, end: float
) -> dict[str, Source]:
    """Return the sources with the range of each cut at a budget or a size."""
    found = {}
    for name in TABLES:
        below = [at for at in optima[name] if getattr(at, axis) <= end]
        known = [at for at in below if at.value]
        spread = min(len({at.params for at in known}), len({at.tokens for at in known}))
        if len(known) >= FEWEST and spread > 1:
            found[name] = Source(power_law(**table_law(below)))
    for name in POOLED:
        rule = measured_rule(name)
        low, high = rule.fitted.get(axis, (1.0, math.inf))
        cut = {**rule.fitted, axis: (low, min(high, end))}
        found[name] = Source(Rule(rule.source, rule.law, fitted=cut))
    return found


def exponent(optima: Iterable[Optimum]) -> float:
    """Return the exponent of D of a source's best batch sizes, by linear regression."""
    tokens, best = np.log2([(at.tokens, at.value) for at in optima if at.value]).T
    away = tokens - tokens.mean()
    return float(away @ best / (away @ away))


class Predictions(NamedTuple):
    """Predictions of other sources [S] at the optima [n] of a source that is left out.

    Attributes:
        optima: the optima.
        names: of the other sources.
        log2: [n, S], predicted log2 of the best batch size.
        distance: [n, S], in doublings of D.
        stated: [n, S], log2 of what a source that is out of its range states; NaN in its range.
    """

    optima: list[Optimum]
    names: list[str]
    log2: np.ndarray
    distance: np.ndarray
    stated: np.ndarray

    def errors(self, constants: Constants, weights: Mapping[str, float]) -> "Errors":
        """Return the errors of the pooled predictions, as `bss.advice.sources.pool` has them."""
        weight = np.array([weights.get(name, 1.0) for name in self.names])
        precision = weight / (constants.between**2 + (constants.growth * self.distance) ** 2)
        total = precision.sum(axis=1)
        value = (precision * self.log2).sum(axis=1) / total
        half = DEVIATIONS * np.hypot(constants.between, total**-0.5)
        low = np.fmin(value - half, np.fmin.reduce(self.stated, axis=1))
        high = np.fmax(value + half, np.fmax.reduce(self.stated, axis=1))
        known = np.array([at.value is not None for at in self.optima], bool)
        best = np.log2([at.value or math.nan for at in self.optima])
        bounds = [
            bool(low[i] <= math.log2(at.high or math.inf) and high[i] >= math.log2(at.low or 1.0))
            for i, at in enumerate(self.optima)
            if at.value is None
        ]
        held = (low <= best) & (best <= high)
        apart = self.distance.min(axis=1)
        return Errors(
            (value - best)[known], ((high - low) / 2)[known], apart[known], held[known], bounds
        )


class Errors(NamedTuple):
    """Errors at the left-out optima of one source.

    Attributes:
        error: [n], log2 of predicted over measured.
        half: [n], half of the interval's width, in log2.
        distance: [n], to the nearest range of another source, in doublings of D.
        held: [n], whether the interval holds the optimum.
        bounds: whether the interval reaches each bound.
    """

    error: np.ndarray
    half: np.ndarray
    distance: np.ndarray
    held: np.ndarray
    bounds: list[bool]


def predictions(
    at: Iterable[Optimum],
    others: Mapping[str, Source],
    optima: Mapping[str, Sequence[Optimum]],
    constants: Constants,
) -> Predictions:
    """Return what other sources predict; the exponent of D is the mean of theirs."""
    mean = float(np.mean([exponent(optima[name]) for name in others]))
    there = constants._replace(exponent=mean)
    at = [*at]
    shape = (len(at), len(others))
    log2 = np.full(shape, math.nan)
    distance = np.full(shape, math.nan)
    stated = np.full(shape, math.nan)
    for i, one in enumerate(at):
        setting = Setting(one.params, one.tokens, 1)
        for j, source in enumerate(others.values()):
            found = predict(source, setting, there)
            log2[i, j] = found.log2
            distance[i, j] = found.distance
            if found.distance > ROUNDING:
                stated[i, j] = math.log2(source.rule(setting).batch_tokens or math.nan)
    return Predictions(at, [*others], log2, distance, stated)


def all_left_out(
    optima: Mapping[str, Sequence[Optimum]], constants: Constants
) -> dict[str, Predictions]:
    """Return the predictions at the optima of each source, from the others."""
    sources = all_sources(optima)
    return {
        name: predictions(
            optima[name], {k: x for k, x in sources.items() if k != name}, optima, constants
        )
        for name in sources
    }


def all_beyond(
    optima: Mapping[str, Sequence[Optimum]], constants: Constants
) -> dict[tuple[str, str, float], Predictions]:
    """Return the predictions at the optima of each table above each cut, by (table, axis, cut)."""
    found = {}
    for axis, ends in CUTS.items():
        for end, name in itertools.product(ends, TABLES):
            below = {
                key: [at for at in cells if getattr(at, axis) <= end or key not in TABLES]
                for key, cells in optima.items()
            }
            others = {k: x for k, x in cut_sources(optima, axis, end).items() if k != name}
            above = [at for at in optima[name] if getattr(at, axis) > end]
            if above:
                found[name, axis, end] = predictions(above, others, below, constants)
    return found


def best_rules(optima: Mapping[str, Sequence[Optimum]]) -> dict[str, tuple[str, float]]:
    """Return the published rule with the least mean error at each source, and that error."""
    found = {}
    for name, cells in optima.items():
        errors = {}
        for key, rule in RULES.items():
            if rule.batch != "best" or rule.needs or key in (name, *OWN.get(name, ())):
                continue
            ratios = [
                math.log2((rule(Setting(at.params, at.tokens, 1)).batch_tokens or 1) / at.value)
                for at in cells
                if at.value
            ]
            errors[key] = float(np.abs(ratios).mean())
        best = min(errors, key=lambda key: errors[key])
        found[name] = (best, errors[best])
    return found


class Cases(NamedTuple):
    """All predictions from which the constants are estimated, and the limits of the errors."""

    left_out: dict[str, Predictions]
    beyond: dict[tuple[str, str, float], Predictions]
    limits: dict[str, float]


def deviations(cases: Cases, weights: Mapping[str, float], start: Constants) -> Constants:
    """Return the constants with the standard deviations that the errors support.

    `between` maximizes the likelihood. That of `growth` is flat: no source lies as far out as the
    runs that are planned. So `growth` is the largest that is as likely as the best one, to `FLAT`.
    """

    def loss(between: float, growth: float) -> float:
        constants = start._replace(between=between, growth=growth)
        return surprise(cases.left_out, constants) + surprise(cases.beyond, constants)

    def surprise(found: Mapping[Any, Predictions], constants: Constants) -> float:
        each = [_surprise(one.errors(constants, weights)) for one in found.values()]
        return float(np.mean([one for one in each if one is not None]))

    found = []
    for growth in GROWTHS:
        best = minimize_scalar(lambda log, g=growth: loss(math.exp(log), g), bounds=(-3.0, 1.0))
        found.append((float(best.fun), start._replace(between=math.exp(best.x), growth=growth)))
    least = min(surprise for surprise, _ in found)
    return [constants for surprise, constants in found if surprise <= least + FLAT][-1]


def covering(cases: Cases, weights: Mapping[str, float], constants: Constants) -> Constants:
    """Return the constants with `between` raised until each interval holds enough optima."""
    while True:
        errors = [one.errors(constants, weights) for one in cases.left_out.values()]
        if min(one.held.mean() for one in errors) >= LEAST_HELD:
            return constants
        constants = constants._replace(between=1.01 * constants.between)


def _surprise(errors: Errors) -> float | None:
    """Return the mean negative log likelihood of the errors; None without any."""
    if not len(errors.error):
        return None
    variance = (errors.half / DEVIATIONS) ** 2
    return float(np.mean(np.log(variance) + errors.error**2 / variance))


def weigh(cases: Cases, constants: Constants) -> dict[str, float]:
    """Return the weights nearest to 1 with which no error is above its limit."""
    names = [*cases.left_out]

    def named(logs: np.ndarray) -> dict[str, float]:
        return dict(zip(names, np.exp(logs - logs.mean()).tolist(), strict=True))

    def loss(logs: np.ndarray) -> float:
        weights = named(logs)
        excess = 0.0
        for name, one in cases.left_out.items():
            mean = float(np.abs(one.errors(constants, weights).error).mean())
            excess += max(0.0, mean / cases.limits[name] - 0.998)  # a margin for rounding
        return 100 * excess + 0.02 * float(np.sum((logs - logs.mean()) ** 2))

    starts = np.random.default_rng(0).normal(0, 1, (8, len(names)))
    options = {"xatol": 1e-4, "fatol": 1e-7, "maxiter": 2000}
    found = [minimize(loss, start, method="Nelder-Mead", options=options) for start in starts]
    best = min(found, key=lambda one: one.fun)
    return named(best.x)


def estimate(optima: Mapping[str, Sequence[Optimum]]) -> tuple[Constants, dict[str, float]]:
    """Return the constants and the weights of the sources."""
    law = table_law(optima[TABLE])["batch"]
    mean = float(np.mean([exponent(cells) for cells in optima.values()]))
    constants = START._replace(exponent=mean, params_weight=abs(law[1] / law[2]))
    limits = {name: error for name, (_, error) in best_rules(optima).items()}
    cases = Cases(all_left_out(optima, constants), all_beyond(optima, constants), limits)
    weights = dict.fromkeys(optima, 1.0)
    for _ in range(4):  # each depends on the other; the fourth changes nothing
        constants = covering(cases, weights, deviations(cases, weights, constants))
        weights = weigh(cases, constants)
    return constants, weights


def write_calibration(optima: Mapping[str, Sequence[Optimum]]) -> None:
    """Estimate the numbers of `bss advise` and write them."""
    constants, weights = estimate(optima)
    sources = {}
    for name in optima:
        entry: dict[str, Any] = {"weight": round(weights[name], 4), "beta2": BETA2[name]}
        if name in TABLES:
            law = table_law(optima[name])
            rounded = {key: [round(x, 4) for x in law[key]] for key in ("batch", "lr")}
            entry["law"] = {**rounded, "fitted": law["fitted"], "origin": origin(name)}
        sources[name] = entry
    entry = {
        "command": "python -m benchmarks.advice --write",
        "constants": {key: round(x, 4) for key, x in constants._asdict().items()},
        "sources": sources,
    }
    write_json(CALIBRATION, entry)


def origin(name: str) -> str:
    """Return the paper of a table."""
    return {TABLE: "arXiv 2503.04715", EUROLLM: "arXiv 2608.28308"}[name]


def row(name: str, errors: Iterable[Errors], pooled: str, rule: str = "") -> dict[str, object]:
    """Return a row of the table; several left-out sources count as much each."""
    errors = [*errors]
    each = [one for one in errors if len(one.error)]

    def mean(measure: list[float]) -> float:
        return round(float(np.mean(measure)), 3) if measure else math.nan

    bounds = [held for one in errors for held in one.bounds]
    return {
        "left_out": name,
        "pooled": pooled,
        "n": sum(len(one.error) for one in each),
        "mean_abs_log2": mean([float(np.abs(one.error).mean()) for one in each]),
        "mean_log2": mean([float(one.error.mean()) for one in each]),
        "best_rule": rule,
        "in_interval": mean([float(one.held.mean()) for one in each]),
        "width": mean([float(np.median(4.0**one.half)) for one in each]),
        "bounds": len(bounds),
        "bounds_held": sum(bounds),
    }


def merged(errors: Iterable[Errors], keep: Iterable[np.ndarray]) -> Errors:
    """Return the chosen errors of several sources as one."""
    pairs = [*zip(errors, keep, strict=True)]

    def chosen(name: str) -> np.ndarray:
        return np.concatenate([getattr(one, name)[kept] for one, kept in pairs])

    return Errors(chosen("error"), chosen("half"), chosen("distance"), chosen("held"), [])


def by_octave(
    beyond: Mapping[tuple[str, str, float], Predictions],
    constants: Constants,
    weights: Mapping[str, float],
) -> list[dict[str, object]]:
    """Return rows by octaves of extrapolation: of the budget, and of the size, above the cut."""
    rows = []
    for axis, highest in (("tokens", 6), ("params", 4)):
        cases = {key: one for key, one in beyond.items() if key[1] == axis}
        errors = [one.errors(constants, weights) for one in cases.values()]
        octaves = [
            np.array([math.log2(getattr(at, axis) / end) for at in one.optima if at.value])
            for (*_, end), one in cases.items()
        ]
        for octave in range(highest):
            keep = [(octave < one) & (one <= octave + 1) for one in octaves]
            chosen = merged(errors, keep)
            if len(chosen.error):
                text = f"{axis}: {octave} to {octave + 1} octaves above all ranges"
                rows.append(row(text, [chosen], ""))
    return rows


def table_of(optima: Mapping[str, Sequence[Optimum]]) -> pd.DataFrame:
    """Return the table of errors by left-out source, by octave of extrapolation, and of checks."""
    constants, sources = calibration()
    weights = {name: source.weight for name, source in sources.items()}
    left_out = all_left_out(optima, constants)
    errors = {name: one.errors(constants, weights) for name, one in left_out.items()}
    rules = {name: f"{rule} {error:.3f}" for name, (rule, error) in best_rules(optima).items()}
    rows = [row(name, [one], "yes", rules[name]) for name, one in errors.items()]
    rows.append(row("mean of these", errors.values(), ""))
    inside = merged(errors.values(), [one.distance <= ROUNDING for one in errors.values()])
    outside = merged(errors.values(), [one.distance > ROUNDING for one in errors.values()])
    rows.append(row("inside a range", [inside], ""))
    rows.append(row("outside all ranges", [outside], ""))
    rows += by_octave(all_beyond(optima, constants), constants, weights)
    for name, more in checked_optima().items():
        found = predictions(more, sources, optima, constants)
        rows.append(row(name, [found.errors(constants, weights)], "no"))
    return pd.DataFrame(rows)


def main() -> None:
    """Print and save the table; with --write estimate the parameters first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="estimate between, growth, ... again")
    optima = source_optima()
    if parser.parse_args().write:
        write_calibration(optima)
    shown = table_of(optima)
    print(calibration()[0], f"{LEVEL:.0%} intervals", shown.to_string(index=False), sep="\n")
    shown.to_csv(ROOT / "benchmarks/baselines/advice.csv", index=False)


if __name__ == "__main__":
    main()
