"""What a batch change asks of Adam's betas, in one line, and how sure that is.

To average over as many tokens a beta is taken to the power of the batch's ratio (arXiv 2507.07101).
What another beta1 was worth is the measured law's (bss/schedules/momentum.py): one model, run from
the start at one batch each.
"""

from bss.advice.growth import NEAR
from bss.cells import number
from bss.schedules.momentum import LAW, Gain
from bss.schedules.plan import Plan


def asked_of_betas(
    batch_tokens: float,
    to: float,
    tokens: float,
    *,
    params: float | None = None,
    beta1: float = 0.9,
    beta2: float = 0.95,
) -> str:
    """The line.

    Args:
        batch_tokens, to: tokens of a step, before and after.
        tokens: of the run.
        params: of the model, non-embedding; what was measured is told of its own where not known.
        beta1, beta2: per step, before.

    Examples:
        >>> said = asked_of_betas(256, 2048, 500_000, params=99e3)
        >>> said.split("; ")[1]
        '0.4305 and 0.6634 keep them'
        >>> asked_of_betas(2**20, 2**22, 1e12, params=1e9)[-44:]
        'nothing was measured at this size and length'
    """
    ratio, steps = to / batch_tokens, tokens / to
    kept = f"{number(beta1**ratio)} and {number(beta2**ratio)} keep them"
    betas = f"beta1 {number(beta1)} and beta2 {number(beta2)}, per step,"
    first = (
        f"betas: from {number(batch_tokens)} to {number(to)} tokens a step {betas} average "
        f"over {number(ratio)} times the tokens; {kept}"
    )
    size = f"with {LAW.params:,} parameters"
    here = params is None or 1 / NEAR <= params / LAW.params <= NEAR
    if here and LAW.covers(steps):
        gain = min(
            LAW.gains, key=lambda gain: (_apart(gain.steps, steps), _apart(gain.batch_tokens, to))
        )
        inside = f"following the batch inside of a run: {LAW.inside}"
        return f"{first}; {size} {_worth(gain)}; {inside}"
    most = min(LAW.gains, key=lambda gain: gain.less)
    return f"{first}; {size} {_worth(most)}; nothing was measured at this size and length"


def asked_by(plan: Plan, params: float | None = None) -> str:
    """The line of a plan, from its first batch to its largest; empty where it never grows."""
    first, most = plan.segments[0].batch, max(segment.batch for segment in plan.segments)
    if most <= first:
        return ""
    told = plan.at(0).settings
    batches = (first * plan.seq_len, most * plan.seq_len, plan.budget)
    return asked_of_betas(*batches, params=params, beta1=told.beta1, beta2=told.beta2)


def _apart(one: float, other: float) -> float:
    return max(one / other, other / one)


def _worth(gain: Gain) -> str:
    steps = f"{gain.steps:,.0f} steps of {gain.batch_tokens:,} tokens"
    return f"in {steps} beta1 {gain.beta1:g}, not .9: {gain}"
