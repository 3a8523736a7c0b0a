"""Power laws through a few measured values: y = c·x^p, and y = c·N^p·D^q if it is identified.

Least squares in log space with equal weights, as Zhang et al. (arXiv 2410.21676) fit the critical
batch size. Their designs grow D in proportion to N, and from such points p and q cannot be
separated: the joint law is then refused and the laws in one variable are given (criterion derived
here).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import NormalDist
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.laws.base import Estimate, check_lengths, check_positive
from bss.laws.resampling import rms
from bss.values import SLACK, Count, Nonnegative, Positive, Range, Share

LEAST_SPREAD = 2.0  # of a variable: over less, a scatter of 10% moves an exponent by .2 or more


@dataclass(frozen=True)
class PowerFit:
    """y = c·Π (x_k / unit)^p_k.

    Attributes:
        variables: names of the x_k.
        unit: what every x is divided by, so that c is y at x = unit.
        coefficient, exponents: c, and p_k in the order of `variables`.
        scatter: residual standard deviation of log y; None if no degree of freedom is left.
        margin: half-width in log y that an interval gives a point of leverage 1; see `fit_power`.
        inverse: [1+K, 1+K], (XᵀX)⁻¹ of the design in log x.
        points: values fitted.
        level: of all intervals.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    variables: tuple[str, ...]
    unit: Positive
    coefficient: Estimate
    exponents: tuple[Estimate, ...]
    scatter: Nonnegative | None
    margin: Nonnegative | None
    inverse: Annotated[np.ndarray, Range()]
    points: Count
    level: Share

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_positive({"coefficient": self.coefficient}, where)
        count = len(self.variables)
        if len({*self.variables}) != count or not count:
            raise InputError(f"{where}x is {', '.join(self.variables) or 'empty'}")
        check_lengths({"exponents": self.exponents}, where, count)
        if any(one.value is None for one in (self.coefficient, *self.exponents)):
            raise InputError(f"{where}coefficient or an exponent has no value")
        if self.margin is None and not self.inverse.size:
            return  # as older ones were written, without an interval
        if self.inverse.shape != (count + 1, count + 1):
            raise InputError(f"{where}inverse has the shape {self.inverse.shape}")
        variances = np.diag(self.inverse)
        if (variances < np.finfo(float).tiny).any():
            raise InputError(f"{where}inverse is no covariance")
        scale = np.sqrt(variances)
        correlation = self.inverse / scale / scale[:, None]
        if (np.linalg.eigvalsh(correlation) <= 0).any() or np.abs(correlation).max() > 1 + SLACK:
            raise InputError(f"{where}inverse is no covariance")

    def design(self, x: Mapping[str, ArrayLike]) -> np.ndarray:
        """Rows [n, 1+K] of 1 and log(x_k / unit), of x [n] by variable."""
        return _design({name: x[name] for name in self.variables}, self.unit)

    def logs(self, x: Mapping[str, ArrayLike]) -> np.ndarray:
        """Return log y [n] of the law at x [n] by variable."""
        powers = [one.value or 0.0 for one in self.exponents]
        return self.design(x) @ np.array([np.log(self.coefficient.value or 0.0), *powers])

    @property
    def deviation(self) -> float:
        """Standard deviation of log y about the law, as wide as `margin`; 0 without a margin."""
        return (self.margin or 0.0) / NormalDist().inv_cdf((1 + self.level) / 2)

    def draws(self, x: Mapping[str, ArrayLike]) -> np.ndarray:
        """Return errors [R, n] of log y of the law, of its covariance, at x [n] by variable.

        Raises:
            InputError: the law was written without its covariance.
        """
        if not self.inverse.size:
            raise InputError("fit: its law has no covariance; fit it again")
        root = self.deviation * np.sqrt(len(self.inverse)) * np.linalg.cholesky(self.inverse).T
        return np.concatenate([root, -root]) @ self.design(x).T

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """JSON; with one variable `x` is its name and `exponent` its one estimate."""
        x = plain.pop("variables")
        exponents = plain.pop("exponents")
        if len(x) == 1:
            return {"x": x[0], "exponent": exponents[0]} | plain
        return {"x": list(x), "exponents": exponents} | plain

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        entries = [entry["exponent"]] if "exponent" in entry else entry["exponents"]
        x = [entry["x"]] if isinstance(entry["x"], str) else entry["x"]
        plain = {"variables": x, "exponents": entries}
        return {"margin": None, "inverse": [], "level": entries[0]["level"]} | entry | plain


