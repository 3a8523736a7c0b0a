"""The tasks and sizes of the theory of batch schedules."""

import math
from dataclasses import dataclass

from bss.errors import InputError
from bss.theory.exponents import Powers
from bss.theory.optimal import Budget
from bss.theory.regression import Task
from bss.theory.switch import TwoStage, two_stage


@dataclass(frozen=True)
class Study:
    """What is computed.

    Attributes:
        title: of the results.
        hard: tasks that switch late; the first is drawn in detail.
        easy: tasks that switch at once.
        modes: width of the exact recursion.
        lr: constant learning rate, and the largest of the joint optimum.
        noise: variance of the label noise.
        min_batch: in samples.
        max_batch: in samples, where a batch is bounded.
        exact_powers: first and last budget of the exact recursion, as powers of 2.
        law_decades: first and last budget of the law, as powers of 10.
        switch_steps: steps before the switch whose catch-up is measured.
        results: directory of tables and figures.
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

    def __post_init__(self):
        if not self.hard or not self.easy:
            raise InputError("hard, easy: give at least one task of each")
        for tasks, kind in ((self.hard, "hard"), (self.easy, "easy")):
            for task in tasks:
                if task.regime != kind:
                    raise InputError(f"{kind}: the task is {task}; hard is s ≤ 1 − 1/β")

    def task(self, powers: Powers, modes: int | None = None) -> Task:
        """A task of the exact recursion, of the study's modes or of so many."""
        return Task(powers.source, powers.capacity, modes or self.modes, self.noise)

    def two_stage(self, powers: Powers, modes: int | None = None) -> TwoStage:
        """The smallest and then the largest batch on a task."""
        return two_stage(self.task(powers, modes), self.lr, self.min_batch, self.max_batch)

    def budget(self, powers: Powers, data: float, max_batch: float = math.inf) -> Budget:
        """A budget of samples for the law, its batches bounded where a bound is given."""
        bounds = self.min_batch, max_batch
        return Budget(powers.source, powers.capacity, data, self.lr, self.noise, *bounds)
