"""What seeds can show, beside drawn studies."""

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from bss.contests.claims import Question
from bss.contests.contrasts import over_seeds
from bss.contests.power import deviation_of, power, seeds_for
from bss.errors import InputError


@pytest.mark.parametrize(("difference", "seeds"), [(0.01, 8), (0.005, 8), (0.0, 5)])
def test_the_chance_is_that_of_drawn_studies(difference, seeds):
    drawn = np.random.default_rng(0).normal(difference, 0.008, size=(20_000, seeds))
    often = np.mean(np.asarray(ttest_1samp(drawn, 0, axis=1)[1], float) < 0.05)
    assert power(difference, 0.008, seeds) == pytest.approx(often, abs=0.01)


def test_the_fewest_seeds_reach_the_power_and_one_less_does_not():
    count = seeds_for(0.003, 0.008)
    assert count is not None
    assert power(0.003, 0.008, count) >= 0.8 > power(0.003, 0.008, count - 1)
    assert seeds_for(1.0, 0.001) == 2
    assert seeds_for(1e-6, 0.01) is None


def test_a_deviation_is_read_back_from_a_claim():
    apart = np.array([0.01, 0.02, -0.005, 0.03, 0.0])
    one = Question("It", "derived").claim("here", over_seeds({0: apart})[0], "a.csv")
    assert deviation_of(one) == pytest.approx(apart.std(ddof=1))
    assert deviation_of(Question("It", "derived").untestable("here", "a.csv", "none")) is None


def test_what_cannot_be_is_refused():
    with pytest.raises(InputError, match="deviation 0, seeds 8; expected a positive one"):
        power(0.01, 0.0, 8)
    with pytest.raises(InputError, match="seeds 1"):
        power(0.01, 0.1, 1)
