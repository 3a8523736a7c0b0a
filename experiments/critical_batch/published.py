"""What the published steps of arXiv 2410.21676 show: five sizes, with data in proportion."""

from dataclasses import replace
from importlib.resources import files

import pandas as pd

from bss.contests.claims import Asked, Claim, judged
from bss.laws import CriticalFit, fit_critical
from bss.laws.critical.judged import by_values, exponent, line_of, log_error
from bss.laws.fitting.estimate import Options
from bss.tables import read_points
from experiments.critical_batch.statements import (
    AGREES,
    GROWS,
    MORE_DATA,
    SIZE,
    WAYS,
    of_exponent,
    of_steps,
)

TABLE = "bss/laws/published/cbs_steps.csv"
WHERE = "published steps, 85M to 1.2B"
OVERHEAD, REFERENCE = 0.2, 256
ONE_LINE = "one line: the second test takes the errors of its values"


def published_points() -> pd.DataFrame:
    """The published steps, as a table of points."""
    return read_points(str(files("bss.laws") / "published" / "cbs_steps.csv"))


def published_fit(points: pd.DataFrame | None = None) -> CriticalFit:
    """Critical batches of the published steps, or of some of them, as the paper defines them."""
    return fit_critical(
        published_points() if points is None else points,
        overhead=OVERHEAD,
        reference=REFERENCE,
        options=Options(resamples=500, level=0.95),
    )


def claims_of(fit: CriticalFit) -> list[Claim]:
    """Every claim, from `published_fit`."""
    return [*shape(fit), *growth(fit), *closed(fit)]


def shape(fit: CriticalFit) -> list[Claim]:
    """Whether the law of the steps misses in a pattern, and moves the critical batch."""
    hump = "a parabola in log B beside the law's two parameters; pooled is what it leaves"
    return of_steps(fit.fits, WHERE, TABLE, hump, "pooled are the errors that the values came with")


def growth(fit: CriticalFit) -> list[Claim]:
    """Whether the critical batch grows with model and data together, and as published."""
    return [one for way in WAYS for one in judged(_exponents(fit, way))]


def _exponents(fit: CriticalFit, way: str) -> list[Asked]:
    line = line_of(fit, interpolated=WAYS[way])
    if line is None:
        return []
    values = [at.interpolated if WAYS[way] else at.cbs for at in fit.fits]
    errors = [log_error(e, len(at.curve.batch)) for e, at in zip(values, fit.fits, strict=True)]
    known = [error for error in errors if error]
    pooled = by_values(line.law, line.x, known) if len(known) == len(line.y) else None
    effect = replace(exponent(line.law), pooled=pooled)
    return [
        of_exponent(statement, f"{WHERE}, {way}", effect, TABLE, (ONE_LINE,))
        for statement in (GROWS, AGREES)
    ]


def closed(fit: CriticalFit) -> list[Claim]:
    """What the published steps cannot tell."""
    ratios = [at.curve.tokens / at.curve.params for at in fit.fits]
    alike = f"D/N is {min(ratios):.1f} to {max(ratios):.1f} at every size"
    missing = "the steps at fixed data are not in the published file"
    return [
        MORE_DATA.untestable(WHERE, TABLE, alike, len(ratios)),
        SIZE.untestable(WHERE, TABLE, missing),
    ]
