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
from bss.laws.final_loss.residual_gp import RUN_NOISE
from bss.laws.minimum import asymmetric_bowl
from bss.laws.problem import Scale, narrowed, parse_ranges
from bss.registry import Registry

NONE = -60.0
"""Logarithm of the size of a term that is not there."""
PRIOR = 2 * RUN_NOISE  # nats that one standard deviation of a prior weighs
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
        # An overflow is worse than any loss, and finite, so that a descent can leave it.
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


class Known(NamedTuple):
    """Prior of a parameter, and bounds of its fit.

    Attributes:
        usual, spread: mean and standard deviation of the prior.
        low, high: bounds; NaN if the rows give them.
    """

    usual: float
    spread: float = UNKNOWN
    low: float = np.nan
    high: float = np.nan


def known_size(usual: float) -> Known:
    """Return the bounds of the logarithm of the size of a term in nats, with no prior."""
    # A smaller term does not change a loss.
    return Known(usual, UNKNOWN, np.log(1e-9), np.log(1e3))


# Priors and bounds are derived here. Published exponents are within 1.5 standard deviations of the
# priors: .2 to .7 of a loss; q = .571, x = -.713 and y = .307 of Step Law (arXiv 2503.04715).
# p = 1/2 is the square-root rule. Bounds keep k, exponents of terms and slopes above 0; the others
# are three standard deviations away or more.
LIMIT = {
    "L_0": Known(0.0),
    "k": Known(0.7, 0.3, 0.1, 1.5),
    "A": known_size(0.0),
    "a": Known(0.4, 0.2, 0.01, 4.0),
    "G": known_size(0.0),
    "g": Known(0.4, 0.2, 0.01, 4.0),
}
"""Terms of N and D in both forms."""
RATE = {
    "H": Known(-1.0, 1.0, -12.0, 5.0),
    "U": Known(0.7, 0.5, 0.05, 6.0),
    "V": Known(0.7, 0.5, 0.05, 6.0),
    "E": Known(0.0, 2.0),
    "x": Known(-0.3, 0.3, -2.0, 1.0),
    "y": Known(0.2, 0.2, -1.0, 2.0),
    "p": Known(0.5, 0.3, -1.0, 2.0),
    "S": Known(0.0, 0.2, -1.0, 1.0),
    "T": Known(0.0, 0.1, -1.0, 1.0),
}
"""The waste of a wrong LR in both forms."""
BOWL_BATCH = {
    "h": Known(-1.0, 1.0, -12.0, 5.0),
    "u": Known(0.7, 0.6, 0.05, 6.0),
    "v": Known(0.7, 0.6, 0.05, 6.0),
    "B_star": Known(0.0, 2.0),
    "q": Known(0.4, 0.2, -0.5, 1.5),
    "r": Known(0.0, 0.2, -1.0, 1.5),
}
"""The waste of a wrong batch in the form `bowl`."""
SIZE_AT_ONE_LR = {"t": Known(0.0, 0.3, -1.0, 1.0)}
"""How the waste of steps grows with N in the form `bowl`, if all runs have one LR."""
STEPS_BATCH = {
    "C": known_size(-3.0),
    "c": Known(0.8, 0.5, 0.01, 4.0),  # above g: steps count more than tokens where they are few
    "M": known_size(-3.0),
    "m": Known(0.5, 0.4, 0.01, 4.0),
}
"""Terms of the steps and of the batch in the form `steps`."""


