"""bss theory: kernel regression and least squares under one-pass SGD, exactly."""

from dataclasses import asdict, dataclass
from typing import Annotated, Literal

from cyclopts import Group, Parameter

from bss.cells import Table, number
from bss.cells import estimate as estimate_text
from bss.cli.output import Output, Show
from bss.errors import InputError
from bss.laws.base import Estimate
from bss.policies.theory import Theory
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.theory.critical import critical_batches
from bss.theory.exponents import exponents, regime
from bss.theory.least_squares import LeastSquares, Procedure
from bss.theory.optimal import batch_schedule, schedule_risk
from bss.theory.regression import Task, final_risk, stable_rate, stages
from bss.theory.switch import best_switch, switch_exponent, two_stage
from bss.units import LARGEST, format_tokens, parse_tokens

MOST_DATA = 2**20  # of the exact critical batches


@Parameter(name="*", group=Group("Task", sort_key=2))
@dataclass(frozen=True)
class TaskOptions:
    """Power-law kernel regression.

    Attributes:
        source: source exponent s > 0
        capacity: capacity exponent β > 1
        lr: constant learning rate
        noise: variance of the label noise
        modes: modes that are learnt
    """

    source: float
    capacity: float
    lr: float = 0.1
    noise: float = 1.0
    modes: int = 128

    def task(self) -> Task:
        """Return the task."""
        return Task(self.source, self.capacity, self.modes, self.noise)


def risk(*, setting: TaskOptions, data: str, batch: str, show: Show = Show()) -> Output:
    """Compute the exact excess risk of one batch schedule.

    Args:
        data: budget in samples, e.g. 2^20
        batch: "0:1 50%:8": from samples on, in samples

    Examples:
        bss theory risk --source .3 --capacity 4 --data 2^16 --batch "0:1 50%:8"
        bss theory risk --source .3 --capacity 4 --data 2^16 --batch 4 --noise 2
    """
    task, samples = setting.task(), parse_tokens(data, field="--data")
    plan = _plan(batch, samples)
    run = stages(plan.schedule, samples, setting.lr)
    bound = min(stable_rate(task, batch) for batch in plan.schedule.batches)
    excess = final_risk(task, run)
    payload = {
        "kind": "theory_risk",
        "risk": excess,
        "steps": plan.steps,
        "data": plan.tokens,
        "remainder": plan.remainder_tokens,
        "stable_lr_bound": bound,
        "approximation": task.approximation,
        "batch": str(plan.schedule),
    }
    answer = f"excess risk {number(excess, 6)} with batch {plan.schedule}"
    shown = ("steps", "data", "remainder", "stable_lr_bound", "approximation")
    table = Table.of_records("", [payload], shown)
    return Output(payload, answer, [table])


def _plan(batch: str, data: int) -> Plan:
    """The schedule resolved over its budget, before whose end all stages must begin."""
    schedule = BatchSchedule.parse(batch, total=data)
    plan = resolve(schedule, data, seq_len=1)
    if schedule.starts[-1] >= data:
        raise InputError(
            f"--batch: the stage that starts at {format_tokens(schedule.starts[-1])} is not "
            f"reached by --data {format_tokens(data)}; start it earlier or leave it out"
        )
    return plan


def optimal(
    *,
    setting: TaskOptions,
    data: str,
    min_batch: int = 1,
    max_batch: int,
    stages_at_most: Annotated[int, Parameter(name="--stages")] = 8,
    show: Show = Show(),
) -> Output:
    """Compute the optimal batch schedule under the functional scaling law, in whole batches.

    The law's risk leaves constants out; the exact one at a finite width is given too.

    Args:
        data: budget in samples, e.g. 2^20
        min_batch: in samples
        max_batch: in samples
        stages_at_most: constant stages at most

    Examples:
        bss theory optimal --source .3 --capacity 4 --data 2^14 --max-batch 8
        bss theory optimal --source .3 --capacity 4 --data 2^14 --max-batch 8 --stages 2
    """
    task, samples = setting.task(), parse_tokens(data, field="--data")
    policy = Theory(setting.source, setting.capacity, setting.lr, setting.noise)
    best = policy.best(samples, min_batch, max_batch)
    if stages_at_most < 1:
        raise InputError(f"--stages {stages_at_most}: expected a positive number of stages")
    budget, share = best.budget, best.growth_data / best.budget.data
    plan = resolve(batch_schedule(best, stages_at_most), int(budget.data), seq_len=1)
    risk = schedule_risk(budget, [(s.end_tokens - s.start_tokens, s.batch) for s in plan.segments])
    exact = final_risk(task, stages(plan.schedule, int(budget.data), budget.lr))
    kind = regime(budget.source, budget.capacity)
    payload = {
        "kind": "theory_optimal",
        "regime": kind,
        "steps": plan.steps,
        "data": plan.tokens,
        "risk": risk,
        "exact_risk": exact,
        "schedule": [[s.start_tokens, s.batch] for s in plan.segments],
        "batch": str(plan.schedule),
        "switch": {"data": best.growth_data, "fraction": share},
        "continuous_risk": best.risk,
    }
    shown = {"regime": kind, "switch_share": share, "risk": risk, "exact_risk": exact}
    table = Table.of_records("optimal batch schedule", [shown])
    return Output(payload, f'--batch "{plan.schedule}"', [table])


