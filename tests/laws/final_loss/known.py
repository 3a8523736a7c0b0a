"""Laws of final losses, valleys and tables by hand, for tests that pin what is made of them."""

import numpy as np

from bss.laws.final_loss.elsewhere import LAW, VERTICES, CellOptimum, Elsewhere, PowerOfBest
from bss.laws.final_loss.facts import LackOfFit, Tested
from bss.laws.final_loss.fitted import FittedForm
from bss.laws.final_loss.forms import FORMS
from bss.laws.final_loss.table import check_losses, loss_points
from bss.laws.final_loss.values import TableFit
from bss.laws.fitting.estimate import Estimate
from bss.points.valley import Valley
from tests.laws.final_loss.test_fit import REFERENCE, THETA, planted

FORMS_OF_MEAN = {"additive": 0.3, "effective tokens": 0.7}


def form_of(name, *, draws=7, spread=0.02, scatter=0.004):
    """A planted form with as many draws about it, that are no random ones."""
    theta = np.array(THETA[name])
    waves = np.cos(1 + np.arange(draws)[:, None] * (2 + np.arange(len(theta))))
    drawn = theta + spread * waves * (theta != -60)
    parameters = {FORMS[name].names[0]: Estimate(float(theta[0]))}
    return FittedForm(name, REFERENCE, theta, drawn, scatter, parameters)


def valley(best, *, ends=(1e5, 1.6e6), spread=0.2, depth=0.05, scatter=0.004, least=None, skew=0.0):
    """A valley about a best batch in tokens, by batches twofold apart."""
    grid = np.linspace(np.log(ends[0]) - 2.3, np.log(ends[1]) + 2.3, 161)
    at = grid - np.log(best)
    weight = np.exp(-0.5 * (at / spread) ** 2 * (1 + skew * np.sign(at)))
    count = round(np.log2(ends[1] / ends[0])) + 1
    batches = ends[0] * 2.0 ** np.arange(count)
    least = float(batches[np.argmin(np.abs(np.log(batches / best)))]) if least is None else least
    curve = 0.02 * at**2
    none = np.zeros(count)
    return Valley(
        grid, weight / weight.sum(), ends, least, 2.5, depth, scatter, "residuals",
        curve - curve.min(), none, none, 0.9,
    )  # fmt: skip


def power_of_best(variables=("params", "tokens")):
    """A power law of best batches with draws that are no random ones."""
    known = {"params": (0.1, 4e8), "tokens": (0.5, 2e10)}
    theta = np.array([np.log(4e5), *(known[name][0] for name in variables)])
    waves = 0.05 * np.cos(np.arange(9)[:, None] * (1 + np.arange(len(theta))))
    draws = np.column_stack([theta + waves, np.linspace(0.1, 0.3, 9)])
    return PowerOfBest(variables, np.log([known[n][1] for n in variables]), theta, draws)


def elsewhere(source=VERTICES, **change):
    """What tells best batches elsewhere."""
    given = {"power": power_of_best(), "left_out": {VERTICES: 0.1, LAW: 0.2}}
    given |= {"misfit": 0.15, "shared": 0.05, "vertices": 6} | change
    return Elsewhere(source, **given)


def points(**settings):
    """Design points of a planted table without noise."""
    return loss_points(check_losses(planted(**settings)))[0]


def table_fit(**change):
    """A fit of the two forms, with other weights for each use."""
    from bss.laws.fitting.estimate import BestBatch

    weights = {
        "inside": dict(FORMS_OF_MEAN),
        "beyond": {"additive": 1.0, "effective tokens": 0.0},
        "below": {"additive": 0.6, "effective tokens": 0.4},
    }
    known = BestBatch(3e5, 2e5, 5e5)
    optima = tuple(CellOptimum(4e8, D, known, {1e5: 0.02}) for D in (8e9, 2.4e10))
    tested = {"params": (2e8, 8e8, 1.0), "tokens": (4e9, 1.6e11, 2.0)}
    tested |= {"batch_tokens": (3e4, 4e6, 1.0)}
    given = {
        "form": "mean", "formula": "L", "forms": {name: form_of(name) for name in FORMS_OF_MEAN},
        "weights": weights, "judged": weights, "left_out_near": {}, "hold_out": (),
        "left_out": {"cell": 0.003, "params": 0.008, "tokens": None},
        "lack_of_fit": LackOfFit(0.004, None, None, ""), "best": elsewhere(), "optima": optima,
        "outliers": (), "B_opt_exponents": {}, "points": points(sizes=(4e8,), ratios=(20,)),
        "tested": {name: Tested(*ends) for name, ends in tested.items()},
        "cell_error": np.zeros(9), "status": "converged", "seq_len": 512.0,
    }  # fmt: skip
    return TableFit(**given | change)
