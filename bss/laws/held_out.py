"""Errors at what was left out of a fit in turn: runs, batches, or what else shares a label."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.resampling import rms


@dataclass(frozen=True)
class HeldOut:
    """Errors of a law at each group of rows by its fit to all others.

    Attributes:
        by: what was left out in turn: "run", "batch", "cell", "horizon" or "peak".
        unit: of the errors, predicted less measured: "log tokens", "log loss" and the like.
        errors: root mean square of each group, by its name.
        counts: of its rows.
    """

    by: str
    unit: str
    errors: dict[str, float]
    counts: dict[str, int]

    @classmethod
    def of(cls, by: str, unit: str, labels: Sequence[str], errors: np.ndarray) -> "HeldOut":
        """Of the label and the error of each row [N]; NaN ones were not told."""
        groups: dict[str, list[float]] = {}
        for label, error in zip(labels, errors.tolist(), strict=True):
            groups.setdefault(label, []).extend([error] if np.isfinite(error) else [])
        told = {label: each for label, each in groups.items() if each}
        counts = {label: len(each) for label, each in told.items()}
        return cls(by, unit, {label: rms(each) for label, each in told.items()}, counts)

    @property
    def rmse(self) -> float:
        """Root mean square over all rows."""
        squares = [self.counts[label] * error**2 for label, error in self.errors.items()]
        return float(np.sqrt(sum(squares) / sum(self.counts.values())))


def check_hold_out(by: str, known: Sequence[str], groups: int, least: int) -> None:
    """Raises InputError of what a fit does not leave out, or of so few groups that it cannot."""
    if by not in known:
        raise InputError(f"--hold-out {by}: this fit leaves out {' or '.join(known)} in turn")
    if groups < least:
        raise InputError(
            f"--hold-out {by}: {groups} to leave out in turn, {least} are needed; measure more"
        )
