"""E(S): tokens against steps to a target loss, fitted to points at each run's exact batch.

Intervals cluster by run: a parametric bootstrap draws a run offset and independent noise
(bss.laws.fitting.bootstrap) and refits. Where a design cannot identify a quantity, the fit says so
in place of a number (derived here).
"""

from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.best_batch import BestBatch
from bss.laws.es import LAWS, WITHOUT_LAW
from bss.laws.es.compare import FEWEST, compared
from bss.laws.es.design import Design, design
from bss.laws.es.law import Law, Problem
from bss.laws.es.settle import agreed, asked_for, by_vertices
from bss.laws.es.values import AVERAGED, CHOSEN, NONE_CHOSEN, Comparison, EsFit, TargetFit
from bss.laws.es.vertices import best_at, outliers, valley_at
from bss.laws.fitting.bootstrap import RunEffects, redraw
from bss.laws.fitting.estimate import Estimate, Options, interval
from bss.laws.fitting.solve import Solution, linearize, solve
from bss.points.valley import Valley

NUMBERS = ("S_min", "E_min", "S_opt")


def fit_es(
    points: pd.DataFrame, law: Law | str | None = None, *, options: Options | None = None
) -> EsFit:
    """Fit a law E(S) to points of one model at one kind of loss.

    With six batches or more at a target, the law that predicts left-out batches best is fitted, and
    averaged with those that predict as well; with fewer, the vertices of the targets answer. A
    law's B_opt is given where it agrees with the vertex. A law that is asked for is fitted as it
    is, but has no B_opt where the runs put the fewest tokens at an end, or nowhere.

    Args:
        points: table of points; a target that was not reached says E(B) > tokens consumed.
        law: a law, or the name of one; by default it is chosen.
        options: how intervals are made.

    Raises:
        InputError: an unknown law, a design that no law can be fitted to, or one with no more
            points than the law has parameters.
    """
    options, rows = options or Options(), design(points)
    at = {target: valley_at(rows, target, options.level) for target in rows.targets}
    vertices = {t: best_at(rows, t, valley, options.level) for t, valley in at.items()}
    most = max(len(rows.reaching(target)) for target in rows.targets)
    if law is not None:
        asked = Law.parse(law)
        found = asked_for(_fitted(rows, asked, vertices, options))
        if most >= max(FEWEST, asked.least_judged):
            found = replace(found, comparison=_judged(rows, [asked]))
    elif most >= FEWEST:
        comparison = compared(rows, list(LAWS.values()))
        fits = [_fitted(rows, LAWS[name], vertices, options) for name in comparison.level]
        choice = AVERAGED if len(fits) > 1 else CHOSEN
        found = replace(
            agreed(fits, at), comparison=comparison, choice=choice, level_with=tuple(fits[1:])
        )
    else:
        found = replace(_without_law(rows, vertices, at, options), choice=NONE_CHOSEN)
    told = [
        one
        for target, valley in at.items()
        for one in outliers(rows, target, valley, options.level)
    ]
    worst = {one.run: one for one in sorted(told, key=lambda one: one.times)}
    return replace(found, outliers=tuple(worst.values()))


def _judged(rows: Design, laws: list[Law]) -> Comparison | None:
    try:
        return compared(rows, laws)
    except InputError:
        return None


