"""Forms of the loss of (N, D, B), and of the learning rate if it varies.

The form `bowl` (derived here) is

    L = L_0 + (A·N^-a + G·D_eff^-g)^k
    D_eff = D/(1 + h·D^(1 + (q - 1)·u)·N^(r·u + t)·φ(log B/B*) + H·D^S·N^T·φ(log η/η*))
    φ(x) = (v·e^(ux) + u·e^(-vx))/(u + v) - 1

A batch size B or LR η off the optimum wastes a share of the data, which is a power of D and N.
At t = 0, D_eff at large B is a power of the steps D/B alone. If all runs have one LR, it is too
high for large models, which then waste more of the same steps, so t is fitted. φ is 0 at
x = 0, rises as e^(ux) above 0, and as e^(-vx) below 0. The optima B* = B_star·D^q·N^r and
η* = E·N^x·D^y·B^p are power laws.

The form `steps` (derived here) has a term of the steps S = D/B and none of a best batch size:

    L = L_0 + (A·N^-a + G·D_η^-g + C·S_η^-c + M·B^-m)^k
    D_η = D/w,  S_η = S/w,  w = 1 + H·D^S·N^T·φ(log η/η*)

At large B the loss is that of equal steps, and at small B it grows as B^-m, so the two have a best
batch between them. A wrong LR wastes a share of the steps.

Few rows hardly identify all parameters, so each has a weak prior, of `PRIOR` nats for one
standard deviation (derived here). A public table has batches 8 to 64 times those fitted. There the
error is 0.21 nats, and 0.57 if both exponents of the waste are free. At one LR a free t reduces the
error at the next size from 0.20 to 0.15 nats there, and from 0.011 to 0.008 on planted tables.
"""

import itertools
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple

import numpy as np

from bss.laws.final_loss.points import LossPoints
from bss.laws.minimum import asymmetric_bowl
from bss.laws.problem import Scale, narrowed, parse_ranges
from bss.registry import Registry

NONE = -60.0
"""Logarithm of the size of a term that is not there."""
PRIOR = 0.01  # nats that one standard deviation of a prior weighs: two runs' noise
UNKNOWN = 30.0  # standard deviation of a prior that is none: wider than the bounds of a size


@dataclass(frozen=True)
class Form:
    """A form; θ has a parameter for each of its names, as a logarithm if it is in `logs`.

    Attributes:
        name: in the registry.
        formula: for people, with the names of the parameters.
        names: of θ [P]; sizes are at the reference, the middle of what was measured.
        logs: names of parameters that θ has the logarithm of.
        rates: True for tables whose LRs vary, False for one LR per batch size, None for both.
    """

    name: str
    formula: str
    names: ClassVar[tuple[str, ...]]
    logs: ClassVar[frozenset[str]]
    rates: ClassVar[bool | None] = False

    def loss(self, theta: Any, n: Any, d: Any, b: Any, *rate: Any, xp: Any = np) -> Any:
        """Nats at logarithms of N, D, B, and the LR if it varies, about the reference.

        θ is by parameter, and all broadcast.
        """
        raise NotImplementedError

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """Bounds [P]; equal if the table does not identify a parameter."""
        raise NotImplementedError

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """[K, P] from which the fit descends, for rows of this weight [n]."""
        raise NotImplementedError

    @property
    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """Means and standard deviations [P] of the priors."""
        return np.zeros(len(self.names)), np.full(len(self.names), UNKNOWN)

    def residual(self, theta: Any, data: Any) -> Any:
        """Errors of the loss, weighted, and how far parameters are from the usual ones."""
        import jax.numpy as jnp  # of fits; predictions need NumPy only

        errors = self.loss(theta, *data["logs"].T, xp=jnp) - data["loss"]
        errors = data["weight"] * jnp.nan_to_num(errors, nan=1e6, posinf=1e6, neginf=-1e6)
        usual, spread = self.usual
        return jnp.concatenate([errors, PRIOR * (theta - usual) / spread])

    def bounds(self, points: LossPoints, constraints: str) -> tuple[np.ndarray, np.ndarray]:
        """`box`, with what a user fixes; constraints of another form have no effect."""
        ranges = {n: ends for n, ends in parse_ranges(constraints).items() if n in self.names}
        scales = {name: self.scale(name, points) for name in ranges}
        return narrowed(*self.box(points), ranges, scales, f"the {self.name} form")

    def scale(self, name: str, points: LossPoints) -> Scale:
        """Return how a parameter is printed; optima in tokens per batch, and per step."""
        centres: dict[str, float] = dict(
            zip(("B_star", "E"), np.exp(points.centres[2:]).tolist(), strict=False)
        )
        return Scale(self.names.index(name), centres.get(name, 1.0), name in self.logs)

    def free(self, points: LossPoints) -> int:
        """Return the number of fitted parameters without a prior."""
        lower, upper = self.box(points)
        return int(((lower < upper) & (self.usual[1] == UNKNOWN)).sum())


