"""What our runs and the published steps show of arXiv 2410.21676, from the committed tables.

Families of Holm: the shape of the steps; the exponents, once by S = a + b/B and once without a law;
curves beside each other, in the same two ways; the gradient noise scale; the best batch.
"""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from bss.laws import CriticalFit
from bss.laws.critical.judged import (
    largest,
    law_over_none,
    line_of,
    line_scatters,
    misfit,
    ratio,
    step_noise,
)
from bss.laws.critical.values import CriticalBatch
from bss.laws.fitting.estimate import Estimate
from bss.laws.fitting.judged import exponent, over_groups
from bss.points.claims import Claim, untestable
from bss.points.contrasts import Measured
from bss.points.effects import apart, beyond
from bss.units import format_tokens
from experiments.critical_batch import best_batch, noise, published
from experiments.critical_batch.asked import (
    AGREES,
    BY_LAW,
    DATA,
    EXPONENT,
    FACTOR,
    GROWS,
    GROWS_WITH_SIZE,
    HUMP,
    LEVEL_BY_LAW,
    LOG_RATIO,
    LOG_STEPS,
    MORE_DATA,
    NEAR,
    NO_LAW,
    PUBLISHED,
    SIZE,
    SLOW,
    Asked,
    joined,
    judged,
    outside,
    told,
)

FITS, SCHEDULES = "results/critical_batch/fits.json", "results/critical_batch/schedules.csv"
MISFITS = "S = a + b/B misses in a pattern"
SHARED_RUNS = "one run serves every budget of its model; a joint law is judged over models"
WIDE = f"At equal size wide and deep models have critical batches within × {FACTOR:g}"
CONTEXT = f"In tokens the critical batch is the same at any context, within × {FACTOR:g}"
ALONE = ("together", "data", "size")
WAYS = ((BY_LAW, False), (NO_LAW, True))


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    fits, betas = fits_of(results), beta2_of(results)
    scales, compared = results / "noise_scale.csv", results / "schedules.csv"
    return [
        *shape(fits),
        *growth(fits, betas),
        *beside(fits),
        *(noise_scale(scales, fits) if scales.exists() else ()),
        *(schedules(pd.read_csv(compared)) if compared.exists() else ()),
        *published.claims_of(published.published_fit()),
        *best_batch.claims_of(best_batch.cells()),
    ]


def fits_of(results: Path) -> dict[str, CriticalFit]:
    """The committed fits, by design."""
    entries = json.loads((results / "fits.json").read_text(encoding="utf-8"))
    return {name: CriticalFit.from_dict(entry) for name, entry in entries.items()}


def beta2_of(results: Path) -> str:
    """How beta2 follows the batch, in a sentence: comparisons with other studies must say it."""
    record = json.loads((results / "experiment.json").read_text(encoding="utf-8"))
    grid = [(at["tokens"], at["beta2s"][0]) for at in record["config"]["grid"] if at["beta2s"]]
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
    found = {}
    for fit in fits.values():
        for at in fit.fits:
            found.setdefault((at.curve.model, at.curve.tokens, at.curve.seq_len), at)
    return list(found.values())


def shape(fits: Mapping[str, CriticalFit]) -> list[Claim]:
    """Whether the law of the steps misses in a pattern, and moves the critical batch."""
    curves = curves_of(fits)
    low = [at.residuals[0] < 0 and at.residuals[-1] < 0 for at in curves]
    signs = f"the first and the last residual are below 0 in {sum(low)} of {len(low)} curves"
    told_runs = "curves of one model and context share runs and count as one"
    where = f"our runs, {len(curves)} curves"
    family = [
        Asked(HUMP, "derived", where, misfit(curves), 1, LOG_STEPS, joined(signs, told_runs)),
        Asked(
            LEVEL_BY_LAW, "derived", where, law_over_none(curves), 1, LOG_RATIO,
            joined("pooled are the errors that the values came with", told_runs),
        ),
    ]  # fmt: skip
    return judged(family, FITS)


def growth(fits: Mapping[str, CriticalFit], betas: str = "") -> list[Claim]:
    """How the critical batch grows with model and data, in either way.

    Args:
        fits: by design.
        betas: what must be said of beta2.
    """
    return [
        one
        for way, interpolated in WAYS
        for one in judged(_exponents(fits, way, betas, interpolated=interpolated), FITS)
    ]


