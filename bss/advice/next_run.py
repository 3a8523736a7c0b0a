"""Which run to make next: the expected reduction of a goal's variance per unit of compute.

A measurement y with noise SD s lowers the variance of a goal g by cov(g, y)² / (var(y) + s²), if
the two are jointly normal (Chaloner and Verdinelli, Stat. Sci. 10, 273, 1995). The moments are
those over the draws of a fit.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from bss.cells import Table
from bss.errors import InputError
from bss.laws import CriticalFit, CurveFit, EsFit, TableFit
from bss.laws.base import Fit
from bss.laws.functional.curves import stack
from bss.laws.functional.law import CurveLaw, law_losses
from bss.laws.functional.paths import plan_path
from bss.laws.minimum import parabola_vertex
from bss.laws.resampling import rms
from bss.schedules.batch import BatchSchedule
from bss.units import parse_tokens, rounded_tokens

GOALS = {
    "es": ("B_opt@LOSS", r"B_opt@(\d*\.?\d+)"),
    "critical": ("exponent:D or exponent:N", r"exponent:([ND])"),
    "table": ("B_opt@N,D or loss@N,D,B", r"B_opt@([^,]+),([^,]+)|loss@([^,]+),([^,]+),([^,]+)"),
    "curve": ("loss@SCHEDULE", r"loss@(.+)"),
}
"""By kind of fit: the goals, and their pattern."""
NO_DRAWS = "fit: it has no draws of this goal; fit again by `bss fit`, with --json"
GRID = 65  # batch sizes among which a minimum is searched
MOSTLY = 0.9  # share of the draws in which a candidate must reach the goal's loss
NORMAL_DRAWS = 4_000  # of a power law, whose fit keeps none


class Draws(NamedTuple):
    """Joint draws of a goal [R] and of what each candidate would measure [R, n].

    `noise` [n] is the standard deviation of one measurement; `runs` has the candidates with their
    FLOPs, or their tokens where the fit is of one model.
    """

    goal: np.ndarray
    measured: np.ndarray
    noise: np.ndarray
    runs: pd.DataFrame


def next_runs(fit: Fit, goal: str = "", candidates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return candidate runs with what each adds to a goal, the best per unit of compute first.

    Args:
        fit: of any kind, with its draws.
        goal: as in `GOALS`; by default that of `default_goal`.
        candidates: es: batch; critical: params and tokens, or one of them; table: params, tokens,
            batch_tokens; curve: batch, tokens, lr. By default what was measured, and a factor of 2
            around it.

    Returns:
        The candidates with FLOPs (tokens, where the fit is of one model), variance_reduction, the
        expected share of the goal's variance that the run removes, and that share per unit of
        compute relative to the first row.

    Raises:
        InputError: The fit has no draws, or no such goal; or a column is missing.
    """
    draw: Callable[..., Draws] = {"es": _es, "critical": _critical, "table": _table,
                                  "curve": _curve}[fit.KIND]  # fmt: skip
    form, pattern = GOALS[fit.KIND]
    if (match := re.fullmatch(pattern, goal or default_goal(fit))) is None:
        raise InputError(f"--goal {goal!r}: expected {form}")
    found = draw(fit, [part for part in match.groups() if part], candidates)
    known = np.isfinite(found.measured).mean(axis=0) >= MOSTLY
    if len(found.goal) < 2:
        raise InputError(NO_DRAWS)
    if not known.any() or not np.ptp(found.goal) > 0:
        raise InputError(f"--goal {goal}: it is the same in every draw of the fit; choose another")
    measured = found.measured[:, known]  # infinite where a draw never reaches the loss
    most = np.where(np.isfinite(measured), measured, -np.inf).max(axis=0)
    measured = np.minimum(measured, most)
    centred = found.goal - found.goal.mean()
    covariance = centred @ (measured - measured.mean(axis=0)) / len(centred)
    total = measured.var(axis=0) + found.noise[known] ** 2
    share = covariance**2 / total / centred.var()
    runs = found.runs[known].reset_index(drop=True)
    cost = runs["FLOPs" if "FLOPs" in runs else "tokens"].to_numpy(float)
    rate = share / cost
    runs = runs.assign(variance_reduction=share, per_compute=rate / rate.max())
    return runs.sort_values("per_compute", ascending=False, ignore_index=True)


def described_run(runs: pd.DataFrame, goal: str) -> str:
    """Return the first of `next_runs` as a sentence.

    Examples:
        >>> run = {"batch": [4], "tokens": [1.5e6], "variance_reduction": [0.305]}
        >>> described_run(pd.DataFrame(run), "B_opt@1.7")
        'Next run: batch 4, tokens 1.5M; removes 30% of the variance of B_opt@1.7'
    """
    first = Table.of_frame("", runs.head(1).filter(regex="^(?!variance|per_compute|FLOPs)"))
    named = ", ".join(f"{name} {x}" for name, x in zip(first.columns, first.rows[0], strict=True))
    share = runs["variance_reduction"].iloc[0]
    return f"Next run: {named}; removes {share:.0%} of the variance of {goal}"


def default_goal(fit: Fit) -> str:
    """Return the goal of a fit's answer: B_opt, the exponent, or the loss of the best batch."""
    if isinstance(fit, EsFit):
        known = [at for at in fit.fits if at.best.value is not None] or [*fit.fits]
        return f"B_opt@{known[-1].target_loss:g}"
    if isinstance(fit, TableFit):
        known = [at for at in fit.optima if at.batch.value is not None] or [*fit.optima]
        at = max(known, key=lambda at: (at.params, at.tokens))
        return f"B_opt@{rounded_tokens(at.params, 4)},{rounded_tokens(at.tokens, 4)}"
    if isinstance(fit, CriticalFit):
        varied = {name for law in fit.laws.values() for name in law.variables}
        return "exponent:N" if varied == {"params"} else "exponent:D"
    assert isinstance(fit, CurveFit)
    best = fit.best_batch(fit.tokens)
    return f"loss@{round(best.value or best.high or best.low or fit.batches[1])}"


