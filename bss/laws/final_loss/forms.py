"""Forms of the loss of (N, D, B), and of the rate where it varies, as hypotheses to be weighed.

functional (derived here, after arXiv 2509.19189 and 2602.14208): what is left to learn in N, in D
and at a finite rate is summed under one power, L = L_0 + (A·N^-a + G·D^-g + Σ_j T_j)^k. Terms
T_j = C_j·N^n_j·D^d_j·B^b_j·η^e_j are what the sum of rates η·D/B leaves to learn, noise, which
falls with B and rises with the rate, the steps D/B, and the wall of large rates. Their exponents
are fitted; which term is which is where they start.

bowl (derived here): L = L_0 + (A·N^-a + G·D_eff^-g)^k, D_eff = D/(1 + h·φ(log B/B*) +
H·φ(log η/η*)): a wrong batch or rate wastes a share of the data. φ(x) = (v·e^(ux) + u·e^(-vx))/(u +
v) - 1 is 0 at x = 0 and rises as e^(ux) above and e^(-vx) below; B* = B_star·D^q·N^r and
η* = E·N^x·D^y·B^p are power laws.

Few rows hardly tell so many parameters, so each is drawn weakly to what is usual, by `PRIOR` nats
for one standard deviation (derived here).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from bss.laws.constraints import FREE, Constraints
from bss.laws.final_loss.points import LossPoints
from bss.laws.minimum import asymmetric_bowl
from bss.registry import Registry

NONE = -60.0
"""Logarithm of the size of a term that is not there."""
SIZE = (np.log(1e-9), np.log(1e3))  # of a term in nats: smaller ones are no part of a loss
EXPONENT = (0.01, 4.0)  # of N and D: published ones are .2 to .7
# The grid of starts: L_0 over the least loss, k, and both of a and g, across their usual ranges.
FLOORS, POWERS, EXPONENTS = (0.3, 0.5, 0.8), (0.3, 0.6, 1.0), (0.3, 0.6)
KEPT_STARTS = 8  # of the grid, as many as descend together
PRIOR = 0.01  # nats that one standard deviation of a prior weighs: two runs' noise
UNKNOWN = 30.0  # standard deviation of a prior that is none: wider than the bounds of a size
TERMS = {  # of each term's size and exponents of N, D, B and the rate: where they start
    "sum of rates": (-3.0, 0.0, -0.5, 0.5, -0.5),
    "noise": (-3.0, 0.2, 0.0, -0.6, 0.5),
    "wall": (-4.0, 0.5, -0.5, 0.3, 1.5),
    "steps": (-3.0, 0.0, -1.0, 1.0, 0.0),
}
# Standard deviations of the priors of the same: a size by a factor of 7, exponents as in `usual`.
SPREAD = (2.0, 0.3, 0.3, 0.3, 0.3)
# Bounds of the same: exponents ten standard deviations away, where the prior stops them before.
LOWEST, HIGHEST = (-14.0, -3.0, -3.0, -4.0, -4.0), (3.0, 3.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class Form:
    """A form; θ has a parameter for each of its names, as logarithms where `logs` says so.

    Attributes:
        name: in the registry.
        formula: for people, with the names of the parameters.
        names: of θ [P]; sizes are at the reference, the middle of what was measured.
        logs: those of which θ has the logarithm.
        rates: whether it is for tables whose rates vary; None for both.
    """

    name: str
    formula: str
    names: ClassVar[tuple[str, ...]]
    logs: ClassVar[frozenset[str]]
    rates: ClassVar[bool | None] = False

    def loss(self, theta: Any, n: Any, d: Any, b: Any, *rate: Any, xp: Any = np) -> Any:
        """Nats at logarithms of N, D, B, and the rate if it varies, about the reference.

        θ is by parameter, and all broadcast.
        """
        raise NotImplementedError

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """Bounds [P]; equal where the table does not tell a parameter."""
        raise NotImplementedError

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """[K, P] from which the fit descends, for rows of this weight [n]."""
        raise NotImplementedError

    @property
    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """[P] each: where parameters are drawn to, and how weakly."""
        return np.zeros(len(self.names)), np.full(len(self.names), UNKNOWN)

    def residual(self, theta: Any, data: Any) -> Any:
        """Errors of the loss, weighted, and how far parameters are from the usual ones."""
        import jax.numpy as jnp  # of fits; predictions need NumPy only

        errors = self.loss(theta, *data["logs"].T, xp=jnp) - data["loss"]
        errors = data["weight"] * jnp.nan_to_num(errors, nan=1e6, posinf=1e6, neginf=-1e6)
        usual, spread = self.usual
        return jnp.concatenate([errors, PRIOR * (theta - usual) / spread])

    def bounds(
        self, points: LossPoints, constraints: Constraints = FREE
    ) -> tuple[np.ndarray, np.ndarray]:
        """`box`, with what a user fixes."""
        if not constraints:
            return self.box(points)

        def printed(theta: np.ndarray) -> list[Any]:
            return [self.printed(*pair, points) for pair in zip(self.names, theta, strict=True)]

        return constraints.box(self.box(points), self.names, printed, f"the {self.name} form")

    def printed(self, name: str, value: Any, points: LossPoints) -> Any:
        """A parameter as it is printed, of a fitted number."""
        value = np.exp(value) if name in self.logs else value
        axis = {"B_star": 2, "E": 3}.get(name)
        return value if axis is None or axis >= len(points.centres) else (
            value * np.exp(points.centres[axis]))  # fmt: skip

    def starts_on_grid(
        self,
        points: LossPoints,
        weight: np.ndarray,
        theta: np.ndarray,
        sizes: Sequence[int],
        terms: Callable[[np.ndarray], np.ndarray],
    ) -> np.ndarray:
        """Return the best [K, P] of starts over L_0, k, a and g, the first parameters with A and G.

        Args:
            points, weight: rows and their weights [n].
            theta: [P], the start without these.
            sizes: indices of the sizes of terms in theta, that of N first.
            terms: [n, K] of theta, of size 1; their sizes are by non-negative least squares.
        """
        (lower, upper), tried = self.box(points), []
        floors = points.loss.min() * np.array(FLOORS)
        for start in itertools.product(floors, POWERS, EXPONENTS, EXPONENTS):
            one = theta.copy()
            one[[0, 1, 3, 5]] = start
            columns = terms(one) * (lower[list(sizes)] > NONE)
            one[sizes], error = points.sizes_at(weight, columns, *start[:2])
            tried.append((error, one))
        best = sorted(tried, key=lambda pair: pair[0])[:KEPT_STARTS]
        return np.clip([one for _, one in best], lower, upper)

    def free(self, points: LossPoints) -> int:
        """How many parameters are fitted and not drawn to usual ones."""
        lower, upper = self.box(points)
        return int(((lower < upper) & (self.usual[1] == UNKNOWN)).sum())


def losses(form: Form, theta: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Nats at logarithms [..., 3], or 4, about the reference, by θ [P]; or [R, ...] by θ [R, P]."""
    parts = np.moveaxis(theta, -1, 0)
    parts = parts.reshape(*parts.shape, *(1,) * (logs.ndim - 1)) if parts.ndim > 1 else parts
    return form.loss(parts, *np.moveaxis(logs, -1, 0))