def _exponents(
    fits: Mapping[str, CriticalFit], way: str, betas: str, *, interpolated: bool
) -> list[Asked]:
    effects = exponents(fits, interpolated=interpolated)
    joint = f"{len(fits['both'].fits) if 'both' in fits else 0} points jointly"
    asked = [
        ("together", GROWS, f"our runs, each × {span(fits, 'together')}"),
        ("data", DATA, f"data × {span(fits, 'data', 'tokens')}"),
        ("joint data", DATA, joint),
        ("size", SIZE, f"size × {span(fits, 'size')}"),
        ("joint size", SIZE, joint),
        ("size", GROWS_WITH_SIZE, f"size × {span(fits, 'size')}"),
        ("joint size", GROWS_WITH_SIZE, joint),
        ("gap", MORE_DATA, "each grown alone"),
        ("joint gap", MORE_DATA, joint),
        ("together", AGREES, "our runs, data and model together"),
        ("data", AGREES, "our runs, data at a fixed model"),
        ("joint data", AGREES, f"our runs, {joint}"),
    ]
    notes = (MISFITS if way == BY_LAW else "", SHARED_RUNS)
    return [
        _of_exponent(statement, f"{where}, {way}", effects[key], notes, betas)
        for key, statement, where in asked
        if key in effects
    ]


def _of_exponent(
    statement: str, where: str, effect: Measured, notes: Sequence[str], betas: str
) -> Asked:
    """A claim about an exponent; one of no effect asks whether it is below what would matter."""
    note = joined(told(effect), *notes)
    if statement == SIZE:
        slow, unit = beyond(effect, 0, SLOW), f"{EXPONENT}, beyond {SLOW:g}"
        return Asked(statement, "paper", where, slow, -1, unit, note)
    if statement == AGREES:
        near, unit = beyond(effect, PUBLISHED, NEAR), f"{EXPONENT}, beyond {NEAR:g}"
        note = joined(told(effect) + outside(effect, PUBLISHED), *notes, betas)
        return Asked(statement, "paper", where, near, -1, unit, note)
    source = "derived" if statement == GROWS_WITH_SIZE else "paper"
    return Asked(statement, source, where, effect, 1, EXPONENT, note, SLOW)


def exponents(fits: Mapping[str, CriticalFit], *, interpolated: bool) -> dict[str, Measured]:
    """Exponents as effects: own error of the scatter about their line, pooled about all lines.

    Points of one model share runs, so a joint law's own error is that of leaving out each model.

    Returns:
        By "together" (of N, as the paper), "data", "size", "joint data", "joint size", and data's
        less size's: "gap" and "joint gap". What a design does not identify is left out.
    """
    found_lines = {name: line_of(fit, interpolated=interpolated) for name, fit in fits.items()}
    lines = {name: line for name, line in found_lines.items() if line}
    pools = line_scatters({name: lines[name] for name in ALONE if name in lines})
    found = {name: exponent(lines[name].law, pools.get(name)) for name in ALONE if name in lines}
    both = lines.get("both")
    if both and both.law.variables == ("params", "tokens"):
        weights = {"joint data": (0, 1), "joint size": (1, 0), "joint gap": (-1, 1)}
        for name, w in weights.items():
            own = over_groups(both.x, both.y, both.models, w)
            found[name] = replace(exponent(both.law, largest(pools), w), own=own)
    if {"data", "size"} <= set(found):
        found["gap"] = apart(found["data"], found["size"])
    return found


def span(fits: Mapping[str, CriticalFit], name: str, variable: str = "params") -> str:
    """The factor that a design's sizes or budgets span."""
    values = [getattr(at.curve, variable) for at in fits[name].fits] if name in fits else [1.0]
    return f"{max(values) / min(values):.1f}"


def beside(fits: Mapping[str, CriticalFit]) -> list[Claim]:
    """Width against depth and context lengths: whether a design's curves agree within a factor."""
    scatter = step_noise(curves_of(fits))
    found = []
    for way, interpolated in WAYS:
        family = []
        for statement, name in ((WIDE, "shape"), (CONTEXT, "context")):
            curves = list(fits[name].fits) if name in fits else []
            for other in curves[1:]:
                effect = ratio(other, curves[0], _value(interpolated), scatter)
                where = f"{_told(name, other)} against {_told(name, curves[0])}, {way}"
                family += [_alike(statement, where, effect)] if effect else []
        found += judged(family, FITS)
    return found


def _value(interpolated: bool):
    def of(at: CriticalBatch) -> Estimate:
        return at.interpolated if interpolated else at.cbs

    return of


def _told(design: str, at: CriticalBatch) -> str:
    return f"context {at.curve.seq_len:g}" if design == "context" else at.curve.model


def _alike(statement: str, where: str, effect: Measured) -> Asked:
    near = beyond(effect, 0, math.log(FACTOR))
    note = f"ratio {math.exp(effect.estimate):.2f}; errors by the intervals of both values"
    return Asked(statement, "paper", where, near, -1, f"{LOG_RATIO}, beyond × {FACTOR:g}", note)


def noise_scale(table: Path, fits: Mapping[str, CriticalFit]) -> list[Claim]:
    """Whether the gradient noise scale is b/a, and how it grows."""
    return noise.claims_of(pd.read_csv(table), curves_of(designs(fits)))


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
    return [
        untestable(statement, "paper", where, table=SCHEDULES, note=note, n=1)
        for statement in (
            "Cosine, WSD and a constant rate with averages need about the same steps",
            "Schedule-free needs more steps than a constant rate with averages",
        )
    ]
