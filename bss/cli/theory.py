"""bss theory: exact losses, optimal schedules and critical batches of regression by SGD.

Examples:
    bss theory risk --source .3 --capacity 4 --data 2^16 --batch "0:1 50%:8"
    bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12
"""

import argparse
from dataclasses import asdict

import numpy as np

from bss.cells import estimate
from bss.cli.output import (
    Output,
    Table,
    add_examples,
    add_output_arguments,
    drawing,
    number,
)
from bss.errors import InputError
from bss.policies.theory import Theory
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.theory.critical import critical_batches
from bss.theory.exponents import exponents, regime
from bss.theory.least_squares import AVERAGES, LeastSquares, Procedure
from bss.theory.optimal import batch_schedule, schedule_risk
from bss.theory.regression import Stage, Task, final_risk, risk_curve, stable_rate, stages
from bss.theory.switch import best_switch, switch_exponent, two_stage
from bss.units import LARGEST, format_tokens, parse_tokens

MOST_DATA = 2**20  # of the exact critical batches


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command lines of `bss theory`."""
    add_examples(parser, __doc__)
    kinds = parser.add_subparsers(dest="theory_kind", metavar="WHAT", required=True)
    risk = kinds.add_parser("risk", help="the exact excess risk of a batch schedule")
    _add_task(risk)
    risk.add_argument("--data", required=True, help="budget in samples, as 2^20")
    risk.add_argument("--batch", required=True, help='"0:1 50%%:8": switches in samples of it')
    add_output_arguments(risk, run_risk, plot=True)

    best = kinds.add_parser("optimal", help="the optimal batch schedule for a data budget")
    _add_task(best)
    _add_batches(best)
    best.add_argument("--data", required=True, help="budget in samples, as 2^20")
    best.add_argument("--stages", type=int, default=8, help="constant stages at most")
    add_output_arguments(best, run_optimal, plot=True)

    switch = kinds.add_parser("switch", help="when to switch from one batch to a larger one")
    _add_task(switch)
    _add_batches(switch)
    switch.add_argument("--data", required=True, help="budgets: 2^20, or doublings as 2^12:2^24")
    add_output_arguments(switch, run_switch, plot=True)

    text = "critical batches of SGD on least squares"
    critical = kinds.add_parser("critical", help=text, description=text)
    add = critical.add_argument
    add("--capacity", type=float, required=True, help="a > 1: eigenvalues i^-a")
    add("--source", type=float, required=True, help="b > 1: eigenvalue times error i^-b")
    add("--data", required=True, help="budgets in samples: doublings as 2^8:2^14")
    add("--modes", type=int, default=400, help="of the spectrum")
    add("--noise", type=float, default=1.0, help="variance of the label noise")
    add("--overhead", type=float, default=0.2, help="samples above a budget, 0.2 for 20%%")
    add("--rate-cap", type=float, default=0.5, help="largest step size over its stable limit")
    add("--average", default="start", choices=AVERAGES, help="of the iterates")
    add_output_arguments(critical, run_critical, plot=True)


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", type=float, required=True, help="source exponent s > 0")
    parser.add_argument("--capacity", type=float, required=True, help="capacity exponent β > 1")
    parser.add_argument("--lr", type=float, default=0.1, help="constant learning rate")
    parser.add_argument("--noise", type=float, default=1.0, help="variance of the label noise")
    parser.add_argument("--modes", type=int, default=128, help="width: modes that are learnt")


def _add_batches(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--min-batch", type=int, default=1, help="in samples")
    parser.add_argument("--max-batch", type=int, required=True, help="in samples")


def _task(options: argparse.Namespace) -> Task:
    return Task(options.source, options.capacity, options.modes, options.noise)


def run_risk(options: argparse.Namespace) -> Output:
    """The risk of one schedule.

    Examples:
        bss theory risk --source .3 --capacity 4 --data 2^16 --batch "0:1 50%:8"
        bss theory risk --source .3 --capacity 4 --data 2^16 --batch 4 --noise 2
    """
    task, data = _task(options), parse_tokens(options.data, field="--data")
    plan = _plan(options.batch, data)
    run = stages(plan.schedule, data, options.lr)
    bound = min(stable_rate(task, batch) for batch in plan.schedule.batches)
    risk = final_risk(task, run)
    payload = {
        "kind": "theory_risk",
        "risk": risk,
        "steps": plan.steps,
        "data": plan.tokens,
        "remainder": plan.remainder_tokens,
        "stable_lr_bound": bound,
        "approximation": task.approximation,
        "batch": str(plan.schedule),
    }
    columns = ("excess risk", "steps", "samples", "stable below lr", "beyond the modes")
    sizes = f"{plan.steps:,}", format_tokens(plan.tokens)
    row = (number(risk, 6), *sizes, number(bound), number(task.approximation))
    table = Table(f"batch {plan.schedule}", columns, [row])
    return Output(payload, [table], figure=lambda: _risk_figure(task, run, plan))


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


def _risk_figure(task: Task, run: tuple[Stage, ...], plan: Plan):
    from bss.plots.theory import risk_figure

    steps = np.unique(np.rint(np.geomspace(1, plan.steps, 400)).astype(np.int64))
    data = np.array([plan.tokens_at(int(step)) for step in steps])
    return risk_figure({f"batch {plan.schedule}": (data, risk_curve(task, run, steps))})


def run_optimal(options: argparse.Namespace) -> Output:
    """The optimal batch schedule under the functional scaling law, in whole batches.

    Beside the law's risk, which leaves constants out, stands the exact one at a finite width.

    Examples:
        bss theory optimal --source .3 --capacity 4 --data 2^14 --max-batch 8
        bss theory optimal --source .3 --capacity 4 --data 2^14 --max-batch 8 --stages 2
    """
    task, data = _task(options), parse_tokens(options.data, field="--data")
    policy = Theory(options.source, options.capacity, options.lr, options.noise)
    best = policy.best(data, options.min_batch, options.max_batch)
    if options.stages < 1:
        raise InputError(f"--stages {options.stages}: write a positive number of stages")
    budget, share = best.budget, best.growth_data / best.budget.data
    plan = resolve(batch_schedule(best, options.stages), int(budget.data), seq_len=1)
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
        "exponents": asdict(exponents(budget.source, budget.capacity)),
        "continuous": {
            name: getattr(best, name) for name in ("steps", "risk", "peak_batch", "growth_fraction")
        },
    }
    cells = {
        "from sample": lambda s: format_tokens(s.start_tokens),
        "batch": lambda s: f"{s.batch:,}",
        "steps": lambda s: f"{s.steps:,}",
        "first step": lambda s: f"{s.start_step:,}",
    }
    notes = [
        f"{kind} task; the batch leaves its minimum after {share:.2%} of the data",
        f"risk by the law {number(risk, 6)}; {number(best.risk, 6)} if the batch varies freely",
        f"excess risk {number(exact, 6)} by the exact recursion with {options.modes} modes",
        f'--batch "{plan.schedule}"',
    ]
    table = Table.of("optimal batch schedule", plan.segments, cells)
    figure = drawing("theory.optimal_figure", {"the task": best}, plan)
    return Output(payload, [table], notes, figure=figure)


def run_switch(options: argparse.Namespace) -> Output:
    """The best switch for each budget, and the exponent of D − P*.

    Examples:
        bss theory switch --source .3 --capacity 4 --max-batch 8 --data 2^12:2^14
        bss theory switch --source .3 --capacity 4 --max-batch 8 --data 2^14
    """
    task = _task(options)
    run = two_stage(task, options.lr, options.min_batch, options.max_batch)
    budgets = _budgets(options.data, "one budget, or a range such as 2^12:2^24")
    switches = [best_switch(run, data) for data in budgets]
    measured, theory = switch_exponent(switches), exponents(task.source, task.capacity).switch
    payload = {
        "kind": "theory_switch",
        "regime": regime(task.source, task.capacity),
        "budgets": [asdict(switch) | {"fraction": switch.fraction} for switch in switches],
        "exponent": asdict(measured) if measured else None,
        "theory": theory,
    }
    cells = {
        "budget": lambda switch: format_tokens(switch.data),
        "switch at": lambda switch: format_tokens(round(switch.switch_data)),
        "share of the budget": lambda switch: f"{switch.fraction:.2%}",
        "excess risk": lambda switch: number(switch.risk, 6),
    }
    title = f"best switch from batch {run.first} to {run.last}, {payload['regime']} task"
    note = f"D − P* ∝ D^γ: γ = {estimate(measured)} measured, {number(theory)} in theory"
    name = "exact recursion"
    figure = drawing("theory.switch_figure", {name: switches}, {name: theory})
    return Output(payload, [Table.of(title, switches, cells)], [note], figure=figure)


def run_critical(options: argparse.Namespace) -> Output:
    """The critical batch of SGD on power-law least squares, exactly.

    Examples:
        bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12
        bss theory critical --capacity 1.5 --source 2.5 --data 2^8:2^12 --noise .5
    """
    task = LeastSquares(options.capacity, options.source, options.modes, options.noise)
    procedure = Procedure(options.overhead, options.rate_cap, average=options.average)
    expected = "doublings as 2^8:2^14, from 4 up to 2^20"
    budgets = _budgets(options.data, expected, least=4, most=MOST_DATA, several=True)
    table = critical_batches(task, budgets, procedure)
    payload = {
        "kind": "theory_critical",
        "points": [point._asdict() for point in table.points],
        "exponent": {"value": table.exponent, "low": table.low, "high": table.high, "level": 0.95},
        "theory": table.theory,
        "overhead": procedure.overhead,
        "rate_cap": procedure.rate_cap,
        "average": procedure.average,
    }
    rows = [(format_tokens(at.data), number(at.risk), number(at.cbs)) for at in table.points]
    title = f"capacity {task.capacity:g}, source {task.source:g}; average from {procedure.average}"
    shown = Table(title, ("samples", "least excess risk", "critical batch"), rows)
    between = f"{number(table.low, 3)} – {number(table.high, 3)}"
    note = (
        f"exponent over the last budgets {table.exponent:.3f} ({between}, scatter about a line); "
        f"theory {table.theory:.3f}"
    )
    name = f"a = {task.capacity:g}, b = {task.source:g}"
    figure = drawing("critical.least_squares_figure", {name: table})
    return Output(payload, [shown], [note], figure=figure)


def _budgets(
    text: str, expected: str, *, least: int = 1, most: int = LARGEST, several: bool = False
) -> list[int]:
    """The doublings of the first budget up to the second; one budget where it may stand alone."""
    ends = [parse_tokens(part, field="--data") for part in text.split(":")]
    right = len(ends) == 2 and ends[0] < ends[1] if several else len(ends) <= 2
    if not right or not least <= ends[0] <= ends[-1] <= most:
        raise InputError(f"--data {text!r}: expected {expected}")
    return [ends[0] * 2**i for i in range((ends[-1] // ends[0]).bit_length())]