def _sizes(points: LossPoints) -> dict[str, tuple[float, float]]:
    """Bounds of what is of N and of D; what the table does not vary is held."""
    bounds = {"L_0": points.floor_bounds, "k": (0.1, 1.5)}
    bounds |= dict.fromkeys("AG", SIZE) | dict.fromkeys("ag", EXPONENT)
    models, budgets = points.varies
    bounds |= {} if models else {"A": (NONE, NONE), "a": (1.0, 1.0)}
    if not (models or budgets):
        bounds["k"] = (1.0, 1.0)
    return bounds


@dataclass(frozen=True)
class Functional(Form):
    """Terms under one power.

    Attributes:
        terms: names of those in the sum.
    """

    terms: tuple[str, ...]

    @property
    def rates(self) -> bool:  # type: ignore[override]
        """By its terms."""
        return "sum of rates" in self.terms

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """L_0, k, the two of N and of D, and five of each term, four without a rate."""
        parts = ("C", *"ndb", *("e" if self.rates else ""))
        return ("L_0", "k", "A", "a", "G", "g", *(f"{p} of {t}" for t in self.terms for p in parts))

    @property
    def logs(self) -> frozenset[str]:  # type: ignore[override]
        """The sizes."""
        return frozenset({"A", "G", *(f"C of {term}" for term in self.terms)})

    def _of_terms(self, numbers: Mapping[str, tuple[float, ...]]) -> list[float]:
        return [x for term in self.terms for x in numbers[term][: 4 + self.rates]]

    def loss(self, theta, n, d, b, *rate, xp=np):
        """Nats, by the formula."""
        L_0, k, A, a, G, g = theta[:6]
        inner = xp.exp(A - a * n) + xp.exp(G - g * d)
        logs, width = (n, d, b, *rate), 4 + self.rates
        for i in range(len(self.terms)):
            C, *powers = theta[6 + width * i : 6 + width * (i + 1)]
            inner = inner + xp.exp(C + sum(p * x for p, x in zip(powers, logs, strict=True)))
        return L_0 + inner**k

    @property
    def usual(self):
        """Exponents are drawn, L_0 and the sizes of N and D are not."""
        centre = np.array([0.0, 0.6, 0.0, 0.4, 0.0, 0.4, *self._of_terms(TERMS)])
        spread = [UNKNOWN, 0.3, UNKNOWN, 0.3, UNKNOWN, 0.3]
        return centre, np.array([*spread, *self._of_terms(dict.fromkeys(TERMS, SPREAD))])

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """What the table does not vary is held."""
        bounds = _sizes(points)
        bounds |= {} if points.varies[1] else {"G": (NONE, NONE), "g": (1.0, 1.0)}
        ends = np.array([bounds[name] for name in self.names[:6]]).T
        terms = [self._of_terms(dict.fromkeys(TERMS, end)) for end in (LOWEST, HIGHEST)]
        lower, upper = np.concatenate([ends, terms], axis=1)
        return lower, upper

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """Usual exponents of the terms, over a grid of the other parameters."""
        theta, width = self.usual[0], 4 + self.rates
        exponents = theta[6:].reshape(-1, width)[:, 1:]

        def terms(one: np.ndarray) -> np.ndarray:
            slow = -one[[3, 5]] * points.logs[:, :2]
            return np.exp(np.concatenate([slow, points.logs @ exponents.T], axis=1))

        sizes = [2, 4, *range(6, len(theta), width)]
        return self.starts_on_grid(points, weight, theta, sizes, terms)


