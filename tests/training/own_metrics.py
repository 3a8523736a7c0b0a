"""Metrics of a user's own, right and wrong."""

import jax.numpy as jnp

LIST = [1]


def surprise(model, params, sequences_BxT1):
    """The square of each target's loss."""
    return jnp.square(model.losses(params, sequences_BxT1)).sum(-1)


accuracy = se = surprise


def scalar(model, params, sequences_BxT1):
    """One number for all sequences."""
    return model.losses(params, sequences_BxT1).sum()


def thirds(model, params, sequences_BxT1):
    """Parts that do not divide 16 targets."""
    return model.losses(params, sequences_BxT1)[:, :3]


def raises(model, params, sequences_BxT1):
    """Fails while it is traced."""
    return model.losses(params, sequences_BxT1) / (1 // 0)


def infinite(model, params, sequences_BxT1):
    """Is not finite."""
    return model.losses(params, sequences_BxT1).sum(-1) / 0
