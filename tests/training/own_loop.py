"""The loop of docs/loop.md, with a loss and a loader of two lines."""

import jax
import jax.numpy as jnp
import numpy as np
import optax

import bss

VOCABULARY, WIDTH, LENGTH = 17, 8, 12
EMBEDDING = np.random.default_rng(0).normal(size=(VOCABULARY, WIDTH)).astype(np.float32)


def start() -> dict[str, jax.Array]:
    return {"in": jnp.asarray(EMBEDDING), "out": jnp.asarray(EMBEDDING.T / 4)}


def loss_fn(params, batch):
    """A bigram model's mean loss of the targets of rows [batch, length + 1]."""
    logits = params["in"][batch[:, :-1]] @ params["out"]
    losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch[:, 1:])
    return losses.mean(), {"accuracy": (logits.argmax(-1) == batch[:, 1:]).mean()}


class Loader:
    """Rows by position, whatever the batch sizes are."""

    def __init__(self, taken=0):
        draw = np.random.default_rng(1)
        self.rows = draw.integers(0, VOCABULARY, (4096, LENGTH + 1)).cumsum(1) % VOCABULARY
        self.taken = taken

    def take(self, count):
        self.taken += count
        return self.rows[self.taken - count : self.taken].astype(np.int32)


def make_step(micro_batch=32, noise_scale=True, loss=loss_fn, tx=None):
    grad_fn = bss.microbatch_grad(loss, micro_batch, has_aux=True, noise_scale=noise_scale)
    tx = tx or optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.inject_hyperparams(optax.adamw)(learning_rate=0.0, b2=0.95),
    )

    @jax.jit
    def train_step(params, opt_state, batch, count, hyper):
        (loss, _), grads, stats = grad_fn(params, batch, count)
        updates, opt_state = tx.update(grads, optax.tree.set(opt_state, **hyper), params)
        return optax.apply_updates(params, updates), opt_state, loss, stats

    return train_step, tx


def trained(plan, micro_batch, step=None, state=None, first=0, last=None):
    """Losses of steps of a plan, and the state after them."""
    train_step, tx = step or make_step(micro_batch)
    loader = Loader(plan.tokens_at(first) // plan.seq_len)
    params, opt_state = state or (start(), tx.init(start()))
    losses = []
    for at in range(first, plan.steps if last is None else last):
        step = plan.at(at)
        batch, count = plan.pack(loader.take(step.batch), micro_batch)
        hyper = step.hyperparams("learning_rate", "b2")
        params, opt_state, loss, _ = train_step(params, opt_state, batch, count, hyper)
        losses.append(float(loss))
    return losses, (params, opt_state)
