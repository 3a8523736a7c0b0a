"""The best LR of each sweep, and its law lr = c·N^a·D^b·B^g in what varies.

The best LR of a sweep is the vertex of a parabola in log LR through the lowest loss and its
neighbours (bss.laws.bracketed). Logarithms of the best LRs are fitted by least squares with equal
weights. If an exponent cannot be separated from others, as of a batch size that a rule ties to D,
the law is without it. A quadratic term finds a bend, i.e. an exponent that changes (derived here).
"""

from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from scipy.special import stdtr, stdtrit

from bss.laws.base import Estimate, Options, Status
from bss.laws.bracketed import bracketed_minimum
from bss.laws.lr.data import Sweep, refuse_one_rate, sweeps_of
from bss.laws.lr.values import SYMBOLS, Bend, LrFit, SweepOptimum
from bss.laws.power import PowerFit, fit_power, unidentified
from bss.laws.problem import parse_ranges

RARE = 0.01  # probability of a bend, over all variables, in a table of one power law
ENOUGH = 8  # degrees of freedom from which residuals alone measure the noise of best LRs
SPARE = 3  # degrees of freedom that a test of a bend needs


def fit_lr(table: pd.DataFrame, *, constraints: str = "", options: Options | None = None) -> LrFit:
    """Fit the best peak LR of each model size, budget and batch size, and its law.

    Args:
        table: as `bss.laws.lr.data.check_rates` returns it.
        constraints: none can be set.
        options: level of the intervals and seed.

    Raises:
        InputError: If no size has two LRs, or no row has a finite loss.

    Source: derived here.
    """
    how = options or Options()
    parse_ranges(constraints, (), "the law of the best LR")
    sweeps = sweeps_of(table)
    refuse_one_rate(sweeps)
    optima = tuple(_optimum(one, sweeps.noise, how) for one in sweeps.each)
    known = [one for one in optima if one.best.value is not None]
    law, exponents = _law(optima, known, how.level)
    bends = _bends(law, known, how.level) if law else ()
    return LrFit(
        optima=optima,
        law=law,
        exponents=exponents,
        bends=bends,
        unit=sweeps.unit,
        seq_len=sweeps.seq_len,
        loss_noise=sweeps.noise,
        level=how.level,
        resamples=how.resamples,
        warnings=(*sweeps.warnings, *_warnings(optima, known), *map(str, bends)),
    )


def _optimum(sweep: Sweep, noise: float, how: Options) -> SweepOptimum:
    """Return the best LR of a sweep."""
    found = bracketed_minimum(
        sweep.lr,
        sweep.loss,
        noise / np.sqrt(sweep.count),
        tried=sweep.diverged,
        level=how.level,
        seed=how.seed,
    )
    status: Status = "ok"
    if found.count == 1:
        status = "single_lr"
    elif found.best.value is None:
        status = "at_boundary" if None in found.bracket or sweep.diverged else "within_noise"
    return SweepOptimum(
        params=sweep.params,
        tokens=sweep.tokens,
        batch=sweep.batch,
        best=found.best,
        lower=found.bracket[0],
        upper=found.bracket[1],
        lowest=found.lowest,
        error=found.error,
        status=status,
        lr=sweep.lr,
        loss=sweep.loss,
    )