def start_sizes(
    columns: np.ndarray, above: np.ndarray, k: float, weight: np.ndarray
) -> tuple[np.ndarray, float]:
    """Return logarithms [T] of the sizes of terms that add up to an excess to 1/k, and the error.

    By non-negative least squares.

    Args:
        columns: [n, T], terms of size 1.
        above: [n], losses above L_0 in nats.
        k: power of the sum of the terms.
        weight: [n], of the rows.
    """
    from scipy.optimize import nnls  # of fits; predictions need NumPy only

    above = np.maximum(above, 1e-3)  # nats: L_0 may start above a loss
    scale = weight * k * above ** (1 - 1 / k)
    sizes, error = nnls(columns * scale[:, None], above ** (1 / k) * scale)
    return np.log(np.maximum(sizes, 1e-4)), error  # a start needs a size above 0


def losses(form: Form, theta: np.ndarray, logs: np.ndarray) -> np.ndarray:
    """Nats at logarithms [..., 3], or 4, about the reference, by θ [P]; or [R, ...] by θ [R, P]."""
    parts = np.moveaxis(theta, -1, 0)
    parts = parts.reshape(*parts.shape, *(1,) * (logs.ndim - 1)) if parts.ndim > 1 else parts
    return form.loss(parts, *np.moveaxis(logs, -1, 0))


@dataclass(frozen=True)
class Bowl(Form):
    """Effective tokens, wasted by a wrong batch and a wrong rate."""

    names = ("L_0", "k", "A", "a", "G", "g", "h", "u", "v", "B_star", "q", "r",
             "H", "U", "V", "E", "x", "y", "p", "S", "T", "t")  # fmt: skip
    logs = frozenset({"A", "G", "h", "B_star", "H", "E"})
    rates = None
    # Lower bound of L_0 relative to the lowest loss: text has an entropy above 0. Bounds of terms
    # in nats: smaller ones do not change a loss. Bounds of exponents: published ones are .2 to .7.
    # Grid of starts over the usual ranges: L_0 relative to the lowest loss, k, a and g.
    floor, size, exponent = 0.2, (np.log(1e-9), np.log(1e3)), (0.01, 4.0)
    grid = (0.3, 0.5, 0.8), (0.3, 0.6, 1.0), (0.3, 0.6), (0.3, 0.6)

    def loss(self, theta: Any, n: Any, d: Any, b: Any, *rate: Any, xp: Any = np) -> Any:
        """Nats, by the formula."""
        L_0, k, A, a, G, g, h, u, v, B_star, q, r, H, U, V, E, x, y, p, S, T, t = theta
        away = b - B_star - q * d - r * n
        size = h + (1 + (q - 1) * u) * d + (r * u + t) * n  # at large B of the steps alone
        wasted = xp.exp(size) * asymmetric_bowl(away, u, v, xp)
        for e in rate:
            away = e - E - x * n - y * d - p * b
            wasted = wasted + xp.exp(H + S * d + T * n) * asymmetric_bowl(away, U, V, xp)
        return L_0 + (xp.exp(A - a * n) + xp.exp(G - g * (d - xp.log1p(wasted)))) ** k

    @property
    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """Priors of all parameters but L_0 and sizes."""
        centre = [0, 0.7, 0, 0.4, 0, 0.4, -1, 0.7, 0.7, 0, 0.4, 0, -1, 0.7, 0.7, 0, -0.3, 0.2, 0.5,
                  0, 0, 0]  # fmt: skip
        spread = [UNKNOWN, 0.3, UNKNOWN, 0.2, UNKNOWN, 0.2, 1, 0.6, 0.6, 2, 0.2, 0.2, 1, 0.5, 0.5,
                  2, 0.3, 0.2, 0.3, 0.2, 0.1, 0.3]  # fmt: skip
        return np.array(centre), np.array(spread)

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """Bounds; a parameter that the table does not vary is fixed."""
        least, (models, budgets) = float(points.loss.min()), points.varies
        bounds: dict[str, tuple[float, float]] = {"L_0": (self.floor * least, least)}
        bounds |= {"k": (0.1, 1.5) if models or budgets else (1.0, 1.0)}
        bounds |= dict.fromkeys("AG", self.size) | dict.fromkeys("ag", self.exponent)
        bounds |= {} if models else {"A": (NONE, NONE), "a": (1.0, 1.0)}
        bounds |= {} if budgets else {"g": (0.4, 0.4)}
        bounds |= dict.fromkeys("hH", (-12.0, 5.0)) | dict.fromkeys("uvUV", (0.05, 6.0))
        low, high = points.logs.min(axis=0) - 2, points.logs.max(axis=0) + 2
        bounds |= {"B_star": (low[2], high[2]), "E": (low[-1], high[-1])}
        bounds |= {"q": (-0.5, 1.5), "r": (-1.0, 1.5)} | dict.fromkeys("ST", (-1.0, 1.0))
        bounds |= {"x": (-2.0, 1.0), "y": (-1.0, 2.0), "p": (-1.0, 2.0)}
        bounds |= {"t": (-1.0, 1.0) if models and points.one_lr else (0.0, 0.0)}
        if not points.with_lr:
            centre = dict(zip(self.names, self.usual[0].tolist(), strict=True))
            bounds |= {name: (centre[name], centre[name]) for name in "HUVExypST"}
        lower, upper = np.array([bounds[name] for name in self.names]).T
        return lower, upper

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """Return the best of a grid over L_0, k, a and g, the optimum through the best rows.

        The sizes A and G are by non-negative least squares of the excess to 1/k.
        """
        from bss.laws.solver import CHUNK

        theta, (lower, upper), tried = self.usual[0], self.box(points), []
        best = points.logs[[rows[np.argmin(points.loss[rows])] for rows in points.cells]]
        n, d, b, *rate = best.T
        theta[self.names.index("B_star")] = np.median(b - 0.4 * d)
        for e in rate:
            theta[self.names.index("E")] = np.median(e + 0.3 * n - 0.2 * d - 0.5 * b)
        for share, k, a, g in itertools.product(*self.grid):
            floor, one = share * points.loss.min(), theta.copy()
            one[[0, 1, 2, 3, 4, 5]] = 0.0, 1.0, NONE, a, 0.0, g
            data = self.loss(one, *points.logs.T)
            model = np.exp(-a * points.logs[:, 0]) * (lower[2] > NONE)
            columns = np.stack([model, data], axis=1)
            sizes, error = start_sizes(columns, points.loss - floor, k, weight)
            one[[0, 1, 2, 4]] = floor, k, *sizes
            tried.append((error, one))
        best = sorted(tried, key=lambda pair: pair[0])[:CHUNK]
        return np.clip([one for _, one in best], lower, upper)