@dataclass(frozen=True)
class KnownForm(Form):
    """A form whose parameters have a prior each, with terms of N and D, and the waste of LRs.

    Attributes:
        known: by name of the parameter, in the order of θ; it includes `LIMIT` and `RATE`.
    """

    known: ClassVar[dict[str, Known]]
    rates = None

    @property
    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """Priors of all parameters but L_0 and sizes."""
        every = self.known.values()
        return np.array([one.usual for one in every]), np.array([one.spread for one in every])

    def box(self, points: LossPoints) -> tuple[np.ndarray, np.ndarray]:
        """Bounds; a parameter that the table does not vary is fixed."""
        bounds = self.named_bounds(points)
        lower, upper = np.array([bounds[name] for name in self.names]).T
        return lower, upper

    def named_bounds(self, points: LossPoints) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter by name."""
        models, budgets = points.varies
        bounds = {name: (one.low, one.high) for name, one in self.known.items()}
        least = float(points.loss.min())
        bounds["L_0"] = (0.2 * least, least)  # text has an entropy above 0
        bounds["E"] = beyond(points.logs[:, -1])
        fixed = [] if points.with_lr else [*RATE]
        if not (models or budgets):
            fixed.append("k")
        if not budgets:
            fixed.append("g")
        bounds |= {name: (self.known[name].usual,) * 2 for name in fixed}
        if not models:
            bounds |= {"A": (NONE, NONE), "a": (1.0, 1.0)}
        return bounds

    def usual_start(self, points: LossPoints) -> np.ndarray:
        """Return the usual θ [P], with the best LR through the best rows."""
        n, d, b, *rate = best_logs(points).T
        x = self.known["x"].usual
        y = self.known["y"].usual
        p = self.known["p"].usual
        theta = self.usual[0]
        for e in rate:
            theta = self.changed(theta, E=np.median(e - x * n - y * d - p * b))
        return theta

    def changed(self, theta: np.ndarray, **values: Any) -> np.ndarray:
        """Return θ [P] with these values of some parameters."""
        theta = theta.copy()
        for name, value in values.items():
            theta[self.names.index(name)] = value
        return theta


def beyond(logs: np.ndarray) -> tuple[float, float]:
    """Return bounds of an optimum: factors of e² beyond what was measured."""
    return float(logs.min()) - 2, float(logs.max()) + 2


def best_logs(points: LossPoints) -> np.ndarray:
    """Return [cells, 3 or 4], logarithms of the row of lowest loss of each (N, D)."""
    return points.logs[[rows[np.argmin(points.loss[rows])] for rows in points.cells]]


def best_starts(
    tried: list[tuple[float, np.ndarray]], box: tuple[np.ndarray, np.ndarray]
) -> np.ndarray:
    """Return [K, P], the starts of the lowest errors, in the box; K descend together."""
    from bss.laws.solver import CHUNK

    best = sorted(tried, key=lambda pair: pair[0])[:CHUNK]
    return np.clip([theta for _, theta in best], *box)


@dataclass(frozen=True)
class Bowl(KnownForm):
    """Effective tokens, wasted by a wrong batch and a wrong rate."""

    known = LIMIT | BOWL_BATCH | RATE | SIZE_AT_ONE_LR
    names = tuple(known)
    logs = frozenset({"A", "G", "h", "B_star", "H", "E"})
    # Of starts over the usual ranges: L_0 relative to the lowest loss, k, a and g.
    grid = ((0.3, 0.5, 0.8), (0.3, 0.6, 1.0), (0.3, 0.6), (0.3, 0.6))

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

    def named_bounds(self, points: LossPoints) -> dict[str, tuple[float, float]]:
        """Return the bounds of each parameter by name."""
        models, budgets = points.varies
        bounds = super().named_bounds(points)
        bounds["B_star"] = beyond(points.logs[:, 2])
        if not (models or budgets):
            bounds["k"] = (1.0, 1.0)
        if not (models and points.one_lr):
            bounds["t"] = (0.0, 0.0)
        return bounds

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """Return the best of a grid over L_0, k, a and g, the optimum through the best rows.

        The sizes A and G are by non-negative least squares of the excess to 1/k.
        """
        box = self.box(points)
        _, d, b, *_ = best_logs(points).T
        q = self.known["q"].usual
        usual = self.changed(self.usual_start(points), B_star=np.median(b - q * d))
        tried = []
        for share, k, a, g in itertools.product(*self.grid):
            floor = share * points.loss.min()
            # At k = 1 without L_0 and A, the loss is the term of D at G = 1 nat.
            unit = self.changed(usual, L_0=0.0, k=1.0, A=NONE, a=a, G=0.0, g=g)
            data = self.loss(unit, *points.logs.T)
            model = np.exp(-a * points.logs[:, 0]) * points.varies[0]
            columns = np.stack([model, data], axis=1)
            (A, G), error = start_sizes(columns, points.loss - floor, k, weight)
            tried.append((error, self.changed(unit, L_0=floor, k=k, A=A, G=G)))
        return best_starts(tried, box)


@dataclass(frozen=True)
class Steps(KnownForm):
    """Terms of size, tokens, steps and batch; a wrong rate wastes steps."""

    known = LIMIT | STEPS_BATCH | RATE
    names = tuple(known)
    logs = frozenset({"A", "G", "C", "M", "H", "E"})
    # Of starts over the usual ranges: L_0 relative to the lowest loss, k, a and g, c, m.
    grid = ((0.3, 0.5, 0.8), (0.3, 0.6, 1.0), (0.3, 0.6), (0.5, 1.0, 2.0), (0.3, 0.8))

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

    def starts(self, points: LossPoints, weight: np.ndarray) -> np.ndarray:
        """Return the best of a grid over L_0, k, a and g, c and m.

        The sizes of the terms are by non-negative least squares of the excess to 1/k.
        """
        box = self.box(points)
        usual = self.usual_start(points)
        tried = []
        for share, k, g, c, m in itertools.product(*self.grid):
            floor = share * points.loss.min()
            unit = self.changed(usual, L_0=floor, k=k, a=g, g=g, c=c, m=m, A=0, G=0, C=0, M=0)
            columns = np.exp(np.stack(self.terms(unit, *points.logs.T), axis=1))
            columns[:, 0] *= points.varies[0]
            (A, G, C, M), error = start_sizes(columns, points.loss - floor, k, weight)
            tried.append((error, self.changed(unit, A=A, G=G, C=C, M=M)))
        return best_starts(tried, box)


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