def _law(
    optima: Sequence[SweepOptimum], known: Sequence[SweepOptimum], level: float
) -> tuple[PowerFit | None, dict[str, Estimate]]:
    """Return the law through the best LRs, and each exponent or why it is unidentified."""
    every = {name: np.array([getattr(one, name) for one in optima]) for name in SYMBOLS}
    given = [name for name in SYMBOLS if np.isfinite(every[name]).all()]
    sizes = {name: np.array([getattr(one, name) for one in known]) for name in given}
    reasons = {name: "the table has no such column" for name in SYMBOLS if name not in given}
    for name in given:
        if np.ptp(np.log(every[name])) == 0:
            reasons[name] = f"the table has one value, {every[name][0]:.4g}"
        elif len(known) < 2:
            reasons[name] = f"{len(known)} of {len(optima)} sweeps bracket their best LR"
        elif why := unidentified({name: sizes[name]}):
            reasons[name] = why
    free = [name for name in given if name not in reasons]
    chosen = _separable({name: sizes[name] for name in free})
    for name in (name for name in free if name not in chosen):
        reasons[name] = unidentified({n: sizes[n] for n in (*chosen, name)})
    law = None
    if chosen:
        values = [one.best.value or np.nan for one in known]
        spare = len(known) - len(chosen) - 1
        errors = [one.error for one in known] if spare < ENOUGH else None
        law = fit_power(values, {n: sizes[n] for n in chosen}, errors=errors, level=level)
    found = dict(zip(chosen, law.exponents if law else (), strict=True))
    none = {
        name: Estimate(None, level=level, note=f"unidentified: {why}")
        for name, why in reasons.items()
    }
    return law, {symbol: {**none, **found}[name] for name, symbol in SYMBOLS.items()}


def _separable(sizes: dict[str, np.ndarray]) -> tuple[str, ...]:
    """Return the most variables whose exponents can be separated; the batch size is left first."""
    for count in range(len(sizes), 0, -1):
        for names in combinations(sizes, count):
            if not unidentified({name: sizes[name] for name in names}):
                return names
    return ()


def _bends(law: PowerFit, known: Sequence[SweepOptimum], level: float) -> tuple[Bend, ...]:
    """Return the variables whose exponent changes over the table.

    Each is tested by a quadratic term in its logarithm, with the noise about the bent law.
    """
    sizes = {n: np.array([getattr(one, n) for one in known]) for n in law.variables}
    log_lr = np.log([one.best.value or np.nan for one in known])
    straight = law.design(sizes)
    found = []
    for i, name in enumerate(law.variables, 1):
        x = straight[:, i]
        freedom = len(x) - straight.shape[1] - 1
        if len(np.unique(x.round(2))) < SPARE or freedom < SPARE:
            continue
        design = np.column_stack([straight, (x - x.mean()) ** 2])
        theta = np.linalg.lstsq(design, log_lr)[0]
        inverse = np.linalg.inv(design.T @ design)
        rest = log_lr - design @ theta
        noise = np.sqrt(rest @ rest / freedom)
        error = noise * np.sqrt(inverse[-1, -1])
        if 2 * stdtr(freedom, -abs(theta[-1]) / error) * len(law.variables) > RARE:
            continue
        slopes = []
        for end in (x.min(), x.max()):
            row = np.zeros(design.shape[1])
            row[i] = 1.0
            row[-1] = 2 * (end - x.mean())
            half = stdtrit(freedom, (1 + level) / 2) * noise * np.sqrt(row @ inverse @ row)
            slope = float(row @ theta)
            slopes.append(Estimate(slope, slope - half, slope + half, level))
        ends = (float(sizes[name].min()), float(sizes[name].max()))
        found.append(Bend(SYMBOLS[name], *ends, *slopes))
    return tuple(found)


def _warnings(optima: Sequence[SweepOptimum], known: Sequence[SweepOptimum]) -> list[str]:
    """Return a warning for sweeps without a best LR, each kind once."""
    texts = []
    for status, why in (
        (
            "at_boundary",
            "have their lowest loss at the end of their LRs: only a bound is known",
        ),
        ("single_lr", "have one LR only"),
        ("within_noise", "have no LR that is surely better than the others"),
    ):
        count = sum(one.status == status for one in optima)
        if count:
            texts.append(f"{count} of {len(optima)} sweeps {why}")
    open_ended = sum(None in (one.best.low, one.best.high) for one in known)
    if open_ended:
        texts.append(
            f"{open_ended} best LRs have an open interval: a loss at the end of their LRs is "
            "within noise of the lowest"
        )
    return texts
