"""What a form of the law of final losses is: a loss of (N, D, B), its box and its starts."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bss.laws.fitting.constraints import FREE, Constraints

NONE = -60.0
"""Logarithm of the size of a term that is not there."""
SIZE = (np.log(1e-9), np.log(1e3))
EXPONENT = (0.01, 4.0)
POWER = (0.1, 4.0)
KEPT_STARTS = 8
FLOOR = 0.5
"""Of the least loss, from which L_0 is looked for: 0 nats is no loss of a language (measured)."""


@dataclass(frozen=True)
class CentredPoints:
    """Design points as a form sees them; logarithms are about the middle of those measured.

    Attributes:
        logs: [n, 3] of N, D and B, less `centres`.
        centres: [3].
        loss: [n] in nats.
        cell: [n], which (N, D) a point is of, from 0 on.
        varies: whether N does, and D.
        trust: [n], by which a row's weight is multiplied; 0 of an outlier.
        constraints: what is held, where a form has it.
    """

    logs: np.ndarray
    centres: np.ndarray
    loss: np.ndarray
    cell: np.ndarray
    varies: tuple[bool, bool]
    trust: np.ndarray
    constraints: Constraints = FREE

    @property
    def floor_bounds(self) -> tuple[float, float]:
        """The bounds of L_0, in nats."""
        least = float(self.loss.min())
        return FLOOR * least, least

    def sizes_at(
        self, weight: np.ndarray, columns: np.ndarray, floor: float, power: float
    ) -> tuple[np.ndarray, float]:
        """Logarithms of the sizes of terms [n, K] under a power above a floor, and the error left.

        By non-negative least squares: errors of the excess to 1/power, put back into nats.
        """
        from scipy.optimize import nnls

        above = np.maximum(self.loss - floor, 1e-3)
        scale = weight * power * above ** (1 - 1 / power)
        sizes, error = nnls(columns * scale[:, None], above ** (1 / power) * scale)
        return np.log(np.maximum(sizes, 1e-4)), error


@dataclass(frozen=True)
class Form:
    """A form; θ has a parameter for each of its names, as logarithms where `logs` says so.

    Attributes:
        name: in the registry.
        formula: for people, with the names of the parameters.
        names: of θ [P]; sizes are at the reference, the middle of what was measured.
        logs: those of which θ has the logarithm.
    """

    name: str
    formula: str
    names: ClassVar[tuple[str, ...]]
    logs: ClassVar[frozenset[str]]

    @property
    def residual(self) -> Callable[[Any, Any], Any]:
        """(θ, data) → weighted errors [n]; equal for forms that may share a compiled program."""
        return self.errors

    def errors(self, theta: Any, data: Any) -> Any:
        """Errors of the loss [n], weighted."""
        import jax.numpy as jnp  # of fits; predictions need NumPy only

        errors = self.loss(theta, *data["logs"].T, xp=jnp) - data["loss"]
        return data["weight"] * jnp.nan_to_num(errors, nan=1e6, posinf=1e6, neginf=-1e6)

    def in_order(self, bounds: Mapping[str, tuple[float, float]]) -> tuple[np.ndarray, np.ndarray]:
        """The lower and upper bounds [P] of parameters in their order."""
        lower, upper = np.array([bounds[name] for name in self.names]).T
        return lower, upper

    def best_of(self, tried: Iterable[tuple[list[float], float]], design: CentredPoints):
        """The best [K, P] of the starts tried, by the errors beside them, inside the box."""
        starts, errors = zip(*tried, strict=True)
        return np.clip(np.array(starts)[np.argsort(errors)[:KEPT_STARTS]], *self.bounds(design))

    @property
    def data(self) -> dict[str, np.ndarray]:
        """What the residual wants beside the design."""
        return {}

    def loss(self, theta: Any, n: Any, d: Any, b: Any, xp: Any = np) -> Any:
        """Nats at logarithms of N, D, B about the reference; θ by parameter, all broadcast."""
        raise NotImplementedError

    def box(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """Bounds [P]; equal where the design does not tell a parameter."""
        raise NotImplementedError

    def bounds(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """`box`, with what a user holds."""

        def printed(theta: np.ndarray) -> list[Any]:
            pairs = zip(self.names, theta, strict=True)
            return [self.printed(name, value, design.centres) for name, value in pairs]

        held, law = design.constraints, f"the {self.name} form"
        return held.box(self.box(design), self.names, printed, law) if held else self.box(design)

    def printed(self, name: str, value: Any, centres: np.ndarray) -> Any:
        """A parameter as it is printed, of a fitted number; centres [3] are those of a design."""
        value = np.exp(value) if name in self.logs else value
        return value * np.exp(centres[2]) if name == "B_star" else value

    def free(self, design: CentredPoints) -> int:
        """How many parameters are fitted."""
        lower, upper = self.bounds(design)
        return int((lower < upper).sum())

    def starts(self, design: CentredPoints, weight: np.ndarray) -> np.ndarray:
        """[K, P] from which the fit descends, for rows of this weight [n]."""
        raise NotImplementedError


def losses(form: Form, theta: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Nats at logarithms [..., 3], or 4, about the reference, by θ [P]; or [R, ...] by θ [R, P]."""
    parts = np.moveaxis(theta, -1, 0)
    parts = parts.reshape(*parts.shape, *(1,) * (logs.ndim - 1)) if parts.ndim > 1 else parts
    return form.loss(parts, *np.moveaxis(logs, -1, 0))
