"""The laws that are compared: ours, the hyperbola, Chinchilla's, Step Law's and Power Lines'.

A law is a function of the fitted rows. It returns a `Fitted`, whose `predict` gives losses. The
published rules predict no losses: they choose a run, as `choose` does.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import numpy as np
import pandas as pd
from scipy.optimize import least_squares

from bss.errors import InputError
from bss.laws import fit_es, fit_loss
from bss.laws.base import Options
from bss.laws.es.law import Law
from bss.laws.final_loss.forms import FORMS, Form
from bss.registry import load
from bss.rules import RULES, Setting

RESAMPLES = Options(10)
"""Fewest draws: the scores are of losses, whose intervals need none."""
HUBER = 1e-3  # of log loss: where errors count linearly, as in arXiv 2203.15556, appendix D.3
FLOORS = (0.3, 0.5, 0.8)  # starts of E, as shares of the lowest loss


class Fitted(Protocol):
    """The predictions of a law for a table of runs."""

    def predict(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Return `loss` of each run in nats, and `loss_low` and `loss_high` if it has intervals."""
        ...


class Plain(NamedTuple):
    """A law without intervals, whose losses are a function of the runs."""

    losses: Callable[[pd.DataFrame], np.ndarray]

    def predict(self, runs: pd.DataFrame) -> pd.DataFrame:
        """See `Fitted`."""
        return pd.DataFrame({"loss": self.losses(runs)}, index=runs.index)


class Choice(NamedTuple):
    """A published rule: nothing is fitted, and no loss is predicted."""

    rule: str

    def distance(self, runs: pd.DataFrame) -> np.ndarray:
        """Return [n], by how far a run is from the rule's batch size and LR, in logs."""
        rule = RULES[self.rule]
        away = np.zeros(len(runs))
        for i, run in enumerate(runs.itertuples()):
            told = rule(Setting(run.params, run.tokens, int(run.seq_len)))  # type: ignore[attr-defined]
            away[i] = abs(np.log(run.batch_tokens / told.batch_tokens))  # type: ignore[attr-defined]
            if told.lr is not None and "lr" in runs:
                away[i] = np.hypot(away[i], np.log(run.lr / told.lr))  # type: ignore[attr-defined]
        return away


def ours(table: pd.DataFrame) -> Fitted:
    """Return `fit_loss` with its defaults."""
    return fit_loss(table, options=RESAMPLES)


def chinchilla(table: pd.DataFrame) -> Plain:
    """Return L = E + A·N^-a + G·D^-g of the lowest loss of each (N, D): arXiv 2203.15556, Eq. 2."""
    lowest = table.loc[table.groupby(["params", "tokens"])["loss"].idxmin()]
    return _least_squares(lowest, with_batch=False)


def hyperbola(table: pd.DataFrame) -> Plain:
    """Return the same with D/(1 + B/B_c), of the lowest loss of each (N, D, B): arXiv 1812.06162.

    Steps to a loss are S = a + b/B, so tokens to it are those of small batches times 1 + B/B_c.
    """
    sizes = ["params", "tokens", "batch_tokens"]
    return _least_squares(table.loc[table.groupby(sizes)["loss"].idxmin()], with_batch=True)


def _least_squares(rows: pd.DataFrame, *, with_batch: bool) -> Plain:
    """Fit log losses by Huber's loss, from several floors."""
    centre = {n: float(np.log(rows[n]).mean()) for n in ("params", "tokens", "batch_tokens")}

    def losses(theta: np.ndarray, runs: pd.DataFrame) -> np.ndarray:
        log_E, log_A, a, log_G, g, log_B_c = theta
        sizes = np.log(runs[[*centre]].to_numpy(float)) - list(centre.values())
        n, d, b = sizes.T
        waste = np.log1p(np.exp(b - log_B_c)) if with_batch else 0.0
        return np.exp(log_E) + np.exp(log_A - a * n) + np.exp(log_G - g * (d - waste))

    def errors(theta: np.ndarray) -> np.ndarray:
        return np.log(losses(theta, rows) / rows["loss"].to_numpy())

    least = float(rows["loss"].min())
    low = np.array([np.log(0.01 * least), -8, 0, -8, 0, -8])
    high = np.array([np.log(least), 4, 3, 4, 3, 12])
    starts = [[np.log(share * least), -1, 0.4, -1, 0.4, 2] for share in FLOORS]
    tried = [
        least_squares(errors, start, bounds=(low, high), loss="huber", f_scale=HUBER)
        for start in starts
    ]
    best = min(tried, key=lambda found: found.cost)
    return Plain(lambda runs: losses(best.x, runs))


def step_law(_: pd.DataFrame) -> Choice:
    """Return Step Law's rule, with its published constants."""
    return Choice("step-law")


def power_lines(_: pd.DataFrame) -> Choice:
    """Return the rule of Power Lines, with its published constants."""
    return Choice("power-lines")


KEPT: dict[str, Callable[[pd.DataFrame], Any]] = {
    "bss": ours,
    "hyperbola": hyperbola,
    "chinchilla": chinchilla,
    "step-law": step_law,
    "power-lines": power_lines,
}
"""By the name of their rows."""


class Asked(NamedTuple):
    """A law that a user names: of final losses, or of points of E(S), or both as `bss`."""

    losses: Callable[[pd.DataFrame], Any] | None
    points: Callable[[pd.DataFrame], Any] | None


def es_law(law: Law | str | None) -> Callable[[pd.DataFrame], Any]:
    """Return the function that fits a law of E(S), by default the one that is chosen."""
    return lambda points: fit_es(points, law, options=Options(50))


def asked(name: str) -> Asked:
    """Return a law by `package.module:LAW`.

    Raises:
        InputError: if it is not a function, `Form` or `Law`.
    """
    law = load(name, "--law")
    if isinstance(law, Form):
        FORMS.load(name)
        return Asked(lambda table: fit_loss(table, forms=[name], options=RESAMPLES), None)
    if isinstance(law, Law):
        return Asked(None, es_law(law))
    if not callable(law):
        raise InputError(f"--law: {name} is {type(law).__name__}; expected a function, Form or Law")
    return Asked(law, None)
