"""What a command names that the user got wrong: a parameter, or a law without a goal."""

import pytest

from bss.advice.next_run import next_runs
from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options


def test_an_unknown_parameter_is_named_with_those_there_are(planted):
    points = planted.points(planted.laws["surface"])
    with pytest.raises(InputError, match=r"foo: .* no such parameter; it has L_0, a, alpha"):
        fit_es(points, constraints="foo=3")


def test_a_law_without_a_best_batch_is_named_as_the_reason(planted):
    points = planted.points(planted.laws["hyperbola"])
    fit = fit_es(points, "hyperbola", options=Options(10, draws=10))
    with pytest.raises(InputError, match="its law, hyperbola, has no B_opt"):
        next_runs(fit, fit.goal)