@dataclass(frozen=True)
class Bowl(Form):
    """Effective tokens, wasted by a wrong batch and a wrong rate."""

    names = ("L_0", "k", "A", "a", "G", "g", "h", "u", "v", "B_star", "q", "r",
             "H", "U", "V", "E", "x", "y", "p")  # fmt: skip
    logs = frozenset({"A", "G", "h", "B_star", "H", "E"})
    rates = None

    def loss(self, theta, n, d, b, *rate, xp=np):
        """Nats, by the formula."""
        L_0, k, A, a, G, g, h, u, v, B_star, q, r, H, U, V, E, x, y, p = theta
        wasted = xp.exp(h) * asymmetric_bowl(b - B_star - q * d - r * n, u, v, xp)
        for e in rate:
            away = e - E - x * n - y * d - p * b
            wasted = wasted + xp.exp(H) * asymmetric_bowl(away, U, V, xp)
        return L_0 + (xp.exp(A - a * n) + xp.exp(G - g * (d - xp.log1p(wasted)))) ** k

    @property
    def usual(self):
        """All but L_0 and sizes."""
        centre = [0, 0.7, 0, 0.4, 0, 0.4, -1, 0.7, 0.7, 0, 0.4, 0, -1, 0.7, 0.7, 0, -0.3, 0.2, 0.5]
        spread = [UNKNOWN, 0.3, UNKNOWN, 0.2, UNKNOWN, 0.2, 1, 0.3, 0.3, 2, 0.2, 0.2, 1, 0.5, 0.5,
                  2, 0.3, 0.2, 0.3]  # fmt: skip
        return np.array(centre), np.array(spread)

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """What the table does not vary is held."""
        bounds = _sizes(points) | dict.fromkeys("hH", (-12.0, 5.0))
        bounds |= dict.fromkeys("uvUV", (0.05, 6.0))
        low, high = points.logs.min(axis=0) - 2, points.logs.max(axis=0) + 2
        bounds |= {"B_star": (low[2], high[2]), "E": (low[-1], high[-1])}
        bounds |= {"q": (-0.5, 1.5), "r": (-1.0, 1.5)}
        bounds |= {"x": (-2.0, 1.0), "y": (-1.0, 2.0), "p": (-1.0, 2.0)}
        bounds |= {} if points.varies[1] else {"g": (0.4, 0.4)}
        if not points.with_lr:
            centre = dict(zip(self.names, self.usual[0].tolist(), strict=True))
            bounds |= {name: (centre[name], centre[name]) for name in "HUVExyp"}
        lower, upper = np.array([bounds[name] for name in self.names]).T
        return lower, upper

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """The usual shape about the best rows, over a grid of the other parameters."""
        theta = self.usual[0]
        best = points.logs[[rows[np.argmin(points.loss[rows])] for rows in points.cells]]
        n, d, b, *rate = best.T
        theta[self.names.index("B_star")] = np.median(b - 0.4 * d)
        for e in rate:
            theta[self.names.index("E")] = np.median(e + 0.3 * n - 0.2 * d - 0.5 * b)

        def terms(one: np.ndarray) -> np.ndarray:
            unit = one.copy()
            unit[[0, 1, 2, 4]] = 0.0, 1.0, NONE, 0.0
            slow = np.exp(-one[3] * points.logs[:, 0])
            return np.stack([slow, self.loss(unit, *points.logs.T)], axis=1)

        return self.starts_on_grid(points, weight, theta, [2, 4], terms)


_FORMULA = "L = L_0 + (A·N^-a + G·D^-g + Σ_j C_j·N^n_j·D^d_j·B^b_j{})^k over {}"
WITHOUT_RATE = ("noise", "steps")
FORMS: Registry[Form] = Registry("form", {
    "functional": Functional(
        "functional", _FORMULA.format("", ", ".join(WITHOUT_RATE)), WITHOUT_RATE
    ),
    "functional with rate": Functional(
        "functional with rate", _FORMULA.format("·η^e_j", ", ".join(TERMS)), tuple(TERMS)
    ),
    "bowl": Bowl(
        "bowl",
        "L = L_0 + (A·N^-a + G·D_eff^-g)^k, D_eff = D/(1 + h·φ(log B/B*) + H·φ(log η/η*)), "
        "B* = B_star·D^q·N^r, η* = E·N^x·D^y·B^p",
    ),
}, Form)  # fmt: skip
"""By name; `fit_table` averages those for its table by left-out runs."""
