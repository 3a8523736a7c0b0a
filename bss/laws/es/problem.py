"""The problem of a law E(S) as `bss.laws.inference` takes it: runs are the unit of replication."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from bss.laws.es.data import EsData
from bss.laws.es.law import Law, Problem
from bss.laws.least_squares import LeastSquares
from bss.laws.problem import Ranges, Search

MAX_ERROR = 2.0  # in log E: a law that never reaches a target has a finite error there
SEARCH = Search(fold_starts=3)  # besides the fit of all rows, which is nearly the optimum of a fold


@dataclass(frozen=True)
class EsProblem(LeastSquares):
    """R problems of a law, one per target, or one of all targets.

    Attributes:
        law: a law E(S).
        rows: of the table.
        stated: the problems as the law states them.
    """

    law: Law
    rows: EsData
    stated: Problem

    @classmethod
    def of(cls, law: Law, data: EsData, targets: np.ndarray, ranges: Ranges) -> "EsProblem":
        """Return the problems of a law at targets, with constraints.

        Raises:
            InputError: If the data have too few targets, or the law cannot meet a constraint.
        """
        stated = law.constrained(law.problem(data, targets), ranges, data.seq_len)
        return cls(
            used=(stated.data["weight"] > 0) & (stated.data["reached"] > 0),
            replication=data.run[stated.rows],
            residual=stated.residual,
            starts=stated.starts,
            lower=stated.lower,
            upper=stated.upper,
            data=stated.data,
            law=law,
            rows=data,
            stated=stated,
            search=SEARCH,
        )

    def decoded(self, theta: np.ndarray, index: int) -> Any:
        """Return parameters in steps and sequences, from fitted numbers [..., P]."""
        return self.law.decoded(theta, self.stated, index)

    def missed(self, theta: np.ndarray, index: int) -> np.ndarray:
        """Return the errors in log E of the rows of a problem, of at most MAX_ERROR."""
        log_E = self.law.log_sequences(
            self.decoded(theta, index), self.rows.batch, self.rows.target
        )  # of all rows, so that a law is evaluated in one shape, which compiles once
        at = self.stated.rows[index]
        return np.clip(log_E[at] - self._log_measured[at], -MAX_ERROR, MAX_ERROR)

    @cached_property
    def _log_measured(self) -> np.ndarray:
        return np.log(self.rows.sequences)
