"""The data of a law, its parameters and constraints, and its problem: residuals, refits, folds.

Every law states its problem in these terms, and `bss.laws.inference` fits it. A constraint is a
range of a parameter by its printed name. A law declares the `Scale` of each parameter that follows
from one fitted number; only these can be constrained.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from bss.errors import InputError
from bss.laws.resampling import RunEffects, run_effects

Residual = Callable[[Any, Any], Any]
"""(parameters [P], one problem's data) -> residuals; traced by JAX."""
Ranges = Mapping[str, tuple[float, float]]
"""Ranges of parameters by printed name, as a user constrained them; see `parse_ranges`."""


class Parameter(NamedTuple):
    """A parameter of a law, as it is printed.

    Attributes:
        name: in formulas, tables and constraints.
        lower, upper: bounds.
        log: whether its logarithm is fitted; it is then above 0.
        usual: value before any measurement, from which `spread` is reckoned.
        spread: standard deviation of the fitted number about it; infinite without a prior.

    Examples:
        >>> Parameter("A", 0.1, 10.0, log=True).fitted(1.0)
        0.0
    """

    name: str
    lower: float
    upper: float
    log: bool = False
    usual: float = 1.0
    spread: float = math.inf

    def fitted(self, printed: float) -> float:
        """Return the fitted number of a value."""
        return Scale(0, log=self.log).fitted(printed)


@dataclass(frozen=True)
class Data:
    """Rows that a law is fitted to; every array is [N].

    Attributes:
        run: integer label of the run, whose errors are drawn together: the unit of replication.
        name: name of the run.
        warnings: a sentence per group of rows that were left out.
    """

    run: np.ndarray
    name: np.ndarray
    warnings: tuple[str, ...] = field(default=(), kw_only=True)


class Solution(NamedTuple):
    """The best of all starts, for each of R problems.

    Attributes:
        parameters, cost: [R, P], and [R], half the sum of squared residuals.
        converged: [R], whether the cosine of the residuals with every free derivative is < 1e-4.
        at_bound: [R, P], whether a parameter ended on a bound (False if it is fixed).
    """

    parameters: np.ndarray
    cost: np.ndarray
    converged: np.ndarray
    at_bound: np.ndarray


class Search(NamedTuple):
    """Length and starts of the search of the solver.

    Attributes:
        iterations: from each start in a round.
        accelerated: by geodesic acceleration.
        fit, refit, fold: rounds at most, of the fit, of a resample and of a fold.
        fold_starts: starts of a fold, in addition to the fit of all rows.
    """

    iterations: int = 60  # the solver's default
    accelerated: bool = False
    fit: int = 1
    refit: int = 1
    fold: int = 1
    fold_starts: int = 0


@dataclass(frozen=True)
class Problem:
    """R problems of one law, with the methods that `bss.laws.inference` calls.

    `bss.laws.least_squares` answers by the solver. A law with a faster solution has its own class.

    Attributes:
        used: [R, ...], which residuals are of measurements; others are padding or one-sided.
        replication: [R, ...], labels of the unit of replication: its errors are drawn together.
        clip: robust standard deviations to which residuals are clipped before they are resampled.
    """

    used: np.ndarray
    replication: np.ndarray
    clip: float = field(default=math.inf, kw_only=True)

    def solve(self) -> Solution:
        """Return the best of all starts, for each of the R problems."""
        raise NotImplementedError

    def linearize(self, solution: Solution, index: int) -> tuple[np.ndarray, np.ndarray]:
        """Return residuals [...] of a problem, and their derivatives [..., F] by free parameters.

        A residual is fitted minus measured, in the unit in which errors are drawn.
        """
        raise NotImplementedError

    def scatter(self, errors: np.ndarray, slopes: np.ndarray, index: int) -> RunEffects:
        """Return the variances of residuals [...] with derivatives [..., F]."""
        used = self.used[index]
        return run_effects(errors[used], slopes[used], self.replication[index][used])

    def refit(self, solution: Solution, index: int, changes: np.ndarray) -> np.ndarray:
        """Return parameters [n, P] fitted to measurements plus changes [n, ...], as residuals."""
        raise NotImplementedError

    def without(self, solution: Solution, folds: np.ndarray) -> np.ndarray:
        """Return parameters [F, R, P] of fits without folds [F, R, ...]."""
        raise NotImplementedError

    def missed(self, theta: np.ndarray, index: int) -> np.ndarray:
        """Return the errors [...] with which parameters [P] predict the measurements."""
        raise NotImplementedError


class Scale(NamedTuple):
    """The printed form of a parameter: a fitted number, or its exponential, times a unit.

    Attributes:
        position: of the fitted number.
        unit: the parameter where the fitted number is 1, or 0 if it is a logarithm.
        log: whether the fitted number is a logarithm.
    """

    position: int
    unit: float = 1.0
    log: bool = False

    def printed(self, fitted: Any) -> Any:
        """Return the parameter of a fitted number."""
        return self.unit * (np.exp(fitted) if self.log else fitted)

    def fitted(self, printed: float) -> float:
        """Return the fitted number of a parameter; -inf of a logarithm of 0 or less."""
        ratio = printed / self.unit
        if not self.log:
            return ratio
        return math.log(ratio) if ratio > 0 else -math.inf


def parse_ranges(
    constraints: str, known: Sequence[str] | None = None, law: str = ""
) -> dict[str, tuple[float, float]]:
    """Return ranges of parameters by name, from NAME=VALUE and NAME=LOW:HIGH, joined by commas.

    Args:
        constraints: values are in the units in which parameters are printed.
        known: parameters of the law, if they are known.
        law: its name.

    Raises:
        InputError: if a part is neither, a name occurs twice, or the law does not have it.

    Examples:
        >>> parse_ranges("L_0=1.69, s=.2:1")
        {'L_0': (1.69, 1.69), 's': (0.2, 1.0)}
    """
    ranges: dict[str, tuple[float, float]] = {}
    for part in filter(None, constraints.replace(" ", "").split(",")):
        name, _, numbers = part.partition("=")
        try:
            ends = [float(end) for end in numbers.split(":")]
        except ValueError:
            ends = []
        if not (name and len(ends) in (1, 2) and np.isfinite(ends).all() and ends[0] <= ends[-1]):
            raise InputError(
                f"{part}: not a constraint; write NAME=VALUE or NAME=LOW:HIGH, LOW <= HIGH"
            )
        if name in ranges:
            raise InputError(f"{part}: {name} has two constraints; remove one of them")
        if name not in (known if known is not None else [name]):
            have = ", ".join(dict.fromkeys(known or ())) or "none to fix"
            raise InputError(f"{name}: {law} has no such parameter; it has {have}")
        ranges[name] = ends[0], ends[-1]
    return ranges


def narrowed(
    lower: np.ndarray,
    upper: np.ndarray,
    ranges: Ranges,
    scales: Mapping[str, Scale],
    law: str,
) -> tuple[np.ndarray, np.ndarray]:
    """Return bounds [P] of fitted numbers, narrowed to the ranges of constrained parameters.

    Args:
        lower, upper: [P].
        ranges: as `parse_ranges` returns them.
        scales: of the parameters that follow from one fitted number.
        law: its name.

    Raises:
        InputError: if a range lies outside of the bounds, or its parameter follows from several
            fitted numbers.
    """
    lower = np.array(lower, float)
    upper = np.array(upper, float)
    for name, wanted in ranges.items():
        if name not in scales:
            raise InputError(
                f"{name}: {law} computes it from several fitted numbers; constrain "
                f"{', '.join(scales) or 'none'}"
            )
        i = scales[name].position
        low, high = map(scales[name].fitted, wanted)
        if high < lower[i] or low > upper[i]:
            least, most = map(scales[name].printed, (lower[i], upper[i]))
            given = ":".join(f"{end:g}" for end in dict.fromkeys(wanted))
            raise InputError(
                f"{name}={given}: outside the range of {law}; choose values in {least:.6g} to "
                f"{most:.6g}"
            )
        lower[i], upper[i] = np.clip((low, high), lower[i], upper[i])
    return lower, upper
