"""What a late-switch study measures without a law: catch-up, the best switch point.

All differences are paired by seed: runs of one seed share initialisation and data order. Errors
are 2 standard errors over seeds (derived here).
"""

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws.fitting.estimate import Estimate
from bss.laws.fitting.power import fit_power
from bss.points.crossings import mean, parabola_minimum
from bss.sweeps.contenders import Contender
from bss.sweeps.table import lineage_curve
from bss.training.config import RunConfig

REMAINDER = 0.01  # the last step of a large batch ends this much before its budget, or less
POINTS = (
    *("budget", "source", "switches", "best_measured", "after", "after_error", "interior"),
    *("loss", "to_small", "to_small_error"),
)
Curve = dict[str, np.ndarray]


def curves(runs: Path, chosen: Sequence[RunConfig]) -> dict[int, Curve]:
    """Tokens, steps and held-out losses of one schedule by seed, its parents' included."""
    found = {}
    for run in chosen:
        rows = lineage_curve(runs, run)
        found[run.seed] = {
            name: np.array([row[name] for row in rows], float)
            for name in ("tokens", "step", "eval_loss")
        }
    return found


def loss_at(curve: Curve, at: float, clock: str = "tokens") -> float:
    """Held-out loss, linear in the logarithm of tokens or steps; NaN outside what was measured."""
    x, place = np.log(curve[clock]), np.log(at)
    if place > x[-1] + REMAINDER:
        return math.nan
    return float(np.interp(place, x, curve["eval_loss"], left=np.nan))


def catch_up(
    switched: dict[int, dict[int, Curve]],
    small: dict[int, Curve],
    large: dict[int, Curve],
    continued: dict[int, Curve],
) -> pd.DataFrame:
    """Losses after each switch, beside the constants' and the earliest switch's.

    Args:
        switched: curves by seed, by the tokens of the switch.
        small: the constant small batch.
        large: the constant large batch.
        continued: the large batch over more tokens, so that it takes as many steps.

    Returns:
        Columns switch (tokens), tokens, steps, after_tokens, loss, and its differences at equal
        tokens to_small, to_large, to_earliest, and at equal steps to_large_at_steps, each with its
        error; NaN where the other run has not been there. The first row of a switch is the last
        before it.
    """
    earliest = switched[min(switched)]
    rows = []
    for at, seeds in sorted(switched.items()):
        first = next(iter(seeds.values()))
        begun = int(np.searchsorted(first["tokens"], at, side="right"))
        for i in range(max(begun - 1, 0), len(first["tokens"])):
            tokens, steps = int(first["tokens"][i]), int(first["step"][i])
            row = {
                "switch": at,
                "tokens": tokens,
                "steps": steps,
                "after_tokens": tokens - at,
                "loss": mean([curve["eval_loss"][i] for curve in seeds.values()]).value,
            }
            others = {
                "to_small": (small, tokens, "tokens"),
                "to_large": (large, tokens, "tokens"),
                "to_earliest": (earliest, tokens, "tokens"),
                "to_large_at_steps": (continued, steps, "step"),
            }
            for name, (other, place, clock) in others.items():
                gaps = [
                    curve["eval_loss"][i] - loss_at(other[seed], place, clock)
                    for seed, curve in seeds.items()
                    if seed in other
                ]
                gap = mean(gaps)
                row |= {name: gap.value, f"{name}_error": gap.error}
            rows.append(row)
    return pd.DataFrame(rows)


def switch_points(
    switched: dict[int, dict[int, Curve]],
    small: dict[int, Curve],
    large: dict[int, Curve],
    budgets: Sequence[int],
) -> pd.DataFrame:
    """The best switch at each budget, of those measured, at constant rate.

    A switch at 0 is the large batch throughout, one at the budget is the small batch. One run with
    a switch serves every budget behind it, because its rate does not depend on its stop.

    Args:
        switched: as in `catch_up`.
        small: the constant small batch.
        large: the constant large batch.
        budgets: in tokens; those at which the small batch has no loss are left out.

    Returns:
        Columns budget, source ("measured"), switches (how many were compared), best_measured
        (tokens before the switch of the lowest mean loss), after (tokens after the best switch: the
        minimum of a parabola in their logarithm through the best and its neighbours, mean of the
        seeds' logarithms), after_error (2 standard errors of the logarithm), interior (whether
        switches before and after were measured), loss, to_small (the best less the small batch
        throughout) and its error.
    """
    rows = []
    for budget in budgets:
        losses = _losses_at(switched, small, large, budget)
        if budget not in losses:
            continue  # before the first evaluation, or the small batch diverged
        means = {at: mean(list(seeds.values())).value for at, seeds in losses.items()}
        best = min(means, key=lambda at: means[at])
        order = sorted(at for at in means if at < budget)
        interior = best in order[1:-1]
        places = [
            _best_log_after(budget, {at: losses[at][seed] for at in order})
            for seed in losses[best]
            if all(seed in losses[at] for at in order)
        ]
        log_after = mean(places)
        gained = mean([loss - losses[budget][s] for s, loss in losses[best].items() if s in small])
        rows.append(
            {
                "budget": budget,
                "source": "measured",
                "switches": len(means),
                "best_measured": best,
                "after": float(np.exp(log_after.value)) if interior else float(budget - best),
                "after_error": log_after.error,
                "interior": interior,
                "loss": means[best],
                "to_small": gained.value,
                "to_small_error": gained.error,
            }
        )
    return pd.DataFrame(rows, columns=[*POINTS])


def exponent(table: pd.DataFrame, source: str) -> dict[str, Any]:
    """The exponent of the tokens after the best switch in the budget, over interior optima."""
    some = table.loc[(table["source"] == source) & table["interior"].astype(bool)]
    budgets, after = some["budget"].to_numpy(float), some["after"].to_numpy(float)
    errors = some["after_error"].to_numpy(float) / 2
    known = errors if len(errors) and np.isfinite(errors).all() else None
    try:
        law = fit_power(after, {"budget": budgets}, errors=known, level=0.90)
        found = law.exponents[0]
    except InputError as error:
        found = Estimate(None, note=str(error))
    return {
        "source": source,
        "exponent": found.value,
        "low": found.low,
        "high": found.high,
        "level": found.level,
        "budgets": len(some),
        "note": found.note,
    }


def switches_of(contenders: Sequence[Contender], rate: float) -> Iterator[tuple[int, list]]:
    """Tokens of the switch and the runs of all seeds, for two-stage contenders at one rate."""
    found: dict[int, list[RunConfig]] = {}
    for contender in contenders:
        run = contender.run
        if np.isclose(run.optimizer.lr, rate):
            found.setdefault(run.schedule.batch.starts[1], []).append(run)
    yield from sorted(found.items())


def _losses_at(
    switched: dict[int, dict[int, Curve]],
    small: dict[int, Curve],
    large: dict[int, Curve],
    budget: int,
) -> dict[int, dict[int, float]]:
    """Losses at a budget by tokens before the switch and seed, where they were measured."""
    every = {0: large, **switched, budget: small}
    found: dict[int, dict[int, float]] = {}
    for at, seeds in every.items():
        losses = {seed: loss_at(curve, budget) for seed, curve in seeds.items()}
        if at <= budget and losses and np.isfinite(list(losses.values())).all():
            found[at] = losses
    return found


def _best_log_after(budget: int, losses: dict[int, float]) -> float:
    """Log of the tokens after the best switch of one seed: losses by tokens before it."""
    after = sorted(budget - at for at in losses)
    return parabola_minimum(np.log(after), np.array([losses[budget - n] for n in after]))
