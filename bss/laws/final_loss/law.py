"""The fitted law of final losses: expected losses, their uncertainty and draws of them.

The law is a mean of forms with the residuals that the rows near by predict
(`bss.laws.final_loss.residual_gp`). Its covariance adds the uncertainty of the residuals and of the
forms' parameters, and how far the forms differ, scaled to match the errors at left-out rows.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike

from bss.errors import InputError
from bss.laws.base import DRAWS, check_lengths, check_names
from bss.laws.final_loss.forms import FORMS, Form, losses
from bss.laws.final_loss.points import LossPoints
from bss.laws.final_loss.residual_gp import covariance, residuals_on_grid
from bss.laws.minimum import parabola_vertex
from bss.laws.resampling import symmetric_root
from bss.values import SLACK, Nonnegative, Positive, PositiveCount, Range

STEP = 1e-5  # of a parameter, for central differences in float64
CHUNK = 500  # points that are predicted at once, which bounds the memory
GRID = (61, 41)  # batches and learning rates: a tenth of an octave apart over seven octaves


def _in_chunks(function: Callable[[np.ndarray], np.ndarray], logs: np.ndarray) -> np.ndarray:
    """Return the values [..., m] of a function at logarithms [m, 3 or 4], some points at a time."""
    parts = np.array_split(logs, 1 + len(logs) // CHUNK)
    return np.concatenate([function(part) for part in parts], axis=-1)


def slopes_of(form: Form, theta: np.ndarray, logs: np.ndarray, free: np.ndarray) -> np.ndarray:
    """Return [m, P], derivatives of the loss at logarithms [m, 3 or 4]; 0 if a parameter is fixed.

    By central differences.
    """
    step = np.where(free, STEP, 0.0)
    ahead = losses(form, theta + np.diag(step), logs) - losses(form, theta - np.diag(step), logs)
    return ahead.T / (2 * STEP)


def _completed(entry: dict[str, Any]) -> dict[str, Any]:
    """The fields of a form. In earlier versions the bowl had no t, as if it were 0."""
    if entry["form"] == "bowl" and len(entry["theta"]) == len(FORMS["bowl"].names) - 1:
        return entry | {"theta": [*entry["theta"], 0.0]}
    return entry


@dataclass(frozen=True)
class Member:
    """A form of the law.

    Attributes:
        form: name of the form.
        theta: its parameters [P], sizes as logarithms, at the middle of the rows.
        share: of the expected loss; those of all members add up to 1.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    form: str
    theta: Annotated[np.ndarray, Range()]
    share: Annotated[float, Range(0, 1)]

    def __post_init__(self) -> None:
        FORMS.load(self.form)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again, also of an earlier version."""
        return _completed(entry)

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_lengths({"theta": self.theta}, where, len(FORMS[self.form].names))

    def of(self, logs: np.ndarray) -> np.ndarray:
        """[...] nats at logarithms [..., 3 or 4], without residuals."""
        return losses(FORMS[self.form], self.theta, logs)


@dataclass(frozen=True)
class LossLaw:
    """Batches are in tokens, LRs per step, losses in nats.

    The expected loss is the mean of the forms by their shares, with the residuals of this mean. The
    differences of the forms are part of the intervals.

    Attributes:
        form: name of the form with the largest share.
        theta: its parameters [P], sizes as logarithms, at the middle of the rows.
        share: its share.
        others: the other forms.
        cv_errors: of each form that was tried at left-out cells, in nats.
        widened: factors of standard deviations that left-out rows require, "inside" of the table's
            N and D and "outside".
        converged: whether the fit did.
        points: the rows.
        constraints: what a user fixed of the parameters.
        resamples, seed: number of draws of the losses, and their random seed.
    """

    may_lack: ClassVar[tuple[str, ...]] = ("share", "others")

    form: str
    theta: Annotated[np.ndarray, Range()]
    widened: dict[str, Positive]
    converged: bool
    points: LossPoints
    cv_errors: dict[str, Nonnegative] = field(default_factory=dict)
    constraints: str = ""
    resamples: PositiveCount = DRAWS
    seed: int = 0
    share: Annotated[float, Range(0, 1)] = 1.0
    others: tuple[Member, ...] = ()

    def __post_init__(self) -> None:
        FORMS.load(self.form)

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again, also of an earlier version."""
        return _completed(entry)

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_names(self.widened, ("inside", "outside"), f"{where}widened")
        if abs(sum(one.share for one in self.members) - 1) > SLACK:
            raise InputError(f"{where}share: the shares of all forms add up to 1")
        for one in self.members:
            one.check(where)
            lower, upper = FORMS[one.form].bounds(self.points, self.constraints)
            slack = SLACK * (1 + np.abs(one.theta))
            if (one.theta < lower - slack).any() or (one.theta > upper + slack).any():
                raise InputError(f"{where}theta has a parameter outside of its bounds")

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """All forms, the one with the largest share first."""
        return (Member(self.form, self.theta, self.share), *self.others)

    @property
    def mixture(self) -> str:
        """The forms with their shares, for people."""
        if not self.others:
            return self.form
        return " + ".join(f"{one.share:.2f} {one.form}" for one in self.members)

    def logs(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: Any = None
    ) -> np.ndarray:
        """Return [m, 3 or 4], logarithms about the middle; without lr at the best one.

        The arguments broadcast, and are flattened.
        """
        if self.points.with_lr and lr is None:
            lr = self.best_lr(params, tokens, batch)
        given = (params, tokens, batch, *([lr] if self.points.with_lr else []))
        each = np.broadcast_arrays(*(np.asarray(x, float) for x in given))
        return np.log(np.stack([x.ravel() for x in each], axis=1)) - self.points.centres

    def losses(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike | None = None
    ) -> np.ndarray:
        """Return expected losses; without lr at the best one. The arguments broadcast."""

        def expected(logs: np.ndarray) -> np.ndarray:
            residuals = covariance(logs, self.points.logs) @ self._expected_residuals
            return self._of_form(logs) + residuals

        shape = np.broadcast(params, tokens, batch, 1.0 if lr is None else lr).shape
        return _in_chunks(expected, self.logs(params, tokens, batch, lr)).reshape(shape)

    def _of_form(self, logs: np.ndarray) -> np.ndarray:
        """[...] nats, without residuals, at logarithms [..., 3 or 4]."""
        return np.sum([one.share * one.of(logs) for one in self.members], axis=0)

    @cached_property
    def _expected_residuals(self) -> np.ndarray:
        """[n], the weights by which the rows' residuals predict those at other points."""
        points = self.points
        return points.gp.precision @ (points.loss - self._of_form(points.logs))

    @property
    def linearized(self) -> tuple[np.ndarray, np.ndarray]:
        """Of the form with the largest share: slopes at the rows [n, P], covariance [P, P]."""
        return self._linearized[0]

    @cached_property
    def _linearized(self) -> list[tuple[np.ndarray, np.ndarray]]:
        """Slopes at the rows [n, P] and the covariance of the parameters, by member."""
        found = []
        for one in self.members:
            slopes = self._slopes(one, self.points.logs)
            prior = FORMS[one.form].usual[1] ** -2.0
            found.append((slopes, self.points.gp.spread(slopes, prior)))
        return found

    def _slopes(self, one: Member, logs: np.ndarray) -> np.ndarray:
        form = FORMS[one.form]
        lower, upper = form.bounds(self.points, self.constraints)
        return slopes_of(form, one.theta, logs, lower < upper)

    def posterior(self, logs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return expected losses [m] at logarithms [m, 3 or 4], and their covariance [m, m]."""
        points = self.points
        gain, spread = points.gp.posterior(logs)
        found = []  # of each member, with the residuals of its own
        for one, (rows, parameters) in zip(self.members, self._linearized, strict=True):
            found.append(one.of(logs) + gain @ (points.loss - one.of(points.logs)))
            slopes = self._slopes(one, logs) - gain @ rows
            spread += one.share * (slopes @ parameters @ slopes.T)
        shares = np.array([one.share for one in self.members])
        mean = shares @ np.array(found)
        apart = np.sqrt(shares)[:, None] * (np.array(found) - mean)
        wider = self._widened(logs)
        return mean, (spread + apart.T @ apart) * np.outer(wider, wider)

    def _widened(self, logs: np.ndarray) -> np.ndarray:
        outside = self.points.outside(logs)
        return np.where(outside, self.widened["outside"], self.widened["inside"])

    def draws(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: ArrayLike | None = None
    ) -> np.ndarray:
        """Return [1 + resamples, m], expected losses and draws of them; arguments broadcast."""
        mean, spread = self.posterior(self.logs(params, tokens, batch, lr))
        normal = np.random.default_rng(self.seed).standard_normal((self.resamples, len(mean)))
        return np.concatenate([mean[None], mean + normal @ symmetric_root(spread)])

    def predictions(
        self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike, lr: Any = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return [m], expected losses of single runs, and standard deviations with their noise."""

        def single(logs: np.ndarray) -> np.ndarray:
            mean, spread = self.posterior(logs)
            least = self._least(logs)
            noise = self.points.noise_sd(mean - least, least) * self._widened(logs)
            return np.stack([mean, np.sqrt(np.diag(spread) + noise**2)])

        mean, deviation = _in_chunks(single, self.logs(params, tokens, batch, lr))
        return mean, deviation

    def _least(self, logs: np.ndarray) -> np.ndarray:
        """[m] nats, the lowest loss over batches and LRs at the N and D of each point."""
        sizes = np.exp(logs[:, :2] + self.points.centres[:2])
        pairs, which = np.unique(sizes, axis=0, return_inverse=True)
        least = np.array([self.surface(*pair)[-1].min() for pair in pairs.tolist()])
        return least[which.ravel()]

    @cached_property
    def grid(self) -> tuple[np.ndarray, ...]:
        """Batches, and LRs if they vary, an octave beyond the rows."""
        columns = self.points.uncentred[:, 2:].T
        ends = ((x.min() - np.log(2), x.max() + np.log(2)) for x in columns)
        return tuple(np.exp(np.linspace(*at, n)) for at, n in zip(ends, GRID, strict=False))

    @cached_property
    def _surfaces(self) -> dict[tuple[float, float], np.ndarray]:
        """Losses over the grid, by log N and log D."""
        return {}

    def surface(self, params: float, tokens: float) -> tuple[np.ndarray, ...]:
        """Return batches [b], LRs [r] if they vary, and losses [b] or [b, r]."""
        digits = 9  # of logarithms: sizes that differ by rounding are one
        key = (round(np.log(params), digits), round(np.log(tokens), digits))
        if key not in self._surfaces:
            self._surfaces[key] = self.over(params, tokens, *self.grid)
        return *self.grid, self._surfaces[key]

    def over(self, params: float, tokens: float, *axes: np.ndarray) -> np.ndarray:
        """Return losses [b] of batches [b], or [b, r] of batches and LRs [r]."""
        centres = self.points.centres
        size = np.log([params, tokens]) - centres[:2]
        logs = [np.log(x) - centre for x, centre in zip(axes, centres[2:], strict=True)]
        axes = np.ix_(*logs)
        each = [one.share * FORMS[one.form].loss(one.theta, *size, *axes) for one in self.members]
        rest = residuals_on_grid(size, logs, self.points.logs, self._expected_residuals)
        return np.sum(each, axis=0) + rest

    def curve(self, params: float, tokens: float) -> tuple[np.ndarray, np.ndarray, float]:
        """Return batches [b] in tokens, losses at the best LRs, and the best batch."""
        batch, *_, loss = self.surface(params, tokens)
        tuned = loss.min(axis=1) if loss.ndim > 1 else loss
        return batch, tuned, float(np.exp(parabola_vertex(np.log(batch), tuned)))

    def excess_loss(self, params: float, tokens: float, batch: ArrayLike) -> np.ndarray:
        """Return losses of batches in tokens minus the lowest loss, in nats."""
        return self.losses(params, tokens, batch) - self.curve(params, tokens)[1].min()

    def best_lr(self, params: ArrayLike, tokens: ArrayLike, batch: ArrayLike) -> np.ndarray:
        """Return LRs of the lowest loss, or an end of the grid; arguments broadcast."""
        sizes = np.broadcast_arrays(*(np.asarray(x, float) for x in (params, tokens, batch)))
        rows = np.stack([x.ravel() for x in sizes])
        rates = self.grid[1]
        found = np.empty(rows.shape[1])
        for N, D in np.unique(rows[:2], axis=1).T.tolist():
            here = (rows[0] == N) & (rows[1] == D)
            found[here] = parabola_vertex(np.log(rates), self.over(N, D, rows[2, here], rates))
        return np.exp(found).reshape(sizes[0].shape)