def _fitted(
    rows: Design,
    law: Law,
    vertices: dict[float, BestBatch],
    options: Options,
    *,
    none: bool = False,
) -> EsFit:
    """One law with its own batches, at the targets that enough of them reach, or at none."""
    able = [t for t in rows.targets if len(rows.reaching(t)) >= law.least]
    enough = np.array([] if none else able)
    _refuse_too_few(law, rows, enough)
    parts = _parts(law, rows, enough, options) if len(enough) else []
    warnings, fits = list(rows.warnings), {}
    for part in parts:
        warnings += part.warnings
        for target in part.targets:
            fits[target] = _target_fit(law, rows, target, part, vertices[target], options)
    for target in rows.targets:
        if target not in fits:
            reason = (
                f"unidentified: {len(rows.reaching(target))} batches reach this loss, "
                f"the {law.name} law needs {law.least}"
            )
            warnings.append(f"target {target:g}: {reason}")
            fits[target] = _unidentified(law, rows, target, reason, vertices[target])
    warnings += [f"target {t:g}: not converged" for t in fits if "not" in fits[t].status]
    joint = parts[0] if law.joint and parts else None
    return EsFit(
        law=law.family,
        seq_len=rows.seq_len,
        fits=tuple(fits[target] for target in rows.targets),
        surface=law.in_tokens(joint.parameters, rows.seq_len) if joint else None,
        surface_intervals=joint.intervals(options.level) if joint else {},
        draws=_kept(law, joint, rows.seq_len, options.draws) if joint else {},
        scatter=tuple(part.scatter for part in parts),
        measured_batches=tuple(rows.batches.tolist()),
        residuals=tuple(residual for part in parts for residual in part.residuals),
        points=int(rows.reached.sum()),
        runs=len(np.unique(rows.run)),
        level=options.level,
        resamples=options.resamples,
        warnings=tuple(warnings),
    )


def _without_law(
    rows: Design,
    vertices: dict[float, BestBatch],
    valleys: dict[float, Valley | None],
    options: Options,
) -> EsFit:
    """What the vertices say; of E(B) between them, the lopsided valley where it can be fitted."""
    try:
        found = _fitted(rows, WITHOUT_LAW, vertices, options)
    except InputError:
        found = _fitted(rows, WITHOUT_LAW, vertices, options, none=True)
    return replace(by_vertices(found, valleys), warnings=tuple(rows.warnings))


def _refuse_too_few(law: Law, rows: Design, targets: np.ndarray) -> None:
    """With as many parameters as points a law meets them all, and no error is left to tell."""
    each = [int((rows.reached & (rows.target == target)).sum()) for target in targets]
    points, where = (sum(each), "") if law.joint else (max(each, default=0), " at a target")
    if each and points <= law.free:
        raise InputError(
            f"points: {points}{where} for the {law.free} parameters of the {law.name} law; "
            "measure more batches, give more targets or choose a smaller law"
        )


@dataclass(frozen=True)
class _Part:
    """One problem's fit: parameters, their refits [resamples], and the targets they speak of."""

    targets: np.ndarray
    parameters: Any
    draws: Any
    status: str
    residuals: list[dict[str, Any]]
    scatter: RunEffects
    warnings: list[str]

    def intervals(self, level: float) -> dict[str, Estimate]:
        """Of the parameters."""
        pairs = zip(self.parameters, self.draws, strict=True)
        found = [interval(float(value), draws, level=level) for value, draws in pairs]
        return dict(zip(self.parameters._fields, found, strict=True))


def _parts(law: Law, rows: Design, targets: np.ndarray, options: Options) -> list[_Part]:
    problem = law.problem(rows, targets)
    found = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)
    parts = []
    for index, theta in enumerate(found.parameters):
        draws, residuals, scatter = _bootstrap(problem, found, index, rows, options)
        parts.append(
            _Part(
                targets=targets if law.joint else targets[index : index + 1],
                parameters=law.decoded(theta, problem, index),
                draws=law.decoded(draws, problem, index),
                status="converged" if found.converged[index] else "not converged",
                residuals=residuals,
                scatter=scatter,
                warnings=_at_bound(law, found) if law.joint else [],
            )
        )
    return parts


