"""Warnings about beta2 settings that average the second moment over too few steps.

A half-life in tokens (arXiv 2507.07101) is fewer steps at a larger batch size. If one step is as
long as the half-life, beta2 is 0.5, and the second moment is mostly the newest gradient. A sweep
without this warning would compare batch sizes by the effect of beta2 (derived here).
"""

from collections.abc import Iterable

from bss.schedules.coupling import Coupling, half_life
from bss.schedules.plan import Plan

STEPS = 3
"""Half-life, in steps, below which a warning is given."""


def short_second_moments(plans: Iterable[Plan]) -> dict[str, str]:
    """Return a warning for each rule whose half-life is below STEPS steps, by the rule's name.

    Args:
        plans: Plans of runs whose optimizers have a second moment.

    Examples:
        >>> from bss.schedules.batch import BatchSchedule
        >>> from bss.schedules.plan import resolve
        >>> plan = resolve(
        ...     BatchSchedule.constant(64), 10**6, 64, coupling=Coupling(beta2_half_life=7000)
        ... )
        >>> print(*short_second_moments([plan]).values())
        beta2_half_life 7,000 makes beta2 0.667 at batch 64, a half-life of 1.7 steps; make it
        12,288 tokens or more, or keep beta2 per step
    """
    worst: dict[str, tuple[float, str]] = {}
    for plan in plans:
        for segment in plan.segments:
            beta2 = plan.coupling.settings(1.0, segment.batch, segment.seq_len).beta2
            steps = half_life(beta2, 1) if beta2 else 0.0
            name = _name(plan.coupling)
            if steps < min(STEPS, worst.get(name, (STEPS,))[0]):
                effect = f"makes beta2 {beta2:.3g} at batch {segment.batch:,}, a half-life of"
                mend = _mend(plan.coupling, segment.size)
                worst[name] = steps, f"{name} {effect} {steps:.2g} steps; {mend}"
    return {name: effect for name, (_, effect) in worst.items()}


def _name(coupling: Coupling) -> str:
    tokens = coupling.beta2_half_life
    return f"beta2 {coupling.beta2 or 0:g}" if tokens is None else f"beta2_half_life {tokens:,.10g}"


def _mend(coupling: Coupling, batch_tokens: int) -> str:
    if coupling.beta2_half_life is None:
        return f"raise it to {2 ** (-1 / STEPS):.3g} or more"
    return f"make it {STEPS * batch_tokens:,} tokens or more, or keep beta2 per step"
