"""What our runs and the published steps show of arXiv 2410.21676, from the committed tables.

Families of Holm: the shape of the steps; what each statement of an exponent asks, once by
S = a + b/B and once without a law; curves beside each other, in the same two ways; the gradient
noise scale; the best batch.
"""

import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from operator import attrgetter, itemgetter
from pathlib import Path

import pandas as pd

from bss.contests.claims import Asked, Claim, Question, judged
from bss.contests.contrasts import Effect
from bss.contests.effects import apart
from bss.laws import CriticalFit
from bss.laws.critical.judged import (
    exponent,
    largest,
    line_of,
    line_scatters,
    over_groups,
    ratio,
    step_noise,
)
from bss.laws.critical.values import CriticalBatch
from bss.units import format_tokens
from bss.values import from_dict
from experiments.critical_batch import best_batch, noise, published
from experiments.critical_batch.statements import (
    AGREES,
    BEYOND,
    BY_LAW,
    DATA,
    FACTOR,
    GROWS,
    GROWS_WITH_SIZE,
    MORE_DATA,
    SIZE,
    WAYS,
    joined,
    of_exponent,
    of_steps,
    within_factor,
)
from experiments.critical_batch.study import Study
from experiments.tables import Tables

FITS, SCHEDULES = "results/critical_batch/fits.json", "results/critical_batch/schedules.csv"
MISFITS = "S = a + b/B misses in a pattern"
SHARED_RUNS = "one run serves every budget of its model; a joint law is judged over models"
OF_BOTH = "errors by the intervals of both values"
WIDE = Question(
    f"At equal size wide and deep models have critical batches within × {FACTOR:g}",
    "paper",
    unit=BEYOND,
)
CONTEXT = Question(
    f"In tokens the critical batch is the same at any context, within × {FACTOR:g}",
    "paper",
    unit=BEYOND,
)
SCHEDULED = (
    "Cosine, WSD and a constant rate with averages need about the same steps",
    "Schedule-free needs more steps than a constant rate with averages",
)
ALONE = ("together", "data", "size")


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    fits, betas, tables = fits_of(results), beta2_of(results), Tables(results)
    return [
        *shape(fits),
        *growth(fits, betas),
        *beside(fits),
        *(
            noise.claims_of(tables.read("noise_scale.csv"), curves_of(designs(fits)))
            if "noise_scale.csv" in tables
            else ()
        ),
        *(schedules(tables.read("schedules.csv")) if "schedules.csv" in tables else ()),
        *published.claims_of(published.published_fit()),
        *best_batch.claims_of(best_batch.cells()),
    ]


def fits_of(results: Path) -> dict[str, CriticalFit]:
    """The committed fits, by design."""
    entries = Tables(results).json("fits.json")
    return {name: CriticalFit.from_dict(entry) for name, entry in entries.items()}


def study_of(results: Path) -> Study:
    """What was asked in a results directory."""
    return from_dict(Study, Tables(results).config)


def beta2_of(results: Path) -> str:
    """How beta2 follows the batch, in a sentence: comparisons with other studies must say it."""
    grid = [(entry.tokens, entry.beta2s[0]) for entry in study_of(results).grid if entry.beta2s]
    if not grid:
        return ""
    last = grid[-1][1]
    since = next(tokens for tokens, beta2 in grid if beta2 == last)
    floored = f", floored there from {since:,} tokens" if since < grid[-1][0] else ""
    return f"beta2 falls from {grid[0][1]:g} to {last:g} as the batch grows{floored}"


def designs(fits: Mapping[str, CriticalFit]) -> dict[str, CriticalFit]:
    """The designs of model and data, without width against depth and context."""
    return {name: fit for name, fit in fits.items() if name in (*ALONE, "both")}


def curves_of(fits: Mapping[str, CriticalFit]) -> list[CriticalBatch]:
    """Every curve once."""
    curves = {}
    for fit in fits.values():
        for at in fit.fits:
            curves.setdefault((at.curve.model, at.curve.tokens, at.curve.seq_len), at)
    return list(curves.values())


def shape(fits: Mapping[str, CriticalFit]) -> list[Claim]:
    """Whether the law of the steps misses in a pattern, and moves the critical batch."""
    curves = curves_of(fits)
    low = [at.residuals[0] < 0 and at.residuals[-1] < 0 for at in curves]
    signs = f"the first and the last residual are below 0 in {sum(low)} of {len(low)} curves"
    shared = "curves of one model and context share runs and count as one"
    level = joined("pooled are the errors that the values came with", shared)
    return of_steps(curves, f"our runs, {len(curves)} curves", FITS, joined(signs, shared), level)


def growth(fits: Mapping[str, CriticalFit], betas: str = "") -> list[Claim]:
    """How the critical batch grows with model and data, in either way.

    Args:
        fits: by design.
        betas: what must be said of beta2.
    """
    return [
        one for way in WAYS for family in _exponents(fits, way, betas) for one in judged(family)
    ]


