"""The next run: the expected reduction of a goal's variance per unit of compute.

A measurement y with noise SD s lowers the variance of a goal g by cov(g, y)² / (var(y) + s²), if
both are jointly normal. Source: Chaloner and Verdinelli 1995, Statistical Science 10:273. The
moments are taken over the draws of a fit; the goal is a function of its predictions.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
import pandas as pd

from bss.cells import Table
from bss.errors import InputError, check_type
from bss.laws.base import Fit
from bss.laws.minimum import parabola_vertex
from bss.units import parse_tokens
from bss.values import SLACK

KINDS = {
    "es": ("B_opt@LOSS", ["batch"]),
    "critical": ("exponent:D or exponent:N", ["params", "tokens"]),
    "loss": ("B_opt@N,D or loss@N,D,B", ["params", "tokens", "batch_tokens"]),
    "curve": ("loss@SCHEDULE", ["batch", "tokens", "lr"]),
}
"""The goals of each kind of fit, and the columns of its candidate runs."""
GRID = 65  # batch sizes among which a minimum is searched
MOSTLY = 0.9  # share of the draws in which a candidate must reach the goal's loss
Goal = tuple[pd.DataFrame, Callable[[np.ndarray], np.ndarray]]


def next_runs(fit: Any, goal: str, candidates: pd.DataFrame | None = None) -> pd.DataFrame:
    """Return candidate runs and what each adds to a goal, the best per unit of compute first.

    Args:
        fit: of any kind, with its draws.
        goal: as in `KINDS`, e.g. `fit.goal`.
        candidates: columns as in `KINDS`. By default the measured runs, and those a factor of 2
            around each of their sizes.

    Returns:
        The candidates with FLOPs, or tokens if the fit has one model. `variance_reduction` is the
        expected share of the goal's variance that the run removes, `relative_efficiency` that share
        per unit of compute, relative to the first row. `attrs["warnings"]` has what of the goal is
        outside of what was measured.

    Raises:
        InputError: The fit has no draws, or no such goal; or a column is missing.

    Source: derived here.

    Examples:
        >>> from bss import fit_critical
        >>> rows = [{"model": f"m{n:g}", "params": n, "tokens": 20 * n, "target_loss": 3.0,
        ...          "batch": b, "steps": 1000 * (1 + (n / 1e6) ** 0.5 * 40 / b)}
        ...         for n in (1e6, 4e6, 16e6) for b in (8, 32, 128, 512)]
        >>> fit = fit_critical(pd.DataFrame(rows), reference="smallest", resamples=20)
        >>> next_runs(fit, fit.goal)["relative_efficiency"].tolist()[0]
        1.0
    """
    check_type("fit", fit, Fit, "a fit of bss.fit_es or another one")
    check_type("goal", goal, str, "a goal as text, e.g. fit.goal")
    check_type("candidates", candidates, (pd.DataFrame, type(None)), "a table of runs")
    if fit.KIND not in KINDS:
        raise InputError(
            f"fit: of kind {fit.KIND}, which states no next run; give a fit of {', '.join(KINDS)}"
        )
    if fit.KIND == "es" and "B_opt" not in fit.law.batches and goal.startswith("B_opt"):
        raise InputError(
            f"fit: its law, {fit.law.name}, has no B_opt, the only goal of a fit E(S); fit "
            "again without --law, or with a law that has one, e.g. --law surface"
        )
    table, goal_of = _goal(fit, goal)
    columns = KINDS[fit.KIND][1]
    runs = _around(fit, columns) if candidates is None else candidates
    if missing := [name for name in columns if name not in runs]:
        raise InputError(f"--candidates: no column {missing[0]}; needed: {', '.join(columns)}")
    runs = runs[columns].reset_index(drop=True)
    others = {name: table[name].iloc[0] for name in table if name not in runs}
    draws = fit.draws_at(pd.concat([table, runs.assign(**others)[[*table]]]))
    if len(draws) < 2:
        raise InputError("fit: it has no draws of this goal; fit again by `bss fit`, with --json")
    of_goal = draws[:, : len(table)]
    if not np.isfinite(of_goal).any(axis=1).mean() >= MOSTLY:
        raise InputError(
            f"--goal {goal}: the law does not reach it; choose another, e.g. {fit.goal}"
        )
    drawn = goal_of(of_goal)
    measured = draws[:, len(table) :]
    known = np.isfinite(measured).mean(axis=0) >= MOSTLY
    if not known.any() or not np.ptp(drawn) > 0:
        raise InputError(f"--goal {goal}: it is the same in every draw of the fit; choose another")
    runs = runs[known].reset_index(drop=True)
    measured = measured[:, known]
    # Infinite if the law of a draw never reaches the loss: count it as the largest finite value.
    measured = np.minimum(measured, np.where(np.isfinite(measured), measured, 0).max(axis=0))
    covariance = (drawn - drawn.mean()) @ measured / len(drawn)
    share = covariance**2 / (measured.var(axis=0) + fit.noise**2) / drawn.var()
    if "params" in runs:
        cost = runs["FLOPs"] = 6 * runs["params"] * runs["tokens"]
    else:  # of one model
        cost = runs["tokens"] = runs.get("tokens", np.exp(np.median(measured, axis=0)))
    rate = share / np.asarray(cost, float)
    runs = runs.assign(variance_reduction=share, relative_efficiency=rate / rate.max())
    runs.attrs["warnings"] = untested_goal(fit, goal)
    return runs.sort_values("relative_efficiency", ascending=False, ignore_index=True)


def untested_goal(fit: Any, goal: str) -> list[str]:
    """Return what of a goal of `next_runs` is outside of what the fit's runs measured."""
    _, _, at = goal.partition("@")
    if fit.KIND == "es":
        losses = [target.target_loss for target in fit.fits]
        low = min(losses)
        high = max(losses)
        inside = low * (1 - SLACK) <= float(at) <= high * (1 + SLACK)
        return [] if inside else [f"goal {goal}: outside the measured losses {low:g} to {high:g}"]
    if fit.KIND == "loss":
        names = ("params", "tokens", "batch_tokens")
        sizes = dict(zip(names, map(parse_tokens, at.split(",")), strict=False))
        if "batch_tokens" in sizes:
            sizes["batch_tokens"] *= int(fit.seq_len or 1)
        return [f"goal {goal}: {text}" for text in fit.untested(sizes)]
    return []


