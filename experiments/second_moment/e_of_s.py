"""E(S) of the part long: tokens to targets at beta2 .95 per step, and the laws fitted to them."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from bss.files import read_json, write_json
from bss.laws import EsFit, fit_es
from bss.laws.es.compare import compare
from bss.laws.fitting.estimate import Options
from bss.points.curve import default_targets, points
from bss.tables import write_table
from bss.values import to_dict
from experiments.second_moment.losses import Part
from experiments.second_moment.tables import at_one_rate

TARGETS = 6
SHOWN = ("hyperbola", "piecewise")


@dataclass(frozen=True)
class FittedPoints:
    """Points of stable losses, the laws fitted to them, and how each predicts left-out batches."""

    points: pd.DataFrame
    fits: dict[str, EsFit]
    errors: pd.DataFrame


def measure(part: Part, column: str = "eval_loss", kind: str = "stable") -> pd.DataFrame:
    """Points at evenly spaced targets, the lowest of which most batches reach."""
    warmup = part.config["setup"]["schedule"]["warmup"]
    runs = at_one_rate(part).runs
    targets = default_targets(runs, TARGETS, warmup_tokens=warmup, column=column)
    return points(runs, targets, column=column, kind=kind)


def write(part: Part, folder: Path) -> None:
    """Measures, fits and writes points.csv and fits.json."""
    measured = measure(part)
    write_table(measured, folder / "points.csv")
    fits = fitted(measured, Options(part.config["resamples"]))
    write_json(folder / "fits.json", to_dict(fits))


def fitted(measured: pd.DataFrame, options: Options) -> dict[str, Any]:
    """The law that is chosen, and those shown beside it, with their errors at left-out batches."""
    fit = fit_es(measured, options=options)
    named = {law: fit_es(measured, law, options=options) for law in SHOWN if law != fit.name}
    return {"comparison": fit.comparison or compare(measured), "fits": {fit.name: fit} | named}


def read(part: Part, folder: Path) -> FittedPoints:
    """What `write` wrote to a folder; it is written first where it is not there."""
    if not (folder / "fits.json").is_file():
        write(part, folder)
    entry = read_json(folder / "fits.json", "delete it, and it is made again")
    fits = {law: EsFit.from_dict(fit) for law, fit in entry["fits"].items()}
    errors = pd.DataFrame(entry["comparison"]["table"])
    return FittedPoints(pd.read_csv(folder / "points.csv"), fits, errors)
