"""A batch schedule with Flax Linen; a share of targets is averaged as the loss is."""

import jax
import optax
from flax import linen as nn

import bss
from examples.data import PLAN, Rows


def train(plan: bss.Plan, micro_batch: int = 8) -> list[float]:
    model = nn.Sequential([nn.Embed(64, 32), nn.LayerNorm(), nn.Dense(64)])
    params = model.init(jax.random.key(0), Rows(plan).take(1)["tokens"])

    def loss_fn(params, batch):
        logits = model.apply(params, batch["tokens"][:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["tokens"][:, 1:])
        return losses.mean(), {"easy": (losses < 1).mean()}

    grad_fn = bss.microbatch_grad(loss_fn, micro_batch, has_aux=True)
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=0.0)

    @jax.jit
    def train_step(params, opt_state, batch, count, hyper):
        (loss, aux), grads, _ = grad_fn(params, batch, count)
        updates, opt_state = tx.update(grads, optax.tree.set(opt_state, **hyper), params)
        return optax.apply_updates(params, updates), opt_state, loss, aux

    losses, rows, opt_state = [], Rows(plan), tx.init(params)
    for step in plan:
        batch, count = plan.pack(rows.take(step.batch), micro_batch)
        hyper = step.hyperparams("learning_rate")
        params, opt_state, loss, aux = train_step(params, opt_state, batch, count, hyper)
        losses.append(float(loss))
        print(f"loss {loss:.3f}, targets below 1 nat {aux['easy']:.2f}")
    return losses


if __name__ == "__main__":
    train(PLAN)