def switch(
    *,
    setting: TaskOptions,
    data: str,
    min_batch: int = 1,
    max_batch: int,
    show: Show = Show(),
) -> Output:
    """Compute the best switch for each budget, and the exponent of D − P*.

    Args:
        data: budgets in samples: 2^20, or doublings, e.g. 2^12:2^24
        min_batch: in samples
        max_batch: in samples

    Examples:
        bss theory switch --source .3 --capacity 4 --max-batch 8 --data 2^12:2^14
        bss theory switch --source .3 --capacity 4 --max-batch 8 --data 2^14
    """
    task = setting.task()
    run = two_stage(task, setting.lr, min_batch, max_batch)
    budgets = _budgets(data, "one budget, or a range such as 2^12:2^24")
    switches = [best_switch(run, data) for data in budgets]
    measured, theory = switch_exponent(switches), exponents(task.source, task.capacity).switch
    payload = {
        "kind": "theory_switch",
        "regime": regime(task.source, task.capacity),
        "budgets": [asdict(switch) | {"fraction": switch.fraction} for switch in switches],
        "exponent": asdict(measured) if measured else None,
        "theory": theory,
    }
    title = f"best switch from batch {run.first} to {run.last}, {payload['regime']} task"
    note = f"D − P* ∝ D^γ: γ = {estimate_text(measured)} measured, {number(theory)} in theory"
    return Output(payload, note, [Table.of_records(title, payload["budgets"])])


def critical(
    *,
    capacity: float,
    source: float,
    data: str,
    modes: int = 400,
    noise: float = 1.0,
    overhead: float = 0.2,
    rate_cap: float = 0.5,
    average: Literal["start", "tail", "exponential"] = "start",
    show: Show = Show(),
) -> Output:
    """Compute the critical batch of SGD on power-law least squares, exactly.

    Args:
        capacity: a > 1: eigenvalues i^-a
        source: b > 1: eigenvalue times error i^-b
        data: budgets in samples: doublings, e.g. 2^8:2^14
        modes: of the spectrum
        noise: variance of the label noise
        overhead: samples above a budget, 0.2 for 20%
        rate_cap: largest step size over its stable limit
        average: of the iterates

    Examples:
        bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12
        bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12 --noise .5
    """
    task = LeastSquares(capacity, source, modes, noise)
    procedure = Procedure(overhead, rate_cap, average=average)
    expected = "doublings as 2^8:2^14, from 4 up to 2^20"
    budgets = _budgets(data, expected, least=4, most=MOST_DATA, several=True)
    table = critical_batches(task, budgets, procedure)
    payload = {
        "kind": "theory_critical",
        "points": [point._asdict() for point in table.points],
        "exponent": {"value": table.exponent, "low": table.low, "high": table.high, "level": 0.95},
        "theory": table.theory,
    }
    title = f"capacity {task.capacity:g}, source {task.source:g}; average from {procedure.average}"
    shown = Table.of_records(title, payload["points"])
    exponent = Estimate(**payload["exponent"])
    note = f"exponent {estimate_text(exponent)} over the last budgets; {table.theory:.3f} in theory"
    return Output(payload, note, [shown])


def _budgets(
    text: str, expected: str, *, least: int = 1, most: int = LARGEST, several: bool = False
) -> list[int]:
    """The doublings of the first budget up to the second; one budget where it may stand alone."""
    ends = [parse_tokens(part, field="--data") for part in text.split(":")]
    right = len(ends) == 2 and ends[0] < ends[1] if several else len(ends) <= 2
    if not right or not least <= ends[0] <= ends[-1] <= most:
        raise InputError(f"--data {text!r}: expected {expected}")
    return [ends[0] * 2**i for i in range((ends[-1] // ends[0]).bit_length())]
