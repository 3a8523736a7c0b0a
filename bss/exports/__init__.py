"""A Plan as settings or code of other trainers, one file a trainer with the version it was read in.

Counts come from the plan, exact. What a trainer cannot do is refused with the nearest it can, which
is exported where an approximation is wanted; what is rounded to a step is said in a comment. Its
own parsers and schedules are run by slow tests where they are installed; options move, so check
them against the version you run. A user's own is named `package.module:ATTRIBUTE`.
"""

from bss.errors import InputError
from bss.exports.base import HEAD, Export, functions, stages
from bss.exports.deepspeed import DEEPSPEED
from bss.exports.huggingface import HUGGINGFACE
from bss.exports.levanter import LEVANTER
from bss.exports.maxtext import MAXTEXT
from bss.exports.megatron import MEGATRON
from bss.exports.olmo_core import OLMO_CORE
from bss.exports.table import CSV
from bss.exports.torchtitan import TORCHTITAN
from bss.registry import Registry
from bss.schedules.momentum import told
from bss.schedules.plan import Plan
from bss.units import format_tokens

__all__ = ["EXPORTS", "Export", "export"]

EXPORTS: Registry[Export] = Registry(
    "export",
    {
        "megatron": MEGATRON,
        "levanter": LEVANTER,
        "maxtext": MAXTEXT,
        "huggingface": HUGGINGFACE,
        "deepspeed": DEEPSPEED,
        "olmo-core": OLMO_CORE,
        "torchtitan": TORCHTITAN,
        "csv": CSV,
    },
    Export,
)


def export(plan: Plan, trainer: str, *, approximate: bool = False) -> str:
    """The settings of a trainer that do what a plan does, as text.

    Args:
        plan: from position 0.
        trainer: "megatron" (flags), "levanter" or "maxtext" (YAML), "huggingface", "deepspeed",
            "olmo-core" or "torchtitan" (Python), "csv" (a row a step), or
            `package.module:ATTRIBUTE`.
        approximate: take the nearest that the trainer can do; comments tell what differs.

    Raises:
        InputError: the trainer is unknown, the plan is a branch, the trainer cannot be given its
            learning rate, or cannot do what the plan does and no approximation is wanted.
    """
    chosen = EXPORTS[trainer]
    if plan.start:
        raise InputError(f"export: the plan starts at {plan.start}; export a plan from position 0")
    if chosen.text:
        return chosen.text(plan)
    if plan.rate is not None and not hasattr(plan.rate, "code"):
        raise InputError(
            "export: the plan's learning rate is a function of its own, without code; name it as "
            "package.module:ATTRIBUTE"
        )
    if plan.rate is not None and not chosen.program and stages(plan) is None:
        others = ", ".join(name for name, other in EXPORTS.items() if other.program)
        raise InputError(
            f"export: {trainer} has no settings for this learning rate; export it as code, to "
            f"{others}"
        )
    if refusals := chosen.refusals(plan):
        near = chosen.approximated(plan)
        if not approximate:
            raise InputError(_refusal(trainer, refusals, plan, near))
        plan = near
    about = [
        f"# {plan.schedule} over {format_tokens(plan.budget)} tokens: {plan.steps} steps of "
        f"sequences of {plan.seq_len} tokens; {plan.remainder_tokens} tokens remain"
    ]
    if plan.rate is None:
        about.append("# The plan has no learning rate.")
    if ruled := told(plan.coupling.beta1_rule):
        about.append(f"# {ruled}.")
    if chosen.program:
        about += [HEAD, chosen.program.substitute(plan=functions(plan))]
    differs = [f"# {text}." for text in refusals]
    return "\n".join((*about, *chosen.lines(plan), *differs)) + "\n"


def _refusal(trainer: str, refusals: list[str], plan: Plan, near: Plan) -> str:
    """What a trainer cannot do, and the nearest it can, in one line."""
    nearest = (
        f'the nearest it can is --batch "{near.schedule}"; '
        if near.schedule != plan.schedule
        else ""
    )
    return f"export {trainer}: {'; '.join(refusals)}; {nearest}--approximate takes the nearest"
