"""Exports for a training loop that is not one of a trainer's: Python, PyTorch and JAX.

They set the batch size, the LR, the betas and the weight decay of every step. Python needs no
package, PyTorch needs torch, and JAX needs bss, jax and optax.
"""

from collections.abc import Iterator
from dataclasses import asdict
from string import Template

from bss.exports.base import Export
from bss.schedules.coupling import Coupling
from bss.schedules.plan import HYPERPARAMS, Plan

_PYTHON = '''
$plan


def step_at(tokens):
    """Return the complete steps at a position in tokens: rate(step_at(tokens)) is by tokens."""
    i = bisect_right(TOKENS, tokens) - 1
    return min(FIRST[i] + (tokens - TOKENS[i]) // ($size), [*FIRST[1:], STEPS][i])


def accumulation(step, micro_batch, world_size=1):
    """Return the micro-batches of each device in a step; micro_batch: sequences per device."""
    count, rest = divmod(batch(step), micro_batch * world_size)
    assert not rest, f"{batch(step)} must be a multiple of {micro_batch * world_size}"
    return count


def adamw(step):
    """Return the settings of a step, for a group of PyTorch's `optimizer.param_groups`."""
    return {"lr": rate(step), **ADAMW[bisect_right(FIRST, step) - 1]}'''

PYTHON = Export("Python", program=Template(_PYTHON), sets_all=True, lengths=True)


_TORCH = '''
import torch
$python


def train(model, loss_fn, optimizer, take, micro_batch, world_size=1, first=0, clip=1.0):
    """Train from step `first` on and yield (step, loss).

    take(n): the next n rows of this rank. loss_fn(model, rows): their mean loss.
    optimizer: torch.optim.AdamW. With several ranks, average gradients or use DDP.
    """
    for step in range(first, STEPS):
        for group in optimizer.param_groups:
            decays = {} if group["weight_decay"] else {"weight_decay": 0.0}  # keeps groups of 0
            group.update({**adamw(step), **decays})
        count, total = accumulation(step, micro_batch, world_size), 0.0
        for _ in range(count):
            loss = loss_fn(model, take(micro_batch)) / count
            loss.backward()
            total += loss.detach()
        torch.nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        optimizer.zero_grad()
        yield step, total'''.replace("$python", _PYTHON)


def bias_in_torch(plan: Plan) -> Iterator[str]:
    """Yield comments on PyTorch's correction of the moments if the betas change."""
    if _betas_change(plan):
        yield "# PyTorch corrects the bias of the moments as if the betas had never changed: after"
        yield "# an early change of beta2, steps are too long. Late changes have no such effect."


TORCH = Export("PyTorch", bias_in_torch, Template(_TORCH), sets_all=True)


_JAX = Template('''\
import bss
import jax
import optax
$imports
plan = bss.plan(
$arguments
)

$adamw

def train(loss_fn, params, loader, micro_batch, opt_state=None, first=0):
    """Train from step `first` on and yield (step, params, opt_state, loss, stats).

    loss_fn(params, batch): the mean loss of rows, and aux. loader.take(n): the next n rows.
    """
    grad_fn = bss.microbatch_grad(loss_fn, micro_batch, has_aux=True, noise_scale=True)
    tx = optax.chain(optax.clip_by_global_norm(1.0), $optimizer)

    @jax.jit  # compiled once for all batch sizes
    def train_step(params, opt_state, batch, count, hyper):
        (loss, aux), grads, stats = grad_fn(params, batch, count)
        updates, opt_state = tx.update(grads, optax.tree.set(opt_state, **hyper), params)
        return optax.apply_updates(params, updates), opt_state, loss, stats

    opt_state = tx.init(params) if opt_state is None else opt_state
    for step in map(plan.at, range(first, plan.steps)):
        batch, count = plan.pack(loader.take(step.batch), micro_batch)
        hyper = step.hyperparams($names)
        params, opt_state, loss, stats = train_step(params, opt_state, batch, count, hyper)
        yield step, params, opt_state, loss, stats''')

_UNBIASED = '''\

@optax.inject_hyperparams
def adamw(learning_rate, b1, b2, weight_decay):
    """AdamW, unbiased also after a change of b2, which optax's correction is not."""
    adam = scale_by_moments(1 - b1, 1 - b2, eps=1e-8)
    decay = optax.add_decayed_weights(weight_decay)
    return optax.chain(adam, decay, optax.scale_by_learning_rate(learning_rate))
'''


def _jax(plan: Plan) -> Iterator[str]:
    first = plan.at(0).settings
    values = {name: getattr(first, field) for name, field in HYPERPARAMS.items()}
    values["learning_rate"] = 0.0  # of each step below
    fields = ("lr", *plan.coupling.given)  # an LR that is missing is reported at the first step
    names = [name for name, field in HYPERPARAMS.items() if field in fields]
    imports = ""
    adamw = "adamw = optax.inject_hyperparams(optax.adamw)\n"
    if _betas_change(plan):
        imports = "from bss.training.optimizers import scale_by_moments\n"
        adamw = _UNBIASED
    yield _JAX.substitute(
        imports=imports,
        arguments="\n".join(f"    {line}," for line in _arguments(plan)),
        adamw=adamw,
        optimizer=f"adamw({', '.join(f'{name}={value!r}' for name, value in values.items())})",
        names=", ".join(f'"{name}"' for name in names),
    )


def _arguments(plan: Plan) -> Iterator[str]:
    """Yield the arguments of `bss.plan` that make this plan."""
    yield f'"{plan.schedule}"'
    yield f"tokens={plan.budget}"
    yield f"seq_len={plan.seq_len}"
    if plan.rate is not None:
        yield f"lr={repr(plan.rate).replace('WarmupStableDecay', 'bss.wsd', 1)}"
    usual = asdict(Coupling())
    changed = {
        name: value
        for name, value in asdict(plan.coupling).items()
        if value != usual[name] and name != "tokens"
    }
    if changed:
        settings = ", ".join(f"{name}={value!r}" for name, value in changed.items())
        yield f"coupling=bss.Coupling({settings})"


def _betas_change(plan: Plan) -> bool:
    settings = (plan.coupling.settings(1.0, s.batch, s.seq_len) for s in plan.segments)
    return len({(each.beta1, each.beta2) for each in settings}) > 1


JAX = Export("JAX", _jax, sets_all=True)
