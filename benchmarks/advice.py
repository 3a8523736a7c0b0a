"""Calibrate `bss advise`: predict the best batch sizes of each source from the other sources.

    python -m benchmarks.advice            # print the table, write baselines/advice.csv
    python -m benchmarks.advice --write    # also estimate bss/advice/calibration.json again

Measured optima are in results/published: one per model and budget of steplaw_rates.csv
(steplaw_dense_best.csv is a part of it). mlperf_rcp.csv adds one per model trained from scratch.
The optima of a rule are its values on a grid over its range. Sources that share runs are one
source. marin_beta2.csv has neither N nor D.

The standard deviations `between` and `growth` maximize the likelihood of the errors at left-out
optima; each left-out source counts as one, whatever its number of optima. If the smallest or
largest batch size is best, the interval must reach this bound.
"""

import argparse
import itertools
import math
from collections.abc import Iterable
from pathlib import Path
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.optimize import minimize

from bss.advice.sources import (
    LEVEL,
    POOLED,
    TABLE,
    Constants,
    calibration,
    nearest,
    pool,
    power_law,
)
from bss.files import write_json
from bss.laws.final_loss.best import TOLERANCES
from bss.laws.minimum import measured_minimum
from bss.rules import RULES, Rule, Setting

ROOT = Path(__file__).parents[1]
PUBLISHED = ROOT / "results/published"
SEQ_LEN = 2048
GRID = 6  # points per axis of a rule's range with its ends: 36, as many as the table's optima
MLPERF = ("llama31_8b", "gpt_oss_20b", "bert_large")
"""Models of mlperf_rcp.csv that are trained from scratch; the others start from a checkpoint, so
their tokens are no budget."""
RUN_NOISE = 0.01  # standard deviation of log tokens to a target, if runs are not repeated


class Optimum(NamedTuple):
    """A best batch size in tokens, or its bounds if the value is None."""

    params: float
    tokens: float
    value: float | None
    low: float | None = None
    high: float | None = None


def table_optima() -> list[Optimum]:
    """Return the optimum of each model and budget, over the best learning rate of each batch."""
    runs = pd.read_csv(PUBLISHED / "steplaw_rates.csv")
    found = []
    for sizes, cell in runs.groupby(["params", "tokens"]):
        assert isinstance(sizes, tuple)
        loss = cell.groupby("batch")["loss"].min()
        batch = loss.index.to_numpy(float) * SEQ_LEN
        best = measured_minimum(batch, loss.to_numpy(), typical=TOLERANCES[0]).batch
        found.append(Optimum(float(sizes[0]), float(sizes[1]), best.value, best.low, best.high))
    return found


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


def table_source(optima: Iterable[Optimum]) -> tuple[Rule, dict[str, float]]:
    """Return the power law through the measured optima of the table, and its coefficients."""
    known = np.log2([(at.params, at.tokens, at.value) for at in optima if at.value])
    design = np.column_stack([np.ones(len(known)), known[:, :2]])
    found = np.linalg.lstsq(design, known[:, 2])[0].tolist()
    law: dict[str, float] = dict(zip(("constant", "params", "tokens"), found, strict=True))
    sizes = np.array([(at.params, at.tokens) for at in optima])
    low, high = sizes.min(axis=0), sizes.max(axis=0)
    fitted = {name: (float(low[i]), float(high[i])) for i, name in enumerate(("params", "tokens"))}
    return power_law(**law, fitted=fitted), law


def exponent(optima: Iterable[Optimum]) -> float:
    """Return the exponent of D of a source's best batch sizes, by linear regression."""
    tokens, best = np.log2([(at.tokens, at.value) for at in optima if at.value]).T
    return float(np.polyfit(tokens, best, 1)[0])


class Errors(NamedTuple):
    """Errors at the left-out optima of one source.

    Attributes:
        error: [n], log2 of predicted over measured.
        half: [n], half-width of the interval, in log2.
        distance: [n], to the nearest range of another source, in doublings of D.
        bounds: whether the interval reaches each bound.
    """

    error: np.ndarray
    half: np.ndarray
    distance: np.ndarray
    bounds: list[bool]


def left_out(optima: Iterable[Optimum], others: dict[str, Rule], constants: Constants) -> Errors:
    """Return the errors of other sources at the optima of a source that is left out."""
    rows, bounds = [], []
    for at in optima:
        setting = Setting(at.params, at.tokens, 1)
        found = pool(others, setting, constants).batch
        value, low, high = (float(end or math.nan) for end in (found.value, found.low, found.high))
        if at.value is None:
            bounds.append(low <= (at.high or math.inf) and high >= (at.low or 0.0))
            continue
        weight = constants.params_weight
        far = min(nearest(one.fitted, setting, weight)[2] for one in others.values())
        rows.append((math.log2(value / at.value), math.log2(high / low) / 2, far))
    error, half, distance = np.array(rows).reshape(-1, 3).T
    return Errors(error, half, distance, bounds)


