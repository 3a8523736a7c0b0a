"""The tasks of SGD on least squares, and how their critical batches are measured."""

from dataclasses import dataclass

from bss.errors import InputError
from bss.theory.exponents import Powers
from bss.theory.least_squares import Procedure


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
