"""Tables of critical batches as a reader sees them: numbers with their intervals as text."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from bss.laws import CriticalFit
from bss.laws.base import Estimate
from bss.laws.critical.values import CriticalBatch
from bss.laws.power import predict
from bss.tables import read_points
from bss.units import format_tokens
from bss.values import from_dict
from experiments.critical_batch.measure import fit_design
from experiments.critical_batch.published import published_fit, published_points
from experiments.critical_batch.study import Study
from experiments.tables import Tables

SYMBOLS = {"params": "N", "tokens": "D"}
TITLES = {
    "together": "N and D together",
    "data": "D at one N",
    "size": "N at one D",
    "both": "all points, joint",
}
PUBLISHED = 0.47  # arXiv 2410.21676: 93.20·N^0.47, and with D = 20N 22.91·D^0.47, in millions
PAPER = {"params": (93.20, PUBLISHED), "tokens": (22.91, PUBLISHED)}  # N, D in millions


def interval(estimate: Estimate, digits: int = 0) -> str:
    """An estimate with its interval, or the bound that is left of it."""
    value, low, high = estimate.value, estimate.low, estimate.high
    if low is None and high is None:
        return "–" if value is None else f"{value:,.{digits}f} (no interval)"
    if value is None:
        return f"below {high:,.{digits}f}" if low is None else f"above {low:,.{digits}f}"
    ends = ["open" if end is None else f"{end:,.{digits}f}" for end in (low, high)]
    return f"{value:,.{digits}f} ({' to '.join(ends)})".replace("-", "−")


ALONE = ("together", "data", "size")


def fits_of(results: Path) -> dict[str, CriticalFit]:
    """The committed fits, by design."""
    entries = Tables(results).json("fits.json")
    return {name: CriticalFit.from_dict(entry) for name, entry in entries.items()}


def study_of(results: Path) -> Study:
    """What was asked in a results directory."""
    return from_dict(Study, Tables(results).config)


def designs(fits: Mapping[str, CriticalFit]) -> dict[str, CriticalFit]:
    """The designs of model and data, without width against depth and context."""
    return {name: fit for name, fit in fits.items() if name in (*ALONE, "both")}


def curves_of(fits: Mapping[str, CriticalFit]) -> list[CriticalBatch]:
    """Every curve once."""
    curves = {}
    for fit in fits.values():
        for at in fit.fits:
            curves.setdefault((at.curve.model, at.curve.tokens, at.curve.seq_len), at)
    return list(curves.values())


def known_scales(table: pd.DataFrame) -> pd.DataFrame:
    """The rows with a noise scale, a b/a and a critical batch."""
    rows = table.dropna(subset=["noise_scale", "B_crit", "cbs"])
    return rows.loc[rows["noise_scale"] > 0]


def refitted(results: Path) -> dict[str, CriticalFit]:
    """Our fits by design, with curves named by model and budget, as figures need them."""
    study, points = study_of(results), read_points(str(results / "points.csv"))
    points = points.sort_values("seq_len", kind="stable", ignore_index=True)
    pairs = zip(points["size"], points["budget_tokens"], strict=True)
    names = {
        "sequences": [f"{size}, {format_tokens(round(budget))}" for size, budget in pairs],
        "tokens": [f"context {length:g}" for length in points["seq_len"]],
    }
    fits = {d.name: fit_design(study, d, points.assign(model=names[d.unit])) for d in study.designs}
    return {name: fit for name, fit in fits.items() if fit}


def curves(fit: CriticalFit, digits: int = 0) -> pd.DataFrame:
    """What each curve of steps against batch says; intervals at 95%."""
    return pd.DataFrame(
        {
            "curve": at.curve.model,
            "N": f"{at.curve.params:,.0f}",
            "D": format_tokens(round(at.curve.tokens)),
            "target loss": f"{at.curve.target_loss:.3f}",
            "batches": f"{at.curve.batch[0]:g} to {at.curve.batch[-1]:g}",
            "settings": f"{at.curve.settings.min()} to {at.curve.settings.max()}",
            "B_crit = b/a": interval(at.B_crit, digits),
            "critical batch": interval(at.cbs, digits),
            "without a law": interval(at.interpolated, digits),
            "residuals of S": _span([100 * (np.exp(r) - 1) for r in at.residuals]),
            "seeds scatter by": f"{at.curve.seed_noise:.1%}",
        }
        for at in fit.fits
    )


def curves_beside(fits: Mapping[str, CriticalFit], digits: int = 0) -> pd.DataFrame:
    """The curves of several designs, with the title of each; empty without one."""
    parts = {title: curves(fit, digits) for title, fit in fits.items()}
    if not parts:
        return pd.DataFrame()
    return pd.concat(parts, names=["design", ""]).droplevel(1).reset_index()


def _span(values: Sequence[float]) -> str:
    return f"{min(values):+.0f}% to {max(values):+.0f}%".replace("-", "−")


def published_laws(fit: CriticalFit) -> pd.DataFrame:
    """The fitted laws beside the paper's; intervals at 95%."""
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
                "leaving one size out": f"{least:.3f} to {most:.3f}",
            }
        )
    return pd.DataFrame(rows)