def fit_power(
    y: ArrayLike,
    x: Mapping[str, ArrayLike],
    *,
    unit: float = 1.0,
    errors: ArrayLike | None = None,
    level: float = 0.95,  # about two standard deviations
) -> PowerFit:
    """Fit log y = log c + Σ p_k log(x_k / unit) with equal weights.

    An interval uses the larger of two errors of a point: the residual SD with Student's t, which is
    wide for few points, and `errors`. The residual SD alone may be small by luck (derived here).

    Args:
        y: [n] positive values.
        x: [n] positive values of each variable, by name.
        unit: what x is divided by, e.g. 1e6 for a law in millions.
        errors: [n] standard deviations of log y, if they are known.
        level: nominal coverage.

    Raises:
        InputError: `unidentified` has the reason that the law cannot be fitted to these x.
    """
    if reason := unidentified(x):
        raise InputError(f"power law: {reason}")
    log_y = np.log(np.asarray(y, float))
    design = _design(x, unit)
    count, parameters = design.shape
    inverse = np.linalg.inv(design.T @ design)
    theta = inverse @ design.T @ log_y
    dof = count - parameters
    scatter = float(np.sqrt(np.sum((log_y - design @ theta) ** 2) / dof)) if dof else None
    margin = _margin(scatter, dof, errors, level)
    first, *others = zip(theta, np.diagonal(inverse), strict=True)
    return PowerFit(
        variables=tuple(x),
        unit=unit,
        coefficient=_estimate(*first, margin, level, count, np.exp),
        exponents=tuple(_estimate(*one, margin, level, count) for one in others),
        scatter=scatter,
        margin=margin,
        inverse=inverse,
        points=count,
        level=level,
    )


def unidentified(x: Mapping[str, ArrayLike]) -> str:
    """Return why these points do not identify a power law in these variables, or "".

    Each variable, [n] positive values by its name, must span a factor of 2 by itself, and still do
    so once what the others explain of its logarithm is taken out: with D proportional to N nothing
    is left (derived here).
    """
    logs = {name: np.log(np.asarray(values, float)) for name, values in x.items()}
    count = min(len(values) for values in logs.values())
    all_names = " and ".join(logs)
    if count < len(logs) + 1:
        return f"{count} points for the {len(logs) + 1} parameters of a law in {all_names}"
    for name, values in logs.items():
        if np.ptp(values) < np.log(LEAST_SPREAD):
            return f"{name} spans less than a factor of {LEAST_SPREAD:g}; vary it more"
    for name, values in logs.items() if len(logs) > 1 else ():
        others = [logs[other] for other in logs if other != name]
        design = np.stack([np.ones(count), *others], axis=1)
        rest = values - design @ np.linalg.lstsq(design, values, rcond=None)[0]
        if np.ptp(rest) < np.log(LEAST_SPREAD):
            fixed = " and ".join(other for other in logs if other != name)
            return (
                f"the exponents of {all_names} cannot be separated: at given {fixed}, {name} "
                f"spans only a factor of {np.exp(np.ptp(rest)):.3g}; measure points that vary it "
                f"by {LEAST_SPREAD:g} or more at fixed {fixed}"
            )
    return ""


def predict(law: PowerFit, x: Mapping[str, float]) -> Estimate:
    """The law's value at x, with the interval of a new measurement there; open without a margin.

    Raises:
        InputError: a variable of the law has no positive value.
    """
    for name in law.variables:
        if not 0 < x.get(name, 0) < np.inf:
            raise InputError(f"{name}: {x.get(name)} at a forecast; give a positive number")
    row = law.design({name: [x[name]] for name in law.variables})[0]
    with np.errstate(over="ignore"):  # an end that is too large is infinite
        value = np.log(law.coefficient.value or 0.0) + row[1:] @ [p.value for p in law.exponents]
        leverage = 0.0 if law.margin is None else 1 + row @ law.inverse @ row
        return _estimate(value, leverage, law.margin, law.level, law.points, np.exp)


def _design(x: Mapping[str, ArrayLike], unit: float) -> np.ndarray:
    logs = [np.log(np.asarray(values, float) / unit) for values in x.values()]
    return np.stack([np.ones_like(logs[0]), *logs], axis=1)


def _margin(
    scatter: float | None, dof: int, errors: ArrayLike | None, level: float
) -> float | None:
    from scipy.special import ndtri, stdtrit  # of fits; forecasts need NumPy only

    quantile = (1 + level) / 2
    margins = [] if scatter is None else [float(stdtrit(dof, quantile)) * scatter]
    if errors is not None:
        margins.append(float(ndtri(quantile)) * rms(errors))
    return max(margins, default=None)


def _estimate(
    value: float,
    leverage: float,
    margin: float | None,
    level: float,
    points: int,
    printed: Callable[[float], float] = float,
) -> Estimate:
    """Return the estimate of a fitted number as it is printed; without a margin no interval."""
    if margin is None:
        note = f"no interval: {points} points"
        return Estimate(float(printed(value)), level=level, note=note)
    half = margin * np.sqrt(leverage)
    low = float(printed(value - half))
    high = float(printed(value + half))
    return Estimate(float(printed(value)), low, high, level)
