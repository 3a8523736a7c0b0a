"""Fit E(S), tokens against steps to a target loss, to points at each run's exact batch size.

Intervals cluster by run: a parametric bootstrap draws a run offset and independent noise
(bss.laws.resampling) and refits. What a design does not identify has no value, and a note.

B_opt is the optimum of the law, or the measured minimum where their intervals do not overlap. It
has no value if the measured minimum is within noise, or at the smallest or largest batch size.

Laws are compared by leaving batch sizes out, refitting and predicting the same points. Errors
inside the range of a target choose the law. All of this is derived here.
"""

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import compress
from statistics import NormalDist
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import minimum
from bss.laws.base import (
    DRAWS,
    BestBatch,
    Estimate,
    Options,
    Outlier,
    disjoint,
    interval,
    parse_ranges,
    refuse_mixed,
    rounded,
    sure,
    tails,
)
from bss.laws.es import INTERPOLATOR, LAWS
from bss.laws.es.law import Law, Problem
from bss.laws.es.values import (
    CROSS_VALIDATED,
    REQUESTED,
    UNSELECTED,
    Choice,
    Comparison,
    EsFit,
    TargetFit,
)
from bss.laws.minimum import FORM_SD, Minimum, from_others, measured_minimum
from bss.laws.resampling import RunEffects, redraw, rms
from bss.laws.solver import SIDE_BY_SIDE, Solution, linearize, repeated, solve
from bss.points.conditions import refuse_mixed_rows
from bss.points.groups import SEED_NOISE, USUAL_SLOPE
from bss.points.measuring import independent_points, with_runs
from bss.points.second_moment import beta2_rule
from bss.tables import SETTINGS
from bss.tables.columns import Origin, positive

CELL = ("target_loss", "batch", "peak_lr")  # of repetitions
FAR = 8.0  # noise SDs of an outlier: never reached by chance, also with few degrees of freedom

MAX_ERROR = 2.0  # in log E: a law that never reaches a target has a finite error there
ASYMPTOTES = ("S_min", "E_min", "S_opt")
TIE = 1.04  # ratio of squared errors, up to which the law with fewer parameters is preferred
EXTRA_STARTS = 3  # of a fold, in addition to the fit of all rows, which is nearly its optimum
FEWEST = 2 * minimum.FEWEST  # batch sizes: with fewer, the four inside do not rank laws


