"""E(S): tokens against steps to a target loss, fitted to points at each run's exact batch.

Three laws (bss.laws.es.models): the three-stage law of Zhou et al. (arXiv 2601.05034) and the
hyperbola of McCandlish et al. (arXiv 1812.06162), each per target loss, and a loss surface that
describes all targets at once (derived here). Intervals cluster by run: a parametric bootstrap
draws a run offset and independent noise (bss.laws.fitting.bootstrap) and refits. Where a design
cannot identify a quantity, the fit says so in place of a number.
"""

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.es.design import Design, design
from bss.laws.es.models import Hyperbola, Piecewise, Surface, surface_optimum
from bss.laws.es.problems import Problem, problem_of
from bss.laws.es.values import EsFit, TargetFit
from bss.laws.fitting import bootstrap as run_effects
from bss.laws.fitting.estimate import Estimate, Options, interval
from bss.laws.fitting.solve import Solution, linearize, solve

LAWS = ("piecewise", "hyperbola", "surface")
# The three-stage law has 6 parameters per target; the hyperbola's 2 need one batch to check them.
LEAST_BATCHES = {"piecewise": 8, "hyperbola": 3, "surface": 1}


def fit_es(
    points: pd.DataFrame,
    law: str = "surface",
    *,
    m: float | None = 1.0,
    B_phi: float | None = 0.0,
    options: Options | None = None,
) -> EsFit:
    """Fit a law E(S) to points of one model at one kind of loss.

    Args:
        points: table of points; a target that was not reached says E(B) > tokens consumed.
        law: "surface", "piecewise" or "hyperbola".
        m: batch exponent of the surface; None fits it.
        B_phi: scale in sequences of the surface's Adam clock; None fits it, 0 turns it off.
        options: how intervals are made.

    Raises:
        InputError: an unknown law, or a design that no law can be fitted to.
    """
    options = options or Options()
    if law not in LAWS:
        raise InputError(f"law: {law!r} is unknown; choose one of {', '.join(LAWS)}")
    rows = design(points)
    least = LEAST_BATCHES[law]
    enough = np.array([t for t in rows.targets if len(rows.reaching(t)) >= least])
    warnings = list(rows.warnings)
    fits, residuals, surface, intervals = {}, [], None, {}
    if len(enough):
        problem = problem_of(law, rows, enough, m=m, B_phi=B_phi)
        found = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)
        for index in range(len(found.cost)):
            data = {key: array[index] for key, array in problem.data.items()}
            draws = _bootstrap(problem, found, index, rows, options, residuals)
            value = problem.law(found.parameters[index], data)
            spread = problem.law(draws, data)
            status = "converged" if found.converged[index] else "not converged"
            if isinstance(value, Surface):
                surface = {key: float(x) for key, x in value._asdict().items()}
                intervals = {
                    key: interval(x, draw, level=options.level)
                    for (key, x), draw in zip(surface.items(), spread, strict=True)
                }
                warnings += _surface_warnings(found)
            for target in enough if isinstance(value, Surface) else enough[index : index + 1]:
                fits[target] = _target_fit(rows, target, value, spread, status, options.level)
    for target in rows.targets:
        if target not in fits:
            reason = (
                f"unidentified: {len(rows.reaching(target))} batches reach this loss, "
                f"the {law} law needs {least}"
            )
            warnings.append(f"target {target:g}: {reason}")
            fits[target] = _unidentified(rows, target, law, reason, options.level)
    warnings += [f"target {t:g}: not converged" for t in fits if "not" in fits[t].status]
    return EsFit(
        law=law,
        seq_len=rows.seq_len,
        fits=tuple(fits[target] for target in rows.targets),
        surface=surface,
        surface_intervals=intervals,
        measured_batches=tuple(rows.batches.tolist()),
        residuals=tuple(residuals),
        points=int(rows.reached.sum()),
        runs=len(np.unique(rows.run)),
        level=options.level,
        resamples=options.resamples,
        warnings=tuple(warnings),
    )


def _bootstrap(
    problem: Problem,
    found: Solution,
    index: int,
    rows: Design,
    options: Options,
    residuals: list[dict[str, float]],
) -> np.ndarray:
    """Refitted parameters [resamples, P] of one problem; its residuals are noted down."""
    data = {key: value[index] for key, value in problem.data.items()}
    theta = found.parameters[index]
    error, slopes = linearize(problem.residual, theta, data)
    used = (data["weight"] > 0) & (data["reached"] > 0)
    runs = rows.run[problem.rows[index]][used]
    free = (problem.lower[index] < problem.upper[index]) & ~found.at_bound[index]
    effects = run_effects.estimate(error[used], slopes[used][:, free], runs)
    generator = np.random.default_rng([options.seed, index])
    noise = np.zeros((options.resamples, len(used)))
    noise[:, used] = run_effects.draw(effects, runs, options.resamples, generator)
    scale = np.where(used, data["weight"], np.inf)
    resampled = {
        key: np.broadcast_to(value, (options.resamples, *np.shape(value)))
        for key, value in data.items()
    }
    resampled["observed"] = data["observed"] + (error + noise) / scale
    refit = solve(
        problem.residual,
        theta[None],
        problem.lower[index],
        problem.upper[index],
        resampled,
        iterations=40,
    )
    for row, loss in zip(problem.rows[index][used], error[used], strict=True):
        residuals.append(
            {
                "run": int(rows.run[row]),
                "batch": float(rows.batch[row]),
                "target_loss": float(rows.target[row]),
                "relative_loss": float(loss),
            }
        )
    return refit.parameters


