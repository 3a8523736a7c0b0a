"""Laws of one target at a time: their problem, residual and units. A law of a user's own is one.

The residual is the error in log E at the run's exact batch times −dL/dlog E / L: a loss relative
to the target. A target that was not reached says E(B) > tokens consumed: its residual is
one-sided.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bss.laws.es.design import Design
from bss.laws.es.law import Law, Number, Problem, residuals


@dataclass(frozen=True)
class PerTarget(Law):
    """A law with parameters of its own at each target, fitted in units of the best run there.

    Attributes:
        units: powers of E and of B in the unit of each parameter, as (1, -1) for steps, S = E/B.
            The law must hold in any unit of E and of B.
        starts: [K, P], fitted numbers to start from.
        lower, upper: [P], their bounds.
    """

    units: ClassVar[tuple[tuple[int, int], ...]]
    starts: ClassVar[Any]
    lower: ClassVar[Any]
    upper: ClassVar[Any]

    def shape(self, theta: Any, data: Mapping[str, Any]) -> Any:
        """The parameters in the problem's units, of fitted numbers [P, ...]: here their logs."""
        return self.parameters(*jnp.exp(theta))

    def problem(self, design: Design, targets: np.ndarray) -> Problem:
        """One problem per target."""
        rows, data, units = _data(design, targets)
        starts, lower, upper = (
            np.array([box] * len(targets), np.float64)
            for box in (self.starts, self.lower, self.upper)
        )
        return Problem(LogError(self), starts, lower, upper, data, rows, units)

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> Any:
        """The parameters in steps and sequences."""
        with jax.enable_x64(True):
            shape = self.shape(jnp.moveaxis(jnp.asarray(theta), -1, 0), problem.one(index))
            return self._scaled(map(np.asarray, shape), *problem.units[index])

    def in_tokens(self, p: Any, seq_len: int) -> dict[str, float]:
        """The parameters with E and B in tokens."""
        return super().in_tokens(self._scaled(p, seq_len, seq_len), seq_len)

    def from_tokens(self, entry: Mapping[str, Number], seq_len: int) -> Any:
        """`in_tokens`, read back."""
        return self._scaled(self.parameters(**entry), 1 / seq_len, 1 / seq_len)

    def _scaled(self, p: Any, E: Any, B: Any) -> Any:
        pairs = zip(p, self.units, strict=True)
        return self.parameters(*(value * E**e * B**b for value, (e, b) in pairs))


@dataclass(frozen=True)
class LogError:
    """The residual of a law of one target: error in log E times −dL/dlog E / L."""

    law: PerTarget

    def __call__(self, theta: jax.Array, data: Mapping[str, jax.Array]) -> jax.Array:
        """Residuals [M] of fitted numbers [P]."""
        log_E = jnp.log(self.law.sequences(self.law.shape(theta, data), data["batch"]))
        error = jnp.where(jnp.isfinite(log_E), log_E, 50.0) - data["observed"]
        return residuals(error, data)


def _data(
    design: Design, targets: np.ndarray
) -> tuple[np.ndarray, dict[str, np.ndarray], np.ndarray]:
    """Rows [T, M] of each target, short ones padded, their data in units of its best run, these."""
    groups = [np.flatnonzero(design.target == target) for target in targets]
    width = max(len(group) for group in groups)
    rows = np.array([np.pad(group, (0, width - len(group)), mode="edge") for group in groups])
    mask = np.array([np.arange(width) < len(group) for group in groups])
    reached = design.reached[rows] & mask
    tokens = np.where(reached, design.sequences[rows], np.inf)
    best = np.take_along_axis(rows, tokens.argmin(axis=1)[:, None], axis=1)[:, 0]
    E_unit, B_unit = design.sequences[best], design.batch[best]
    data = {
        "batch": design.batch[rows] / B_unit[:, None],
        "observed": np.log(design.sequences[rows] / E_unit[:, None]),
        "reached": reached.astype(float),
        "weight": design.slope[rows] / design.target[rows] * mask,
    }
    return rows, data, np.stack([E_unit, B_unit], axis=1)
