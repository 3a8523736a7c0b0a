"""Whether growing the batch inside a run pays, by what was trained in this project.

Per ending, the claim of results/claims.json that speaks most for growing: the schedule that a law
fitted to pilots calls best, against the best constant batch at equal tokens; a late switch stands
beside it. One model of 99k parameters, 1M tokens, constants at the best of three rates, beta2 with
a half-life of 7,000 tokens at every batch.
"""

import json
from dataclasses import dataclass
from importlib.resources import files
from typing import Literal

from bss.errors import InputError
from bss.rules.ramps import RAMPS
from bss.units import rounded_tokens
from bss.values import from_dict

Verdict = Literal["yes", "no", "undecided", "not known at this size"]
SIZE, NEAR = 99e3, 10.0
"""Parameters of the one model, and how many times more or fewer its verdicts are told for."""


@dataclass(frozen=True)
class LossGap:
    """One claim: losses of a growing batch less those of the best constant one, in nats.

    Attributes:
        condition: of the claim.
        verdict: of its two tests: shown, opposite shown, not shown or undecided.
        effect: nats.
    """

    condition: str
    verdict: str
    effect: float


@dataclass(frozen=True)
class Ending:
    """What was trained under one ending.

    Attributes:
        words: of the ending, for people.
        best: "The functional law's schedule ends lower than the best constant batch".
        steps: of it, as a share of those of the constant.
        late: "A late switch ends lower than the best constant batch", from batch 4 to 32 at 70% of
            the tokens.
    """

    words: str
    best: LossGap
    steps: float
    late: LossGap


@dataclass(frozen=True)
class Growth:
    """Whether to grow the batch.

    Attributes:
        verdict: "yes", "no", "undecided", or "not known at this size".
        gain: nats by which growing ended lower than the best constant; below 0 it ended higher;
            None where it is not known.
        why: on what that stands.
    """

    verdict: Verdict
    gain: float | None
    why: str


ENDINGS: dict[str, Ending] = {
    name: from_dict(Ending, entry)
    for name, entry in json.loads((files("bss.advice") / "growth.json").read_text()).items()
}
"""As `python -m experiments.claims` writes them."""
_MEANS: dict[str, Verdict] = {"shown": "yes", "opposite shown": "no", "not shown": "no"}
_BASIS = (
    "trained with 99k parameters, 1M tokens and beta2 at a half-life of 7,000 tokens; nothing "
    "larger was"
)


def growth(ending: str, beta2: float | None = None, params: float = SIZE) -> Growth:
    """Whether to grow the batch under an ending; undecided with a beta2 kept per step.

    Of models of another size it is not known: published runs are told.

    Args:
        ending: one of `ENDINGS`.
        beta2: per step at every batch, where that is the user's rule.
        params: of the model.

    Raises:
        InputError: the ending is unknown.

    Examples:
        >>> growth("wsd").verdict, growth("wsd", beta2=0.95).verdict, growth("constant").gain
        ('no', 'undecided', 0.0779)
    """
    if ending not in ENDINGS:
        raise InputError(f"ending: {ending!r} is unknown; choose one of {', '.join(ENDINGS)}")
    known = ENDINGS[ending]
    best, late = known.best, known.late
    why = (
        f"under {known.words} the schedule that a fitted law calls best ended "
        f"{_apart(best)} the best constant batch, in {known.steps:.2f} of its steps "
        f"({best.verdict}); a late switch to 8 times the batch {_apart(late)} it "
        f"({late.verdict}); {_BASIS}"
    )
    if not SIZE / NEAR <= params <= SIZE * NEAR:
        return Growth("not known at this size", None, f"{_published()}; here, {why}")
    gain = 0.0 - best.effect  # of none 0, not -0
    if beta2 is not None:
        unknown = f"with beta2 {beta2:g} per step at every batch nothing was measured; "
        return Growth("undecided", gain, unknown + why)
    return Growth(_MEANS.get(best.verdict, "undecided"), gain, why)


def _apart(one: LossGap) -> str:
    side = "above" if one.effect >= 0 else "below"
    return f"{abs(one.effect):.4f} nats {side}"


def _published() -> str:
    """What published runs did with the batch, without a comparison that is known here."""
    runs = [
        f"{name} from {rounded_tokens(min(steps.batches))} to "
        f"{rounded_tokens(max(steps.batches))} tokens in the first "
        f"{steps.starts[-1] / ramp.tokens:.0%} ({ramp.source})"
        for name, ramp in RAMPS.items()
        for steps in [ramp.batch_tokens]
    ]
    return f"published runs grew it, beside no constant batch that is known: {', '.join(runs)}"
