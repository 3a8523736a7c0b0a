"""Measure critical batch sizes of exact SGD on least squares, over budgets D.

The exponent in D depends on how it is measured, so every task is measured with several procedures.
The first is the main one; the others differ from it in one setting.
"""

import itertools
from dataclasses import asdict, dataclass

import pandas as pd

from bss.plots.critical import least_squares_figure
from bss.sweeps.results import Results
from bss.theory.critical import critical_batches
from bss.theory.exponents import Powers
from bss.theory.least_squares import LeastSquares, Procedure
from experiments.critical_theory.analysis import curves, task_name
from experiments.study import say


@dataclass(frozen=True)
class Study:
    """One size of the experiment.

    Attributes:
        title: Title of the results.
        tasks: Tasks by their exponents.
        procedures: How critical batch sizes are measured; the first is drawn.
        modes: Modes of the spectrum.
        noise: Variance of the label noise.
        powers: First and last budget, as powers of 2.
        results: Directory of tables and figures.
    """

    title: str
    tasks: tuple[Powers, ...]
    procedures: tuple[Procedure, ...]
    modes: int
    noise: float
    powers: tuple[int, int]
    results: str


def experiment(study: Study) -> None:
    """Measure every task with every procedure, and write tables and a figure."""
    results = Results(study)
    first, last = study.powers
    budgets = [2**power for power in range(first, last + 1)]
    exponents = []
    points = []
    for procedure, powers in itertools.product(study.procedures, study.tasks):
        limits = f"LRs up to {procedure.rate_cap:g}, overhead {procedure.overhead:g}"
        keys = {"capacity": powers.capacity, "source": powers.source, **asdict(procedure)}
        say(f"{task_name(keys)}: average {procedure.average}, {limits} …")
        task = LeastSquares(powers.capacity, powers.source, study.modes, study.noise)
        table = critical_batches(task, budgets, procedure)
        line = {"exponent": table.exponent, "low": table.low, "high": table.high, "level": 0.95}
        exponents.append({**keys, **line, "theory": table.theory})
        points += [keys | point._asdict() for point in table.points]
    measured = pd.DataFrame(exponents)
    critical = pd.DataFrame(points)
    results.write(
        {
            "exponents.csv": measured,
            "points.csv": critical,
            "least_squares.png": least_squares_figure(curves(measured, critical)),
        },
        question="How does the critical batch grow with the data, and what does that depend on?",
    )
    print(measured.to_string(index=False, float_format=lambda value: f"{value:.4g}"))