@dataclass(frozen=True)
class EsData:
    """Rows of one model in one LR phase; every array is [N], one row per run and target.

    Attributes:
        run: integer label of the run.
        name: name of the run; its label as text if the table has no column `run`.
        seed: integer label of the seed pair; 0 if the table has no seeds.
        batch: batch size in sequences, E/S.
        target: target loss in nats.
        steps, sequences: those to the target; of the whole run if it did not reach it.
        reached: whether the target was reached.
        slope: −dL/dlog E at the target, which converts errors in log E to losses.
        seq_len: tokens per sequence.
        beta2: the rule of Adam's second moment, as `bss.points.second_moment.beta2_rule` has it.
        warnings: a sentence per group of excluded rows.
    """

    run: np.ndarray
    name: np.ndarray
    seed: np.ndarray
    batch: np.ndarray
    target: np.ndarray
    steps: np.ndarray
    sequences: np.ndarray
    reached: np.ndarray
    slope: np.ndarray
    seq_len: int
    beta2: str
    warnings: tuple[str, ...]

    @property
    def targets(self) -> np.ndarray:
        """Targets that at least one run reached, highest loss first."""
        return np.unique(self.target[self.reached])[::-1]

    @property
    def batches(self) -> np.ndarray:
        """Batch sizes with any row, ascending."""
        return np.unique(self.batch)

    @cached_property
    def interior(self) -> np.ndarray:
        """[N], reached rows whose batch is neither the smallest nor the largest at the target."""
        inside = self.reached.copy()
        for target in self.targets:
            edges = self.reaching(target)[[0, -1]]
            inside &= (self.target != target) | ~np.isin(self.batch, edges)
        return inside

    def reaching(self, target: float) -> np.ndarray:
        """Batch sizes of the runs that reached the target, ascending."""
        return np.unique(self.batch[self.reached & (self.target == target)])


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
    data, options = es_data(points), options or Options(draws=DRAWS)
    used, choice, comparison = _select(data, law, constraints)
    parse_ranges(constraints, used.parameters._fields, f"the {used.name} law")
    parts = _parts(data, used, options, constraints, selected=choice != UNSELECTED)
    warnings, joint = [*data.warnings], parts[0] if used.joint else None
    if joint and joint.at_bound:
        ended = f"{used.family.name}: {joint.at_bound} ended at a bound of the fit"
        warnings.append(f"{ended}; compare with other laws")
    by_target = {target: part for part in parts for target in part.targets}
    fits, far, asked = [], {}, choice == REQUESTED
    for target in data.targets.tolist():
        minimum = target_minimum(data, target, options.level)
        at = _target_fit(data, used, target, by_target.get(target), minimum, options)
        if choice == UNSELECTED:
            at = replace(at, batches={})
        elif at.status != "converged":
            warnings.append(f"target {target:g}: {at.status}")
        by_law = at.batches.get("B_opt")
        if by_law is not None or not asked:
            best = best_batch(by_law, minimum.batch, used.family.name, requested=asked)
            at = with_best(at, best, minimum, data.seq_len)
            if best.method == "measured" and best.value and by_law and by_law.value:
                warnings.append(
                    f"target {target:g}: the {used.name} law has another B_opt than the measured "
                    "minimum, which is reported"
                )
        fits.append(at)
        for one in outliers(data, target, options.level):
            far[one.drop] = max(one, far.get(one.drop, one), key=lambda run: run.times)
    return EsFit(
        law=used.family,
        seq_len=data.seq_len,
        beta2=data.beta2,
        fits=tuple(fits),
        joint=used.in_tokens(joint.parameters, data.seq_len) if joint else None,
        joint_intervals=joint.intervals(options.level) if joint else {},
        draws=joint.kept(used, data.seq_len, options.draws) if joint else {},
        scatter=tuple(part.scatter for part in parts),
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


def _select(
    data: EsData, law: Law | str | None, constraints: str
) -> tuple[Law, Choice, Comparison | None]:
    """Return the law to fit, how it was chosen, and the cross-validation of laws."""
    most = max(len(data.reaching(target)) for target in data.targets)
    if law is not None:
        law, comparison = Law.parse(law), None
        if most >= max(FEWEST, law.least_cross_validated):
            with suppress(InputError):
                comparison = cross_validated(data, [law], constraints)
        return law, REQUESTED, comparison
    names = [name for one in LAWS.values() for name in one.parameters._fields]
    parse_ranges(constraints, names, "the set of laws E(S)")
    if most < FEWEST:
        return INTERPOLATOR, UNSELECTED, None
    comparison = cross_validated(data, [*LAWS.values()], constraints)
    return LAWS[comparison.winner], CROSS_VALIDATED, comparison


@dataclass(frozen=True)
class _Part:
    """The fit of one problem, its refits [resamples], and the targets they apply to.

    `at_bound` names the parameters that ended at a bound.
    """

    targets: list[float]
    parameters: Any
    draws: Any
    status: str
    at_bound: str
    rows: np.ndarray
    error: np.ndarray
    scatter: RunEffects

    def intervals(self, level: float) -> dict[str, Estimate]:
        """Return the parameters with intervals."""
        pairs = zip(self.parameters, self.draws, strict=True)
        estimates = [interval(float(value), draws, level=level) for value, draws in pairs]
        return dict(zip(self.parameters._fields, estimates, strict=True))

    def kept(self, law: Law, seq_len: int, count: int) -> dict[str, tuple[float, ...]]:
        """Return the first refits of the parameters, to seven digits."""
        each = law.in_tokens(self.draws, seq_len) if count else {}
        return {name: tuple(rounded(draws[:count])) for name, draws in each.items()}


def _parts(
    data: EsData, law: Law, options: Options, constraints: str, *, selected: bool
) -> list[_Part]:
    """Return the fits of a law at the targets that enough batch sizes reach."""
    counts = {t: int((data.reached & (data.target == t)).sum()) for t in data.targets.tolist()}
    targets = [t for t in counts if len(data.reaching(t)) >= law.least]
    points = sum(counts.values()) if law.joint else max((counts[t] for t in targets), default=0)
    if not targets or (points <= law.free and not selected):
        return []
    if points <= law.free:
        where = "" if law.joint else " at a target"
        raise InputError(
            f"points: {points}{where} for the {law.free} parameters of the {law.name} law; "
            "measure more batches, give more targets or choose a smaller law"
        )
    problem = law.constrained(law.problem(data, np.array(targets)), constraints, data.seq_len)
    solution = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)
    parts = []
    for index, theta in enumerate(solution.parameters):
        own = targets if law.joint else targets[index : index + 1]
        refits, rows, error, scatter = _bootstrap(problem, solution, index, data, options)
        values, draws = (law.decoded(x, problem, index) for x in (theta, refits))
        status = "converged" if solution.converged[index] else "not converged"
        ended = ", ".join(compress(law.parameters._fields, solution.at_bound[index]))
        parts.append(_Part(own, values, draws, status, ended, rows, error, scatter))
    return parts


