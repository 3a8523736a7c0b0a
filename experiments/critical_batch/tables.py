"""The tables that the critical-batch experiment leaves: laws, definitions, noise scale, fits."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.laws import CriticalFit
from bss.laws.critical.curves import StepsCurve
from experiments.critical_batch.measure import BATCH, curves, minima, with_overhead
from experiments.critical_batch.study import Study
from experiments.critical_batch.trials import Trial


def tables(
    study: Study, trials: list[Trial], measured: pd.DataFrame, fits: dict[str, CriticalFit]
) -> dict[str, Any]:
    """Every table but the comparison of schedules, by file name."""
    curve = curves(trials, Path(study.setup.engine.runs))
    files = {
        "runs.parquet": curve,
        "points.csv": measured,
        "steps.csv": with_overhead(minima(measured), study.reference),
        "fits.json": {name: fit.to_dict() for name, fit in fits.items()},
        "critical.csv": critical_table(fits),
        "laws.csv": laws_table(fits),
        "definitions.csv": definitions_table(fits),
    }
    if study.noise_half_life:
        files["noise_scale.csv"] = noise_table(curve, measured, fits)
    return files


def critical_table(fits: dict[str, CriticalFit]) -> pd.DataFrame:
    """Every fitted critical batch with its intervals, in the unit of its design."""
    tables = {name: fit.summary() for name, fit in fits.items()}
    return pd.concat(tables, names=["design", ""]).reset_index("design").reset_index(drop=True)


def laws_table(fits: dict[str, CriticalFit]) -> pd.DataFrame:
    """Every law's exponents with intervals; what a design cannot tell is told in `note`."""
    rows = []
    for name, fit in fits.items():
        for law_name, law in fit.laws.items():
            exponents = zip(law.variables, law.exponents, law.leave_one_out, strict=True)
            rows += [
                {
                    "design": name,
                    "law": law_name,
                    "variable": variable,
                    "exponent": exponent.value,
                    "low": exponent.low,
                    "high": exponent.high,
                    "leave_one_out_low": low,
                    "leave_one_out_high": high,
                    "coefficient": law.coefficient.value,
                    "unit": law.unit,
                    "points": law.points,
                    "note": fit.joint_refused,
                }
                for variable, exponent, (low, high) in exponents
            ]
        if not fit.laws:
            rows.append({"design": name, "points": 0, "note": "; ".join(fit.warnings)})
    return pd.DataFrame(rows)


def definitions_table(fits: dict[str, CriticalFit]) -> pd.DataFrame:
    """Critical batches and exponents by design, definition and curve."""
    rows = []
    for name, fit in fits.items():
        for definition in fit.definitions:
            law, columns = definition.law, {}
            if law:
                exponents = zip(law.variables, law.exponents, strict=True)
                columns = {f"exponent_{variable}": p.value for variable, p in exponents}
            for at, value in zip(fit.fits, definition.values, strict=True):
                row = {"design": name, "definition": definition.name, **_place(at.curve)}
                rows.append({**row, "critical_batch": value, **columns})
    return pd.DataFrame(rows)


def _place(curve: StepsCurve) -> dict[str, Any]:
    return {name: getattr(curve, name) for name in ("model", "params", "tokens", "seq_len")}


def noise_table(
    table: pd.DataFrame, measured: pd.DataFrame, fits: dict[str, CriticalFit]
) -> pd.DataFrame:
    """The gradient noise scale where each batch's best run met its target, beside b/a and CBS.

    The run table has the column noise_scale, in sequences; points are from `measure`. b/a and CBS
    are of the first design with batches in sequences that has the curve.
    """
    known = {
        (at.curve.model, at.curve.target_loss): {"B_crit": at.B_crit.value, "cbs": at.cbs.value}
        for fit in reversed(fits.values())
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
            beside = known.get((row["model"], row["target_loss"]), {"B_crit": None, "cbs": None})
            rows.append({**{key: row[key] for key in BATCH}, "noise_scale": at, **beside})
    return pd.DataFrame(rows)
