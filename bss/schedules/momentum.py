"""beta1 by the number of steps of a run, e.g. "1%": a half-life of that share of the steps.

Derived here: the half-life of a beta is ln 2/−ln beta steps. For half-lives in tokens see
`bss.schedules.coupling`.
"""

from bss.errors import check
from bss.units import parse_tokens

FIELD = "coupling beta1"


def share_of(rule: str) -> float:
    """Return the share of the run's steps that a rule is, "1%"; 0 for "none".

    Raises:
        InputError: If it is neither.
    """
    check(rule == "none" or "%" in rule, FIELD, rule, "none, or a percentage of the run's steps")
    share = 0.0 if rule == "none" else parse_tokens(rule, field=FIELD, total=10**12) / 10**12
    check(rule == "none" or 0 < share < 1, FIELD, rule, "a percentage between 0 and 100")
    return share


def beta1_by(rule: str, beta1: float, steps: float) -> float:
    """Return beta1 by a rule: at most the configured one.

    Args:
        rule: "none", or a percentage.
        beta1: the configured one.
        steps: number of steps of the run at the step's batch size.

    Raises:
        InputError: If the rule does not exist, or its half-life is shorter than a step.

    Examples:
        >>> beta1_by("1%", 0.9, 300), beta1_by("1%", 0.9, 3000)
        (0.7937005259840998, 0.9)
    """
    if not (share := share_of(rule)):
        return beta1
    half_life = share * steps
    given = f"{100 * share:g}% of {steps:,.0f} steps, {half_life:.3g} of one,"
    check(half_life >= 1, FIELD, given, f"{100 / steps:.2g}% or more")
    return min(beta1, 2 ** (-1 / half_life))


def told(rule: str) -> str:
    """Return a rule with its description; "" for none."""
    about = f"a half-life of {100 * share_of(rule):g}% of the run's steps, beta1 as set at most"
    return "" if rule == "none" else f"beta1 by {rule}: {about}"
