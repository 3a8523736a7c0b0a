"""A best batch as a value: what fits give, and pages, tables, JSON, advice and schedules print."""

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from bss.laws.fitting.estimate import SPANS, Estimate, too_wide

if TYPE_CHECKING:
    from bss.points.valley import Valley  # what a fit was made with, which reading it does not load

Status = Literal["identified", "end", "flat", "one rate", "too wide", "too few"]


@dataclass(frozen=True)
class Alike:
    """Batches within so much of the best, in nats or in log tokens; None where it has no end."""

    low: float | None
    high: float | None
    rise: float


@dataclass(frozen=True)
class Evidence:
    """What a best batch rests on.

    Attributes:
        vertices: valleys with their least inside the batches measured.
        depth: how far the valley rises to the lower of its two ends, in nats or log tokens.
        scatter: standard deviation of one run about it, in the same unit.
        source: of the scatter: "seeds", "residuals" or "what is usual".
    """

    vertices: int
    depth: float | None = None
    scatter: float | None = None
    source: str = ""


@dataclass(frozen=True)
class BestBatch(Estimate):
    """The best batch with its interval, or why the runs do not tell it, with what bounds are left.

    Attributes:
        status: "identified", or why it has no value.
        source: what says it: "vertex", "power law of the vertices" or the name of a law.
        alike: batches as good.
        evidence: what it rests on.
    """

    status: Status = "identified"
    source: str = ""
    alike: tuple[Alike, ...] = ()
    evidence: Evidence = field(default_factory=lambda: Evidence(0))

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The JSON form; it always has a note."""
        return plain

    def unknown(self, status: Status, why: str) -> "BestBatch":
        """Without a value; a bound is the end of the interval on the side that is told."""
        return replace(self, value=None, status=status, note=f"unidentified: {why}")


def of_valley(
    valley: "Valley", *, rises: tuple[float, ...] = (), unit: str = "sequences"
) -> BestBatch:
    """What one valley says by itself.

    Args:
        valley: of losses, or of tokens to a target.
        rises: above the least up to which batches are as good.
        unit: of its batches, for people.
    """
    low, high = valley.interval
    smallest, largest = valley.ends
    alike = tuple(_alike(valley, rise) for rise in rises)
    evidence = Evidence(
        int(valley.status == "identified"), valley.depth, valley.scatter, valley.source
    )
    vertex = BestBatch(
        valley.batch, low, high, valley.level, "", "identified", "vertex", alike, evidence
    )
    if valley.status == "end":
        if valley.below >= valley.above:
            bound = f"not told from the smallest batch measured: B_opt ≤ {high:.3g} {unit}"
            return replace(vertex, low=None).unknown("end", bound)
        bound = f"not told from the largest batch measured: B_opt ≥ {low:.3g} {unit}"
        return replace(vertex, high=None).unknown("end", bound)
    if valley.status == "flat":
        why = f"flat: the valley rises by {valley.depth:.2g}, the scatter is {valley.scatter:.2g}"
        low = low if low > smallest else None
        return replace(vertex, low=low, high=high if high < largest else None).unknown("flat", why)
    if too_wide(vertex):
        return vertex.unknown("too wide", SPANS)
    return vertex


def _alike(valley: "Valley", rise: float) -> Alike:
    low, high = valley.alike(rise)
    smallest, largest = valley.ends
    return Alike(low if low > smallest else None, high if high < largest else None, rise)