def described_run(runs: pd.DataFrame, goal: str) -> str:
    """Return the first of `next_runs` as a sentence.

    Examples:
        >>> run = {"batch": [4], "tokens": [1.5e6], "variance_reduction": [0.305]}
        >>> described_run(pd.DataFrame(run), "B_opt@1.7")
        'Next run: batch 4, tokens 1.5M; removes 30% of the variance of B_opt@1.7'
    """
    first = Table.of_frame("", runs.head(1).filter(regex="^(?!variance|relative_efficiency|FLOPs)"))
    named = ", ".join(f"{name} {x}" for name, x in zip(first.columns, first.rows[0], strict=True))
    share = runs["variance_reduction"].iloc[0]
    return f"Next run: {named}; removes {share:.0%} of the variance of {goal}"


def _goal(fit: Any, goal: str) -> Goal:
    """Return the table of predictions that a goal depends on, and the goal as a function of them.

    B_opt is the minimum of predictions on a grid, an exponent is the difference of two.
    """
    name, _, at = goal.replace("exponent:", "exponent@").partition("@")
    with suppress(ValueError, KeyError):
        match fit.KIND, name, at.split(","):
            case "es", "B_opt", [loss]:
                return _minimum(fit.batches, {"target_loss": float(loss)}, "batch")
            case "critical", "exponent", [size]:
                variable = {"N": "params", "D": "tokens"}[size]
                known = fit.law.variables if fit.law else ()
                sizes = dict.fromkeys(known if variable in known else [variable], 1e9)
                table = pd.DataFrame([sizes, sizes | {variable: 1e9 * np.e}])
                return table, lambda draws: draws[:, 1] - draws[:, 0]
            case "loss", "B_opt", [params, tokens]:
                sizes = {"params": parse_tokens(params), "tokens": parse_tokens(tokens)}
                return _minimum(fit.law.points.batch.tolist(), sizes, "batch_tokens")
            case "loss", "loss", [params, tokens, batch]:
                run = {"params": parse_tokens(params), "tokens": parse_tokens(tokens)}
                run["batch_tokens"] = parse_tokens(batch) * int(fit.seq_len or 1)
                return pd.DataFrame([run]), lambda draws: draws[:, 0]
            case "curve", "loss", [schedule]:
                run = {"batch": [schedule], "tokens": fit.tokens, "lr": fit.rates[1]}
                return pd.DataFrame(run), lambda draws: draws[:, 0]
    raise InputError(f"--goal {goal!r}: expected {KINDS[fit.KIND][0]}")


def _minimum(batches: Sequence[float], sizes: Mapping[str, float], column: str) -> Goal:
    """Return a grid of batch sizes, and the log batch size at the minimum of its predictions."""
    grid = np.geomspace(min(batches) / 2, max(batches) * 2, GRID)
    return pd.DataFrame({**sizes, column: grid}), lambda draws: parabola_vertex(np.log(grid), draws)


def _around(fit: Any, columns: list[str]) -> pd.DataFrame:
    """Return what was measured, also with each of its sizes halved and doubled."""
    own = fit.residuals()
    if fit.KIND == "curve":  # a row per run, of a row per loss
        own = own.groupby("run").agg({"batch": "first", "tokens": "max", "lr": "max"})
    own = own[columns].dropna()
    runs = pd.concat([own, *(own.assign(**{n: own[n] * x}) for n in columns for x in (0.5, 2.0))])
    counts = runs.columns.intersection(["batch", "tokens"])
    runs[counts] = runs[counts].astype(np.int64)
    return runs[(runs[counts] >= 1).all(axis=1)].drop_duplicates()
