"""What a user holds of a law: texts, boxes, and what cannot be held."""

import numpy as np
import pytest

from bss.advice.of_fit import PUBLISHED
from bss.errors import InputError
from bss.files import read_json
from bss.laws import LossFit, fit_es
from bss.laws.final_loss.forms import FORMS
from bss.laws.problem import Scale, narrowed, parse_ranges

NAMES = ("L_0", "a", "alpha")
BOX = np.array([0.0, -5.0, np.log(0.1)]), np.array([2.0, 5.0, np.log(4.0)])
SCALES = {"L_0": Scale(0), "alpha": Scale(2, log=True)}


def held(text):
    return narrowed(*BOX, parse_ranges(text), SCALES, "the law")


def test_a_value_and_bounds_narrow_the_box():
    lower, upper = held("L_0=1.69, alpha=.2:1")
    np.testing.assert_allclose(lower, [1.69, -5, np.log(0.2)])
    np.testing.assert_allclose(upper, [1.69, 5, 0], atol=1e-12)
    np.testing.assert_allclose(held("alpha=.01:9"), BOX)


def test_what_follows_from_several_numbers_is_refused():
    for text in ("a=18", "a=18, alpha=2"):
        with pytest.raises(InputError, match=r"a: the law .*alpha$"):
            held(text)


def test_a_text_is_read():
    assert parse_ranges("L_0=1.69,s = .2:1") == {"L_0": (1.69, 1.69), "s": (0.2, 1.0)}
    assert parse_ranges("") == {}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("L_0", "L_0: .*NAME=VALUE or NAME=LOW:HIGH"),
        ("L_0=x", "L_0=x: "),
        ("L_0=2:1", "L_0=2:1: "),
        ("L_0=nan", "L_0=nan: "),
        ("L_0=1,L_0=2", "L_0=2: L_0 "),
        ("L_0=3", "L_0=3: .*the law.* 0 to 2"),
        ("alpha=5:6", "alpha=5:6: .*the law.* 0.1 to 4"),
    ],
)
def test_what_cannot_be_held_is_told_in_a_line(text, told):
    with pytest.raises(InputError, match=told) as error:
        held(text)
    assert "\n" not in str(error.value)


def test_a_parameter_that_the_law_has_not_is_told():
    with pytest.raises(InputError, match=r"k: the law .*L_0, a, alpha"):
        parse_ranges("k=1", NAMES, "the law")


@pytest.mark.parametrize(
    ("law", "text", "told"),
    [
        (None, "L_0=9", "L_0=9: outside the range of the surface law; choose values in 0 to "),
        (None, "foo=3", "foo: the set of laws .* has no such parameter"),
        ("surface", "L_0=9", "L_0=9: outside the range of the surface law"),
        ("hyperbola", "L_0=9", "L_0: the hyperbola law has no such parameter"),
        ("surface", "foo=3", "foo: the surface law has no such parameter; it has L_0"),
    ],
)
def test_the_true_reason_is_told_if_no_law_can_be_fitted(planted, law, text, told):
    """It is the reason of a law that has the parameter."""
    points = planted.points(planted.laws["surface"], seeds=1)
    with pytest.raises(InputError, match=told):
        fit_es(points, law, constraints=text)


def test_a_form_ignores_what_is_held_of_another_form():
    law = LossFit.from_dict(read_json(PUBLISHED, "")).law
    form, (low, high) = FORMS[law.form], (1.0, 1.5)
    found = form.bounds(law.points, f"of_another_form=2, L_0={low}:{high}")
    lower, upper = form.box(law.points)
    at = form.names.index("L_0")
    scale = form.scale("L_0", law.points)
    lower[at], upper[at] = scale.fitted(low), scale.fitted(high)
    np.testing.assert_allclose(found, (lower, upper))