def _surface_warnings(found: Solution) -> list[str]:
    names = [n for n, flag in zip(Surface._fields, found.at_bound[0], strict=True) if flag]
    if not names:
        return []
    return [f"surface: {', '.join(names)} ended at a bound of the fit; compare with other laws"]


def _quantities(law: Surface | Hyperbola | Piecewise, target: float) -> dict[str, np.ndarray]:
    """S_min, E_min, S_opt in steps and sequences, and the law's own batches."""
    if isinstance(law, Surface):
        return surface_optimum(law, target)._asdict()
    if isinstance(law, Hyperbola):
        E_min, S_min = np.asarray(law.E_min), np.asarray(law.S_min)
        return {"S_min": S_min, "E_min": E_min, "B_crit": E_min / S_min}
    C, S_opt, E_min = (np.asarray(x) for x in (law.C, law.S_opt, law.E_min))
    return {
        "S_min": np.asarray(law.S_min),
        "E_min": E_min,
        "S_opt": S_opt,
        "B_min": 2 * C * (np.asarray(law.S_2) - S_opt),
        "B_opt": E_min / S_opt,
    }


def _target_fit(
    rows: Design,
    target: float,
    law: Surface | Hyperbola | Piecewise,
    draws: Surface | Hyperbola | Piecewise,
    status: str,
    level: float,
) -> TargetFit:
    values, spread = _quantities(law, target), _quantities(draws, target)
    for quantities in (values, spread):
        quantities["E_min"] = quantities["E_min"] * rows.seq_len
    estimates = {
        key: interval(float(value), spread[key], level=level) for key, value in values.items()
    }
    batches = {
        key: identified(key, estimate, rows, target, float(values["E_min"]) / rows.seq_len)
        for key, estimate in estimates.items()
        if key.startswith("B_")
    }
    parameters = {} if isinstance(law, Surface) else _in_tokens(law, rows.seq_len)
    return _counted(
        rows,
        target,
        S_min=float(values["S_min"]),
        E_min=float(values["E_min"]),
        S_opt=float(values["S_opt"]) if "S_opt" in values else None,
        batches=batches,
        intervals={key: value for key, value in estimates.items() if key not in batches},
        parameters=parameters,
        status=status,
    )


def _in_tokens(law: Hyperbola | Piecewise, seq_len: int) -> dict[str, float]:
    """The law's parameters with E, and with it C, in tokens."""
    scaled = ("E_min", "C")
    return {k: float(v) * (seq_len if k in scaled else 1) for k, v in law._asdict().items()}


def _unidentified(rows: Design, target: float, law: str, reason: str, level: float) -> TargetFit:
    names = ("B_crit",) if law == "hyperbola" else ("B_min", "B_opt")
    batches = {name: Estimate(None, level=level, note=reason) for name in names}
    return _counted(
        rows,
        target,
        S_min=None,
        E_min=None,
        S_opt=None,
        batches=batches,
        intervals={},
        parameters={},
        status=reason,
    )


def _counted(rows: Design, target: float, **fields) -> TargetFit:
    here = rows.target == target
    return TargetFit(
        target_loss=float(target),
        points=int((here & rows.reached).sum()),
        runs=len(np.unique(rows.run[here])),
        **fields,
    )


def identified(
    name: str, estimate: Estimate, rows: Design, target: float, E_min: float
) -> Estimate:
    """The estimate of a batch, or a bound with a note where the design does not identify it.

    B_min is an extrapolation unless some batch below 1.5·B_min reached the target; each batch
    that did bounds it from above. B_opt needs batches on both sides that reached the target, or
    consumed more than E_min tokens without doing so. B_crit needs a batch within a factor of 2
    on both sides (criteria derived here).

    Args:
        name: "B_min", "B_opt" or "B_crit".
        estimate: as fitted.
        rows: the design.
        target: target loss.
        E_min: in sequences.
    """
    here = rows.target == target
    value, level = estimate.value or 0.0, estimate.level
    if name == "B_min":
        smallest = rows.reaching(target)[0]
        if smallest < 1.5 * value:
            return estimate
        note = f"unidentified: the smallest batch that reached the loss, {smallest:g}, is above 1.5"
        return Estimate(None, None, float(smallest), level, f"{note} B_min")
    spent = rows.sequences > E_min
    measured = np.unique(rows.batch[here & (rows.reached | spent)])
    margin = 2.0 if name == "B_crit" else 1.0
    if value * margin < measured[0]:
        note = f"unidentified: below the smallest batch measured, {measured[0]:g}"
        return Estimate(None, None, float(measured[0]), level, note)
    if value > measured[-1] * margin:
        note = f"unidentified: above the largest batch measured, {measured[-1]:g}"
        return Estimate(None, float(measured[-1]), None, level, note)
    return estimate