def _es(fit: EsFit, goal: list[str], candidates: pd.DataFrame | None) -> Draws:
    """Log tokens to the goal's loss at each batch; the goal is where they are fewest."""
    loss = float(goal[0])
    runs = _candidates(candidates, {"batch": fit.batches})
    batch = runs["batch"].to_numpy(float)
    grid = np.geomspace(fit.batches[0] / 2, fit.batches[-1] * 2, GRID)
    measured = np.log(fit.token_draws(batch, loss)).T
    if not len(measured):
        raise InputError(NO_DRAWS)
    residuals = fit.residuals()
    nearest = (residuals["target_loss"] - loss).abs()
    noise = rms(residuals.loc[nearest == nearest.min(), "residual"].to_numpy(float))
    runs = runs.assign(tokens=np.exp(np.median(measured, axis=0)))
    best = parabola_vertex(np.log(grid), np.log(fit.token_draws(grid, loss)).T)
    return Draws(best, measured, np.full(len(runs), noise), runs)


def _critical(fit: CriticalFit, goal: list[str], candidates: pd.DataFrame | None) -> Draws:
    """Log critical batches of sizes, each of which takes a run at every batch of a curve."""
    variable = {"N": "params", "D": "tokens"}[goal[0]]
    law = fit.law if fit.law and variable in fit.law.variables else fit.law_of([variable])
    sizes = {n: [getattr(at.curve, n) for at in fit.fits] for n in ("params", "tokens")}
    runs = _candidates(candidates, sizes)
    scatter = (law.margin or 0.0) / NormalDist().inv_cdf((1 + law.level) / 2)
    normal = np.random.default_rng(0).standard_normal((NORMAL_DRAWS, len(law.inverse)))
    theta = scatter * normal @ np.linalg.cholesky(law.inverse).T
    design = law.design({n: runs[n].to_numpy(float) for n in law.variables})
    each = np.median([len(at.curve.batch) for at in fit.fits])
    runs = runs.assign(FLOPs=6 * runs["params"] * runs["tokens"] * each)
    noise = np.full(len(runs), scatter)
    return Draws(theta[:, 1 + law.variables.index(variable)], theta @ design.T, noise, runs)


def _table(fit: TableFit, goal: list[str], candidates: pd.DataFrame | None) -> Draws:
    """Final losses of runs at tuned learning rates; the goal is a loss, or log B_opt."""
    law, points = fit.law, fit.law.points
    sizes = {"params": points.params, "tokens": points.tokens, "batch_tokens": points.batch}
    runs = _candidates(candidates, sizes)
    params, tokens, *batch = [parse_tokens(part, field="--goal") for part in goal]
    grid = np.geomspace(points.batch.min() / 2, points.batch.max() * 2, GRID)
    if batch:
        grid = np.array(batch) * (fit.seq_len or 1.0)
    N, D, B = (runs[name].to_numpy(float) for name in sizes)
    own = np.ones(len(grid))
    draws = law.draws(np.append(params * own, N), np.append(tokens * own, D), np.append(grid, B))[
        1:
    ]
    losses, measured = draws[:, : len(grid)], draws[:, len(grid) :]
    drawn = losses[:, 0] if batch else parabola_vertex(np.log(grid), losses)
    deviation = law.predictions(N, D, B)[1]
    noise = np.sqrt(np.maximum(deviation**2 - measured.var(axis=0), 0.0))
    runs = runs.assign(FLOPs=6 * runs["params"] * runs["tokens"])
    return Draws(drawn, measured, noise, runs)


def _curve(fit: CurveFit, goal: list[str], candidates: pd.DataFrame | None) -> Draws:
    """Log losses at the end of runs of constant learning rate; the goal is a schedule's."""
    ends = [(one.batch[0], round(one.tokens[-1]), max(one.lr)) for one in fit.curves]
    columns: dict[str, Any] = dict(
        zip(("batch", "tokens", "lr"), zip(*ends, strict=True), strict=True)
    )
    runs = _candidates(candidates, columns)
    rows = [
        (goal[0], fit.tokens, fit.rates[1]),
        *runs[[*columns]].itertuples(index=False, name=None),
    ]
    paths = [
        plan_path(BatchSchedule.parse(f"{batch}", total=int(tokens)), int(tokens), fit.seq_len, lr)
        for batch, tokens, lr in rows
    ]
    curves = stack(paths, fit.seq_len)
    logs = np.log([law_losses(CurveLaw(*row), curves)[:, 0] for row in fit.draws])
    return Draws(logs[:, 0], logs[:, 1:], np.full(len(runs), fit.rmse), runs)


def _candidates(
    given: pd.DataFrame | None, measured: Mapping[str, Sequence[float] | np.ndarray]
) -> pd.DataFrame:
    """Return the candidates given, or what was measured with each size halved and doubled too."""
    if given is not None:
        if missing := [name for name in measured if name not in given]:
            raise InputError(f"--candidates: no column {missing[0]}; needed: {', '.join(measured)}")
        return given[[*measured]].reset_index(drop=True)
    own = pd.DataFrame({name: np.asarray(x) for name, x in measured.items()}).dropna()
    around = [own, *(own.assign(**{n: own[n] * x}) for n in measured for x in (0.5, 2.0))]
    runs = pd.concat(around).drop_duplicates(ignore_index=True)
    for name in ("batch", "tokens"):
        if name in runs:
            runs = runs[runs[name] >= 1].astype({name: np.int64})
    return runs.drop_duplicates(ignore_index=True)
