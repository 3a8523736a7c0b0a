"""Learning-rate schedules in theory (arXiv 2509.19189): the law under them, what a decay buys."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from bss.schedules import rates
from bss.theory.decay import best_peak, decay_order
from bss.theory.fsl import drive_of, finite_law, law_curve
from bss.theory.regression import Stage
from bss.theory.varying import varying_risks
from experiments.optimal_schedule.measure import Part
from experiments.optimal_schedule.study import Study

STEPS = 2**13
SHARES = {"constant": 0.0, "WSD, last 20%": 0.2, "exponential": 1.0}


def schedules(peak: float) -> dict[str, Callable]:
    """The rates that the law is tried under, by name."""
    return {
        "constant": rates.constant(peak),
        "cosine": rates.cosine(peak, STEPS),
        "WSD, last 20% linear": rates.wsd(peak, STEPS, 0, 0.2 * STEPS),
        "exponential, to 1%": rates.wsd(peak, STEPS, 0, STEPS, "exponential", 0.01),
    }


def law_under_rates(study: Study) -> Part:
    """The finite-width law on the exact recursion, at the smallest batch, for several rates."""
    batch, rows = study.min_batch, []
    kept = np.unique(np.linspace(STEPS // 20, STEPS, 400).astype(int))
    for powers in (study.hard[0], study.easy[0]):
        task = study.task(powers)
        for name, rate in schedules(study.lr / 4).items():
            at = rate(np.arange(STEPS) + 0.5)
            drive = drive_of([Stage(float(value), batch, 1) for value in at])
            law = law_curve(finite_law(task), drive, np.append(0, np.cumsum(at))[kept])
            exact = varying_risks(task, at, np.full(STEPS, batch))[kept]
            told = {"schedule": name, "step": kept, "law": law, "exact": exact}
            rows.append(pd.DataFrame(vars(powers) | told))
    return Part({"law_under_rates.csv": pd.concat(rows)}, [])


def decays(study: Study) -> Part:
    """Risks at the best peak rate, by the law at infinite width, and the paper's expressions."""
    budgets = np.geomspace(1e7, 1e10, 4 if study.modes < 128 else 7)
    rows = []
    for powers in (study.hard[0], study.easy[0]):
        for name, share in SHARES.items():
            pair = powers.source, powers.capacity
            order = decay_order(*pair, budgets, share)
            for data, told in zip(budgets, order, strict=True):
                risk = best_peak(*pair, data, share)[1]
                row = {"rate": name, "data": data, "risk": risk, "order": told}
                rows.append(vars(powers) | row)
    return Part({"decays.csv": pd.DataFrame(rows)}, [])