def all_left_out(
    optima: dict[str, list[Optimum]], sources: dict[str, Rule], constants: Constants
) -> dict[str, Errors]:
    """Return the errors at the optima of each source; its exponent of D is left out too."""
    found = {}
    for name in sources:
        others = {key: one for key, one in sources.items() if key != name}
        mean = float(np.mean([exponent(optima[key]) for key in others]))
        there = constants._replace(exponent=mean)
        found[name] = left_out(optima[name], others, there)
    return found


def estimate(
    optima: dict[str, list[Optimum]], sources: dict[str, Rule], law: dict[str, float]
) -> Constants:
    """Return the parameters that make the errors at left-out optima most likely."""
    exponents = [exponent(optima[name]) for name in sources]
    weight = abs(law["params"] / law["tokens"])
    start = Constants(0.5, 0.1, float(np.mean(exponents)), weight)
    quantile = NormalDist().inv_cdf((1 + LEVEL) / 2)

    def loss(logs: np.ndarray) -> float:
        constants = start._replace(between=math.exp(logs[0]), growth=math.exp(logs[1]))
        total = 0.0
        for found in all_left_out(optima, sources, constants).values():
            variance = (found.half / quantile) ** 2
            total += float(np.mean(np.log(variance) + found.error**2 / variance))
        return total

    logs = np.log([start.between, start.growth])
    best = minimize(loss, logs, method="Nelder-Mead", options={"xatol": 1e-3, "fatol": 1e-4})
    between, growth = np.exp(best.x)
    return start._replace(between=float(between), growth=float(growth))


def row(name: str, errors: Iterable[Errors], pooled: str) -> dict[str, object]:
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
        "in_interval": mean([float((np.abs(one.error) <= one.half).mean()) for one in each]),
        "width": mean([float(np.median(4.0**one.half)) for one in each]),
        "bounds": len(bounds),
        "bounds_held": sum(bounds),
    }


def by_distance(errors: Iterable[Errors]) -> list[dict[str, object]]:
    """Return rows of all pooled sources' optima, and of those by distance from the other ranges."""
    error, half, distance = (np.concatenate(one) for one in list(zip(*errors, strict=True))[:3])
    rows = [row("all optima of these", [Errors(error, half, distance, [])], "")]
    edges = (-1.0, 1e-6, 2.0, 4.0, 6.0)
    for low, high in itertools.pairwise(edges):
        keep = (distance > low) & (distance <= high)
        text = "inside" if low < 0 else f"up to {high:g} doublings outside"
        rows.append(row(text, [Errors(error[keep], half[keep], distance[keep], [])], ""))
    return rows


def main() -> None:
    """Print and save the table; with --write estimate the parameters first."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help="estimate between, growth, ... again")
    options = parser.parse_args()
    optima = {TABLE: table_optima()} | {name: rule_optima(name) for name in POOLED}
    table, law = table_source(optima[TABLE])
    sources = {TABLE: table} | {name: RULES[name] for name in POOLED}
    if options.write:
        constants = estimate(optima, sources, law)
        entry = {
            "command": "python -m benchmarks.advice --write",
            "constants": {key: round(x, 4) for key, x in constants._asdict().items()},
            "table": {
                **{key: round(x, 4) for key, x in law.items()},
                "fitted": {key: list(ends) for key, ends in table.fitted.items()},
            },
        }
        write_json(ROOT / "bss/advice/calibration.json", entry)
    constants, _ = calibration()
    errors = all_left_out(optima, sources, constants)
    rows = [row(name, [one], "yes") for name, one in errors.items()]
    rows.append(row("mean of these", errors.values(), ""))
    rows += by_distance(errors.values())
    extra = {"mlperf_rcp": mlperf_optima(), "nanochat": rule_optima("nanochat")}
    for name, more in extra.items():
        rows.append(row(name, [left_out(more, sources, constants)], "no"))
    shown = pd.DataFrame(rows)
    print(constants, f"{LEVEL:.0%} intervals", shown.to_string(index=False), sep="\n")
    shown.to_csv(ROOT / "benchmarks/baselines/advice.csv", index=False)


if __name__ == "__main__":
    main()
