"""Learning-rate schedules in theory (arXiv 2509.19189): the law under them, what a decay buys."""

from collections.abc import Callable

import numpy as np
import pandas as pd

from bss.plots import theory as plots
from bss.schedules import rates
from bss.stats import slope
from bss.theory.decay import best_peak, decay_order
from bss.theory.fsl import drive_of, finite_law, law_curve
from bss.theory.joint import varying_risks
from bss.theory.regression import Stage
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
    batch, rows, panels = study.min_batch, [], {}
    steps = np.unique(np.linspace(STEPS // 20, STEPS, 400).astype(int))
    for powers in (study.hard[0], study.easy[0]):
        task, curves = study.task(powers), {}
        for name, rate in schedules(study.lr / 4).items():
            at = rate(np.arange(STEPS) + 0.5)
            drive = drive_of([Stage(float(value), batch, 1) for value in at])
            law = law_curve(finite_law(task), drive, np.append(0, np.cumsum(at))[steps])
            exact = varying_risks(task, at, np.full(STEPS, batch))[steps]
            columns = {"schedule": name, "step": steps, "law": law, "exact": exact}
            rows.append(pd.DataFrame(vars(powers) | columns))
            curves[name] = (steps, law, (steps[::20], exact[::20]))
        panels[str(powers)] = curves
    figure = plots.law_figure(panels, clock="steps")
    files = {"law_under_rates.csv": pd.concat(rows), "law_under_rates.png": figure}
    return files, []


def decays(study: Study) -> Part:
    """Risks at the best peak rate, by the law at infinite width, and the paper's expressions."""
    budgets = np.geomspace(1e7, 1e10, 4 if study.modes < 128 else 7)
    rows, panels = [], {}
    for powers in (study.hard[0], study.easy[0]):
        lines = {}
        for name, share in SHARES.items():
            pair = powers.source, powers.capacity
            order = decay_order(*pair, budgets, share)
            risks = np.array([best_peak(*pair, data, share)[1] for data in budgets])
            columns = {"rate": name, "data": budgets, "risk": risks, "order": order}
            rows.append(pd.DataFrame(vars(powers) | columns))
            lines[name] = (budgets, risks), slope(budgets, order).value
        panels[str(powers)] = lines
    figure = plots.exponents_figure(panels)
    figure.axes[0].set_ylabel("excess risk at the best peak rate")
    return {"decays.csv": pd.concat(rows), "decays.png": figure}, []
