"""What a fit says of the best batch at measured (N, D), and anywhere else, as values."""

from dataclasses import dataclass, field, replace
from statistics import NormalDist
from typing import Any

import numpy as np

from bss.laws.final_loss.fitted import ALIKE, MeanLaw
from bss.laws.fitting.estimate import Alike, BestBatch, Evidence, tails

VERTICES, LAW = "power law of the vertices", "law of losses"


@dataclass(frozen=True)
class PowerOfBest:
    """The power law of best batches: B_opt in tokens at N and D.

    Attributes:
        variables: of `params` and `tokens` those that vary.
        centre: [K], logarithms of the variables about which it is.
        theta: [1 + K], log B_opt at the centre and the exponents.
        draws: [R, 2 + K], those of its posterior, and behind them the misfit of a cell.
    """

    variables: tuple[str, ...]
    centre: np.ndarray
    theta: np.ndarray
    draws: np.ndarray

    def at(self, params: float, tokens: float) -> tuple[float, np.ndarray]:
        """log B_opt, and draws [R, 9] of that of a new (N, D)."""
        sizes = {"params": params, "tokens": tokens}
        logs = np.log([sizes[name] for name in self.variables]) - self.centre
        row = np.concatenate([[1.0], logs])
        centres, misfits = (self.draws[:, :-1] @ row)[:, None], self.draws[:, -1]
        return float(row @ self.theta), centres + np.outer(misfits, NORMAL)


NORMAL = np.array([-1.593, -0.967, -0.589, -0.282, 0.0, 0.282, 0.589, 0.967, 1.593])
"""Middles of nine equally probable parts of a normal distribution."""


@dataclass(frozen=True)
class CellOptimum:
    """The best batch at one size N and budget D; batches in tokens.

    Attributes:
        params, tokens: N and D.
        batch: B_opt; None where it is unidentified, with the reason, and a bound if any.
        given_up: per measured batch, the loss above that of B_opt by the law; empty without one.
    """

    params: float
    tokens: float
    batch: BestBatch = field(metadata={"key": "B_opt_tokens"})
    given_up: dict[float, float]

    @property
    def indifference(self) -> Alike | None:
        """Batches within .003 nats of the best; None where that is not told."""
        return self.batch.within(ALIKE[0])

    @property
    def wider(self) -> Alike | None:
        """Batches within .005 nats of the best; None where that is not told."""
        return self.batch.within(ALIKE[1])

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """JSON has no numbers for keys."""
        entries = [{"batch_tokens": b, "loss": x} for b, x in self.given_up.items()]
        return plain | {"given_up": entries}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again."""
        return entry | {"given_up": {at["batch_tokens"]: at["loss"] for at in entry["given_up"]}}


@dataclass(frozen=True)
class Elsewhere:
    """What tells B_opt where nothing was measured.

    Attributes:
        source: "power law of the vertices" or "law of losses".
        power: of the vertices; None where they are too few.
        left_out: per source, root mean square error of log B_opt at left-out vertices.
        misfit: standard deviation by which the law of losses misses log B_opt, beyond its own
            error and the vertices'.
        shared: standard deviation of log B_opt that all vertices have in common.
        vertices: how many there are.
    """

    source: str
    power: PowerOfBest | None
    left_out: dict[str, float]
    misfit: float
    shared: float
    vertices: int

    def at(
        self, law: MeanLaw, params: float, tokens: float, level: float, least: float
    ) -> BestBatch:
        """B_opt in tokens with its interval, and the batches as good, by the law's valley there.

        No batch is below `least`, one sequence.
        """
        by_law, drawn = law.best(params, tokens)
        inside = 0 < by_law < np.inf
        best = BestBatch(None, level=level, source=self.source, evidence=Evidence(self.vertices))
        if self.power is None or self.source == LAW:
            if not inside:
                why = "the loss falls to the end of the search"
                return best.unknown("end", why)
            logs = np.log(np.clip(drawn, law.batches[0] / 100, 100 * law.batches[1]))
            centre, spread = float(np.log(by_law)), np.hypot(self.misfit, self.shared)
        else:
            centre, logs = self.power.at(params, tokens)
            forms = np.log(np.clip(law.best_of_forms(params, tokens), least, 1e12)) - centre
            apart = float(np.dot(law.weights, forms**2)) / 2 if inside else 0.0
            spread = np.hypot(self.shared, np.sqrt(apart))
        low, high = _widened(np.quantile(logs, tails(level)), centre, float(spread), level)
        low, value, high = np.exp([low, centre, high]).tolist()
        alike = law.alike(params, tokens, value)
        return replace(best, value=value, low=low, high=high, alike=alike).at_least(least)


def _widened(ends: np.ndarray, centre: float, spread: float, level: float) -> tuple[float, float]:
    """Ends of an interval of log B with another independent spread."""
    more = NormalDist().inv_cdf((1 + level) / 2) * spread
    low, high = ends
    below, above = np.hypot(centre - low, more), np.hypot(high - centre, more)
    return centre - float(below), centre + float(above)
