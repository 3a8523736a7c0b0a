"""Critical batch sizes from points: minima over settings, fits, tables, published measurements.

After Zhang et al. (arXiv 2410.21676): at every batch size the setting counts that needs the fewest
steps to the target. A minimum over more settings is lower by chance, so their number is kept.
Notebook: notebooks/critical_batch.ipynb.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.held_out import HeldOutColumn
from bss.laws import CriticalFit, TableFit, fit_critical
from bss.laws.base import Estimate, Options
from bss.laws.critical.curves import StepsCurve
from bss.laws.critical.values import CriticalBatch
from bss.laws.minimum import FEWEST
from bss.laws.power import PowerFit, fit_power, predict, unidentified
from bss.tables import read_points
from bss.training.distributed import log_primary
from bss.units import format_tokens
from experiments.shared import critical_table, laws_table
from experiments.tables import Tables

CELL = ["size", "model", "params", "seq_len", "budget_tokens", "target_loss"]
BATCH = [*CELL, "batch"]
BETAS = ["beta1", "beta2", "beta2_half_life"]

PUBLISHED = files("bss.laws") / "published"
PUBLISHED_OVERHEAD, PUBLISHED_REFERENCE = 0.2, 256
PUBLISHED_LENGTH = 512  # tokens per sequence of the published steps
PAPER = {"params": (93.20, 0.47), "tokens": (22.91, 0.47)}
"""Laws of arXiv 2410.21676: 93.20·N^0.47, and with D = 20N 22.91·D^0.47, in millions."""
SYMBOLS = {"params": "N", "tokens": "D"}
ALONE = ("together", "data", "size")
TITLES = {
    "together": "N and D together",
    "data": "D at one N",
    "size": "N at one D",
    "both": "all points, joint",
}
BEST, CRITICAL, OURS = (
    "best, arXiv 2503.04715",
    "critical, arXiv 2410.21676",
    "critical, our runs",
)


@dataclass(frozen=True)
class Point:
    """A critical batch size to measure: model, budget in tokens, sequence length (0: setup's)."""

    model: str
    tokens: int
    seq_len: int = 0


@dataclass(frozen=True)
class PointSet:
    """Points that are fitted together, with batch sizes in "sequences" or in "tokens"."""

    name: str
    points: tuple[Point, ...]
    unit: str = "sequences"


# From points to fits


def by_average(table: pd.DataFrame, half_lives: Sequence[str]) -> pd.DataFrame:
    """Return every run once per weight average: `averaged` is its loss, `average` the half-life."""
    return pd.concat(
        [
            table.assign(
                trial=table["run"],
                run=table["run"] + f" {half_life}",
                average=half_life,
                averaged=table[str(HeldOutColumn(half_life=half_life))],
            )
            for half_life in half_lives
        ],
        ignore_index=True,
    )


def minima(measured: pd.DataFrame) -> pd.DataFrame:
    """Return the best setting of each batch size.

    Args:
        measured: Table of `run.measure`.

    Returns:
        CELL, batch, trials (settings that finished), steps and tokens_to_target (geometric means
        over seeds; the most taken if not reached), peak_lr, BETAS, average (of points that have
        one), reached, seeds, bracketed (a higher and a lower LR were tried), seed_noise (standard
        deviation of log steps).
    """
    tried_with = ["peak_lr", *BETAS, *(["average"] if "average" in measured else [])]
    setting = [*BATCH, *tried_with]
    counts = ("steps", "tokens_to_target")
    reached = measured.loc[measured["reached"]]
    reached = reached.assign(**{name: np.log(reached[name]) for name in counts})
    means = reached.groupby(setting, sort=False, as_index=False).agg(
        steps=("steps", "mean"),
        tokens_to_target=("tokens_to_target", "mean"),
        seeds=("steps", "size"),
        seed_noise=("steps", "std"),
    )
    means = means.sort_values(["seeds", "steps"], ascending=[False, True], kind="stable")
    means = means.assign(**{name: np.exp(means[name]) for name in counts})
    # If no setting reached the target, the run that went farthest represents the batch size.
    farthest = measured.sort_values("tokens_to_target", ascending=False, kind="stable")
    ranked = pd.concat([means.assign(reached=True), farthest.assign(reached=False, seeds=0)])
    tried = measured.drop_duplicates(setting).groupby(BATCH, sort=False, as_index=False)
    tried = tried.agg(trials=("peak_lr", "size"), low=("peak_lr", "min"), high=("peak_lr", "max"))
    best = tried.merge(ranked.drop_duplicates(BATCH), on=BATCH, how="left")
    inside = (best["low"] < best["peak_lr"]) & (best["peak_lr"] < best["high"])
    best["bracketed"] = best["reached"] & inside
    last = ["reached", "seeds", "bracketed", "seed_noise"]
    return best.reindex(columns=[*BATCH, "trials", *counts, *tried_with, *last])


def with_overhead(best: pd.DataFrame, reference_tokens: int) -> pd.DataFrame:
    """Add `overhead`: tokens to the target relative to the reference batch size, minus 1."""
    cells = best.groupby(CELL, sort=False).ngroup()
    at_reference = best["reached"] & (best["batch"] * best["seq_len"] == reference_tokens)
    needed = best["tokens_to_target"].where(at_reference).groupby(cells).transform("max")
    overhead = (best["tokens_to_target"] / needed - 1).where(best["reached"])
    order = np.lexsort((best["batch"], cells))
    return best.assign(overhead=overhead).iloc[order].reset_index(drop=True)


def around_bend(cell: pd.DataFrame) -> list[int]:
    """Return the batch size nearest to twice the reference's tokens, and its two neighbours.

    At B = b/a a run needs twice the tokens. A cell is one model and budget of `with_overhead`.
    """
    seen = cell.dropna(subset="overhead")
    if seen.empty:
        return []
    doubled = np.abs(np.log1p(seen["overhead"].to_numpy(float)) - math.log(2))
    at = int(np.argmin(doubled))
    return [int(batch) for batch in seen["batch"].to_numpy()[max(at - 1, 0) : at + 2]]


def fit_designs(
    designs: Iterable[PointSet], measured: pd.DataFrame, seq_len: int, **definition: Any
) -> dict[str, CriticalFit]:
    """Return the critical batch sizes and laws of every design that can be fitted, by name.

    Args:
        designs: Points that are fitted together.
        measured: Table of `run.measure`.
        seq_len: Sequence length of points without one.
        definition: Arguments of `fit_critical`, with `reference` in tokens.
    """
    fits = {}
    for design in designs:
        labels = {(point.model, point.seq_len or seq_len, point.tokens) for point in design.points}
        keys = zip(measured["size"], measured["seq_len"], measured["budget_tokens"], strict=True)
        chosen = measured.loc[np.array([key in labels for key in keys])]
        try:
            fits[design.name] = _fit(design.unit, chosen, **definition)
        except InputError as error:
            log_primary(f"design {design.name}: {error}")
    return fits


def _fit(unit: str, chosen: pd.DataFrame, *, reference: int, **definition: Any) -> CriticalFit:
    """Return the fit of points with 3 or more batch sizes at the target."""
    if unit == "sequences" and chosen["seq_len"].nunique() > 1:
        raise InputError("unit is sequences, and points have several lengths; write tokens")
    enough = [
        cell
        for _, cell in chosen.groupby(CELL, sort=False)
        if cell.loc[cell["reached"], "batch"].nunique() >= FEWEST
    ]
    if not enough:
        raise InputError(f"no point has {FEWEST} batch sizes at its target; train longer")
    size = 1 if unit == "tokens" else int(chosen["seq_len"].iloc[0])
    return fit_critical(pd.concat(enough), reference=reference / size, unit=unit, **definition)


# Tables of a study


def tables(
    curve: pd.DataFrame, measured: pd.DataFrame, fits: dict[str, CriticalFit], reference: int
) -> dict[str, Any]:
    """Return points, steps, fits and their tables, by file name."""
    found = {
        "points.csv": measured,
        "steps.csv": with_overhead(minima(measured), reference),
        "fits.json": {name: fit.to_dict() for name, fit in fits.items()},
        "critical.csv": critical_table(fits),
        "laws.csv": laws_table(fits),
        "definitions.csv": definitions_table(fits),
    }
    if "noise_scale" in curve:
        found["noise_scale.csv"] = noise_table(curve, measured, fits)
    return found


def definitions_table(fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Return critical batch sizes and exponents by design, definition and curve."""
    rows = []
    for name, fit in fits.items():
        for definition in fit.definitions:
            law, columns = definition.law, {}
            if law:
                exponents = zip(law.variables, law.exponents, strict=True)
                columns = {f"exponent_{variable}": p.value for variable, p in exponents}
            for at, value in zip(fit.fits, definition.values, strict=True):
                row = {"design": name, "definition": definition.name}
                row |= {key: getattr(at.curve, key) for key in ("model", *SYMBOLS, "seq_len")}
                rows.append({**row, "critical_batch": value, **columns})
    return pd.DataFrame(rows)


def noise_table(
    table: pd.DataFrame, measured: pd.DataFrame, fits: Mapping[str, CriticalFit]
) -> pd.DataFrame:
    """Return the gradient noise scale of each batch's best run at its target, with b/a and cbs.

    Args:
        table: Run table with the column noise_scale, in sequences.
        measured: Table of `run.measure`.
        fits: Fits by design. b/a and cbs are of the first design in sequences that has the curve.
    """
    known = {
        (at.curve.model, at.curve.target_loss): {"B_crit": at.B_crit.value, "cbs": at.cbs.value}
        for fit in [*fits.values()][::-1]
        if fit.unit == "sequences"
        for at in fit.fits
    }
    known_noise = table.dropna(subset="noise_scale").astype({"noise_scale": float})
    noise = dict(list(known_noise.groupby("run")))
    reached = measured.loc[measured["reached"]]
    best = reached.loc[reached.groupby(BATCH, sort=False)["steps"].idxmin()]
    rows = []
    for row in best.to_dict("records"):
        if row["trial"] in noise:
            run = noise[row["trial"]]
            at = float(np.interp(row["tokens_to_target"], run["tokens"], run["noise_scale"]))
            fitted = known.get((row["model"], row["target_loss"]), {"B_crit": None, "cbs": None})
            rows.append({**{key: row[key] for key in BATCH}, "noise_scale": at, **fitted})
    return pd.DataFrame(rows)


# Committed results, for the notebook


def fits_of(results: Path) -> dict[str, CriticalFit]:
    """Return the committed fits by design."""
    entries = Tables(results).json("fits.json")
    return {name: CriticalFit.from_dict(entry) for name, entry in entries.items()}


def labelled(fits: Mapping[str, CriticalFit]) -> dict[str, CriticalFit]:
    """Return fits whose curves are named by model and budget, or by context length."""

    def label(curve: StepsCurve, unit: str) -> str:
        if unit == "tokens":
            return f"context {curve.seq_len:g}"
        return f"{curve.model}, {format_tokens(round(curve.tokens))}"

    def named(at: CriticalBatch, unit: str) -> CriticalBatch:
        return replace(at, curve=replace(at.curve, model=label(at.curve, unit)))

    return {
        name: replace(fit, fits=tuple(named(at, fit.unit) for at in fit.fits))
        for name, fit in fits.items()
    }


def interval(estimate: Estimate, digits: int = 0) -> str:
    """Return an estimate with its interval as text, or its bound."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if low is None and high is None:
        return "–" if value is None else f"{value:,.{digits}f} (no interval)"
    if value is None:
        return f"below {high:,.{digits}f}" if low is None else f"above {low:,.{digits}f}"
    ends = ["open" if end is None else f"{end:,.{digits}f}" for end in (low, high)]
    return f"{value:,.{digits}f} ({' to '.join(ends)})".replace("-", "−")


def curve_table(fits: Mapping[str, CriticalFit], digits: int = 0) -> pd.DataFrame:
    """Return one row per curve of steps against batch size as text; 95% intervals.

    Args:
        fits: Fits by title.
        digits: Decimals of batch sizes.
    """
    rows = [
        {
            "design": title,
            "curve": at.curve.model,
            "N": f"{at.curve.params:,.0f}",
            "D": format_tokens(round(at.curve.tokens)),
            "target loss": f"{at.curve.target_loss:.3f}",
            "batch sizes": f"{at.curve.batch[0]:g} to {at.curve.batch[-1]:g}",
            "settings": f"{at.curve.settings.min()} to {at.curve.settings.max()}",
            "B_crit = b/a": interval(at.B_crit, digits),
            "critical batch": interval(at.cbs, digits),
            "without a law": interval(at.interpolated, digits),
            "residuals of S": _span([100 * (np.exp(r) - 1) for r in at.residuals]),
            "seed SD": f"{at.curve.seed_noise:.1%}",
        }
        for title, fit in fits.items()
        for at in fit.fits
    ]
    return pd.DataFrame(rows)


def _span(values: Sequence[float]) -> str:
    return f"{min(values):+.0f}% to {max(values):+.0f}%".replace("-", "−")


def schedules(results: Path) -> pd.DataFrame:
    """Return schedules.csv with `bound`: "above" or "below" if `relative` is a bound, else ""."""
    compared, table = Tables(results).config["schedules"], Tables(results).read("schedules.csv")
    least = min(compared["lengths"]) * 1.001
    annealed = table["schedule"].isin(["cosine", "WSD"])
    below = annealed & table["reached"] & (table["relative"] <= least)
    return table.assign(bound=np.select([~table["reached"], below], ["above", "below"], ""))


def ratio_noise(results: Path, table: pd.DataFrame, seeds: int = 3) -> float:
    """Return the SD over seeds of the log ratio of one run to the mean of several."""
    listed = Tables(results).read("critical.csv")
    same = (listed["model"] == table["model"].iloc[0]) & (
        listed["tokens"] == table["budget_tokens"].iloc[0]
    )
    return float(listed.loc[same, "seed_noise"].iloc[0]) * np.sqrt(1 + 1 / seeds)


def known_scales(table: pd.DataFrame) -> pd.DataFrame:
    """Return the rows with a noise scale, a b/a and a critical batch size."""
    rows = table.dropna(subset=["noise_scale", "B_crit", "cbs"])
    return rows.loc[rows["noise_scale"] > 0]


# Published measurements


def published_fit(largest: float = math.inf) -> CriticalFit:
    """Return critical batch sizes of the published steps of arXiv 2410.21676, as it defines them.

    Args:
        largest: Parameters of the largest model that counts.
    """
    points = read_points(str(PUBLISHED / "cbs_steps.csv"))
    return fit_critical(
        points.loc[points["params"] <= largest],
        overhead=PUBLISHED_OVERHEAD,
        reference=PUBLISHED_REFERENCE,
        options=Options(resamples=500, level=0.95),
    )


def published_laws(fit: CriticalFit) -> pd.DataFrame:
    """Return the fitted laws and the paper's; 95% intervals."""
    rows = []
    for variable, (coefficient, exponent) in PAPER.items():
        law, symbol = fit.laws[variable], SYMBOLS[variable]
        least, most = law.leave_one_out[0]
        rows.append(
            {
                "variable": f"{symbol}, in millions",
                "paper": f"{coefficient:.2f}·{symbol}^{exponent}",
                "coefficient": interval(law.coefficient, 2),
                "exponent": interval(law.exponents[0], 3),
                "without one size": f"{least:.3f} to {most:.3f}",
            }
        )
    return pd.DataFrame(rows)


def forecasts(fit: CriticalFit, sizes: Sequence[float]) -> pd.DataFrame:
    """Return forecasts of the published law at larger sizes and at sizes that were left out."""
    coefficient, exponent = PAPER["params"]
    rows = []
    for size in sizes:
        ahead = interval(predict(fit.laws["params"], {"params": size}))
        paper = f"{coefficient * (size / 1e6) ** exponent:,.0f}"
        rows.append([format_tokens(round(size)), "5 sizes", ahead, paper, "–"])
    for count in (3, 4):
        law = published_fit(fit.fits[count - 1].curve.params).laws["params"]
        for at in fit.fits[count:]:
            ahead = interval(predict(law, {"params": at.curve.params}))
            name, fewest = at.curve.model, f"the smallest {count}"
            rows.append([name, fewest, ahead, "–", interval(at.cbs)])
    return pd.DataFrame(rows, columns=["size", "law from", "forecast", "paper's law", "measured"])


def batches_by_source(
    ours: Mapping[str, CriticalFit], published: CriticalFit
) -> tuple[pd.DataFrame, dict[str, PowerFit]]:
    """Return best and critical batch sizes in tokens of three sources, and a power law of each.

    Best batch sizes are the measured minima of the published losses of arXiv 2503.04715, at 90%.

    Args:
        ours: Fits of our runs by design; those in tokens, and of other shapes, do not count.
        published: `published_fit`.

    Returns:
        A table with source, params, tokens, batch_tokens, low, high, and `definition`, which is
        empty except for critical batch sizes by another definition; the law of each source in N
        and D, or in D if its points do not separate them.
    """
    best = TableFit.from_dict(read_json(Path(str(PUBLISHED / "steplaw_dense.json")), "restore it"))
    rows: list[dict[str, Any]] = [
        {"source": BEST, "params": at.params, "tokens": at.tokens, "definition": ""}
        | _tokens_per_batch(at.measured, 1)
        for at in best.optima
    ]
    rows += _critical(CRITICAL, [published], PUBLISHED_LENGTH)
    rows += _critical(OURS, [fit for name, fit in ours.items() if name in TITLES])
    table = pd.DataFrame(rows).drop_duplicates(["source", "params", "tokens", "definition"])
    laws = {}
    own = table.loc[(table["definition"] == "") & table["batch_tokens"].notna()]
    for source, some in own.groupby("source", sort=False):
        x = {name: some[name].to_numpy(float) for name in SYMBOLS}
        x = {"tokens": x["tokens"]} if unidentified(x) else x
        laws[str(source)] = fit_power(some["batch_tokens"].to_numpy(float), x)
    return table, laws


def _critical(
    source: str, fits: Iterable[CriticalFit], length: float | None = None
) -> Iterable[dict[str, Any]]:
    for fit in fits:
        for i, at in enumerate(fit.fits):
            size = length or at.curve.seq_len
            own = {"source": source, "params": at.curve.params, "tokens": at.curve.tokens}
            yield own | {"definition": ""} | _tokens_per_batch(at.cbs, size)
            for other in fit.definitions:
                value = other.values[i]
                if value is not None:
                    yield own | {"definition": other.name, "batch_tokens": value * size}


def _tokens_per_batch(estimate: Estimate, length: float) -> dict[str, float]:
    ends = {"batch_tokens": estimate.value, "low": estimate.low, "high": estimate.high}
    return {name: np.nan if end is None else end * length for name, end in ends.items()}
