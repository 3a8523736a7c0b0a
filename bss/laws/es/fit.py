"""Fit E(S), tokens against steps to a target loss, to points at each run's exact batch size.

Intervals cluster by run: a parametric bootstrap draws a run offset and independent noise
(bss.laws.resampling) and refits. What a design does not identify has no value, and a note.

B_opt is the optimum of the law, or the measured minimum where their intervals do not overlap. It
has no value if the measured minimum is within noise, or at the smallest or largest batch size.

Laws are compared by leaving batch sizes out, refitting and predicting the same points. Errors
inside the range of a target choose the law. All of this is derived here.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import compress
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import minimum
from bss.laws.base import DRAWS, Estimate, Options, Outlier, interval, rounded, sure
from bss.laws.es.best import best_batch, outliers, target_minimum, with_best
from bss.laws.es.compare import cross_validated
from bss.laws.es.data import EsData, es_data
from bss.laws.es.law import INTERPOLATOR, LAWS, Law
from bss.laws.es.problem import EsProblem
from bss.laws.es.values import (
    CROSS_VALIDATED,
    REQUESTED,
    UNSELECTED,
    Choice,
    Comparison,
    EsFit,
    TargetFit,
)
from bss.laws.inference import Refits, percentiles, refuse_few, resample
from bss.laws.minimum import Minimum
from bss.laws.problem import Ranges, parse_ranges
from bss.laws.solver import Solution

ASYMPTOTES = ("S_min", "E_min", "S_opt")
FEWEST = 2 * minimum.FEWEST  # batch sizes: with fewer, the four inside do not rank laws


def fit_es(
    points: pd.DataFrame,
    law: Law | str | None = None,
    *,
    constraints: str = "",
    options: Options | None = None,
) -> EsFit:
    """Fit a law E(S) to points of one model in one LR phase.

    By default the law that predicts left-out batch sizes best is fitted. With fewer than six batch
    sizes at a target no law is cross-validated, and B_opt is the measured minimum.

    Args:
        points: table of points. A target that was not reached is a lower bound, E(B) > tokens.
        law: a law, or the name of a law; by default it is cross-validated.
        constraints: fixed or bounded parameters, e.g. "L_0=1.69, alpha=.2:1".
        options: how intervals are made.

    Raises:
        InputError: If a law is unknown, a design has too few points for it, or it does not have a
            constrained parameter.
    """
    data = es_data(points)
    options = options or Options(draws=DRAWS)
    used, choice, comparison, ranges = _select(data, law, constraints)
    parts = _parts(data, used, options, ranges, selected=choice != UNSELECTED)
    joint = parts[0] if used.joint else None
    by_target = {target: part for part in parts for target in part.targets}
    warnings = [*data.warnings]
    if joint and joint.at_bound:
        ended = f"{used.family.name}: {joint.at_bound} ended at a bound of the fit"
        warnings.append(f"{ended}; compare with other laws")
    fits = []
    far: dict[str, Outlier] = {}
    for target in data.targets.tolist():
        at, told = _fit_target(data, used, target, by_target.get(target), choice, options)
        fits.append(at)
        warnings += told
        for one in outliers(data, target, options.level):
            far[one.drop] = max(one, far.get(one.drop, one), key=lambda run: run.times)
    return EsFit(
        law=used.family,
        seq_len=data.seq_len,
        beta2=data.beta2,
        lr_phase=data.lr_phase,
        fits=tuple(fits),
        **(_of_all_targets(used, joint, data.seq_len, options) if joint else {}),
        scatter=tuple(part.refits.scatter for part in parts),
        batches=tuple(data.batches.tolist()),
        rows=_rows(data, used, parts),
        points=int(data.reached.sum()),
        runs=len(np.unique(data.run)),
        choice=choice,
        comparison=comparison,
        outliers=tuple(sorted(far.values(), key=lambda run: run.times)),
        constraints=constraints,
        level=options.level,
        resamples=options.resamples,
        warnings=tuple(warnings),
    )


def _of_all_targets(law: Law, part: "_Part", seq_len: int, options: Options) -> dict[str, Any]:
    """Return the fields of `EsFit` with the parameters of a joint law."""
    return {
        "joint": law.in_tokens(part.parameters, seq_len),
        "joint_intervals": part.intervals(options.level),
        "draws": part.kept(law, seq_len, options.draws),
    }


def _fit_target(
    data: EsData,
    law: Law,
    target: float,
    part: "_Part | None",
    choice: Choice,
    options: Options,
) -> tuple[TargetFit, list[str]]:
    """Return the estimates at a target with its B_opt, and what a reader must know of them."""
    minimum = target_minimum(data, target, options.level)
    at = _estimate_target(data, law, target, part, minimum, options)
    requested = choice == REQUESTED
    warnings = []
    if choice == UNSELECTED:
        at = replace(at, batches={})
    elif at.status != "converged":
        warnings.append(f"target {target:g}: {at.status}")
    by_law = at.batches.get("B_opt")
    if by_law is None and requested:
        return at, warnings
    best = best_batch(by_law, minimum.batch, law.family.name, requested=requested)
    at = with_best(at, best, minimum, data.seq_len)
    if best.method == "measured" and best.value and by_law and by_law.value:
        warnings.append(
            f"target {target:g}: the {law.name} law has another B_opt than the measured "
            "minimum, which is reported"
        )
    return at, warnings


def _select(
    data: EsData, law: Law | str | None, constraints: str
) -> tuple[Law, Choice, Comparison | None, Ranges]:
    """Return the law to fit, how it was chosen, the cross-validation of laws, and constraints."""
    most = max(len(data.reaching(target)) for target in data.targets)
    if law is not None:
        asked = Law.parse(law)
        ranges = _ranges_of(asked, constraints)
        comparison = None
        if most >= max(FEWEST, asked.least_cross_validated):
            with suppress(InputError):
                comparison = cross_validated(data, [asked], ranges)
        return asked, REQUESTED, comparison, ranges
    names = [name for one in LAWS.values() for name in one.parameters._fields]
    ranges = parse_ranges(constraints, names, "the set of laws E(S)")
    if most < FEWEST:
        return INTERPOLATOR, UNSELECTED, None, _ranges_of(INTERPOLATOR, constraints)
    comparison = cross_validated(data, [*LAWS.values()], ranges)
    chosen = LAWS[comparison.winner]
    return chosen, CROSS_VALIDATED, comparison, _ranges_of(chosen, constraints)


def _ranges_of(law: Law, constraints: str) -> Ranges:
    return parse_ranges(constraints, law.parameters._fields, f"the {law.name} law")


@dataclass(frozen=True)
class _Part:
    """The fit of one problem, its refits [resamples], and the targets they apply to.

    `at_bound` names the parameters that ended at a bound; `rows` [n] are the rows that reached
    their target.
    """

    targets: list[float]
    parameters: Any
    draws: Any
    status: str
    at_bound: str
    rows: np.ndarray
    refits: Refits
    used: np.ndarray

    @classmethod
    def of(
        cls,
        problem: EsProblem,
        solution: Solution,
        index: int,
        targets: list[float],
        options: Options,
    ) -> "_Part":
        """Refit one problem."""
        generator = np.random.default_rng([options.seed, index])
        refits = resample(problem, solution, index, options.resamples, generator)
        names = problem.law.parameters._fields
        used = problem.used[index]
        return cls(
            targets=targets,
            parameters=problem.decoded(solution.parameters[index], index),
            draws=problem.decoded(refits.parameters, index),
            status="converged" if solution.converged[index] else "not converged",
            at_bound=", ".join(compress(names, solution.at_bound[index])),
            rows=problem.stated.rows[index][used],
            refits=refits,
            used=used,
        )

    @property
    def error(self) -> np.ndarray:
        """Residuals [n] of the rows that reached their target."""
        return self.refits.errors[self.used]

    def intervals(self, level: float) -> dict[str, Estimate]:
        """Return the parameters with intervals."""
        return percentiles(self.parameters._fields, self.parameters, self.draws, level)

    def kept(self, law: Law, seq_len: int, count: int) -> dict[str, tuple[float, ...]]:
        """Return the first refits of the parameters, to seven digits."""
        each = law.in_tokens(self.draws, seq_len) if count else {}
        return {name: tuple(rounded(draws[:count])) for name, draws in each.items()}


def _parts(
    data: EsData, law: Law, options: Options, ranges: Ranges, *, selected: bool
) -> list[_Part]:
    """Return the fits of a law at the targets that enough batch sizes reach."""
    counts = {t: int((data.reached & (data.target == t)).sum()) for t in data.targets.tolist()}
    targets = [t for t in counts if len(data.reaching(t)) >= law.least]
    points = sum(counts.values()) if law.joint else max((counts[t] for t in targets), default=0)
    if not targets or (points <= law.free and not selected):
        return []
    where = "" if law.joint else " at a target"
    refuse_few(
        points,
        law.free,
        f"points: {{}}{where}",
        f"the {law.name} law",
        "measure more batches, give more targets or choose a smaller law",
    )
    problem = EsProblem.of(law, data, np.array(targets), ranges)
    solution = problem.solve()
    own = [targets] if law.joint else [[target] for target in targets]
    return [_Part.of(problem, solution, i, some, options) for i, some in enumerate(own)]


def _estimate_target(
    data: EsData, law: Law, target: float, part: _Part | None, minimum: Minimum, options: Options
) -> TargetFit:
    """Return the estimates of a law at a target; without values if it was not fitted there."""
    here = data.target == target
    level = options.level
    status = part.status if part else (
        f"unidentified: {len(data.reaching(target))} batches reach this loss, "
        f"the {law.name} law needs {law.least}"
    )  # fmt: skip
    batches = {name: Estimate(None, level=level, note=status) for name in law.batches}
    estimates = {}
    own = {}
    draws = {}
    if part is not None:
        values = law.quantities(part.parameters, target)
        spread = law.quantities(part.draws, target)
        E_min = float(values.get("E_min", np.inf))
        unit = {"E_min": data.seq_len}
        estimates = {
            n: interval(float(x) * unit.get(n, 1), spread[n] * unit.get(n, 1), level=level)
            for n, x in values.items()
        }
        batches = {n: _identified(n, estimates.pop(n), data, target, E_min) for n in batches}
        if not law.joint:
            own = law.in_tokens(part.parameters, data.seq_len)
            draws = part.kept(law, data.seq_len, options.draws)
    numbers = {n: estimates[n].value if n in estimates else None for n in ASYMPTOTES}
    return TargetFit(
        target_loss=target,
        **numbers,
        batches={name: sure(one) for name, one in batches.items()},
        intervals=estimates,
        parameters=own,
        status=status,
        points=int((here & data.reached).sum()),
        runs=len(np.unique(data.run[here])),
        draws=draws,
        measured=minimum.batch,
    )


def _identified(
    name: str, estimate: Estimate, data: EsData, target: float, E_min: float
) -> Estimate:
    """Return the estimate of a batch quantity; a bound with a note if it is unidentified.

    B_min is an extrapolation unless some batch below 1.5·B_min reached the target, and one below
    it was tried; each batch that reached it is an upper bound. B_opt needs batches on both sides
    that reached the target, or consumed more than E_min sequences without doing so. B_crit needs a
    batch within a factor of 2 on both sides.
    """
    here = data.target == target
    value = estimate.value or 0.0
    level = estimate.level
    beside = 1.5  # times B_min, see above
    if name == "B_min":
        smallest = float(data.reaching(target)[0])
        if data.batch[here].min() < value <= smallest < beside * value:
            return replace(estimate, high=min(estimate.high or np.inf, smallest))
        note = f"unidentified: the smallest batch that reached the loss, {smallest:g}, bounds it"
        return Estimate(None, None, smallest, level, note)
    spent = data.sequences > E_min
    measured = np.unique(data.batch[here & (data.reached | spent)])
    margin = 2.0 if name == "B_crit" else 1.0
    if value * margin < measured[0]:
        note = f"unidentified: below the smallest batch measured, {measured[0]:g}"
        return Estimate(None, None, float(measured[0]), level, note)
    if value > measured[-1] * margin:
        note = f"unidentified: above the largest batch measured, {measured[-1]:g}"
        return Estimate(None, float(measured[-1]), None, level, note)
    return estimate


def _rows(data: EsData, law: Law, parts: list[_Part]) -> dict[str, tuple[Any, ...]]:
    """Return the reached points and the tokens that the law predicts, NaN at targets without."""
    fitted, error = np.full((2, len(data.run)), np.nan)
    for part in parts:
        i = part.rows  # evaluated in one shape, which compiles once
        tokens = np.exp(law.log_sequences(part.parameters, data.batch, data.target)[i])
        fitted[i] = np.where(np.isfinite(tokens), tokens, np.nan)
        error[i] = part.error
    known = np.concatenate([np.zeros(0, int), *(part.rows for part in parts)])
    i = np.append(known, np.setdiff1d(np.flatnonzero(data.reached), known))
    columns = {"batch": data.batch, "target_loss": data.target, "relative_loss": error}
    columns |= {"steps": data.steps, "measured": data.sequences * data.seq_len}
    columns |= {"fitted": fitted * data.seq_len}
    rows: dict[str, tuple[Any, ...]] = {"run": tuple(data.name[i].tolist())}
    return rows | {name: tuple(rounded(values[i])) for name, values in columns.items()}
