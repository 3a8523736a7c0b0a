"""bss theory: exact losses and optimal schedules of power-law kernel regression."""

import argparse
from dataclasses import asdict

import numpy as np

from bss.cli import theory_critical
from bss.cli.output import Output, Table, add_output_arguments, estimate, number
from bss.errors import InputError
from bss.policies.theory import Theory
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import Plan, resolve
from bss.theory.exponents import exponents, regime
from bss.theory.optimal import OptimalSchedule, batch_schedule, schedule_risk
from bss.theory.regression import Stage, Task, final_risk, risk_curve, stable_rate, stages
from bss.theory.switch import Switch, best_switch, switch_exponent, two_stage
from bss.units import format_tokens, parse_tokens


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command lines of `bss theory`."""
    kinds = parser.add_subparsers(dest="theory_kind", metavar="WHAT", required=True)
    risk = kinds.add_parser("risk", help="the exact excess risk of a batch schedule")
    _add_task(risk)
    risk.add_argument("--data", required=True, help="budget in samples, as 2^20")
    risk.add_argument("--batch", required=True, help='"0:1 50%%:8": switches in samples of it')
    add_output_arguments(risk, plot=True)
    risk.set_defaults(run=run_risk)

    best = kinds.add_parser("optimal", help="the optimal batch schedule for a data budget")
    _add_task(best)
    _add_batches(best)
    best.add_argument("--data", required=True, help="budget in samples, as 2^20")
    best.add_argument("--stages", type=int, default=8, help="constant stages at most")
    add_output_arguments(best, plot=True)
    best.set_defaults(run=run_optimal)

    switch = kinds.add_parser("switch", help="when to switch from one batch to a larger one")
    _add_task(switch)
    _add_batches(switch)
    switch.add_argument("--data", required=True, help="budgets: 2^20, or doublings as 2^12:2^24")
    add_output_arguments(switch, plot=True)
    switch.set_defaults(run=run_switch)

    text = "critical batches of SGD on least squares"
    theory_critical.add_arguments(kinds.add_parser("critical", help=text, description=text))


def _add_task(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--source", type=float, required=True, help="source exponent s > 0")
    parser.add_argument("--capacity", type=float, required=True, help="capacity exponent β > 1")
    parser.add_argument("--lr", type=float, default=0.1, help="constant learning rate")
    parser.add_argument("--noise", type=float, default=1.0, help="variance of the label noise")
    parser.add_argument("--modes", type=int, default=128, help="width: modes that are learnt")


def _add_batches(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--min-batch", type=int, default=1, help="in samples")
    parser.add_argument("--max-batch", type=int, required=True, help="in samples")


def run_risk(options: argparse.Namespace) -> Output:
    """The risk of one schedule."""
    task = Task(options.source, options.capacity, options.modes, options.noise)
    data = parse_tokens(options.data, field="--data")
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
    row = (
        number(risk, 6),
        f"{plan.steps:,}",
        format_tokens(plan.tokens),
        number(bound),
        number(task.approximation),
    )
    table = Table(f"batch {plan.schedule}", columns, [row])
    return Output(payload, [table], figure=lambda: _risk_figure(task, run, plan))


def _plan(batch: str, data: int) -> Plan:
    """The schedule resolved over its budget, all of whose stages must be reached.

    Raises:
        InputError: a stage begins at or past the end of the budget.
    """
    schedule = BatchSchedule.parse(batch, total=data)
    plan = resolve(schedule, data, seq_len=1)
    if schedule.starts[-1] >= data:
        raise InputError(
            f"--batch: the stage that starts at {format_tokens(schedule.starts[-1])} is not "
            f"reached by --data {format_tokens(data)}; start it earlier or leave it out"
        )
    return plan


def run_optimal(options: argparse.Namespace) -> Output:
    """The optimal batch schedule under the functional scaling law, in whole batches.

    Beside the law's risk, which leaves constants out, stands the exact one at a finite width.
    """
    task = Task(options.source, options.capacity, options.modes, options.noise)
    policy = Theory(options.source, options.capacity, options.lr, options.noise)
    data = parse_tokens(options.data, field="--data")
    best = policy.best(data, options.min_batch, options.max_batch)
    if options.stages < 1:
        raise InputError(f"--stages {options.stages}: write a positive number of stages")
    budget = best.budget
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
        "switch": {"data": best.growth_data, "fraction": best.growth_data / budget.data},
        "exponents": asdict(exponents(budget.source, budget.capacity)),
        "continuous": {
            "steps": best.steps,
            "risk": best.risk,
            "peak_batch": best.peak_batch,
            "growth_fraction": best.growth_fraction,
        },
    }
    rows = [
        (format_tokens(s.start_tokens), f"{s.batch:,}", f"{s.steps:,}", f"{s.start_step:,}")
        for s in plan.segments
    ]
    columns = ("from sample", "batch", "steps", "first step")
    notes = [
        f"{kind} task; the batch leaves its minimum after {best.growth_data / budget.data:.2%} "
        "of the data",
        f"risk by the law {number(risk, 6)}; {number(best.risk, 6)} if the batch varies freely",
        f"excess risk {number(exact, 6)} by the exact recursion with {options.modes} modes",
        f'--batch "{plan.schedule}"',
    ]
    table = Table("optimal batch schedule", columns, rows)
    return Output(payload, [table], notes, figure=lambda: _optimal_figure(best, plan))


def run_switch(options: argparse.Namespace) -> Output:
    """The best switch for each budget, and the exponent of D − P*."""
    task = Task(options.source, options.capacity, options.modes, options.noise)
    run = two_stage(task, options.lr, options.min_batch, options.max_batch)
    switches = [best_switch(run, data) for data in _budgets(options.data)]
    measured, theory = switch_exponent(switches), exponents(task.source, task.capacity).switch
    payload = {
        "kind": "theory_switch",
        "regime": regime(task.source, task.capacity),
        "budgets": [_switch_record(switch) for switch in switches],
        "exponent": asdict(measured) if measured else None,
        "theory": theory,
    }
    columns = ("budget", "switch at", "share of the budget", "excess risk")
    rows = [
        (
            format_tokens(switch.data),
            format_tokens(round(switch.switch_data)),
            f"{switch.fraction:.2%}",
            number(switch.risk, 6),
        )
        for switch in switches
    ]
    title = f"best switch from batch {run.first} to {run.last}, {payload['regime']} task"
    note = f"D − P* ∝ D^γ: γ = {estimate(measured)} measured, {number(theory)} in theory"
    return Output(
        payload,
        [Table(title, columns, rows)],
        [note],
        figure=lambda: _switch_figure(switches, theory),
    )


def _switch_record(switch: Switch) -> dict[str, float]:
    return {
        "data": switch.data,
        "switch_data": switch.switch_data,
        "fraction": switch.fraction,
        "risk": switch.risk,
    }


def _budgets(text: str) -> list[int]:
    """One budget, or the doublings of the first up to the second."""
    first, colon, last = text.partition(":")
    low = parse_tokens(first, field="--data")
    high = parse_tokens(last, field="--data") if colon else low
    if not 1 <= low <= high:
        raise InputError(f"--data {text!r}: expected one budget, or a range such as 2^12:2^24")
    return [low * 2**i for i in range((high // low).bit_length())]


def _risk_figure(task: Task, run: tuple[Stage, ...], plan: Plan):
    from bss.plots.theory import risk_figure

    steps = np.unique(np.rint(np.geomspace(1, plan.steps, 400)).astype(np.int64))
    data = [plan.tokens_at(int(step)) for step in steps]
    return risk_figure({f"batch {plan.schedule}": (np.array(data), risk_curve(task, run, steps))})


def _switch_figure(switches: list[Switch], theory: float):
    from bss.plots.theory import switch_figure

    return switch_figure({"exact recursion": switches}, {"exact recursion": theory})


def _optimal_figure(best: OptimalSchedule, plan: Plan):
    from bss.plots.theory import optimal_figure

    return optimal_figure({"the task": best}, plan)
