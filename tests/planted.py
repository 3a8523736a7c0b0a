"""Planted laws: points of runs whose losses follow a law, with run offsets and noise."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest

from bss.laws.es import LAWS
from bss.laws.es.law import HyperbolaParameters as Hyperbola
from bss.laws.es.law import StageParameters as Piecewise
from bss.laws.es.law import SurfaceParameters as Surface

SEQ_LEN = 128
BATCHES = (2, 4, 8, 16, 32, 64, 128)
TARGETS = (2.4, 2.0, 1.7)
SURFACE = Surface(1.2, 10.0, 0.35, 2.6, 1.0, 0.0)


def planted_points(
    sequences_at,
    *,
    batches=BATCHES,
    targets=TARGETS,
    seeds=3,
    offset=0.003,
    noise=0.001,
    budget=np.inf,
    generator=None,
):
    """Points of runs whose loss is the law's times (1 + offset of the run + noise).

    `sequences_at(batch, loss)` gives E in sequences; infinite E and E above the budget (in
    sequences) become targets that were not reached.
    """
    generator = generator or np.random.default_rng(0)
    if not offset and not noise:  # further seeds would be copies
        seeds = 1
    rows = []
    for batch in batches:
        for seed in range(seeds):
            shift = offset * generator.standard_normal()
            for target in targets:
                factor = 1 + shift + noise * generator.standard_normal()
                E = float(sequences_at(float(batch), target / factor))
                reached = bool(np.isfinite(E) and budget >= E)
                E = E if reached else (budget if np.isfinite(budget) else 1e7)
                rows.append((f"b{batch}s{seed}", batch, target, E / batch, E * SEQ_LEN, reached))
    names = ["run", "batch", "target_loss", "steps", "tokens_to_target", "reached"]
    return pd.DataFrame(rows, columns=names).assign(
        seq_len=SEQ_LEN, lr_phase="constant", weights="last", model="m"
    )


def surface(law=SURFACE):
    """The surface's E in sequences."""
    return lambda batch, loss: LAWS["surface"].sequences(law, batch, loss)


def hyperbola_at(loss):
    """A hyperbola for every loss: S_min and E_min as powers of the excess."""
    excess = loss - 1.2
    return Hyperbola(E_min=6000 * excess**-2.5, S_min=400 * excess**-2.0)


def hyperbola(batch, loss):
    """Its E in sequences."""
    return LAWS["hyperbola"].sequences(hyperbola_at(loss), batch)


def piecewise_at(loss):
    """A three-stage law for every loss, B_min and B_opt rising as it falls."""
    excess = loss - 1.2
    B_opt, S_opt = 8 * excess**-1.0, 800 * excess**-2.0
    S_1, S_2, S_min = 0.6 * S_opt, 1.9 * S_opt, 0.25 * S_opt
    C = 0.45 * B_opt / (2 * (S_2 - S_opt))
    return Piecewise(S_min, S_1, S_opt, S_2, C, B_opt * S_opt)


def piecewise(batch, loss):
    """Its E in sequences."""
    return LAWS["piecewise"].sequences(piecewise_at(loss), batch)


@pytest.fixture(scope="session")
def planted():
    """The planted laws: `points(law, ...)` and the laws themselves."""
    return SimpleNamespace(
        points=planted_points,
        laws={"surface": surface(), "hyperbola": hyperbola, "piecewise": piecewise},
        surface=surface,
        SURFACE=SURFACE,
        piecewise_at=piecewise_at,
        hyperbola_at=hyperbola_at,
        TARGETS=TARGETS,
        BATCHES=BATCHES,
        WIDE=(4, 6, 8, 12, 16, 24, 32, 64, 128, 256),
        SEQ_LEN=SEQ_LEN,
    )