def _exponents(fits: Mapping[str, CriticalFit], way: str, betas: str) -> Iterator[list[Asked]]:
    """By what they ask, as the statements stand."""
    effects = exponents(fits, interpolated=WAYS[way])
    joint = f"{len(fits['both'].fits) if 'both' in fits else 0} points jointly"
    sizes = f"size × {span(fits, 'size')}"
    statements = [
        ("together", GROWS, f"our runs, each × {span(fits, 'together')}"),
        ("data", DATA, f"data × {span(fits, 'data', 'tokens')}"),
        ("joint data", DATA, joint),
        ("size", SIZE, sizes),
        ("joint size", SIZE, joint),
        ("size", GROWS_WITH_SIZE, sizes),
        ("joint size", GROWS_WITH_SIZE, joint),
        ("gap", MORE_DATA, "each grown alone"),
        ("joint gap", MORE_DATA, joint),
        ("together", AGREES, "our runs, data and model together"),
        ("data", AGREES, "our runs, data at a fixed model"),
        ("joint data", AGREES, f"our runs, {joint}"),
    ]
    notes = (MISFITS if way == BY_LAW else "", SHARED_RUNS)
    for question, members in itertools.groupby(statements, itemgetter(1)):
        yield [
            of_exponent(question, f"{where}, {way}", effects[key], FITS, notes, betas)
            for key, _, where in members
            if key in effects
        ]


def exponents(fits: Mapping[str, CriticalFit], *, interpolated: bool) -> dict[str, Effect]:
    """Exponents as effects: own error of the scatter about their line, pooled about all lines.

    Points of one model share runs, so a joint law's own error is that of leaving out each model.

    Returns:
        By "together" (of N, as the paper), "data", "size", "joint data", "joint size", and data's
        less size's: "gap" and "joint gap". What a design does not identify is left out.
    """
    every = {name: line_of(fit, interpolated=interpolated) for name, fit in fits.items()}
    lines = {name: line for name, line in every.items() if line}
    pools = line_scatters({name: lines[name] for name in ALONE if name in lines})
    effects = {name: exponent(lines[name].law, pools.get(name)) for name in ALONE if name in lines}
    both = lines.get("both")
    if both and both.law.variables == ("params", "tokens"):
        weights = {"joint data": (0, 1), "joint size": (1, 0), "joint gap": (-1, 1)}
        for name, w in weights.items():
            own = over_groups(both.x, both.y, both.models, w)
            effects[name] = replace(exponent(both.law, largest(pools), w), own=own)
    if {"data", "size"} <= set(effects):
        effects["gap"] = apart(effects["data"], effects["size"])
    return effects


def span(fits: Mapping[str, CriticalFit], name: str, variable: str = "params") -> str:
    """The factor that a design's sizes or budgets span."""
    values = [getattr(at.curve, variable) for at in fits[name].fits] if name in fits else [1.0]
    return f"{max(values) / min(values):.1f}"


def beside(fits: Mapping[str, CriticalFit]) -> Iterator[Claim]:
    """Width against depth and context lengths: whether a design's curves agree within a factor."""
    scatter = step_noise(curves_of(fits))
    for way, interpolated in WAYS.items():
        value = attrgetter("interpolated" if interpolated else "cbs")
        family = []
        for question, name in ((WIDE, "shape"), (CONTEXT, "context")):
            curves = list(fits[name].fits) if name in fits else []
            for other in curves[1:]:
                if effect := ratio(other, curves[0], value, scatter):
                    where = f"{_called(name, other)} against {_called(name, curves[0])}, {way}"
                    note = f"ratio {math.exp(effect.estimate):.2f}; {OF_BOTH}"
                    family.append(question.asked(where, within_factor(effect), FITS, note))
        yield from judged(family)


def _called(design: str, at: CriticalBatch) -> str:
    return f"context {at.curve.seq_len:g}" if design == "context" else at.curve.model


def schedules(table: pd.DataFrame) -> list[Claim]:
    """What the comparison of learning-rate schedules cannot tell: each has one seed.

    Args:
        table: a row a schedule and batch, the constant rate with averages first.
    """
    first = table["schedule"] == table["schedule"].iloc[0]
    settings, bracketed = table["trials"], table.loc[~first, "bracketed"]
    note = (
        f"one seed; the fewest steps of at most {settings[~first].max()} settings, "
        f"{bracketed.sum()} of {len(bracketed)} bracketed, beside those of "
        f"{settings[first].max()} settings"
    )
    where = f"{format_tokens(int(table['budget_tokens'].iloc[0]))} tokens"
    return [Question(one, "paper").untestable(where, SCHEDULES, note, 1) for one in SCHEDULED]
