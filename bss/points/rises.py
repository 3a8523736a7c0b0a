"""Whether B_opt rises as the loss falls: a claim in which some optima are only bounds.

A best batch at the edge of those measured is "at most" or "at least" that batch. A rise from such
an optimum is a bound too: one that is positive by both tests shows the rise, one that is not leaves
it open; and where both ends lie at one edge nothing is known of it (derived here).
"""

from collections.abc import Mapping

from bss.points.claims import Claim, Source, bounded, claim, untestable
from bss.points.contrasts import over_seeds
from bss.points.crossings import Rise

STATEMENT = "B_opt rises as the loss falls"
UNIT = "doublings"
UNKNOWN = "the best batch is at an edge of those that reached the targets: its rise is not bounded"


def rises(
    growths: Mapping[str, Rise], *, source: Source, table: str, note: str = ""
) -> list[Claim]:
    """The claim that B_opt rises, under each of some conditions, which are one family.

    Args:
        growths: of each condition, from the highest target to the lowest.
        source: whose claim it is.
        table: where the growths come from.
        note: what else must be said.
    """
    known = {when: rise for when, rise in growths.items() if rise.bound != "unknown"}
    effects = over_seeds({when: rise.doublings for when, rise in known.items()})
    claims = []
    for when, rise in growths.items():
        if when not in known:
            n = len(rise.doublings)
            why = f"{UNKNOWN}; {note}" if note else UNKNOWN
            claims.append(untestable(STATEMENT, source, when, table=table, note=why, n=n))
            continue
        condition = f"{when}, {rise.bound}" if rise.bound else when
        effect = effects[when]
        one = claim(STATEMENT, source, condition, effect, sign=1, unit=UNIT, table=table, note=note)
        claims.append(bounded(one, rise.bound))
    return claims
