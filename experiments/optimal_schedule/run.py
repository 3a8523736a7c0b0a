"""Compute each part of the theory: switches, catch-up, optima and the law.

A part returns tables and figures by file name, and rows of the table of exponents.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from bss.plots import theory as plots
from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.stats import slope
from bss.sweeps.results import Results
from bss.theory.decay import best_peak, decay_order
from bss.theory.exponents import Powers
from bss.theory.fsl import drive_of, finite_law, law_curve
from bss.theory.optimal import Budget, batch_schedule, constant_optimum, optimum
from bss.theory.recursion import varying_risks
from bss.theory.regression import Stage, Task, final_risk, risk_curve, stages
from bss.theory.switch import (
    TwoStage,
    best_switch,
    catch_up_gap,
    catch_up_time,
    switch_exponent,
    two_stage,
)
from experiments.study import say

QUANTITIES = {
    "loss": "risk",
    "growth fraction": "growth_fraction",
    "peak batch": "peak_batch",
}
S = TypeVar("S")
Row = dict[str, Any]
Part = tuple[dict[str, Any], list[Row]]
"""Tables and figures by file name, and rows of the table of exponents."""
STEPS = 2**13
SHARES = {"constant": 0.0, "WSD, last 20%": 0.2, "exponential": 1.0}


@dataclass(frozen=True)
class Study:
    """One size of the experiment.

    Attributes:
        title: Title of the results.
        hard: Tasks that switch late, s ≤ 1 − 1/β; the first is drawn in detail.
        easy: Tasks that switch at once.
        modes: Width of the exact recursion.
        lr: Constant LR.
        noise: Variance of the label noise.
        min_batch: Smallest batch size in samples.
        max_batch: Largest batch size in samples, if it is bounded.
        exact_powers: First and last budget of the exact recursion, as powers of 2.
        law_decades: First and last budget of the law, as powers of 10.
        switch_steps: Steps before the switch whose catch-up is measured.
        results: Directory of tables and figures.
    """

    title: str
    hard: tuple[Powers, ...]
    easy: tuple[Powers, ...]
    modes: int
    lr: float
    noise: float
    min_batch: int
    max_batch: int
    exact_powers: tuple[int, int]
    law_decades: tuple[int, int]
    switch_steps: int
    results: str

    def task(self, powers: Powers, modes: int | None = None) -> Task:
        """Return a task of the exact recursion; `modes` default to the study's."""
        return Task(powers.source, powers.capacity, modes or self.modes, self.noise)

    def two_stage(self, powers: Powers, modes: int | None = None) -> TwoStage:
        """Return the switch from the smallest to the largest batch size on a task."""
        return two_stage(self.task(powers, modes), self.lr, self.min_batch, self.max_batch)

    def budget(self, powers: Powers, data: float, max_batch: float = math.inf) -> Budget:
        """Return a budget of samples for the law, with batch sizes up to `max_batch`."""
        bounds = self.min_batch, max_batch
        return Budget(powers.source, powers.capacity, data, self.lr, self.noise, *bounds)


def experiment(study: Study) -> None:
    """Compute every part and write its tables and figures."""
    results = Results(study)
    files = {}
    exponents = []
    computed = (
        *(switching, early_and_late, catch_up, catch_up_times, optima),
        *(law_against_exact, law_under_rates, decays),
    )
    for part in computed:
        say(f"{part.__name__.replace('_', ' ')} …")
        tables, rows = part(study)
        files |= tables
        exponents += rows
    measured = pd.DataFrame(exponents)
    results.write(
        {"exponents.csv": measured, **files},
        question="When should the batch grow, in the theory, and how do its powers show?",
    )
    print(measured.to_string(index=False, float_format=lambda value: f"{value:.4f}"))


