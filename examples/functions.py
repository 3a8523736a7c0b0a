"""A batch schedule with pure functions, and the gradient noise scale."""

import jax
import optax

import bss
from examples.data import PLAN, Rows


def train(plan: bss.Plan, micro_batch: int = 8) -> list[float]:
    draw = jax.random.normal(jax.random.key(0), (64, 32))
    params = {"in": draw, "out": draw.T / 6}

    def loss_fn(params, batch):
        logits = params["in"][batch["tokens"][:, :-1]] @ params["out"]
        losses = optax.softmax_cross_entropy_with_integer_labels(logits, batch["tokens"][:, 1:])
        return losses.mean()

    grad_fn = bss.microbatch_grad(loss_fn, micro_batch, noise_scale=True)
    tx = optax.inject_hyperparams(optax.adamw)(learning_rate=0.0)

    @jax.jit
    def train_step(params, opt_state, batch, count, hyper):
        loss, grads, stats = grad_fn(params, batch, count)
        updates, opt_state = tx.update(grads, optax.tree.set(opt_state, **hyper), params)
        return optax.apply_updates(params, updates), opt_state, loss, stats

    losses, rows, opt_state, noise = [], Rows(plan), tx.init(params), bss.NoiseScale(20_000)
    for step in plan:
        batch, count = plan.pack(rows.take(step.batch), micro_batch)
        hyper = step.hyperparams("learning_rate")
        params, opt_state, loss, stats = train_step(params, opt_state, batch, count, hyper)
        noise = noise.update(stats.noise_trace, stats.noise_square, step.batch * plan.seq_len)
        losses.append(float(loss))
        print(f"loss {loss:.3f}, noise scale {noise.value or 0:.1f} sequences")
    return losses


if __name__ == "__main__":
    train(PLAN)