def forecasts(fit: CriticalFit, sizes: Sequence[float]) -> pd.DataFrame:
    """The published law at larger sizes, and at sizes that were left out of it; new values' 95%."""
    coefficient, exponent = PAPER["params"]
    rows = []
    for size in sizes:
        ahead = interval(predict(fit.laws["params"], {"params": size}))
        paper = f"{coefficient * (size / 1e6) ** exponent:,.0f}"
        rows.append([format_tokens(round(size)), "5 sizes", ahead, paper, "–"])
    points = published_points()
    for count in (3, 4):
        fewer = points.loc[points["params"] <= fit.fits[count - 1].curve.params]
        law = published_fit(fewer).laws["params"]
        for at in fit.fits[count:]:
            ahead = interval(predict(law, {"params": at.curve.params}))
            name, fewest = at.curve.model, f"the smallest {count}"
            rows.append([name, fewest, ahead, "–", interval(at.cbs)])
    return pd.DataFrame(rows, columns=["size", "law from", "forecast", "paper's law", "measured"])


def definitions(fits: Mapping[str, CriticalFit]) -> pd.DataFrame:
    """Exponents over definitions of the critical batch, by title of the fit; 95%."""
    columns: dict[str, dict[str, str]] = {}
    for title, fit in fits.items():
        for row in fit.definitions:
            law = row.law
            for variable, p in zip(law.variables, law.exponents, strict=True) if law else ():
                column = f"{title}: {SYMBOLS[variable]}"
                columns.setdefault(column, {})[row.name] = interval(p, 2)
    return pd.DataFrame(columns).fillna("–")


def schedules(results: Path) -> pd.DataFrame:
    """Steps of each schedule over those of the first, and `bound`: where they are one."""
    compared, table = study_of(results).schedules, Tables(results).read("schedules.csv")
    least = min(compared.lengths if compared else ()) * 1.001
    annealed = table["schedule"].isin(["cosine", "WSD"])
    below = annealed & table["reached"] & (table["relative"] <= least)
    return table.assign(bound=np.select([~table["reached"], below], ["above", "below"], ""))


def schedules_beside(table: pd.DataFrame) -> pd.DataFrame:
    """The same as a table [schedule, batch], with the settings tried in brackets."""
    signs = {"": "", "above": "> ", "below": "< "}
    cells = zip(table["bound"], table["relative"], table["trials"], strict=True)
    shown = [f"{signs[bound]}{relative:.2f} ({trials})" for bound, relative, trials in cells]
    wide = table.assign(shown=shown).pivot(index="schedule", columns="batch", values="shown")
    return wide.loc[table["schedule"].unique()].fillna("–")


def ratio_noise(results: Path, table: pd.DataFrame, seeds: int = 3) -> float:
    """The standard deviation over seeds of a log ratio of one run to the mean of several."""
    listed = Tables(results).read("critical.csv")
    same = (listed["model"] == table["model"].iloc[0]) & (
        listed["tokens"] == table["budget_tokens"].iloc[0]
    )
    return float(listed.loc[same, "seed_noise"].iloc[0]) * np.sqrt(1 + 1 / seeds)


def noise_ratios(scales: pd.DataFrame) -> pd.DataFrame:
    """The gradient noise scale over b/a and over the critical batch, by batch."""
    rows = []
    for batch, group in known_scales(scales).groupby("batch"):
        over = group["noise_scale"] / group["B_crit"]
        to_critical = np.log(group["noise_scale"] / group["cbs"]).mean()
        ranks = spearmanr(group["noise_scale"], group["B_crit"])[0] if len(group) > 2 else np.nan
        rows.append(
            {
                "batch": batch,
                "curves": len(group),
                "over b/a": f"{np.exp(np.log(over).mean()):.2f}",
                "its range": f"{over.min():.2f} to {over.max():.2f}",
                "over the critical batch": f"{np.exp(to_critical):.2f}",
                "rank correlation with b/a": f"{ranks:.2f}",
            }
        )
    return pd.DataFrame(rows)