def _bootstrap(
    problem: Problem, solution: Solution, index: int, data: EsData, options: Options
) -> tuple[np.ndarray, np.ndarray, np.ndarray, RunEffects]:
    """Return refits [resamples, P] of one problem, its reached rows [n], residuals and noise."""
    arrays, theta = problem.one(index), solution.parameters[index]
    error, slopes = linearize(problem.residual, theta, arrays)
    used = (arrays["weight"] > 0) & (arrays["reached"] > 0)
    runs = data.run[problem.rows[index]]
    box = lower, upper = problem.lower[index], problem.upper[index]
    free = (lower < upper) & ~solution.at_bound[index]
    generator, count = np.random.default_rng([options.seed, index]), options.resamples
    noise, scatter = redraw(error, slopes[..., free], used, runs, count, generator)
    scale = np.where(used, arrays["weight"], np.inf)
    resampled = repeated(arrays, count, observed=arrays["observed"] + (error + noise) / scale)
    refit = solve(problem.residual, theta[None], *box, resampled)
    return refit.parameters, problem.rows[index][used], error[used], scatter


def _target_fit(
    data: EsData, law: Law, target: float, part: _Part | None, minimum: Minimum, options: Options
) -> TargetFit:
    """Return the estimates of a law at a target; without values if it was not fitted there."""
    here, level = data.target == target, options.level
    status = part.status if part else (
        f"unidentified: {len(data.reaching(target))} batches reach this loss, "
        f"the {law.name} law needs {law.least}"
    )  # fmt: skip
    batches = {name: Estimate(None, level=level, note=status) for name in law.batches}
    estimates, own, draws = {}, {}, {}
    if part is not None:
        values, spread = law.quantities(part.parameters, target), law.quantities(part.draws, target)
        E_min, unit = float(values.get("E_min", np.inf)), {"E_min": data.seq_len}
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
    value, level = estimate.value or 0.0, estimate.level
    if name == "B_min":
        smallest = float(data.reaching(target)[0])
        if data.batch[here].min() < value <= smallest < 1.5 * value:
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
        fitted[i], error[i] = np.where(np.isfinite(tokens), tokens, np.nan), part.error
    known = np.concatenate([np.zeros(0, int), *(part.rows for part in parts)])
    i = np.append(known, np.setdiff1d(np.flatnonzero(data.reached), known))
    columns = {"batch": data.batch, "target_loss": data.target, "relative_loss": error}
    columns |= {"steps": data.steps, "measured": data.sequences * data.seq_len}
    columns |= {"fitted": fitted * data.seq_len}
    rows: dict[str, tuple[Any, ...]] = {"run": tuple(data.name[i].tolist())}
    return rows | {name: tuple(rounded(values[i])) for name, values in columns.items()}


