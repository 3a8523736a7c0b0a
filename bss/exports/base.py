"""What an export is: how a plan is written for one trainer, and what is asked of its rate."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from string import Template

from bss.schedules.plan import Plan
from bss.schedules.rates import Rate

BESIDES = ("beta1", "beta2", "weight_decay")


@dataclass(frozen=True)
class Export:
    """How plans are written for a trainer; one in each file of this room.

    Attributes:
        name: of what sets its batch, in comments.
        lines: of a plan from position 0, without those that every export has.
        program: Python to put before them, in which `$plan` stands for `code.functions`, whose
            imports come first; it has any rate with `code`. Without one the lines are settings,
            of rates that have `stages`.
    """

    name: str
    lines: Callable[[Plan], Iterable[str]] = lambda plan: ()
    program: Template | None = None

    def changes(self, plan: Plan) -> Iterator[str]:
        """Comments on what the plan changes with the batch and the trainer does not."""
        for field in BESIDES if self.program else ("lr", *BESIDES):
            settings = [plan.coupling.settings(1.0, s.batch, plan.seq_len) for s in plan.segments]
            values = [getattr(at_batch, field) for at_batch in settings]
            if len(set(values)) > 1:
                what = "lr as multiples of the rate" if field == "lr" else field
                each = ", ".join(f"{value:.6g}" for value in values)
                yield f"# {self.name} cannot change this at a batch change; {what} would be {each}."


def adam(plan: Plan, *forms: str) -> Iterator[str]:
    """Lines of the first beta1, beta2 and weight decay, each written into a trainer's own form."""
    first = plan.at(0).settings
    values = (getattr(first, field) for field in BESIDES)
    yield from (form.format(value) for form, value in zip(forms, values, strict=True))


def stages(plan: Plan) -> Rate | None:
    """Warm-up, stable part and decay of the plan's rate, where it is made of these."""
    return getattr(plan.rate, "stages", None)


def peak(plan: Plan, rate: Rate) -> float:
    """The peak rate at the plan's first batch."""
    return plan.coupling.settings(rate.peak, plan.segments[0].batch, plan.seq_len).lr


def moves_at_a_change(plan: Plan, rate: Rate) -> bool:
    """Whether the batch changes within the warm-up or the decay."""
    stable = (rate.warmup, rate.total - rate.decay if rate.decay else plan.budget)
    return any(not stable[0] <= s.start_tokens <= stable[1] for s in plan.segments[1:])
