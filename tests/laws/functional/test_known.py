"""The law of loss curves piece by piece: paths, problems, terms and forecasts that are known."""

import dataclasses
from typing import Any

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.base import Estimate
from bss.laws.functional.data import Curves, unidentified_by_design
from bss.laws.functional.law import EvalPoints, Segments
from bss.laws.functional.values import check_identified, unidentified_for


def rows(step, batch, lr, loss=None, first=0, seq_len=10):
    """A run's rows, each of the batch of the steps since the row before."""
    step, batch = np.array(step), np.array(batch)
    tokens = np.cumsum(np.diff(step, prepend=first) * batch) * seq_len
    loss = 4 - np.log1p(step) / 9 if loss is None else loss
    table = pd.DataFrame({"run": "x", "step": step, "tokens": tokens, "batch": batch})
    return table.assign(seq_len=seq_len, lr=lr, loss=loss)


def of_pieces(batch, lr: Any = 1e-3, steps: Any = 20.0, piece=0.0, losses=1):
    """Curves of given pieces [R, G], read so often from a piece on."""
    batch = np.array(batch, float)
    shape = batch.shape
    segments = Segments(
        np.broadcast_to(steps, shape), np.broadcast_to(lr, shape).astype(float), batch
    )
    one = np.ones((shape[0], losses))
    return Curves(("x",) * shape[0], 8, segments, EvalPoints(piece * one, one), one, one, one)


@pytest.mark.parametrize(
    ("curves", "names"),
    [
        (of_pieces([[2, 2], [2, 2.39]]), {"m", "p", "B_phi", "c_K", "q", "A_1"}),
        (of_pieces([[2, 2], [2, 2.41]]), {"p", "B_phi"}),
        (of_pieces([[2, 8.1], [2, 4]]), {"p"}),
        (of_pieces([[2, 7.9], [2, 4]]), {"p", "B_phi"}),
        (of_pieces([[2, 8.1], [2, 8.1]]), {"p", "B_phi"}),
        (of_pieces([[2, 2], [4, 8.1]]), {"p"}),
        (of_pieces([[2, 2], [4, 4]], [[1e-3, 1.21e-3]]), {"B_phi"}),
        (of_pieces([[2, 2], [4, 4]], [[1e-3, 1.19e-3]]), {"p", "B_phi", "c_K", "q", "A_1"}),
        (of_pieces([[2, 4], [8.1, 4.05]], [[1e-3, 2e-3], [4e-3, 2e-3]]), {"p", "c_K", "q", "A_1"}),
        (of_pieces([[2, 4], [8.1, 4.05]], [[1e-3, 3e-3], [4e-3, 1e-3]]), set()),
        (of_pieces([[2, 2], [4, 4]], [[1.0, 0.006]]), {"p", "B_phi"}),
        (of_pieces([[2, 2], [4, 4]], [[1.0, 0.007]]), {"B_phi"}),
        (of_pieces([[2, 4, 4], [8.1, 8.1, 8.1]], piece=1.0, losses=3), {"p", "c_K", "q", "A_1"}),
        (of_pieces([[2, 4, 4], [8.1, 8.1, 8.1]], piece=1.0), {"p"}),  # too few losses to see it
        (of_pieces([[2, 4, 4], [8.1, 8.1, 8.1]], piece=0.0), {"p"}),
        (of_pieces([[2, 9], [2, 4]], steps=np.array([[9.0, 0], [9, 9]])), {"p", "B_phi"}),
    ],
)
def test_what_runs_cannot_tell_by_design(curves, names):
    assert set(unidentified_by_design(curves)) == names


@pytest.mark.parametrize(
    ("change", "batch", "lr", "why"),
    [
        ({}, [2, 8, 8], [1, 1, 1], ()),
        ({"status": "not converged"}, [2, 8, 8], [1, 1, 1], ("not converged",)),
        ({"status": "not converged"}, [2, 2, 2], [1, 1, 1], ()),
        ({"identified": False}, [2, 2, 2], [1, 1, 0.98], ("noise is unidentified",)),
        ({"identified": False}, [2, 2, 2], [1, 1, 0.991], ()),
        ({"identified": False}, [2, 2, 2], [0.1, 1, 1], ()),
        ({"status": "bad", "identified": False}, [2, 2, 4], [1, 1, 1], ("bad",)),
        ({"parameters": {"m": Estimate(None, note="one batch")}}, [2, 2, 4], [1, 1, 1],
         ("m is one batch",)),
        ({"parameters": {"m": Estimate(None, note="one batch")}}, [2, 2, 2], [1, 1, 0.5], ()),
    ],
)  # fmt: skip
def test_what_a_fit_cannot_speak_of(planted_curves, change, batch, lr, why):
    fit = dataclasses.replace(planted_curves.fit, **change)
    steps = np.array([10.0, 6.0, 14.0])
    assert unidentified_for(fit, steps, np.array(lr, float), np.array(batch, float)) == why
    for changes in (True, False):
        known = not changes and "parameters" in change
        if why and not known:
            with pytest.raises(InputError, match=f"fit: {why[0]}; add runs that change"):
                check_identified(fit, batch_changes=changes)
        elif not change or known:
            check_identified(fit, batch_changes=changes)