def switching(study: Study) -> Part:
    """Best switch points against the budget, and the risks of early and late switches."""
    first, last = study.exact_powers
    shown = (study.hard[0], study.easy[0])
    middle = []
    panel = {}
    measured = []
    rows = []
    for powers in shown:
        run = study.two_stage(powers)
        switches = [best_switch(run, 2**power) for power in range(first, last + 1)]
        middle.append(switches[(last - first) // 2])
        data = np.array([best.data for best in switches], float)
        after = data - [best.switch_data for best in switches]
        exponent = switch_exponent(switches)
        theory = powers.exponents.switch
        panel[f"{powers}: slope {theory:.3g}"] = ((data, after), theory)
        measured.append(_row(powers, "data after the switch", exponent, theory))
        rows += [vars(powers) | vars(best) | {"fraction": best.fraction} for best in switches]
    data = middle[0].data
    late = round(middle[0].switch_data)
    small = study.min_batch
    large = study.max_batch
    schedules = {
        f"batch {small}": BatchSchedule.constant(small),
        f"batch {large}": BatchSchedule.constant(large),
        "switch at 20%": BatchSchedule.late_switch(small, large, data // 5),
        f"best switch, {late / data:.0%}": BatchSchedule.late_switch(small, large, late),
    }
    curves = {name: _risk_curve(study, schedule, data) for name, schedule in schedules.items()}
    files = {
        "switches.csv": pd.DataFrame(rows),
        "switch_points.png": plots.exponents_figure({"data after the best switch": panel}),
        "early_and_late.png": plots.risk_figure(curves),
    }
    return files, measured


def catch_up(study: Study) -> Part:
    """The gap to the large batch at equal steps, after a switch."""
    delays = np.geomspace(1e2, 1e4, 60)
    tasks = (study.hard[0], Powers(study.hard[0].source, 2.0))
    gaps = {}
    theory = {}
    measured = []
    tables = []
    for powers in tasks:
        # A slower spectrum needs more modes before the kernel is a power.
        modes = study.modes if powers.capacity > 2 else 8 * study.modes
        gap = catch_up_gap(study.two_stage(powers, modes), study.switch_steps, delays)
        name = f"gap, β = {powers.capacity:g}"
        expected = powers.exponents.catch_up_gap
        gaps[name] = (delays, gap)
        theory[name] = expected
        measured.append(_row(powers, "catch-up gap", slope(delays, gap), expected))
        tables.append(pd.DataFrame({**vars(powers), "delay": delays, "gap": gap}))
    figure = plots.catch_up_figure(_equal_step_curves(study), gaps, theory)
    return {"catch_up.csv": pd.concat(tables), "catch_up.png": figure}, measured


def catch_up_times(study: Study) -> Part:
    """Steps to catch up with the large batch, against the steps before the switch."""
    last = round(np.log2(study.switch_steps))
    tasks = {study.hard[0]: (study.modes, range(last - 6, last + 1))}
    # Easy tasks wait long: few steps before the switch, and modes for all that follow.
    tasks[study.easy[0]] = (16 * study.modes, range(7, 11))
    rows = []
    for powers, (modes, octaves) in tasks.items():
        run = study.two_stage(powers, modes)
        for before in (2.0**octave for octave in octaves):
            wait = catch_up_time(run, study.lr, before)
            rows.append({**vars(powers), "steps_before": before, "wait": wait})
    return {"catch_up_times.csv": pd.DataFrame(rows)}, []


def early_and_late(study: Study) -> Part:
    """Exact risks of schedules that consume the same data."""
    data = 2**18
    small = study.min_batch
    large = study.max_batch
    doublings = [small * 2**i for i in range(int(np.log2(large / small)) + 1)]
    given = {f"constant {batch}": BatchSchedule.constant(batch) for batch in (small, large)}
    for percent in (10, 30, 70, 90):
        at = data * percent // 100
        given[f"switch at {percent}%"] = BatchSchedule.late_switch(small, large, at)
    given[f"{len(doublings)} stages of equal data"] = BatchSchedule.stages(doublings, data)
    rows = []
    for powers in (study.hard[0], study.easy[0]):
        at = round(best_switch(study.two_stage(powers), data).switch_data)
        own = given[f"constant {large}"]
        if at:
            own = BatchSchedule.late_switch(small, large, at)
        law = batch_schedule(optimum(study.budget(powers, data, large)), 8)
        for name, schedule in (given | {"best switch": own, "the law's optimum": law}).items():
            run = stages(schedule, data, study.lr)
            row = {"schedule": name, "batches": str(schedule), "data": data}
            row |= {"steps": sum(stage.steps for stage in run)}
            rows.append({**vars(powers), **row, "risk": final_risk(study.task(powers), run)})
    return {"early_and_late.csv": pd.DataFrame(rows)}, []


def optima(study: Study) -> Part:
    """Optimal schedules by the law, and their exponents in the budget."""
    low, high = study.law_decades
    budgets = np.geomspace(10.0**low, 10.0**high, 4 * (high - low) + 1)
    panels: dict[str, dict[str, Any]] = {title: {} for title in QUANTITIES}
    measured = []
    tables = []
    for powers in (*study.hard, *study.easy):
        optimal = [optimum(study.budget(powers, data)) for data in budgets]
        theory = powers.exponents
        for title, attribute in QUANTITIES.items():
            values = np.array([getattr(best, attribute) for best in optimal])
            expected = getattr(theory, title.replace(" ", "_"))
            panels[title][str(powers)] = ((budgets, values), expected)
            measured.append(_row(powers, title, slope(budgets, values), expected))
        batches, risks = np.array([constant_optimum(best.budget) for best in optimal]).T
        loss = slope(budgets, risks)
        measured.append(_row(powers, "loss of the best constant", loss, theory.constant_loss))
        fields = ("risk", "horizon", "growth_fraction", "peak_batch")
        columns = {name: [getattr(best, name) for best in optimal] for name in fields}
        constant = {"constant_batch": batches, "constant_risk": risks}
        tables.append(pd.DataFrame({**vars(powers), "data": budgets, **columns, **constant}))
    drawn = {str(p): optimum(study.budget(p, 1e10)) for p in (*study.hard, *study.easy)}
    files = {
        "optima.csv": pd.concat(tables),
        "optimal_schedules.png": plots.optimal_figure(drawn),
        "exponents.png": plots.exponents_figure(panels),
    }
    return files, measured


def law_against_exact(study: Study) -> Part:
    """The finite-width law on the exact recursion, for several batch schedules."""
    data = 2 ** (study.exact_powers[1] - 4)
    rate = study.lr / 4
    small = study.min_batch
    large = study.max_batch
    growing = [small * round((large / small) ** (i / 3)) for i in range(4)]
    schedules = {
        f"batch {small}": BatchSchedule.constant(small),
        f"{small} to {large} at 50%": BatchSchedule.late_switch(small, large, data // 2),
        "four stages": BatchSchedule.stages(growing, data),
    }

    def curve(task: Task, schedule: BatchSchedule) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        run = stages(schedule, data, rate)
        steps = np.linspace(0, sum(stage.steps for stage in run), 481)[4:]
        law = law_curve(finite_law(task), drive_of(run), rate * steps)
        return rate * steps, law, risk_curve(task, run, steps)

    return _law_part(study, "law", schedules, curve, "time"), []


def _row(powers: Powers, quantity: str, measured: Any, theory: float) -> Row:
    """Return a row of the table of exponents; it has no interval if there were too few budgets."""
    values = {name: getattr(measured, name, None) for name in ("value", "low", "high")}
    return {**vars(powers), "quantity": quantity, **values, "theory": theory}


def _risk_curve(study: Study, schedule: BatchSchedule, data: int) -> plots.Curve:
    """Samples and exact risks of a schedule for the first hard task."""
    task = study.task(study.hard[0])
    plan = resolve(schedule, data, seq_len=1)
    edges = [segment.start_step for segment in plan.segments]
    after = plan.steps - edges[-1]
    first = plan.steps / 50  # the fall from the start would hide the rest
    even = np.linspace(first, plan.steps, 300)
    dense = edges[-1] + np.geomspace(1, after)
    spread = np.rint(np.concatenate([even, dense[dense >= first]]))
    steps = np.unique(np.clip(spread, 1, plan.steps)).astype(np.int64)
    samples = np.array([plan.tokens_at(int(step)) for step in steps])
    return samples, risk_curve(task, stages(schedule, data, study.lr), steps)


def _equal_step_curves(study: Study) -> dict[str, plots.Curve]:
    """Exact risks of the small batch, the large one and a switch, against steps."""
    task = study.task(study.hard[0])
    begin = study.switch_steps
    steps = np.unique(
        np.concatenate([np.geomspace(100, 4 * begin), begin + np.geomspace(1, begin)])
    )
    small = study.min_batch
    large = study.max_batch
    runs = {
        f"batch {small}": [Stage(study.lr, small, 4 * begin)],
        f"batch {large}": [Stage(study.lr, large, 4 * begin)],
        "switched": [Stage(study.lr, small, begin), Stage(study.lr, large, 3 * begin)],
    }
    return {name: (steps, risk_curve(task, run, steps)) for name, run in runs.items()}


def lr_schedules(peak: float) -> dict[str, Callable]:
    """Return the LR schedules under which the law is tested, by name."""
    return {
        "constant": rates.constant(peak),
        "cosine": rates.cosine(peak, STEPS),
        "WSD, last 20% linear": rates.wsd(peak, STEPS, 0, 0.2 * STEPS),
        "exponential, to 1%": rates.wsd(peak, STEPS, 0, STEPS, "exponential", 0.01),
    }


def law_under_rates(study: Study) -> Part:
    """Compare the finite-width law with the exact recursion at the smallest batch size."""
    batch = study.min_batch
    steps = np.unique(np.linspace(STEPS // 20, STEPS, 400).astype(int))

    def curve(task: Task, rate: Callable) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        at = rate(np.arange(STEPS) + 0.5)
        drive = drive_of([Stage(float(value), batch, 1) for value in at])
        law = law_curve(finite_law(task), drive, np.append(0, np.cumsum(at))[steps])
        return steps, law, varying_risks(task, at, np.full(STEPS, batch))[steps]

    return _law_part(study, "law_under_rates", lr_schedules(study.lr / 4), curve, "step"), []


def _law_part(
    study: Study, file: str, schedules: Mapping[str, S], curve: Callable[[Task, S], tuple], x: str
) -> dict[str, Any]:
    """Return table and figure of `curve` (x, law, exact) for a hard and an easy task."""
    rows = []
    panels = {}
    for powers in (study.hard[0], study.easy[0]):
        drawn = {}
        for name, schedule in schedules.items():
            at, law, exact = curve(study.task(powers), schedule)
            columns = {"schedule": name, x: at, "law": law, "exact": exact}
            rows.append(pd.DataFrame(vars(powers) | columns))
            drawn[name] = (at, law, (at[::20], exact[::20]))
        panels[str(powers)] = drawn
    figure = plots.law_figure(panels, {"time": "intrinsic time", "step": "steps"}[x])
    return {f"{file}.csv": pd.concat(rows), f"{file}.png": figure}


def decays(study: Study) -> Part:
    """Compare risks at the best peak LR (law at infinite width) with the paper's formulas."""
    budgets = np.geomspace(1e7, 1e10, 4 if study.modes < 128 else 7)
    rows = []
    panels = {}
    for powers in (study.hard[0], study.easy[0]):
        lines = {}
        for name, share in SHARES.items():
            pair = powers.source, powers.capacity
            order = decay_order(*pair, budgets, share)
            risks = np.array([best_peak(*pair, data, share)[1] for data in budgets])
            columns = {"rate": name, "data": budgets, "risk": risks, "order": order}
            rows.append(pd.DataFrame(vars(powers) | columns))
            lines[name] = (budgets, risks), slope(budgets, order).value
        panels[str(powers)] = lines
    figure = plots.exponents_figure(panels)
    figure.axes[0].set_ylabel("excess risk at the best peak LR")
    return {"decays.csv": pd.concat(rows), "decays.png": figure}, []
