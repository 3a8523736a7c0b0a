"""Fits of E(S) by hand, for tests of what is made of them."""

from bss.laws.base import BestBatch, Estimate
from bss.laws.es import LAWS
from bss.laws.es.values import EsFit, TargetFit
from bss.laws.resampling import RunEffects

SEQ_LEN = 128
HYPERBOLAS = {2.0: (9e3, 500.0), 1.8: (2e4, 1500.0), 1.6: (7e4, 8000.0)}  # E_min and S_min
SURFACE = {"L_0": 1.2, "a": 10.0, "alpha": 0.35, "b": 2.6, "m": 1.0, "B_phi": 0.0}


def spread(value, part=0.1):
    """Five refits about a value."""
    return tuple(value * (1 + part * x) for x in (-0.9, 0.4, 0.1, 1.1, -0.3))


def target_fit(loss, **change):
    """The hyperbola at a target; best batches by its vertex."""
    E_min, S_min = HYPERBOLAS[loss]
    best = BestBatch(20 / (loss - 1), 15 / (loss - 1), 30 / (loss - 1), method="measured")
    known = {
        "S_min": S_min, "E_min": E_min * SEQ_LEN, "S_opt": None,
        "batches": {"B_crit": Estimate(E_min / S_min, 0.8 * E_min / S_min, None), "B_opt": best},
        "intervals": {"E_min": Estimate(E_min * SEQ_LEN, 0.9 * E_min * SEQ_LEN, 1e9)},
        "parameters": {"E_min": E_min * SEQ_LEN, "S_min": S_min}, "status": "converged",
        "points": 9, "runs": 5, "measured": best,
        "draws": {"E_min": spread(E_min * SEQ_LEN), "S_min": spread(S_min, -0.2)},
    }  # fmt: skip
    return TargetFit(loss, **known | change)


def hyperbola_fit(**change):
    """A law per target."""
    fits = tuple(target_fit(loss) for loss in HYPERBOLAS)
    scatter = tuple(RunEffects(0.01 * (i + 1), 0.004, 4.0 + i, 9.0) for i in range(3))
    return EsFit(law=LAWS["hyperbola"], seq_len=SEQ_LEN, fits=fits, scatter=scatter, **change)


def surface_fit(**change):
    """A joint law."""
    fits = tuple(target_fit(loss, parameters={}, draws={}) for loss in HYPERBOLAS)
    draws = {name: spread(value, 0.01) for name, value in SURFACE.items()}
    given = {"joint": SURFACE, "draws": draws, "scatter": (RunEffects(0.01, 0.004, 6.0, 9.0),)}
    return EsFit(law=LAWS["surface"], seq_len=SEQ_LEN, fits=fits, **given | change)