def _bootstrap(
    problem: Problem, found: Solution, index: int, rows: Design, options: Options
) -> tuple[np.ndarray, list[dict[str, float]], RunEffects]:
    """Refitted parameters [resamples, P] of one problem, its residuals, and their scatter."""
    data, theta = problem.one(index), found.parameters[index]
    error, slopes = linearize(problem.residual, theta, data)
    used = (data["weight"] > 0) & (data["reached"] > 0)
    runs = rows.run[problem.rows[index]]
    box = lower, upper = problem.lower[index], problem.upper[index]
    free = (lower < upper) & ~found.at_bound[index]
    generator = np.random.default_rng([options.seed, index])
    noise, scatter = redraw(error, slopes[..., free], used, runs, options.resamples, generator)
    scale = np.where(used, data["weight"], np.inf)
    resampled = {
        key: np.broadcast_to(value, (options.resamples, *np.shape(value)))
        for key, value in data.items()
    }
    resampled["observed"] = data["observed"] + (error + noise) / scale
    refit = solve(problem.residual, theta[None], *box, resampled)
    here = problem.rows[index][used]
    told = {"run": rows.run[here], "batch": rows.batch[here], "target_loss": rows.target[here]}
    told = pd.DataFrame(told).assign(relative_loss=error[used])
    return refit.parameters, told.to_dict("records"), scatter


def _at_bound(law: Law, found: Solution) -> list[str]:
    names = ", ".join(compress(law.parameters._fields, found.at_bound[0]))
    told = f"{law.family.name}: {names} ended at a bound of the fit; compare with other laws"
    return [told] if names else []


def _target_fit(
    law: Law, rows: Design, target: float, part: _Part, vertex: BestBatch, options: Options
) -> TargetFit:
    level, (points, runs) = options.level, _counts(rows, target)
    values = law.numbers(part.parameters, target)
    spread = law.numbers(part.draws, target)
    E_min = float(values.get("E_min", np.inf))
    for quantities in (values, spread) if "E_min" in values else ():
        quantities["E_min"] = quantities["E_min"] * rows.seq_len
    estimates = {
        key: interval(float(value), spread[key], level=level) for key, value in values.items()
    }
    batches = {
        name: _identified(name, estimates.pop(name), rows, target, E_min) for name in law.batches
    }
    return TargetFit(
        target_loss=float(target),
        **{name: estimates[name].value if name in estimates else None for name in NUMBERS},
        batches=batches,
        intervals=estimates,
        parameters={} if law.joint else law.in_tokens(part.parameters, rows.seq_len),
        status=part.status,
        draws={} if law.joint else _kept(law, part, rows.seq_len, options.draws),
        points=points,
        runs=runs,
        vertex=vertex,
    )


def _kept(law: Law, part: _Part, seq_len: int, count: int) -> dict[str, tuple[float, ...]]:
    """The first refits of the parameters, to seven digits."""
    refits = [law.in_tokens(law.parameters(*p), seq_len) for p in zip(*part.draws, strict=True)]
    names = part.parameters._fields if count else ()
    return {n: tuple(float(f"{one[n]:.7g}") for one in refits[:count]) for n in names}


def _identified(
    name: str, estimate: Estimate, rows: Design, target: float, E_min: float
) -> Estimate:
    """The estimate of a batch, or a bound with a note where the design does not identify it.

    B_min is an extrapolation unless some batch below 1.5·B_min reached the target; each batch
    that did bounds it from above. B_opt, as any other, needs batches on both sides that reached the
    target, or consumed more than E_min sequences without doing so. B_crit needs a batch within a
    factor of 2 on both sides.
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


def _unidentified(
    law: Law, rows: Design, target: float, reason: str, vertex: BestBatch
) -> TargetFit:
    batches = dict.fromkeys(law.batches, Estimate(None, level=vertex.level, note=reason))
    points, runs = _counts(rows, target)
    return TargetFit(
        float(target), None, None, None, batches, {}, {}, reason, points, runs, vertex=vertex
    )


def _counts(rows: Design, target: float) -> tuple[int, int]:
    """Points that reached a target, and runs with a row at it."""
    here = rows.target == target
    return int((here & rows.reached).sum()), len(np.unique(rows.run[here]))