def target_minimum(
    data: EsData, target: float, level: float, excluded: np.ndarray | None = None
) -> Minimum:
    """Return the minimum of log sequences to a target over batches, without excluded rows [N]."""
    here = data.target == target
    here &= ~excluded if excluded is not None else here
    # The noise SD of a loss is that of log tokens times the slope of the curve.
    usual = float(np.median(data.slope[here & data.reached]))
    return measured_minimum(
        data.batch[here],
        np.log(data.sequences[here]),
        typical=SEED_NOISE / usual,
        relative=usual / data.slope[here],
        censored=~data.reached[here],
        seed=data.seed[here],
        level=level,
    )


def outliers(data: EsData, target: float, level: float) -> list[Outlier]:
    """Return the run farthest from the minimum measured by the others, if it is an outlier."""
    here = np.flatnonzero((data.target == target) & data.reached)
    log, relative = np.log(data.sequences[here]), 1 / data.slope[here]
    off, times = from_others(data.batch[here], log, SEED_NOISE, relative, data.seed[here])
    if times.max(initial=0.0) <= FAR:
        return []
    i = int(times.argmax())
    row, name = here[i], str(data.name[here[i]])
    at = {"run": name, "batch": float(data.batch[row]), "target_loss": target}
    after = target_minimum(data, target, level, data.run == data.run[row]).batch.value
    without = {"B_opt": after} if after else {}
    numbers = float(off[i]), float(times[i]), "log tokens"
    return [Outlier(at, f"run={name}", *numbers, without)]


def best_batch(
    by_law: Estimate | None, measured: BestBatch, law: str, *, requested: bool = False
) -> BestBatch:
    """Return B_opt of a law, or the measured minimum if it has no value or another one.

    The B_opt of a requested law is conditional on that law. Its interval ignores the uncertainty of
    the functional form, and it is reported if the measured minimum has a value.
    """
    if measured.value is None or by_law is None or not (by_law.value and by_law.low):
        return measured
    form_sd = 0.0 if requested else FORM_SD
    form = NormalDist().inv_cdf(tails(measured.level)[1]) * form_sd
    value, high = by_law.value, by_law.high or math.inf
    low = value * math.exp(-math.hypot(math.log(value / by_law.low), form))
    high = value * math.exp(math.hypot(math.log(high / value), form))
    best = replace(measured, value=value, low=low, high=high, method=law)
    return measured if not requested and disjoint(best, measured) else best


def with_best(at: TargetFit, best: BestBatch, minimum: Minimum, seq_len: int) -> TargetFit:
    """Return a target's fit with a B_opt; if it was measured, with its fewest tokens and steps."""
    at = replace(at, batches=at.batches | {"B_opt": best})
    if best.method != "measured":
        return at
    if not math.isfinite(minimum.value):
        return replace(at, S_opt=None)
    tokens = math.exp(minimum.value) * seq_len
    half = NormalDist().inv_cdf(tails(best.level)[1]) * minimum.error
    fewest = Estimate(tokens, tokens * math.exp(-half), tokens * math.exp(half), best.level)
    steps = None if best.value is None else tokens / (best.value * seq_len)
    intervals = {n: one for n, one in at.intervals.items() if n == "S_min"} | {"E_min": fewest}
    return replace(at, E_min=tokens, S_opt=steps, intervals=intervals)