class Known(NamedTuple):
    """Prior of a parameter, and bounds of its fit."""

    usual: float
    spread: float
    low: float
    high: float


SIZE = Bowl.size
LIMIT = {  # L_0 is bounded by the rows
    "L_0": Known(0.0, UNKNOWN, 0.0, 0.0),
    "k": Known(0.7, 0.3, 0.1, 1.5),
    "A": Known(0.0, UNKNOWN, *SIZE),
    "a": Known(0.4, 0.2, 0.01, 4.0),
    "G": Known(0.0, UNKNOWN, *SIZE),
    "g": Known(0.4, 0.2, 0.01, 4.0),
}
BATCH = {  # steps count more than tokens where they are few, so c is above g
    "C": Known(-3.0, UNKNOWN, *SIZE),
    "c": Known(0.8, 0.5, 0.01, 4.0),
    "M": Known(-3.0, UNKNOWN, *SIZE),
    "m": Known(0.5, 0.4, 0.01, 4.0),
}
RATE = {  # as of the form `bowl`
    "H": Known(-1.0, 1.0, -12.0, 5.0),
    "U": Known(0.7, 0.5, 0.05, 6.0),
    "V": Known(0.7, 0.5, 0.05, 6.0),
    "E": Known(0.0, 2.0, 0.0, 0.0),
    "x": Known(-0.3, 0.3, -2.0, 1.0),
    "y": Known(0.2, 0.2, -1.0, 2.0),
    "p": Known(0.5, 0.3, -1.0, 2.0),
    "S": Known(0.0, 0.2, -1.0, 1.0),
    "T": Known(0.0, 0.1, -1.0, 1.0),
}


