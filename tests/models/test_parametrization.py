"""What follows the width, and that activations do not: the coordinate check of Yang et al."""

from typing import Any

import jax
import numpy as np
import pytest
from flax import nnx

from bss.errors import InputError
from bss.models import network
from bss.models.attention import KERNELS
from bss.models.transformer import TransformerConfig
from bss.training.optimizers import SGD, AdamW, Masks, StepSettings
from bss.training.run_config import RunConfig
from bss.training.step import init_state, make_step

STEPS, LR = 4, 1e-2


def model(width, parametrization, tied=False):
    """Two layers of heads of 16, whatever the width."""
    base = 64 if parametrization == "mup" else None
    return TransformerConfig(
        vocab_size=48,
        num_layers=2,
        d_model=width,
        num_heads=width // 16,
        d_ff=2 * width,
        tied=tied,
        parametrization=parametrization,
        base_width=base,
    )


def activations(config):
    """Root mean squares of the residual stream behind each block, and of the logits, trained."""
    run, tokens = RunConfig(config), jax.random.randint(jax.random.key(0), (1, 4, 17), 0, 48)
    step, state = jax.jit(make_step(run)), jax.jit(lambda: init_state(run))()
    for _ in range(STEPS):
        state, _ = step(state, tokens, np.int32(1), StepSettings(LR, 0.1, 0.05, 0.0, ()))

    @jax.jit
    def squares(params):
        transformer = nnx.merge(network._graphdef(config), params)
        x, told = params["embedding"][tokens[0, :, :-1]], []
        for layer in (transformer.layer_0, transformer.layer_1):
            x, _ = layer(x, KERNELS["reference"])
            told.append(x)
        told.append(network.logits(config, params, tokens[0]))
        return [(x**2).mean() ** 0.5 for x in told]

    return np.array(squares(state.params))


def spread(widths, parametrization, tied=False):
    """The largest over the least of each activation, over widths."""
    told = np.array([activations(model(width, parametrization, tied)) for width in widths])
    return told.max(0) / told.min(0)


@pytest.mark.slow
def test_activations_do_not_grow_with_the_width():
    assert (spread((64, 256), "mup", tied=True) < 1.5).all()


@pytest.mark.slow
def test_coordinate_check():
    """Within a factor 2 over widths 32 to 256; the standard parametrisation's are not."""
    widths = (32, 64, 256)
    assert (spread(widths, "mup") < 2).all()
    assert spread(widths, "standard").max() > 4


@pytest.mark.slow
def test_at_the_base_width_mup_is_the_standard_one():
    mup, standard = (model(64, name, tied=True) for name in ("mup", "standard"))
    params = mup.init(0)
    jax.tree.map(np.testing.assert_array_equal, params, standard.init(0))
    assert set(jax.tree.leaves(mup.rates(params))) == {1.0}
    assert standard.rates(params) is None


@pytest.mark.slow
def test_rates_and_spreads_by_hand():
    wide = model(256, "mup")
    params, plain = wide.init(0), model(256, "standard").init(0)
    rates, block = wide.rates(params), plain["layer_0"]
    assert rates is not None
    assert rates["layer_0"]["mlp"]["down"]["kernel"] == rates["head"]["kernel"] == 1 / 4
    assert rates["embedding"] == rates["final_norm"]["scale"] == 1
    np.testing.assert_allclose(params["embedding"], 2 * plain["embedding"], rtol=1e-6)
    np.testing.assert_array_equal(
        params["layer_0"]["mlp"]["up"]["kernel"], block["mlp"]["up"]["kernel"]
    )


def test_other_optimizers_are_refused():
    with pytest.raises(InputError, match=r"optimizer\.name is sgd; expected adamw"):
        RunConfig(model(128, "mup"), optimizer=SGD())


@pytest.mark.slow
def test_weight_decay_is_as_strong_at_every_width():
    wide = model(128, "mup")
    params = wide.init(0)
    masks = Masks(wide.decay_mask(params), wide.matrices(params), wide.rates(params))
    chain = AdamW(weight_decay=0.5).chain(StepSettings(0.1, 0.1, 0.1, 0.5, ()), masks)
    still = jax.tree.map(np.zeros_like, params)
    updates: Any = chain.update(still, chain.init(params), params)[0]
    for name in ("up", "down"):
        own = (tree["layer_0"]["mlp"][name]["kernel"] for tree in (updates, params))
        np.testing.assert_allclose(next(own), -0.05 * next(own), rtol=1e-5)