def es_data(points: pd.DataFrame) -> EsData:
    """Check a table of points and turn it into arrays.

    Runs that change their batch size are excluded, because E(S) assumes one batch size per run.

    Args:
        points: columns target_loss, batch, steps, tokens_to_target, reached, seq_len, and run;
            without it, `bss.points.measuring.with_runs` names the runs.

    Raises:
        InputError: Several models, LR phases, sequence lengths or conditions; no reached target;
            under 3 batches.
    """
    _check(points)
    kept, warnings = independent_points(points)
    named = with_runs(kept)
    reached_rows = named.loc[named["reached"].to_numpy(bool)]
    levels = reached_rows.assign(log_tokens=np.log(reached_rows["tokens_to_target"].astype(float)))
    refuse_mixed_rows(levels, CELL, "log_tokens", USUAL_SLOPE, SETTINGS)
    points = named.assign(run=named.groupby("run", sort=False).ngroup(), name=named["run"])
    batches = points.groupby("run")["batch"]
    changing = (batches.transform("max") > batches.transform("min") * (1 + 1e-6)).to_numpy(bool)
    if changing.any():
        count = points.loc[changing, "run"].nunique()
        warnings.append(f"{count} runs change their batch and are left out of the fit")
        points = points.loc[~changing]
    reached, run = points["reached"].to_numpy(bool), points["run"].to_numpy()
    numbers = points[["batch", "target_loss", "steps", "tokens_to_target"]].to_numpy(float)
    batch, target, steps, tokens = numbers.T.copy()
    if (count := len(np.unique(batch[reached]))) < 3:
        raise InputError(
            f"points: {count} batch sizes reach a target; a law E(S) needs at least 3, "
            "so add runs or raise the targets"
        )
    seeds = [c for c in ("seed", "data_seed") if c in points and not bool(points[c].isna().any())]
    seed = points.groupby(seeds, sort=False).ngroup() if seeds else pd.Series(0, points.index)
    seq_len = int(points["seq_len"].iloc[0])
    return EsData(
        run=run,
        name=points["name"].astype(str).to_numpy(),
        seed=seed.to_numpy(int),
        batch=batch,
        target=target,
        steps=steps,
        sequences=tokens / seq_len,
        reached=reached,
        slope=_slopes(run, batch, target, np.log(tokens), reached),
        seq_len=seq_len,
        beta2=beta2_rule(points),
        warnings=tuple(warnings),
    )


def _check(points: pd.DataFrame) -> None:
    """Raise InputError if a table mixes models or LR phases, reaches no target or lacks numbers."""
    refuse_mixed(points, "points", "model", "params", "lr_phase", "weights", "seq_len")
    if not points["reached"].any():
        raise InputError("points: reached is false in every row; choose targets that runs reach")
    if points["seq_len"].isna().any():
        raise InputError("points: seq_len is missing; give the tokens per sequence, seq_len=")
    for name in ("target_loss", "batch", "steps", "tokens_to_target"):
        positive(points, name, Origin("points"))


def _slopes(
    run: np.ndarray,
    batch: np.ndarray,
    target: np.ndarray,
    log_tokens: np.ndarray,
    reached: np.ndarray,
) -> np.ndarray:
    """Return −dL/dlog E [N]: central differences along runs, averaged over runs of a batch."""
    slope = np.full(len(run), np.nan)
    for label in np.unique(run):
        rows = np.flatnonzero((run == label) & reached)
        rows = rows[np.argsort(target[rows])[::-1]]
        if len(rows) > 1 and (np.diff(log_tokens[rows]) > 0).all():
            slope[rows] = -np.gradient(target[rows], log_tokens[rows])
    typical = np.nanmedian(slope) if np.isfinite(slope).any() else USUAL_SLOPE
    filled = np.empty_like(slope)
    for size, loss in {*zip(batch, target, strict=True)}:
        rows = (batch == size) & (target == loss)
        known = slope[rows][np.isfinite(slope[rows])]
        filled[rows] = np.exp(np.log(known).mean()) if len(known) else typical
    return np.clip(filled, typical / 10, typical * 10)


def compare(points: pd.DataFrame, laws: Sequence[Law | str] = tuple(LAWS)) -> Comparison:
    """Compare laws by the error of predicting E at each batch size from the others.

    Args:
        points: table of points.
        laws: laws, or names of laws.

    Raises:
        InputError: If a law is unknown, or there are too few batch sizes to leave one out.
    """
    return cross_validated(es_data(points), [Law.parse(law) for law in laws])


