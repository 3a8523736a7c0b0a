"""Errors at groups of rows left out of a fit one at a time: runs, batches, or other labels."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bss.errors import InputError
from bss.laws.resampling import rms


@dataclass(frozen=True)
class HeldOut:
    """Errors of a law at each group of rows, by its fit to all others.

    Attributes:
        by: the grouping, e.g. "run" or "batch".
        unit: of the errors, predicted minus measured, e.g. "log tokens" or "log loss".
        errors: root mean square of each group, by its name.
        counts: number of rows of each group.
    """

    by: str
    unit: str
    errors: dict[str, float]
    counts: dict[str, int]

    @classmethod
    def of(cls, by: str, unit: str, labels: Sequence[str], errors: np.ndarray) -> "HeldOut":
        """Return the errors of rows [N] grouped by their labels; NaN ones do not count."""
        known = np.isfinite(errors)
        groups = {label: errors[known & (np.array(labels) == label)] for label in labels}
        groups = {label: each for label, each in groups.items() if len(each)}
        counts = {label: len(each) for label, each in groups.items()}
        return cls(by, unit, {label: rms(each) for label, each in groups.items()}, counts)

    @property
    def rmse(self) -> float:
        """Root mean square error over all rows."""
        squares = [self.counts[label] * error**2 for label, error in self.errors.items()]
        return float(np.sqrt(sum(squares) / sum(self.counts.values())))


def check_hold_out(by: str, known: Sequence[str], groups: int, least: int) -> None:
    """Raise InputError if a fit does not have a grouping, or it has too few groups."""
    if by not in known:
        raise InputError(f"--hold-out {by}: this fit leaves out {' or '.join(known)} in turn")
    if groups < least:
        raise InputError(
            f"--hold-out {by}: {groups} to leave out in turn, {least} are needed; measure more"
        )
