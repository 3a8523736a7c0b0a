"""bss theory: kernel regression and least squares under one-pass SGD, exactly."""

from dataclasses import asdict
from typing import Annotated

from cyclopts import Group, Parameter

from bss.cells import Table, estimate, number
from bss.cli.options import Count, Number
from bss.cli.output import Output, Show
from bss.errors import check
from bss.laws.base import Estimate
from bss.policies.unfitted import Theory
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.theory.critical import critical_batches
from bss.theory.exponents import exponents, regime
from bss.theory.least_squares import LeastSquares
from bss.theory.optimal import batch_schedule, schedule_risk
from bss.theory.regression import Task, final_risk, stable_rate, stages
from bss.theory.switch import best_switch, switch_exponent, two_stage
from bss.units import LARGEST, parse_tokens

MOST_DATA = 2**20  # of the exact critical batches
TASK = Parameter(name="*", group=Group("Task", sort_key=2))


def risk(
    *, task: Annotated[Task, TASK], lr: Number = 0.1, data: str, batch: str, show: Show = Show()
) -> Output:
    """Compute the exact excess risk of one batch schedule.

    Args:
        lr: constant learning rate
        data: budget in samples, e.g. 2^20
        batch: "0:1 50%:8": from samples on, in samples

    Examples:
        bss theory risk --source .3 --capacity 4 --data 2^16 --batch "0:1 50%:8"
        bss theory risk --source .3 --capacity 4 --data 2^16 --batch 4 --noise 2
    """
    samples = parse_tokens(data, field="--data")
    plan = resolve(BatchSchedule.parse(batch, total=samples), samples, seq_len=1)
    check(plan.schedule.starts[-1] < samples, "--batch", batch, "stages that start before --data")
    excess = final_risk(task, stages(plan.schedule, samples, lr))
    shown = {
        "steps": plan.steps,
        "data": plan.tokens,
        "remainder": plan.remainder_tokens,
        "stable_lr_bound": min(stable_rate(task, batch) for batch in plan.schedule.batches),
        "approximation": task.approximation,
    }
    answer = f"excess risk {number(excess, 6)} with batch {plan.schedule}"
    payload = {"risk": excess, **shown, "batch": str(plan.schedule)}
    return Output(payload, answer, [Table.of_records("", [shown])])


def optimal(
    *,
    task: Annotated[Task, TASK],
    lr: Number = 0.1,
    data: str,
    min_batch: Count = 1,
    max_batch: Count,
    stages_at_most: Annotated[int, Parameter(name="--stages")] = 8,
    show: Show = Show(),
) -> Output:
    """Compute the optimal batch schedule under the functional scaling law, in whole batches.

    The risk of the law has no constant factors; the exact risk at a finite width is shown too.

    Args:
        lr: constant learning rate
        data: budget in samples, e.g. 2^20
        min_batch: in samples
        max_batch: in samples
        stages_at_most: constant stages at most

    Examples:
        bss theory optimal --source .3 --capacity 4 --data 2^14 --max-batch 8
        bss theory optimal --source .3 --capacity 4 --data 2^14 --max-batch 8 --stages 2
    """
    samples = parse_tokens(data, field="--data")
    policy = Theory(task.source, task.capacity, lr, task.noise)
    best = policy.best(samples, min_batch, max_batch)
    check(stages_at_most >= 1, "--stages", stages_at_most, "a positive number")
    plan = resolve(batch_schedule(best, stages_at_most), samples, seq_len=1)
    spent = [(s.end_tokens - s.start_tokens, s.batch) for s in plan.segments]
    shown = {
        "regime": regime(task.source, task.capacity),
        "switch_share": best.growth_data / samples,
        "risk": schedule_risk(best.budget, spent),
        "continuous_risk": best.risk,
        "exact_risk": final_risk(task, stages(plan.schedule, samples, lr)),
    }
    payload = {**shown, "steps": plan.steps, "data": plan.tokens, "batch": str(plan.schedule)}
    table = Table.of_records("optimal batch schedule", [shown])
    return Output(payload, f'--batch "{plan.schedule}"', [table])


def switch(
    *,
    task: Annotated[Task, TASK],
    lr: Number = 0.1,
    data: str,
    min_batch: Count = 1,
    max_batch: Count,
    show: Show = Show(),
) -> Output:
    """Compute the best switch for each budget, and the exponent of D − P*.

    Args:
        lr: constant learning rate
        data: budgets in samples: 2^20, or doublings, e.g. 2^12:2^24
        min_batch: in samples
        max_batch: in samples

    Examples:
        bss theory switch --source .3 --capacity 4 --max-batch 8 --data 2^12:2^14
        bss theory switch --source .3 --capacity 4 --max-batch 8 --data 2^14
    """
    run = two_stage(task, lr, min_batch, max_batch)
    switches = [best_switch(run, data) for data in _budgets(data)]
    measured = switch_exponent(switches)
    theory = exponents(task.source, task.capacity).switch
    rows = [asdict(switch) | {"fraction": switch.fraction} for switch in switches]
    payload = {"budgets": rows, "exponent": measured and asdict(measured), "theory": theory}
    title = f"best switch from batch {run.first} to {run.last}"
    answer = f"D − P* ∝ D^γ: γ = {estimate(measured)} measured, {number(theory)} in theory"
    return Output(payload, answer, [Table.of_records(title, rows)])


def critical(*, task: Annotated[LeastSquares, TASK], data: str, show: Show = Show()) -> Output:
    """Compute the critical batch of SGD on power-law least squares, exactly.

    Args:
        data: budgets in samples: doublings, e.g. 2^8:2^14

    Examples:
        bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12
        bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12 --noise .5
    """
    found = critical_batches(task, _budgets(data, MOST_DATA))
    exponent = Estimate(found.exponent, found.low, found.high, 0.95)
    rows = [point._asdict() for point in found.points]
    payload = {"points": rows, "exponent": asdict(exponent), "theory": found.theory}
    answer = f"exponent {estimate(exponent)} over the last budgets; {found.theory:.3f} in theory"
    return Output(payload, answer, [Table.of_records("critical batch sizes", rows)])


def _budgets(text: str, most: int = LARGEST) -> list[int]:
    """Return the doublings of the first budget up to the second, or the one budget."""
    ends = [parse_tokens(part, field="--data") for part in text.split(":")]
    known = len(ends) <= 2 and 1 <= ends[0] <= ends[-1] <= most
    check(known, "--data", text, f"a budget or doublings as 2^12:2^16, up to {most:,}")
    return [ends[0] * 2**i for i in range((ends[-1] // ends[0]).bit_length())]
