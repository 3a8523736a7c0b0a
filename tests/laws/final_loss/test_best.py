"""Best batches of cells: by their own runs, by the others, or why none is told."""

import dataclasses

import numpy as np
import pytest

from bss.laws.final_loss.best import best_batches, exponents
from bss.laws.final_loss.cells import Cell
from bss.laws.final_loss.elsewhere import LAW, VERTICES
from bss.laws.final_loss.left_out import LeftOut
from tests.laws.final_loss.known import FORMS_OF_MEAN, elsewhere, mean_law, valley
from tests.laws.final_loss.test_fit import THETA
from tests.laws.golden import assert_golden, numbers

REACH = 1e5, 1.6e6
SIZES = [(p, d) for p in (1e8, 2e8, 4e8) for d in (4e9, 2e10)]


def cells(*valleys, one_rate=()):
    """A cell of five rows for each valley, in the order of the sizes."""
    return [
        Cell(*size, np.arange(5 * i, 5 * i + (5 if at else 1)), at, i in one_rate)
        for i, (size, at) in enumerate(zip(SIZES, valleys, strict=False))
    ]


def left_out(count, shift=0.02):
    """Each cell left out by itself, by forms a little off."""
    folds = []
    for i in range(count):
        out = np.arange(5 * count) // 5 == i
        weights = {"additive": np.where(out, 0.2, 0.5), "effective tokens": np.full(5 * count, 0.6)}
        thetas = {name: np.array(THETA[name]) * (1 + shift * (i % 3 - 1)) for name in FORMS_OF_MEAN}
        folds.append(LeftOut("cell", out, np.zeros(5 * count), weights, thetas))
    return [*folds, LeftOut("params", folds[0].out, np.zeros(5 * count), {}, {})]


SHARP = [valley(1.5e5 * 1.35**i, spread=0.12 + 0.02 * i) for i in range(6)]
BEYOND = [valley(4e4, spread=0.3) for _ in range(3)]
CASES = {
    "sharp": SHARP,
    "four vertices": [*SHARP[:4], None],
    "not deep": [valley(2e5, depth=0.003, spread=0.4), *SHARP[1:5]],
    "as deep as its scatter": [valley(2e5, depth=0.004), *SHARP[1:3]],
    "skewed": [*SHARP[:3], valley(3e5, spread=0.7, skew=0.6), valley(9e5, spread=1.0)],
    "one beyond": [*SHARP[:5], valley(7e4, spread=0.4)],
    "most beyond": [*BEYOND, SHARP[3]],
    "most above": [valley(3e6, spread=0.3, depth=0.001), valley(4e6, spread=0.4), SHARP[3]],
    "near the end": [
        *(valley(b, spread=0.12) for b in (7e5, 8e5, 9e5, 1e6)),
        valley(1.2e6, spread=0.9, depth=0.002),
        None,
    ],
    "at the end": [
        *(valley(b, spread=0.12) for b in (8e5, 9e5, 1.1e6, 1.2e6)),
        valley(1.4e6, spread=0.9, depth=0.002),
        None,
    ],
    "vague": [valley(4e5, spread=2.0), valley(4e5, spread=1.4, depth=0.01)],
    "one": [SHARP[2]],
    "none": [None, None],
    "wide alone": [valley(4e5, spread=0.8, depth=0.03), None],
}


@pytest.mark.parametrize("name", CASES)
def test_best_batches_keep_their_numbers(name):
    every = cells(*CASES[name])
    laws = [mean_law(REACH)] * len(every)
    folds = left_out(len(every))
    results = best_batches(every, laws, folds, REACH, 0.9, 512.0)
    of_all = exponents(results[0], every, 0.9)
    assert_golden(f"final_loss-best-{name}", numbers([*results, of_all]), rel=1e-5)


def test_cells_at_one_rate_have_no_best_batch_and_others_tell_that_of_a_small_one():
    every = cells(*SHARP[:5], None, one_rate=(0,))
    every[5] = dataclasses.replace(every[5], rows=np.arange(25, 27))
    _, batches = best_batches(every, [mean_law(REACH)] * 6, left_out(6), REACH, 0.9, 512.0)
    assert batches[0].status == "one rate" and batches[0].value is None
    assert batches[0].low is None and batches[0].high is None
    assert batches[1].status == "identified" and batches[1].source == "vertex"
    assert batches[5].status in ("identified", "too few")
    assert batches[5].source == VERTICES
    few = cells(None, valley(4e5, spread=1.6))
    few[0] = dataclasses.replace(few[0], rows=np.arange(2))
    _, (first, _) = best_batches(few, [mean_law(REACH)] * 2, [], REACH, 0.9, 512.0)
    assert first.note == "unidentified: 2 batches measured" and first.status == "too few"
    one = cells(None, valley(4e5, spread=1.6))
    _, (first, _) = best_batches(one, [mean_law(REACH)] * 2, [], REACH, 0.9, 512.0)
    assert first.note == "unidentified: one batch measured"


def test_the_law_of_losses_is_the_centre_where_it_misses_clearly_less():
    every = cells(*(valley(float(mean_law().valley(*size)[2]), spread=0.1) for size in SIZES))
    scattered = [
        dataclasses.replace(one, valley=valley(2e5 * at, spread=0.1))
        for one, at in zip(every, (1, 2.5, 0.8, 2, 0.9, 1), strict=True)
    ]
    laws = [mean_law(REACH)] * 6
    near, _ = best_batches(every, laws, left_out(6, 0.0), REACH, 0.9, 512.0)
    off, _ = best_batches(scattered, laws, left_out(6), REACH, 0.9, 512.0)
    assert near.vertices == off.vertices == 6
    assert {near.source, off.source} <= {LAW, VERTICES}
    assert near.source == [VERTICES, LAW][near.left_out[LAW] < 0.75 * near.left_out[VERTICES]]
    assert_golden("final_loss-centre", numbers([near, off]), rel=1e-5)


def test_exponents_are_of_what_varies_and_say_why_there_are_none():
    every = cells(*SHARP)
    results = {
        "both": exponents(elsewhere(), every, 0.8),
        "few": exponents(elsewhere(power=None), every, 0.9),
        "one model": exponents(elsewhere(power=None), every[:2], 0.9),
    }
    assert results["few"]["N"].note == (
        "unidentified: 6 best batches inside their cells and not at one rate: 5 needed"
    )
    assert results["one model"]["N"].note == "unidentified: it does not vary"
    assert results["one model"]["D_less_N"].note == "unidentified: it does not vary"
    assert_golden("final_loss-exponents", numbers(results), rel=1e-6)
