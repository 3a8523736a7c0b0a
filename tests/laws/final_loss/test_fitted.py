"""The mean of fitted forms: losses, draws, best batches and batches as good."""

import numpy as np
import pytest

from bss.laws.final_loss.fitted import MeanLaw
from tests.laws.final_loss.known import FORMS_OF_MEAN, form_of, mean_law
from tests.laws.final_loss.test_fit import BATCHES

AT = 6e8, 9e10


def test_forms_have_as_many_draws_as_their_weight_says_and_one_at_least():
    forms = {name: form_of(name, draws=10) for name in FORMS_OF_MEAN}
    law = MeanLaw.of(forms, FORMS_OF_MEAN, BATCHES)
    each = [law.forms[i].losses(law.forms[i].draws.T, *AT, 3e5) for i in (0, 1)]
    np.testing.assert_allclose(law.drawn(*AT, 3e5), [*each[0][:3], *each[1][:7]])
    rare = MeanLaw.of(forms, {"additive": 0.01, "effective tokens": 0.99}, BATCHES)
    assert len(rare.drawn(*AT, 3e5)) == 1 + 10


def test_it_is_named_by_its_weights_and_holds_no_form_without_one():
    law = mean_law()
    assert law.text == "effective tokens 70%, additive 30%"
    assert law.heaviest.form == "effective tokens"
    forms = {name: form_of(name) for name in FORMS_OF_MEAN}
    alone = MeanLaw.of(forms, {"additive": 1.0, "effective tokens": 0.0}, BATCHES)
    assert alone.text == "additive" and len(alone.forms) == 1 and alone.weights == (1.0,)


@pytest.mark.parametrize(("batches", "best"), [((3e9, 4e9), 0.0), ((1e2, 2e2), np.inf)])
def test_a_best_batch_beyond_a_factor_of_a_hundred_has_no_end(batches, best):
    law = mean_law(batches)
    grid, loss, at = law.valley(*AT)
    assert at == best
    assert len(grid) == len(loss) == 400
    np.testing.assert_allclose(grid[[0, -1]], [batches[0] / 100, batches[1] * 100])
    assert (law.best_of_forms(*AT) == best).all() and (law.best(*AT)[1] == best).all()
    assert law.alike(*AT, 1e6) == ()  # no batches are as good as none


def test_the_walls_are_where_the_loss_is_so_far_above_the_least():
    law = mean_law()
    least = law.valley(*AT)[1].min()
    for alike, nats in zip(law.alike(*AT, law.valley(*AT)[2]), (0.003, 0.005), strict=True):
        assert alike.rise == nats and alike.low and alike.high
        walls = law.losses(*AT, np.array([alike.low, alike.high])) - least
        np.testing.assert_allclose(walls, nats, rtol=2e-3)
