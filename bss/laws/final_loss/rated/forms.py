"""Forms of the loss of (N, D, B, rate), as hypotheses that left-out cells weigh.

Static functional law (derived here, after arXiv 2509.19189 and 2602.14208): what is left to learn
in N, in D and at a finite rate is summed under one power, L = L_0 + (A·N^-a + G·D^-g + Σ_j T_j)^k.
Terms T_j = C_j·N^n_j·D^d_j·B^b_j·η^e_j are what the sum of rates η·D/B leaves to learn, noise,
which falls with B and rises with the rate, the steps D/B, and the wall of large rates. Their
exponents are fitted; which term is which is where they start.

Bowl (derived here): L = L_0 + (A·N^-a + G·D_eff^-g)^k, D_eff = D/(1 + h·φ(log B/B*) +
H·φ(log η/η*)), with φ as in `effective tokens`, a wall and a slope on the two sides of each, and
B* and η* power laws: η* = E·N^x·D^y·B^p.

Few rows hardly tell so many parameters, so each is drawn weakly to what is usual, by `DRAWN` nats
for one standard deviation (derived here).
"""

import itertools
from dataclasses import dataclass

import numpy as np

from bss.laws.final_loss.forms.form import EXPONENT, NONE, SIZE, CentredPoints, Form
from bss.points.lopsided import lopsided
from bss.registry import Registry

DRAWN = 0.01
FREE = 30.0  # a spread that draws to nothing
FLOOR = 0.2  # of the least loss, from which L_0 is looked for: under a small power it is no floor
ROWS = {  # of each term's size and exponents of N, D, B and the rate: where they start
    "sum of rates": (-3.0, 0.0, -0.5, 0.5, -0.5),
    "noise": (-3.0, 0.2, 0.0, -0.6, 0.5),
    "wall": (-4.0, 0.5, -0.5, 0.3, 1.5),
    "steps": (-3.0, 0.0, -1.0, 1.0, 0.0),
}
SPREAD = (2.0, 0.3, 0.3, 0.3, 0.3)
LOWEST, HIGHEST = (-14.0, -3.0, -3.0, -4.0, -4.0), (3.0, 3.0, 3.0, 4.0, 6.0)


@dataclass(frozen=True)
class RatedForm(Form):
    """A form of N, D, B and the rate; design points have four logarithms.

    Attributes:
        usual, spread: [P], to which parameters are drawn.
    """

    def loss(self, theta, n, d, b, e=None, xp=np):  # pyright: ignore[reportIncompatibleMethodOverride]
        """Nats at logarithms of N, D, B and the rate about the reference."""
        raise NotImplementedError

    @property
    def usual(self) -> tuple[np.ndarray, np.ndarray]:
        """[P] each: where parameters are drawn to, and how weakly."""
        raise NotImplementedError

    def errors(self, theta, data):
        """Errors of the loss, weighted, and how far parameters are from the usual ones."""
        import jax.numpy as jnp

        usual, spread = self.usual
        drawn = DRAWN * (theta - usual) / spread
        return jnp.concatenate([super().errors(theta, data), drawn])