def cross_validated(data: EsData, laws: Sequence[Law], constraints: str = "") -> Comparison:
    """Return the comparison of laws on data, with constraints on their parameters."""
    reaching = {t: len(data.reaching(t)) for t in data.targets}
    most = max(reaching.values())
    able = {law.name: law for law in laws if law.least_cross_validated <= most}
    if not able:
        needed = min(law.least_cross_validated for law in laws)
        raise InputError(f"points: {most} batches reach a target; leaving one out needs {needed}")
    # All laws predict the same points, so the law that needs most batch sizes decides the targets.
    least = max(law.least_cross_validated for law in able.values())
    targets = np.array([t for t in data.targets if reaching[t] >= least])
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:  # laws compile side by side
        tried = pool.map(lambda law: _errors(data, targets, law, constraints), able.values())
        found = dict(zip(able, tried, strict=True))
    errors = {name: x for name, x in found.items() if isinstance(x, np.ndarray)}
    reasons = {name: x for name, x in found.items() if isinstance(x, InputError)}
    if not errors:
        wanted = {*parse_ranges(constraints)}
        lacking = {name: len(wanted - {*able[name].parameters._fields}) for name in found}
        raise reasons[min(reasons, key=lambda name: lacking[name])]
    rows = [_row(able[name], error, data, len(targets)) for name, error in errors.items()]
    lowest = min(row["interior_loss"] for row in rows)
    tied = [row for row in rows if row["interior_loss"] ** 2 <= TIE * lowest**2]
    order = {row["law"]: (not able[row["law"]].joint, able[row["law"]].free) for row in tied}
    winner = min(tied, key=lambda row: (*order[row["law"]], row["interior_loss"]))["law"]
    rows.sort(key=lambda row: (row["law"] != winner, row["interior_loss"]))
    excluded = tuple(law.name for law in laws if law.name not in errors)
    return Comparison(tuple(rows), winner, excluded)


def _row(law: Law, error: np.ndarray, data: EsData, targets: int) -> dict:
    return {
        "law": law.name,
        "parameters": law.free if law.joint else law.free * targets,
        "points": int(np.isfinite(error).sum()),
        "interior_loss": rms((error * data.slope)[data.interior]),
        "interior_log_E": rms(error[data.interior]),
        "edge_log_E": rms(error[~data.interior]),
    }


def _errors(
    data: EsData, targets: np.ndarray, law: Law, constraints: str
) -> np.ndarray | InputError:
    """Return the error [N] in log E of each reached row without its batch size, else NaN.

    If the law cannot be fitted to these targets, return the reason.
    """
    try:
        problem = law.constrained(law.problem(data, targets), constraints, data.seq_len)
    except InputError as reason:
        return reason
    every = solve(problem.residual, problem.starts, problem.lower, problem.upper, problem.data)
    folds, error = data.batches, np.full(len(data.batch), np.nan)

    def each(values: np.ndarray) -> np.ndarray:
        return np.concatenate([values] * len(folds))

    out = each(data.batch[problem.rows]) == np.repeat(folds, len(problem.rows))[:, None]
    arrays = {key: each(value) for key, value in problem.data.items()}
    arrays["weight"] = np.where(out, 0.0, arrays["weight"])
    some = np.linspace(0, problem.starts.shape[1] - 1, EXTRA_STARTS).astype(int)
    starts = np.concatenate([every.parameters[:, None], problem.starts[:, some]], axis=1)
    box = each(problem.lower), each(problem.upper)
    refits = solve(problem.residual, each(starts), *box, arrays)
    count = len(problem.starts)
    for j in range(len(folds) * count):
        here = np.unique(problem.rows[j % count][out[j]])
        here = here[data.reached[here] & np.isin(data.target[here], targets)]
        p = law.decoded(refits.parameters[j], problem, j % count)
        fitted = law.log_sequences(p, data.batch, data.target)[here]
        error[here] = np.clip(fitted - np.log(data.sequences[here]), -MAX_ERROR, MAX_ERROR)
    return error
