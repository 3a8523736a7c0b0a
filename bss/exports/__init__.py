"""Export a Plan as settings or code of other trainers.

Code is in `programs.py` and settings are in `settings.py`. Both name the version of each trainer.
Code for a loop that is not one of a trainer's is in `loops.py`.
Options change between versions, so check them against the version that you run. If a trainer cannot
follow a plan
exactly, the export is refused, and the message names the nearest plan that it can follow. With
`approximate`, the nearest plan is exported. Comments in the export state what is rounded to a step.
Slow tests run the trainers' own parsers and schedules if they are installed. A custom export is
named `package.module:ATTRIBUTE`.
"""

from collections.abc import Sequence

from bss.errors import InputError, check_type
from bss.exports.base import HEAD, Export, functions, size_of_stage, stages
from bss.exports.loops import JAX, PYTHON, TORCH
from bss.exports.programs import COMPOSER, DEEPSPEED, HUGGINGFACE, LIGHTNING, OLMO_CORE, TORCHTITAN
from bss.exports.settings import CSV, LEVANTER, MAXTEXT, MEGATRON
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
        "lightning": LIGHTNING,
        "composer": COMPOSER,
        "olmo-core": OLMO_CORE,
        "torchtitan": TORCHTITAN,
        "jax": JAX,
        "torch": TORCH,
        "python": PYTHON,
        "csv": CSV,
    },
    Export,
)


def export(
    plan: Plan, trainer: str, *, approximate: bool = False, remarks: Sequence[str] = ()
) -> str:
    """Return the settings with which a trainer follows a plan, as text.

    Args:
        plan: A plan that starts at position 0.
        trainer: "megatron" (flags), "levanter" or "maxtext" (YAML), "huggingface", "deepspeed",
            "lightning", "composer", "olmo-core" or "torchtitan" (Python), "jax", "torch" or
            "python" (a loop of your own), "csv" (one row per step), or `package.module:ATTRIBUTE`.
        approximate: Export the nearest plan that the trainer can follow. Comments in the export
            list the differences.
        remarks: Sentences that the export states as comments, e.g. how far the plan is beyond the
            runs of its fit. A table of CSV has no comments.

    Raises:
        InputError: If the trainer is unknown, the plan does not start at position 0, or the
            trainer does not support the plan's LR schedule. Also if the trainer cannot follow the
            plan exactly and `approximate` is False.

    Examples:
        >>> from bss.schedules.plan import plan
        >>> ramp = plan("0:64 1B:128", "2B", seq_len=2048, lr=1e-3)
        >>> print(export(ramp, "megatron").split("\\n")[3])
        --step-batch-size-schedule "0:64 1000079360:128"
    """
    check_type("plan", plan, Plan, "the result of bss.plan")
    check_type("trainer", trainer, str, "the name of a trainer")
    check_type("remarks", remarks, (list, tuple), "a list of sentences")
    chosen = EXPORTS.load(trainer)
    if plan.start:
        raise InputError(f"export: the plan starts at {plan.start}; export a plan from position 0")
    chosen.check_lengths(plan, trainer)
    if chosen.text:
        return chosen.text(plan)
    if plan.rate is not None and not hasattr(plan.rate, "code"):
        raise InputError(
            "export: the plan's LR is a custom function without code; name it as "
            "package.module:ATTRIBUTE"
        )
    if plan.rate is not None and not chosen.program and stages(plan) is None:
        others = ", ".join(name for name, other in EXPORTS.items() if other.program)
        raise InputError(
            f"export: {trainer} has no settings for this LR schedule; export it as code, to "
            f"{others}"
        )
    if refusals := chosen.refusals(plan):
        near = chosen.approximated(plan)
        if not approximate:
            other = f'the nearest it supports is --batch "{near.schedule}"; '
            fix = f"{other if near.schedule != plan.schedule else ''}pass --approximate to export"
            raise InputError(f"export {trainer}: {'; '.join(refusals)}; {fix} the nearest")
        plan = near
    lengths = ", ".join(map(str, dict.fromkeys(plan.seq_lens or (plan.seq_len,))))
    about = [
        f"# {plan.schedule} over {format_tokens(plan.budget)} tokens: {plan.steps} steps of "
        f"sequences of {lengths} tokens; {plan.remainder_tokens} tokens remain"
    ]
    if plan.rate is None:
        about.append("# The plan has no learning rate: set your own.")
    about += [f"# {' '.join(text.split())}." for text in remarks]
    if ruled := told(plan.coupling.beta1_rule):
        about.append(f"# {ruled}.")
    about += [f"# {text}." for text in refusals]
    if chosen.program:
        named = {"plan": functions(plan, sets_all=chosen.sets_all), "size": size_of_stage(plan)}
        about += [HEAD, chosen.program.substitute(named)]
    return "\n".join((*about, *chosen.lines(plan))) + "\n"
