"""The laws of the critical batch in model size and tokens."""

from collections.abc import Sequence

import numpy as np

from bss.laws import power
from bss.laws.critical.values import CriticalBatch, Quantity

LAW_UNIT = 1e6  # of N and D in a law


def fit_sizes(
    fits: Sequence[CriticalBatch], quantity: Quantity, draws: Sequence[np.ndarray], level: float
) -> tuple[dict[str, power.PowerFit], str, list[str]]:
    """Return the laws that the design identifies, of a quantity of fits [n] and refits [n] × [R].

    Returns:
        Laws with the key "joint", or the keys "params" and "tokens"; the reason if the design does
        not identify a joint law, else an empty text; warnings.
    """
    if len({(fit.curve.params, fit.curve.tokens) for fit in fits}) < len(fits):
        return {}, "", ["several curves of one size and budget: no law is fitted to them"]
    values = [getattr(fit, quantity).value for fit in fits]
    known = [i for i, value in enumerate(values) if value is not None]
    columns = {
        n: np.array([getattr(fits[i].curve, n) for i in known]) for n in ("params", "tokens")
    }
    x = {name: column for name, column in columns.items() if np.isfinite(column).all()}
    varied = [name for name in x if not power.unidentified({name: x[name]})]
    if not varied:
        return {}, "", ["fewer than two critical batches over a factor of 2 in size: no law"]
    refused = power.unidentified(x) if len(x) > 1 else ""
    wanted = {name: [name] for name in varied} if refused or len(x) < 2 else {"joint": [*x]}
    y = [values[i] for i in known]
    errors = [_log_error(draws[i]) for i in known]
    laws = {
        key: power.fit_power(
            y, {name: x[name] for name in names}, unit=LAW_UNIT, errors=errors, level=level
        )
        for key, names in wanted.items()
    }
    notes = [f"no joint law: {refused}"] if len(varied) > 1 and refused else []
    return laws, refused, notes


def _log_error(draws: np.ndarray) -> float:
    """Return the standard deviation of log draws, from quantiles that stray refits do not move."""
    finite = draws[np.isfinite(draws)]
    if not len(finite):
        return np.inf
    low, high = np.quantile(np.log(finite), [0.16, 0.84])  # a standard deviation on each side
    return float(high - low) / 2
