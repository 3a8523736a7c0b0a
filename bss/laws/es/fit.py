"""E(S): tokens against steps to a target loss, fitted to points at each run's exact batch.

Intervals cluster by run: a parametric bootstrap draws a run offset and independent noise
(bss.laws.resampling) and refits. Where a design cannot identify a quantity, the fit says so
in place of a number (derived here).
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.base import Estimate, Options, interval
from bss.laws.constraints import FREE, Constraints
from bss.laws.es import LAWS, WITHOUT_LAW
from bss.laws.es.compare import FEWEST, compared, held_out
from bss.laws.es.design import Design, design
from bss.laws.es.law import Law, Problem
from bss.laws.es.measured import minimum_at, outliers, with_best
from bss.laws.es.values import AVERAGED, CHOSEN, NONE_CHOSEN, EsFit, TargetFit
from bss.laws.minimum import Minimum
from bss.laws.resampling import RunEffects, redraw
from bss.laws.solver import Solution, linearize, solve

NUMBERS = ("S_min", "E_min", "S_opt")


def fit_es(
    points: pd.DataFrame,
    law: Law | str | None = None,
    *,
    constraints: Constraints | str = FREE,
    hold_out: Sequence[str] = (),
    options: Options | None = None,
) -> EsFit:
    """Fit a law E(S) to points of one model at one kind of loss.

    With six batches or more at a target, the law that predicts left-out batches best is fitted, and
    averaged with those that predict as well; with fewer, the vertices of the targets answer. A
    law's B_opt is given where it agrees with the vertex. A law that is asked for is fitted as it
    is, but has no B_opt where the runs put the fewest tokens at an end, or nowhere.

    Args:
        points: table of points; a target that was not reached says E(B) > tokens consumed.
        law: a law, or the name of one; by default it is chosen.
        constraints: parameters that are held, as "L_0=1.69, alpha=.2:1", where a law has them.
        hold_out: also left out in turn: batch, run.
        options: how intervals are made.

    Raises:
        InputError: an unknown law, a design that no law can be fitted to, or one with no more
            points than the law has parameters; a constraint or hold-out that it does not take.
    """
    held = Constraints.parse(constraints)
    case = _Case(design(points), options or Options(), held)
    rows = case.rows
    most = max(len(rows.reaching(target)) for target in rows.targets)
    if law is not None:
        used = [wanted := Law.parse(law)]
        fit = with_best([case.fitted(wanted)], case.minima, chosen=False)
        if most >= max(FEWEST, wanted.least_judged):
            with suppress(InputError):
                fit = replace(fit, comparison=compared(rows, [wanted], held))
    elif most >= FEWEST:
        comparison = compared(rows, list(LAWS.values()), held)
        used = [LAWS[name] for name in comparison.level]
        fits = [case.fitted(one) for one in used]
        choice = AVERAGED if len(fits) > 1 else CHOSEN
        fit = with_best(fits, case.minima, chosen=True)
        fit = replace(fit, level_with=tuple(fits[1:]), comparison=comparison, choice=choice)
    else:
        used, fit = [WITHOUT_LAW], replace(case.without_law(), choice=NONE_CHOSEN)
    minima = case.minima.items()
    runs = [one for t, minimum in minima for one in outliers(rows, t, minimum, fit.level)]
    worst = {one.run: one for one in sorted(runs, key=lambda one: one.times)}
    held.check([n for one in used for n in one.parameters._fields], f"the {fit.name} law")
    told = tuple(held_out(rows, used, by, held) for by in hold_out)
    return replace(fit, outliers=tuple(worst.values()), constraints=held, held_out=told)


@dataclass(frozen=True)
class _Case:
    """What any law is fitted to: the rows, and what each target says of its best batch alone."""

    rows: Design
    options: Options
    constraints: Constraints = FREE

    @cached_property
    def minima(self) -> dict[float, Minimum]:
        """Of each target."""
        level = self.options.level
        return {t: minimum_at(self.rows, t, level) for t in self.rows.targets.tolist()}

    def fitted(self, law: Law, *, none: bool = False) -> EsFit:
        """One law with its own batches, at the targets that enough of them reach, or at none."""
        rows, options = self.rows, self.options
        able = [t for t in rows.targets if len(rows.reaching(t)) >= law.least]
        enough = np.array([] if none else able)
        _refuse_too_few(law, rows, enough)
        parts = _parts(law, rows, enough, options, self.constraints) if len(enough) else []
        warnings, fits = list(rows.warnings), {}
        for part in parts:
            warnings += part.warnings
            fits |= {t: self.target_fit(law, t, part) for t in part.targets}
        for target in rows.targets:
            if target not in fits:
                reason = (
                    f"unidentified: {len(rows.reaching(target))} batches reach this loss, "
                    f"the {law.name} law needs {law.least}"
                )
                warnings.append(f"target {target:g}: {reason}")
                fits[target] = self.target_fit(law, target, reason)
        warnings += [f"target {t:g}: not converged" for t in fits if "not" in fits[t].status]
        joint = parts[0] if law.joint and parts else None
        return EsFit(
            law=law.family,
            seq_len=rows.seq_len,
            fits=tuple(fits[target] for target in rows.targets),
            joint=law.in_tokens(joint.parameters, rows.seq_len) if joint else None,
            joint_intervals=joint.intervals(options.level) if joint else {},
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

    def without_law(self) -> EsFit:
        """What the runs say; of E(B) between batches, the lopsided valley where it can be."""
        try:
            fit = self.fitted(WITHOUT_LAW)
        except InputError:
            fit = self.fitted(WITHOUT_LAW, none=True)
        bare = [replace(at, batches={}) for at in fit.fits]
        fit = with_best([replace(fit, fits=tuple(bare))], self.minima, chosen=True)
        return replace(fit, warnings=tuple(self.rows.warnings))

    def target_fit(self, law: Law, target: float, part: "_Part | str") -> TargetFit:
        """What a problem's fit says of a target, or why it says nothing."""
        rows, here, loss = self.rows, self.rows.target == target, float(target)
        points, runs = int((here & rows.reached).sum()), len(np.unique(rows.run[here]))
        measured = self.minima[target].batch
        if isinstance(part, str):
            batches = dict.fromkeys(law.batches, Estimate(None, level=measured.level, note=part))
            none = None, None, None
            return TargetFit(loss, *none, batches, {}, {}, part, points, runs, measured=measured)
        values = law.numbers(part.parameters, target)
        spread = law.numbers(part.draws, target)
        E_min = float(values.get("E_min", np.inf))
        for quantities in (values, spread) if "E_min" in values else ():
            quantities["E_min"] = quantities["E_min"] * rows.seq_len
        estimates = {
            key: interval(float(value), spread[key], level=self.options.level)
            for key, value in values.items()
        }
        batches = {n: _identified(n, estimates.pop(n), rows, target, E_min) for n in law.batches}
        own = {} if law.joint else law.in_tokens(part.parameters, rows.seq_len)
        draws = {} if law.joint else _kept(law, part, rows.seq_len, self.options.draws)
        S_min, fewest, S_opt = (estimates.get(n, Estimate(None)).value for n in NUMBERS)
        status = part.status
        return TargetFit(
            loss,
            S_min,
            fewest,
            S_opt,
            batches,
            estimates,
            own,
            status,
            points,
            runs,
            draws,
            measured,
        )


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
        estimates = [interval(float(value), draws, level=level) for value, draws in pairs]
        return dict(zip(self.parameters._fields, estimates, strict=True))


