"""A batch schedule with Flax NNX, and a loss of the targets that a mask keeps."""

import jax
import optax
from flax import nnx

import bss
from examples.data import PLAN, Rows


def train(plan: bss.Plan, micro_batch: int = 8) -> list[float]:
    layers = (nnx.Embed(64, 32, rngs=nnx.Rngs(0)), nnx.Linear(32, 64, rngs=nnx.Rngs(1)))
    graph, params = nnx.split(nnx.Sequential(*layers), nnx.Param)

    def loss_fn(params: nnx.State, batch: dict[str, jax.Array]) -> bss.Weighted:
        logits = nnx.merge(graph, params)(batch["tokens"][:, :-1])
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["tokens"][:, 1:])
        return bss.Weighted((losses * batch["mask"]).sum(), batch["mask"].sum())

    grad_fn = bss.microbatch_grad(loss_fn, micro_batch)
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=0.0)

    @jax.jit
    def train_step(params, opt_state, batch, count, hyper):
        loss, grads, _ = grad_fn(params, batch, count)
        updates, opt_state = tx.update(grads, optax.tree.set(opt_state, **hyper), params)
        return optax.apply_updates(params, updates), opt_state, loss

    losses, rows, opt_state = [], Rows(plan), tx.init(params)
    for step in plan:
        batch, count = plan.pack(rows.take(step.batch), micro_batch)
        hyper = step.hyperparams("learning_rate")
        params, opt_state, loss = train_step(params, opt_state, batch, count, hyper)
        losses.append(float(loss))
    return losses


if __name__ == "__main__":
    print(train(PLAN))
