"""Forms averaged by what they have not seen: which apply, their freedom, and their weights."""

import dataclasses

import numpy as np
import pytest

from bss.errors import InputError
from bss.laws.final_loss.averaged import applicable
from bss.laws.final_loss.forms import FAMILY, VALLEY
from bss.laws.final_loss.solved import design_of, freedom
from tests.laws.final_loss.forms.test_starts import one_cell
from tests.laws.final_loss.known import points


@pytest.mark.parametrize(
    ("sizes", "ratios", "rows", "names"),
    [
        ((4e8,), (20,), 9, ["valley"]),
        ((4e8,), (20, 60, 200), 27, ["additive"]),
        ((2e8, 4e8), (20, 60), 36, ["additive", "joint", "separate", "effective tokens"]),
        ((2e8, 4e8), (20, 60), 13, ["additive", "joint", "separate", "effective tokens"]),
        ((2e8, 4e8), (20, 60), 12, ["additive", "joint", "separate"]),
        ((2e8, 4e8), (20, 60), 10, ["additive"]),
        ((4e8,), (20, 60), 5, []),
        ((4e8,), (20, 60), 6, ["additive"]),
    ],
)
def test_forms_apply_where_points_and_cells_are_enough(sizes, ratios, rows, names):
    table = points(sizes=sizes, ratios=ratios)
    order = np.argsort(np.arange(len(table.loss)) % 9, kind="stable")[:rows]
    arrays = {n: x[order] for n, x in vars(table).items() if isinstance(x, np.ndarray)}
    some = dataclasses.replace(table, **arrays)
    assert [form.name for form in applicable(design_of(some))] == names


def test_a_form_that_does_not_apply_is_refused():
    one, several = one_cell(), design_of(points(sizes=(4e8,), ratios=(20, 60)))
    with pytest.raises(InputError, match=r"joint is for several \(params, tokens\), not this"):
        applicable(one, ["joint"])
    with pytest.raises(InputError, match=r"form: valley is for one \(params, tokens\), not this"):
        applicable(several, ["valley"])
    few = design_of(points(sizes=(4e8,), ratios=(20, 60)))
    few = type(few)(
        few.logs[:8], few.centres, few.loss[:8], np.arange(8) // 4, few.varies, few.trust
    )
    with pytest.raises(InputError, match=r"form: joint has 8 parameters for 8 points of"):
        applicable(few, ["joint"])
    assert applicable(one, ["valley"]) == [VALLEY]
    assert applicable(several, ["additive", "joint"]) == [*FAMILY[:2]]


def test_what_a_table_does_not_vary_is_no_parameter():
    several = design_of(points(sizes=(2e8, 4e8), ratios=(20, 60)))
    one = design_of(points(sizes=(4e8,), ratios=(20, 60)))
    assert [form.free(several) for form in FAMILY] == [7, 10, 10, 12]
    assert [form.free(one) for form in FAMILY] == [5, 8, 8, 9]
    assert freedom(FAMILY[0], several) == pytest.approx(36 - 7, abs=0.1)
    assert freedom(VALLEY, one_cell()) == pytest.approx(2.0, abs=0.1)
    rows = one_cell()
    rows.trust[:4] = 0
    assert freedom(VALLEY, rows) == 1.0