def _parts(
    law: Law, rows: Design, targets: np.ndarray, options: Options, constraints: Constraints
) -> list[_Part]:
    problem = law.problem(rows, targets)
    if constraints:
        problem = law.held(problem, constraints, rows.seq_len)
    solution = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)
    parts = []
    for index, theta in enumerate(solution.parameters):
        refits, residuals, scatter = _bootstrap(problem, solution, index, rows, options)
        own = targets if law.joint else targets[index : index + 1]
        values, draws = (law.decoded(x, problem, index) for x in (theta, refits))
        status = "converged" if solution.converged[index] else "not converged"
        warnings = _at_bound(law, solution) if law.joint else []
        parts.append(_Part(own, values, draws, status, residuals, scatter, warnings))
    return parts


def _bootstrap(
    problem: Problem, solution: Solution, index: int, rows: Design, options: Options
) -> tuple[np.ndarray, list[dict[str, float]], RunEffects]:
    """Refitted parameters [resamples, P] of one problem, its residuals, and their scatter."""
    data, theta = problem.one(index), solution.parameters[index]
    error, slopes = linearize(problem.residual, theta, data)
    used = (data["weight"] > 0) & (data["reached"] > 0)
    runs = rows.run[problem.rows[index]]
    box = lower, upper = problem.lower[index], problem.upper[index]
    free = (lower < upper) & ~solution.at_bound[index]
    generator, count = np.random.default_rng([options.seed, index]), options.resamples
    noise, scatter = redraw(error, slopes[..., free], used, runs, count, generator)
    scale = np.where(used, data["weight"], np.inf)
    resampled = {k: np.broadcast_to(x, (count, *np.shape(x))) for k, x in data.items()}
    resampled["observed"] = data["observed"] + (error + noise) / scale
    refit = solve(problem.residual, theta[None], *box, resampled)
    here = problem.rows[index][used]
    columns = {"run": rows.run[here], "batch": rows.batch[here], "target_loss": rows.target[here]}
    table = pd.DataFrame(columns | {"relative_loss": error[used]})
    return refit.parameters, table.to_dict("records"), scatter


def _at_bound(law: Law, solution: Solution) -> list[str]:
    names = ", ".join(compress(law.parameters._fields, solution.at_bound[0]))
    warning = f"{law.family.name}: {names} ended at a bound of the fit; compare with other laws"
    return [warning] if names else []


def _kept(law: Law, part: _Part, seq_len: int, count: int) -> dict[str, tuple[float, ...]]:
    """The first refits of the parameters, to seven digits."""
    refits = [law.in_tokens(law.parameters(*p), seq_len) for p in zip(*part.draws, strict=True)]
    names = part.parameters._fields if count else ()
    return {n: tuple(float(f"{one[n]:.7g}") for one in refits[:count]) for n in names}


def _identified(
    name: str, estimate: Estimate, rows: Design, target: float, E_min: float
) -> Estimate:
    """The estimate of a batch, or a bound with a note where the design does not identify it.

    B_min is an extrapolation unless some batch below 1.5·B_min reached the target, and one below
    it was tried; each batch that did bounds it from above. B_opt, as any other, needs batches on
    both sides that reached the target, or consumed more than E_min sequences without doing so.
    B_crit needs a batch within a factor of 2 on both sides.
    """
    here = rows.target == target
    value, level = estimate.value or 0.0, estimate.level
    if name == "B_min":
        smallest = rows.reaching(target)[0]
        if rows.batch[here].min() < value <= smallest < 1.5 * value:
            return replace(estimate, high=min(estimate.high or np.inf, float(smallest)))
        note = f"unidentified: the smallest batch that reached the loss, {smallest:g}, bounds it"
        return Estimate(None, None, float(smallest), level, note)
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
