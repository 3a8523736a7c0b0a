import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bss.errors import InputError
from bss.schedules.coupling import Coupling, Settings, half_life, idle_rules

BATCHES = st.integers(1, 2**16)


def test_nothing_changes_by_default():
    small, large = (Coupling().settings(1e-3, batch, 128) for batch in (1, 4096))
    assert small == large == Settings(1e-3, 0.9, 0.95, 0.0)


@pytest.mark.parametrize(("rule", "factors"), [("sqrt", (0.5, 1, 2)), ("linear", (0.25, 1, 4))])
def test_rate_follows_its_rule(rule, factors):
    coupling = Coupling(lr=rule, reference_batch=16)
    rates = [coupling.settings(1e-3, batch, 128).lr for batch in (4, 16, 64)]
    assert rates == pytest.approx([1e-3 * factor for factor in factors], rel=1e-15)


@pytest.mark.parametrize("rule", ["none", "sqrt", "linear"])
@given(BATCHES, st.floats(1e-6, 1e-2))
def test_decay_per_token_is_that_of_the_reference_batch(rule, batch, lr):
    coupling = Coupling(
        lr=rule, reference_batch=32, weight_decay=0.1, weight_decay_rule="per_token"
    )
    settings = coupling.settings(lr, batch, 128)
    assert settings.lr * settings.weight_decay / batch == pytest.approx(lr * 0.1 / 32)


def test_a_users_own_rules_are_functions_of_the_ratio(tmp_path, monkeypatch):
    (tmp_path / "myrules.py").write_text(
        "def cube_root(ratio):\n    return ratio ** (1 / 3)\n\n"
        "def inverse(ratio, factor):\n    return 1 / (ratio * factor)\n"
    )
    monkeypatch.chdir(tmp_path)
    coupling = Coupling("myrules:cube_root", 8, 0.1, "myrules:inverse")
    settings = coupling.settings(1e-3, 64, 128)
    assert settings.lr == pytest.approx(2e-3)
    assert settings.weight_decay == pytest.approx(0.1 / 16)
    with pytest.raises(InputError, match="myrules:square cannot be imported"):
        Coupling("myrules:square", 8)


@given(st.floats(0.5, 0.9999), BATCHES, BATCHES)
def test_half_life_keeps_beta_to_the_ratio_of_batches(beta, reference, batch):
    tokens = half_life(beta, reference * 128)
    coupling = Coupling(beta1_half_life=tokens, beta2_half_life=tokens)
    settings = coupling.settings(1e-3, batch, 128)
    assert settings.beta2 == pytest.approx(beta ** (batch / reference), rel=1e-9, abs=1e-300)
    assert settings.beta1 == settings.beta2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"lr": "cube"}, "coupling lr"),
        ({"lr": "sqrt"}, "reference_batch: missing"),
        ({"weight_decay_rule": "per_token"}, "reference_batch: missing"),
        ({"lr": "sqrt", "reference_batch": 0}, "reference_batch"),
        ({"lr": "sqrt", "reference_batch": math.nan}, "reference_batch"),
        ({"weight_decay": -0.1}, "weight_decay"),
        ({"weight_decay": math.nan}, "weight_decay"),
        ({"weight_decay_rule": "step"}, "weight_decay_rule"),
        ({"beta1": 1.0}, "beta1"),
        ({"beta2": math.nan}, "beta2"),
        ({"beta2_half_life": 0}, "beta2_half_life"),
        ({"beta1_half_life": math.nan}, "beta1_half_life"),
    ],
)
def test_bad_arguments_are_refused(arguments, says):
    with pytest.raises(InputError, match=says):
        Coupling(**arguments)


def test_a_beta_without_half_life_is_refused():
    with pytest.raises(InputError, match="half-life"):
        half_life(1.0, 1024)


@pytest.mark.parametrize(
    ("lr", "decay", "weight_decay", "ratios", "idle"),
    [
        ("none", "none", 0.1, (1, 2), ("lr_coupling", "weight_decay_coupling")),
        ("sqrt", "per_token", 0.1, (1, 1), ("lr_coupling", "weight_decay_coupling")),
        ("sqrt", "per_token", 0.1, (1, 2), ()),
        ("sqrt", "per_token", 0.0, (2, 2), ("weight_decay_coupling",)),
        ("none", "per_token", 0.1, (2, 2), ("lr_coupling",)),
        ("linear", "per_token", 0.1, (2, 4), ("weight_decay_coupling",)),  # one undoes the other
    ],
)
def test_a_rule_is_idle_where_its_factor_is_one(lr, decay, weight_decay, ratios, idle):
    assert idle_rules(lr, decay, weight_decay, ratios) == idle


def test_values_at_the_ends_of_their_ranges_are_taken():
    coupling = Coupling(lr="linear", reference_batch=1, beta1=0.0, beta2=0.0)
    assert coupling.settings(1e-3, 3, 16) == Settings(3e-3, 0.0, 0.0, 0.0)
    halves = Coupling(beta1_half_life=32, beta2_half_life=16).settings(1.0, 2, 16)
    assert (halves.beta1, halves.beta2) == (0.5, 0.25)
    for beta in (0.0, 1.0):
        with pytest.raises(InputError, match="half-life"):
            half_life(beta, 1024)
