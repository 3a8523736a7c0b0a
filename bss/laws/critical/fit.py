"""Critical batch sizes from steps to a target, and how they grow with model and data.

The method of Zhang et al. (arXiv 2410.21676) has three steps. Fit S = a + b/B per model and target.
Compute the critical batch: the largest batch within an overhead of linear scaling. Fit a power law
of the critical batch in N or D. Added here: intervals, bounds if the batches do not bracket the
bend, and critical batches by smooth curves through the steps.

The closed form of the critical batch has an additive term (1 + r)·B_ref. This term lowers the
exponent of a power law. From the same data the exponent is 0.39 at r = 10% and 0.62 for b/a
(derived here).
"""

from collections.abc import Sequence

import numpy as np
import pandas as pd
from scipy.special import stdtrit

from bss.laws.base import Options, Outlier
from bss.laws.critical.data import steps_curves
from bss.laws.critical.estimates import LINEAR, FittedCurve, estimate_critical
from bss.laws.critical.law import CbsDefinition
from bss.laws.critical.sizes import fit_sizes
from bss.laws.critical.values import CriticalBatch, CriticalFit, Quantity
from bss.laws.inference import OutlierRule
from bss.laws.minimum import FEWEST
from bss.laws.problem import parse_ranges
from bss.points.measuring import independent_points

ROUNDING = 0.002  # of steps: published tables have three digits, so no smaller residual is one
RARE = 0.01  # probability of an outlier in a curve of as many points without one


def fit_critical(
    points: pd.DataFrame,
    *,
    overhead: float = 0.2,  # as in the paper, and so is the reference
    reference: float | str = 256,  # as in the paper
    unit: str = "sequences",
    constraints: str = "",
    options: Options | None = None,
) -> CriticalFit:
    """Fit critical batch sizes per (model, target), and their law over models and budgets.

    Args:
        points: as `bss.tables.read_points` returns it.
        overhead: r, the fraction of steps above linear scaling that is allowed.
        reference: B_ref, a batch in the range of linear scaling: a number in `unit`, "smallest" of
            each curve, or a share of each b/a, e.g. "10%".
        unit: of batches: "sequences", or "tokens" to compare context lengths.
        constraints: none can be set: S = a + b/B has no other parameter.
        options: how intervals are made; by default 2,000 refits.

    Raises:
        InputError: if a setting is out of range, or `steps_curves` refuses the table.
    """
    options = options or Options(resamples=2000)  # each takes microseconds
    definition = CbsDefinition.parse(overhead, reference)
    parse_ranges(constraints, (), "S = a + b/B")
    level = options.level
    generator = np.random.default_rng(options.seed)
    kept, copies = independent_points(points)
    curves = steps_curves(kept, unit)
    fitted = [FittedCurve.of(curve, options.resamples, generator) for curve in curves]
    estimated = [estimate_critical(one, definition, level) for one in fitted]
    fits, draws = zip(*estimated, strict=True)
    if all(fit.method == "law" for fit in fits):
        # A bend that all curves share has no part in how the critical batch size grows.
        pairs = zip(fits, fitted, strict=True)
        draws = [definition.by_law(one.refits.kappa, fit.curve.batch[0]) for fit, one in pairs]
    warnings = [*copies, *(text for fit in fits for text in _warn(fit))]
    nonlinear = sum(fit.is_linear for fit in fits) * 2 < len(fits)
    quantity: Quantity = "B_crit" if nonlinear else "cbs"
    if nonlinear:
        draws = [one.refits.kappa for one in fitted]
        warnings.append(
            f"the laws are of b/a: most curves do not scale linearly up to the reference batch of "
            f"{definition}; --reference-batch smallest serves every curve"
        )
    laws, refused, notes = fit_sizes(fits, quantity, draws, level)
    law = next((laws[name] for name in ("joint", "params", "tokens") if name in laws), None)
    return CriticalFit(
        overhead=overhead,
        reference=definition.reference,
        unit=unit,
        fits=fits,
        quantity=quantity,
        law=law,
        laws=laws,
        joint_refused=refused,
        outliers=tuple(_find_outliers(fits, fitted)),
        resamples=options.resamples,
        level=level,
        warnings=(*warnings, *notes),
    )


def _warn(fit: CriticalBatch) -> list[str]:
    texts = []
    name = fit.curve.name
    reference = fit.reference
    if censored := ", ".join(f"{batch:g}" for batch in fit.curve.censored):
        texts.append(f"{name}: not reached at batch {censored}; left out of the fit")
    if fit.B_crit.note:
        texts.append(f"{name}: B_crit is {fit.B_crit.note}")
    if not fit.curve.covers(reference):
        texts.append(f"{name}: CBS is {fit.cbs.note}; --reference-batch smallest")
    elif not fit.is_linear:
        texts.append(
            f"{name}: the reference batch {reference:.4g} takes over {LINEAR:.0%} more tokens than "
            f"smaller ones: scaling from it is not linear; {fit.max_reference:.4g} would do"
        )
    if fit.method == "measured" and fit.by_law.value is None:
        texts.append(f"{name}: its CBS is interpolated, as a batch exceeds the overhead")
    elif fit.method == "measured":
        texts.append(
            f"{name}: S = a + b/B does not fit: its CBS is {fit.by_law.value:.4g}, measured is "
            f"{fit.cbs.value:.4g}, which is given"
        )
    return texts


def _find_outliers(fits: Sequence[CriticalBatch], fitted: Sequence[FittedCurve]) -> list[Outlier]:
    """Return points whose residual, relative to the noise, is rare by Student's t.

    The noise is the residual SD of a fit to the other points. It is computed from the leverage of
    the point (derived here).
    """
    found = []
    for at, one in zip(fits, fitted, strict=True):
        residual = -np.array(at.residuals)
        count = len(residual)
        freedom = count - FEWEST
        if count < 2 * FEWEST:
            continue
        rule = OutlierRule(-stdtrit(freedom, RARE / (2 * count)), most=1)
        unseen = np.where(one.missed == 0, np.inf, one.missed)
        share = np.clip(residual / unseen, 1e-6, 1.0)  # 1 − leverage, which rounding may put at 0
        squares = np.sum(residual**2) - residual**2 / share
        noise = np.sqrt(np.maximum(squares, count * ROUNDING**2) / freedom)
        times = np.abs(residual) / (np.sqrt(share) * noise)
        for i in rule.of(times):
            if abs(residual[i]) < ROUNDING:
                continue
            curve = at.curve
            batch = float(curve.batch[i])
            place = {"model": curve.model, "target_loss": curve.target_loss, "batch": batch}
            drop = f"model={curve.model},batch={batch:g}"
            numbers = (-float(one.missed[i]), float(times[i]))
            without = {"B_crit": float(one.kappa_without[i])}
            found.append(Outlier(place, drop, *numbers, "log steps", without))
    return found