@dataclass(frozen=True)
class StaticFunctional(RatedForm):
    """Terms under one power.

    Attributes:
        terms: names of those in the sum.
    """

    terms: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:  # type: ignore[override]
        """L_0, k, the two of N and of D, and five of each term."""
        parts = [f"{part} of {term}" for term in self.terms for part in ("C", *"ndbe")]
        return ("L_0", "k", "A", "a", "G", "g", *parts)

    @property
    def logs(self) -> frozenset[str]:  # type: ignore[override]
        """Sizes."""
        return frozenset({"A", "G", *(f"C of {term}" for term in self.terms)})

    def loss(self, theta, n, d, b, e=None, xp=np):
        """Nats, by the formula."""
        L_0, k, A, a, G, g = theta[:6]
        inner = xp.exp(A - a * n) + xp.exp(G - g * d)
        for i in range(len(self.terms)):
            C, *x = theta[6 + 5 * i : 11 + 5 * i]
            inner = inner + xp.exp(C + x[0] * n + x[1] * d + x[2] * b + x[3] * e)
        return L_0 + inner**k

    @property
    def usual(self):
        """Exponents are drawn, L_0 and the sizes of N and D are not."""
        centre = np.array([0.0, 0.6, 0.0, 0.4, 0.0, 0.4, *(x for t in self.terms for x in ROWS[t])])
        spread = np.array([FREE, 0.3, FREE, 0.3, FREE, 0.3, *SPREAD * len(self.terms)])
        return centre, spread

    def box(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """What the table does not vary is held."""
        bounds = {"L_0": _floors(design), "k": (0.1, 1.5)}
        bounds |= dict.fromkeys("AG", SIZE) | dict.fromkeys("ag", EXPONENT)
        models, budgets = design.varies
        bounds |= {} if models else {"A": (NONE, NONE), "a": (1.0, 1.0)}
        bounds |= {} if budgets else {"G": (NONE, NONE), "g": (1.0, 1.0)}
        if not (models or budgets):
            bounds["k"] = (1.0, 1.0)
        ends = [np.array([bounds[name][i] for name in self.names[:6]]) for i in (0, 1)]
        lower, upper = LOWEST * len(self.terms), HIGHEST * len(self.terms)
        return np.concatenate([ends[0], lower]), np.concatenate([ends[1], upper])

    def starts(self, design: CentredPoints, weight: np.ndarray) -> np.ndarray:
        """The usual exponents, with sizes by non-negative least squares over a grid of the rest."""
        usual, (lower, _) = self.usual[0], self.box(design)
        exponents = usual[6:].reshape(-1, 5)[:, 1:]
        fast, tried = design.logs @ exponents.T, []
        floors, powers = design.loss.min() * np.array([0.3, 0.5, 0.8]), (0.3, 0.6, 1.0)
        for floor, k, a, g in itertools.product(floors, powers, (0.2, 0.5), (0.3, 0.6)):
            slow = np.stack([-a * design.logs[:, 0], -g * design.logs[:, 1]], axis=1)
            columns = np.exp(np.concatenate([slow, fast], axis=1))
            columns[:, :2] *= lower[[2, 4]] > NONE
            sizes, error = design.sizes_at(weight, columns, floor, k)
            theta = usual.copy()
            theta[:6] = floor, k, sizes[0], a, sizes[1], g
            theta[6::5] = sizes[2:]
            tried.append((theta.tolist(), error))
        return self.best_of(tried, design)


@dataclass(frozen=True)
class Bowl(RatedForm):
    """Effective tokens, wasted by a wrong batch and a wrong rate."""

    names = ("L_0", "k", "A", "a", "G", "g", "h", "u", "v", "B_star", "q", "r",
             "H", "U", "V", "E", "x", "y", "p")  # fmt: skip
    logs = frozenset({"A", "G", "h", "B_star", "H", "E"})

    def loss(self, theta, n, d, b, e=None, xp=np):
        """Nats, by the formula."""
        L_0, k, A, a, G, g, h, u, v, B_star, q, r, H, U, V, E, x, y, p = theta
        batch, rate = b - B_star - q * d - r * n, e - E - x * n - y * d - p * b
        wasted = xp.exp(h) * lopsided(batch, u, v, xp) + xp.exp(H) * lopsided(rate, U, V, xp)
        return L_0 + (xp.exp(A - a * n) + xp.exp(G - g * (d - xp.log1p(wasted)))) ** k

    @property
    def usual(self):
        """All but L_0 and sizes."""
        centre = [0, 0.7, 0, 0.4, 0, 0.4, -1, 0.7, 0.7, 0, 0.4, 0, -1, 0.7, 0.7, 0, -0.3, 0.2, 0.5]
        spread = [FREE, 0.3, FREE, 0.2, FREE, 0.2, 1, 0.3, 0.3, 2, 0.2, 0.2, 1, 0.5, 0.5, 2, 0.3,
                  0.2, 0.3]  # fmt: skip
        return np.array(centre), np.array(spread)

    def box(self, design: CentredPoints) -> tuple[np.ndarray, np.ndarray]:
        """What the table does not vary is held."""
        bounds = {"L_0": _floors(design), "k": (0.1, 4.0)}
        bounds |= dict.fromkeys("AG", SIZE) | dict.fromkeys("ag", EXPONENT)
        bounds |= dict.fromkeys("hH", (-12.0, 5.0)) | dict.fromkeys("uvUV", (0.05, 6.0))
        reach = [(x.min() - 2, x.max() + 2) for x in design.logs.T[2:]]
        bounds |= {"B_star": reach[0], "E": reach[1], "q": (-0.5, 1.5), "r": (-1.0, 1.5)}
        bounds |= {"x": (-2.0, 1.0), "y": (-1.0, 2.0), "p": (-1.0, 2.0)}
        models, budgets = design.varies
        bounds |= {} if models else {"A": (NONE, NONE), "a": (1.0, 1.0)}
        bounds |= {} if budgets else {"g": (0.4, 0.4)}
        if not (models or budgets):
            bounds["k"] = (1.0, 1.0)
        return self.in_order(bounds)

    def starts(self, design: CentredPoints, weight: np.ndarray) -> np.ndarray:
        """The usual shape about the best rows, sizes by non-negative least squares."""
        usual, (lower, _), tried = self.usual[0], self.box(design), []
        cells = [np.flatnonzero(design.cell == cell) for cell in range(design.cell.max() + 1)]
        n, d, b, e = design.logs[[rows[np.argmin(design.loss[rows])] for rows in cells]].T
        at = {"B_star": np.median(b - 0.4 * d), "E": np.median(e + 0.3 * n - 0.2 * d - 0.5 * b)}
        floors, powers = design.loss.min() * np.array([0.3, 0.5, 0.8]), (0.4, 0.7, 1.0)
        for floor, k, a, g in itertools.product(floors, powers, (0.3, 0.6), (0.3, 0.6)):
            theta = usual.copy()
            given = at | {"L_0": floor, "k": k, "a": a, "g": g}
            for name, value in given.items():
                theta[self.names.index(name)] = value
            unit = theta.copy()
            unit[[0, 1, 2, 4]] = 0.0, 1.0, NONE, 0.0
            data = self.loss(unit, *design.logs.T)
            columns = np.stack([np.exp(-a * design.logs[:, 0]), data], axis=1)
            columns[:, 0] *= lower[2] > NONE
            theta[[2, 4]], error = design.sizes_at(weight, columns, floor, k)
            tried.append((theta.tolist(), error))
        return self.best_of(tried, design)


def _floors(design: CentredPoints) -> tuple[float, float]:
    """The bounds of L_0, in nats."""
    least = float(design.loss.min())
    return FLOOR * least, least


_FORMULA = "L = L_0 + (A·N^-a + G·D^-g + Σ_j C_j·N^n_j·D^d_j·B^b_j·η^e_j)^k over {}"
_THREE = ("sum of rates", "noise", "wall")
FUNCTIONAL_3 = StaticFunctional("functional-3", _FORMULA.format(", ".join(_THREE)), _THREE)
FUNCTIONAL_4 = StaticFunctional("functional-4", _FORMULA.format(", ".join(ROWS)), tuple(ROWS))
BOWL = Bowl(
    "bowl",
    "L = L_0 + (A·N^-a + G·D_eff^-g)^k, D_eff = D/(1 + h·φ(log B/B*) + H·φ(log η/η*)), "
    "B* = B_star·D^q·N^r, η* = E·N^x·D^y·B^p",
)
RATED: Registry[RatedForm] = Registry(
    "form", {form.name: form for form in (FUNCTIONAL_4, FUNCTIONAL_3, BOWL)}, RatedForm
)
"""The forms with a rate, by name."""
