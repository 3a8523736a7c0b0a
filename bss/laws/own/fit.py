"""A user's law fitted by `bss.laws.inference`: intervals, left-out errors, outliers, warnings."""

from typing import Any

import numpy as np
import pandas as pd

from bss.laws.base import DRAWS, Estimate, Options, Outlier, rounded
from bss.laws.inference import (
    OutlierRule,
    Refits,
    folds_of,
    identified,
    leave_out,
    percentiles,
    refuse_collision,
    refuse_constant,
    refuse_few,
    resample,
    times_of_others,
)
from bss.laws.least_squares import LeastSquares
from bss.laws.own.data import OwnData, own_data
from bss.laws.own.law import OwnErrors, OwnLaw, OwnResidual
from bss.laws.own.values import OwnFit
from bss.laws.problem import (
    Ranges,
    Scale,
    Search,
    Solution,
    narrowed,
    parse_ranges,
)
from bss.laws.resampling import rms
from bss.laws.solver import CHUNK

FAR = OutlierRule(6.0, fewest=6)  # robust SDs: one in a billion by chance; and enough others


def fit_own(
    table: pd.DataFrame,
    law: OwnLaw | str,
    *,
    constraints: str = "",
    options: Options | None = None,
) -> OwnFit:
    """Fit a law of a user's own to a table.

    Args:
        table: has the columns that the law names.
        law: a `bss.laws.own.law.OwnLaw`, or its name as `package.module:ATTRIBUTE`.
        constraints: fixed or bounded parameters, e.g. "L_0=1.69, k=.2:1".
        options: how intervals are made; by default 200 refits, all of which are kept.

    Raises:
        InputError: If the table lacks a column, two parameters collide, there are fewer rows than
            parameters, or a constant fits as well.
    """
    used = OwnLaw.parse(law)
    how = options or Options(DRAWS)
    data = own_data(table, used)
    ranges = parse_ranges(constraints, used.names, f"the law {used.name}")
    problem = _state(used, data, ranges)
    solution = problem.solve()
    _refuse_useless(used, data, problem, solution)
    refits = resample(problem, solution, 0, how.resamples, np.random.default_rng(how.seed))
    folds = folds_of(data.fold[None], range(data.fold.max() + 1))
    missed = np.full(len(data.measured), np.nan)
    if len(folds) > 2:  # each half would be predicted by the other
        missed = leave_out(problem, solution, folds).errors[0]
    values = used.printed(solution.parameters[0])
    draws = used.printed(refits.parameters.T)
    estimates = _estimate(used, values, draws, solution.at_bound[0], ranges, how.level)
    converged = bool(solution.converged[0])
    warnings = [*data.warnings, *(f"{n}: {one.note}" for n, one in estimates.items() if one.note)]
    if not converged:
        warnings.append("the fit did not converge")
    if np.isnan(missed).all():
        warnings.append(
            f"{used.folds_by}: {len(folds)} values, too few to leave one out; errors are of the fit"
        )
    return OwnFit(
        law=used,
        values={name: float(x) for name, x in values.items()},
        parameters=estimates,
        status="converged" if converged else "not converged",
        rmse=rms(refits.errors),
        rows=_rows(used, data, refits, missed),
        draws={name: tuple(rounded(x[:DRAWS])) for name, x in draws.items()},
        scatter=refits.scatter,
        outliers=tuple(_find_outliers(used, data, missed)),
        level=how.level,
        resamples=how.resamples,
        constraints=constraints,
        warnings=tuple(warnings),
    )


def _state(law: OwnLaw, data: OwnData, ranges: Ranges) -> LeastSquares:
    """Return the problem of a law, with starts that fill the box evenly."""
    from scipy.stats import qmc

    box_lower = np.array([one.fitted(one.lower) for one in law.parameters])
    box_upper = np.array([one.fitted(one.upper) for one in law.parameters])
    scales = {one.name: Scale(i, log=one.log) for i, one in enumerate(law.parameters)}
    lower, upper = narrowed(box_lower, box_upper, ranges, scales, f"the law {law.name}")
    refuse_few(
        len(data.measured),
        int((lower < upper).sum()),
        "table: {} rows",
        f"the law {law.name}",
        "add rows, or fix parameters (--fix NAME=VALUE)",
    )
    count = 4 * CHUNK  # points that fill the box evenly, in four blocks of the solver
    share = qmc.Sobol(len(lower), scramble=False).random(count)
    starts = lower + (upper - lower) * (share * (1 - 1 / count) + 1 / (2 * count))
    arrays = {
        "columns": {name: x[None] for name, x in data.columns.items()},
        "observed": np.log(data.measured)[None],
        "weight": np.ones((1, len(data.measured))),
    }
    return LeastSquares(
        used=np.ones((1, len(data.measured)), bool),
        replication=data.run[None],
        residual=OwnResidual(law),
        starts=starts[None],
        lower=lower[None],
        upper=upper[None],
        data=arrays,
        errors=OwnErrors(law),
        search=Search(fold_starts=3),  # few: from the fit of all rows a fold is near its end
    )


def _refuse_useless(law: OwnLaw, data: OwnData, problem: LeastSquares, solution: Solution) -> None:
    """Raise InputError if a constant fits as well, or if two parameters collide."""
    errors, slopes = problem.linearize(solution, 0)
    is_fitted = problem.lower[0] < problem.upper[0]
    refuse_constant(
        errors,
        np.log(data.measured),
        int(is_fitted.sum()),
        law.measured,
        f"law {law.name}",
        "correct the formula or the bounds of its parameters",
    )
    free = is_fitted & ~solution.at_bound[0]
    priors = np.array([np.isfinite(one.spread) for one in law.parameters])
    kept = ~priors[free]
    names = np.array(law.names)[free][kept]
    refuse_collision(slopes[:, kept], names.tolist(), f"law {law.name}")


def _estimate(
    law: OwnLaw,
    values: dict[str, Any],
    draws: dict[str, Any],
    at_bound: np.ndarray,
    ranges: Ranges,
    level: float,
) -> dict[str, Estimate]:
    """Return each parameter with its interval, or with the reason why it has no value."""
    estimates = percentiles(law.names, values.values(), draws.values(), level)
    for i, one in enumerate(law.parameters):
        if one.name in ranges:
            continue  # its value, or its bounds, are the user's
        given = estimates[one.name]
        estimates[one.name] = identified(given, at_bound=bool(at_bound[i]), positive=one.log)
    return estimates


def _rows(law: OwnLaw, data: OwnData, refits: Refits, missed: np.ndarray) -> dict[str, Any]:
    """Return the rows with their fitted values and left-out errors."""
    numbers = {**data.columns, law.measured: data.measured}
    numbers |= {"fitted": data.measured * np.exp(refits.errors), "left_out": -missed}
    columns: dict[str, Any] = {"run": tuple(map(str, data.name))}
    return columns | {name: tuple(rounded(x)) for name, x in numbers.items()}


def _find_outliers(law: OwnLaw, data: OwnData, missed: np.ndarray) -> list[Outlier]:
    """Return rows that a fit without them misses by far more than it misses others."""
    if not np.isfinite(missed).all():
        return []
    times = times_of_others(missed)
    found = []
    for i in FAR.of(times):
        run = str(data.name[i])
        at = {law.replication: run} | {name: float(x[i]) for name, x in data.columns.items()}
        drop = f"{law.replication}={run}"
        numbers = (float(-missed[i]), float(times[i]))
        found.append(Outlier(at, drop, *numbers, f"log {law.measured}"))
    return found
