"""Exponents of critical batch sizes in N and D, from measured and resampled tokens.

The unit of replication of an exponent is the model: budgets are read off the same curves, and seeds
of one model share its misfit. Its error is the larger of two errors, from leaving one model size
out (jackknife) and from the resamples, with one degree of freedom fewer than sizes. The method is
derived here; tests/experiments/test_critical_batch.py tests its coverage on planted grids.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.stats import Effect
from experiments.critical_batch.cells import Cell
from experiments.critical_batch.resampled import estimated


@dataclass(frozen=True)
class Exponents:
    """Exponents p of N and q of D in a law of critical batch sizes over curves.

    Attributes:
        draws: log c, p, q [1 + R, 3].
        without: log c, p, q without each model size [size, 3].
        inverse: (XᵀX)⁻¹ of the design.
        spread: Residual standard deviation of log batch about the law.
        sizes: Names of the model sizes [size].
        seeds: Seeds of each model.
    """

    draws: np.ndarray
    without: np.ndarray
    inverse: np.ndarray
    spread: float
    sizes: tuple[str, ...]
    seeds: int

    def of(self, n: float, d: float, less: float = 0.0) -> Effect:
        """Return n·p + d·q − less; its error is the largest of sizes, refits and residuals."""
        weights = np.array([0.0, n, d])
        freedom = len(self.sizes) - 1
        refits = estimated(self.draws @ weights - less, freedom, self.seeds)
        left = self.without @ weights
        jackknife = float(np.sqrt(freedom / len(left) * ((left - left.mean()) ** 2).sum()))
        residual = self.spread * float(np.sqrt(weights @ self.inverse @ weights))
        return Effect(
            value=refits.value,
            error=max(refits.error, jackknife, residual),
            freedom=freedom,
            seeds=self.seeds,
            test=f"{len(left)} model sizes, t with {freedom} degrees of freedom",
        )


def exponents(cells: Sequence[Cell], values: Sequence[np.ndarray]) -> Exponents:
    """Fit log batch = log c + p log N + q log D to all curves, [1 + R, D] per cell."""
    logs = np.concatenate([np.log(value) for value in values], axis=1)
    rows = [(1.0, np.log(cell.params), np.log(d)) for cell in cells for d in cell.budgets]
    sizes = np.array([cell.size for cell in cells for _ in cell.budgets])
    known = np.isfinite(logs).all(axis=0)
    X = np.array(rows)[known]
    y = logs[:, known]
    size = sizes[known]
    inverse = np.linalg.inv(X.T @ X)
    draws = y @ X @ inverse
    rest = y[0] - X @ draws[0]
    spread = float(np.sqrt(rest @ rest / max(len(X) - X.shape[1], 1)))
    names = tuple(dict.fromkeys(map(str, size)))
    without = np.stack(
        [np.linalg.lstsq(X[size != name], y[0, size != name], rcond=None)[0] for name in names]
    )
    return Exponents(draws, without, inverse, spread, names, cells[0].logs[0].shape[2])


def laws_of(
    cells: Sequence[Cell], values: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, Exponents]:
    """Return the exponents of the critical batch size and of b/a."""
    return {name: exponents(cells, [v[name] for v in values]) for name in ("cbs", "b/a")}


def exponents_table(fits: Mapping[str, Exponents]) -> pd.DataFrame:
    """Return the exponents by quantity with 95% intervals, and without each model size.

    The column `without` names the size that was left out; "" for none.
    """
    names = {"N": (1, 0), "D": (0, 1), "D - N": (-1, 1), "N + D": (1, 1)}
    rows = []
    for quantity, fit in fits.items():
        for name, weights in names.items():
            one = fit.of(*weights)
            low, high = one.ends()
            row = {"quantity": quantity, "exponent": name, "without": "", "value": one.value}
            rows.append(row | {"low": low, "high": high, "error": one.error})
            for size, law in zip(fit.sizes, fit.without, strict=True):
                value = float(law @ [0.0, *weights])
                known = {"quantity": quantity, "exponent": name, "without": size}
                rows.append(known | {"value": value})
    return pd.DataFrame(rows)