@dataclass(frozen=True)
class Steps(Form):
    """Terms of size, tokens, steps and batch; a wrong rate wastes steps."""

    known = LIMIT | BATCH | RATE
    names = tuple(known)
    logs = frozenset({"A", "G", "C", "M", "H", "E"})
    rates = None
    # Grid of starts over the usual ranges: L_0 relative to the lowest loss, k, a and g, c, m.
    grid = (0.3, 0.5, 0.8), (0.3, 0.6, 1.0), (0.3, 0.6), (0.5, 1.0, 2.0), (0.3, 0.8)

    def terms(self, theta: Any, n: Any, d: Any, b: Any, *rate: Any, xp: Any = np) -> list[Any]:
        """Return logarithms of the terms of N, D, S and B."""
        _, _, A, a, G, g, C, c, M, m, H, U, V, E, x, y, p, S, T = theta
        wasted = 0.0
        for e in rate:
            away = asymmetric_bowl(e - E - x * n - y * d - p * b, U, V, xp)
            wasted = xp.log1p(xp.exp(H + S * d + T * n) * away)
        return [A - a * n, G - g * (d - wasted), C - c * (d - b - wasted), M - m * b]

    def loss(self, theta: Any, n: Any, d: Any, b: Any, *rate: Any, xp: Any = np) -> Any:
        """Nats, by the formula."""
        terms = self.terms(theta, n, d, b, *rate, xp=xp)
        return theta[0] + sum(xp.exp(one) for one in terms) ** theta[1]

    @property
    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """Priors of all parameters but L_0 and sizes."""
        every = self.known.values()
        return np.array([one.usual for one in every]), np.array([one.spread for one in every])

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """Bounds; a parameter that the table does not vary is fixed."""
        models, budgets = points.varies
        bounds = {name: (one.low, one.high) for name, one in self.known.items()}
        least = float(points.loss.min())
        bounds["L_0"] = (Bowl.floor * least, least)
        rates = points.logs[:, -1]
        bounds["E"] = (float(rates.min()) - 2, float(rates.max()) + 2)
        fixed = [] if points.with_lr else [*RATE]
        fixed += [] if models or budgets else ["k"]
        fixed += [] if budgets else ["g"]
        bounds |= {name: (self.known[name].usual,) * 2 for name in fixed}
        if not models:
            bounds |= {"A": (NONE, NONE), "a": (1.0, 1.0)}
        lower, upper = np.array([bounds[name] for name in self.names]).T
        return lower, upper

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """Return the best of a grid over L_0, k, a, g, c and m.

        The sizes of the terms are by non-negative least squares of the excess to 1/k.
        """
        from bss.laws.solver import CHUNK

        at = {name: i for i, name in enumerate(self.names)}
        lower, upper = self.box(points)
        usual = self.usual[0]
        tried = []
        best = points.logs[[rows[np.argmin(points.loss[rows])] for rows in points.cells]]
        n, d, b, *rate = best.T
        for e in rate:
            usual[at["E"]] = np.median(e + 0.3 * n - 0.2 * d - 0.5 * b)  # as the priors of x, y, p
        for share, k, g, c, m in itertools.product(*self.grid):
            one = usual.copy()
            for name, value in zip("kagcm", (k, g, g, c, m), strict=True):
                one[at[name]] = value
            one[[at[name] for name in "AGCM"]] = 0.0
            columns = np.exp(np.stack(self.terms(one, *points.logs.T), axis=1))
            columns[:, 0] *= lower[at["A"]] > NONE
            one[at["L_0"]] = share * points.loss.min()
            sizes, error = start_sizes(columns, points.loss - one[at["L_0"]], k, weight)
            one[[at[name] for name in "AGCM"]] = sizes
            tried.append((error, one))
        best = sorted(tried, key=lambda pair: pair[0])[:CHUNK]
        return np.clip([one for _, one in best], lower, upper)


FORMS: Registry[Form] = Registry("form", {
    "bowl": Bowl(
        "bowl",
        "L = L_0 + (A·N^-a + G·D_eff^-g)^k, "
        "D_eff = D/(1 + h·D^(1+(q-1)u)·N^(ru+t)·φ(log B/B*) + H·D^S·N^T·φ(log η/η*)), "
        "B* = B_star·D^q·N^r, η* = E·N^x·D^y·B^p",
    ),
    "steps": Steps(
        "steps",
        "L = L_0 + (A·N^-a + G·(D/w)^-g + C·(S/w)^-c + M·B^-m)^k, S = D/B, "
        "w = 1 + H·D^S·N^T·φ(log η/η*), η* = E·N^x·D^y·B^p",
    ),
}, Form)  # fmt: skip
"""By name; `fit_loss` averages those that apply, by their errors at left-out rows."""
