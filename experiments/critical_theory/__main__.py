"""Why the critical batch follows the data, in theory, without training.

The exact second moments of mini-batch SGD with averaged iterates on power-law least squares, the
model of Zhang et al. (arXiv 2410.21676): critical batches over budgets D and their exponent in D,
for tasks of several capacities and sources. The exponent depends on how it is measured, so every
task is measured with several procedures: the first is the one that is quoted, the others differ
from it in one setting.

    python -m experiments.critical_theory --config=configs/critical_theory.py:cpu
"""

import itertools
from dataclasses import asdict, dataclass

import pandas as pd

from bss.errors import InputError
from bss.plots.critical import least_squares_figure
from bss.sweeps.results import Results
from bss.theory.critical import critical_batches
from bss.theory.exponents import Powers
from bss.theory.least_squares import LeastSquares, Procedure
from experiments.critical_theory.analysis import curves, task_name
from experiments.main import run_experiment
from experiments.study import say


@dataclass(frozen=True)
class Study:
    """What is computed.

    Attributes:
        title: of the results.
        tasks: by their exponents.
        procedures: how critical batches are measured; the first is drawn.
        modes: of the spectrum.
        noise: variance of the label noise.
        powers: first and last budget, as powers of 2.
        results: directory of tables and figures.
    """

    title: str
    tasks: tuple[Powers, ...]
    procedures: tuple[Procedure, ...]
    modes: int
    noise: float
    powers: tuple[int, int]
    results: str

    def __post_init__(self):
        if not self.tasks or not self.procedures:
            raise InputError("tasks, procedures: give at least one of each")


def experiment(study: Study) -> None:
    """Measures every task with every procedure, and writes tables, a figure and the record."""
    results = Results(study)
    first, last = study.powers
    budgets = [2**power for power in range(first, last + 1)]
    exponents, points = [], []
    for procedure, powers in itertools.product(study.procedures, study.tasks):
        limits = f"rates to {procedure.rate_cap:g}, overhead {procedure.overhead:g}"
        keys = {"capacity": powers.capacity, "source": powers.source, **asdict(procedure)}
        say(f"{task_name(keys)}: average {procedure.average}, {limits} …")
        task = LeastSquares(powers.capacity, powers.source, study.modes, study.noise)
        table = critical_batches(task, budgets, procedure)
        line = {"exponent": table.exponent, "low": table.low, "high": table.high, "level": 0.95}
        exponents.append({**keys, **line, "theory": table.theory})
        points += [keys | point._asdict() for point in table.points]
    measured, critical = pd.DataFrame(exponents), pd.DataFrame(points)
    results.write(
        {
            "exponents.csv": measured,
            "points.csv": critical,
            "least_squares.png": least_squares_figure(curves(measured, critical)),
        },
        question="How does the critical batch grow with the data, and what does that hang on?",
    )
    print(measured.to_string(index=False, float_format=lambda value: f"{value:.4g}"))


if __name__ == "__main__":
    run_experiment(Study, experiment)
