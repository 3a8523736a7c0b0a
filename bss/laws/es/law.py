"""A law E(S) as a value: what fitting, cross-validation, schedules, plots and reports use.

Data are counted in sequences, E = B·S, so that the batch size B of a run is E/S. A law is solved
for E at the batch size of a run, which is exact: E and S share their noise, so E is never regressed
on S. The parameters of a law are a NamedTuple of scalars or arrays, traced or not, in steps and
sequences.

The laws of the package are three per target, and a joint loss model L(S, B) of all targets.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, ClassVar, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from bss.arrays import array_module
from bss.errors import InputError
from bss.laws import minimum
from bss.laws.es.data import EsData
from bss.laws.minimum import asymmetric_bowl
from bss.laws.problem import Ranges, Residual, Scale, narrowed
from bss.registry import Registry

Number = Any
"""A scalar or an array, of NumPy or traced."""
NEVER_REACHED = 50.0  # log E of a target that a law never reaches; finite, so that gradients are


@dataclass(frozen=True)
class Problem:
    """R problems of one law over rows [M], ready for `bss.laws.solver.solve`.

    Attributes:
        residual: equal for members of a family, so that they share one compiled program.
        starts: [R, K, P].
        lower, upper: [R, P]; equal if a parameter is fixed.
        data: arrays [R, M] by name. `observed` is the measured value. `weight` scales errors of the
            law to residuals. `reached` is 0 if the target was not reached; the residual is then
            one-sided.
        rows: [R, M], the rows of the data; padding has weight 0.
        units: [R, 2], in sequences or steps: the units of E (joint law: of S) and of B.
    """

    residual: Residual
    starts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    data: dict[str, np.ndarray]
    rows: np.ndarray
    units: np.ndarray

    def one(self, index: int) -> dict[str, np.ndarray]:
        """Return the data of one problem."""
        return {key: value[index] for key, value in self.data.items()}


def residuals(error: Any, data: Mapping[str, Any]) -> Any:
    """Return weighted errors of a law, one-sided if the target was not reached."""
    return data["weight"] * jnp.where(data["reached"] > 0, error, jnp.minimum(error, 0.0))


@dataclass(frozen=True)
class Law:
    """A law E(S). Methods take its parameters as `p`.

    Attributes:
        name: name in tables and messages.
        formula: in the symbols of the parameters.
        parameters: NamedTuple of the parameters.
        batches: the batch quantities of the law, e.g. B_opt, which policies follow.
        least: number of batch sizes that must reach a target for a fit.
        joint: whether all targets share one problem. A joint law has a `loss`, and an E at any
            target; other laws have parameters for each fitted target.
    """

    name: str

    formula: ClassVar[str]
    parameters: ClassVar[Any]
    batches: ClassVar[tuple[str, ...]]
    least: ClassVar[int]
    joint: ClassVar[bool] = False

    @classmethod
    def parse(cls, law: "Law | str") -> "Law":
        """Return a law, or the law of a registered name or of `package.module:ATTRIBUTE`."""
        return law if isinstance(law, Law) else LAWS.load(law)

    def __str__(self) -> str:
        """Return the text that `parse` takes; the name if the law cannot be imported."""
        try:
            return LAWS.name_of(self)
        except InputError:
            return self.name

    @property
    def free(self) -> int:
        """Number of fitted parameters: of a joint law in all, otherwise at each target."""
        return len(self.parameters._fields)

    @property
    def least_cross_validated(self) -> int:
        """Number of batch sizes that must reach a target for leave-one-batch-out."""
        return self.least + 1

    @property
    def family(self) -> "Law":
        """The registered law that represents a fit of this law, given the fitted parameters."""
        return self

    def problem(self, data: EsData, targets: np.ndarray) -> Problem:
        """Return the problem of the law at targets that enough batch sizes reach.

        Raises:
            InputError: If the data have too few targets.
        """
        raise NotImplementedError

    def scales(self, units: np.ndarray, seq_len: int) -> dict[str, Scale]:
        """Return how the parameters in the JSON of a fit follow from one fitted number each.

        Args:
            units: [2], of the problem.
            seq_len: tokens per sequence.
        """
        return {}

    def constrained(self, problem: Problem, ranges: Ranges, seq_len: int) -> Problem:
        """Return a problem with fixed or bounded parameters, named as in the JSON of a fit."""
        boxes = [
            narrowed(low, high, ranges, self.scales(units, seq_len), f"the {self.name} law")
            for low, high, units in zip(problem.lower, problem.upper, problem.units, strict=True)
        ]
        lower, upper = zip(*boxes, strict=True)
        return replace(problem, lower=np.array(lower), upper=np.array(upper))

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> Any:
        """Return parameters in steps and sequences, from fitted numbers [..., P]."""
        raise NotImplementedError

    def sequences(self, p: Any, batch: Number, target: Number = None) -> Number:
        """Return E at a batch size; infinite if the target is never reached."""
        raise NotImplementedError

    def log_sequences(self, p: Any, batch: Number, target: Number = None) -> np.ndarray:
        """Return log E at a batch size, in float64; infinite if the target is never reached.

        Raises:
            InputError: If E is negative, as with parameters that no fit has.
        """
        with jax.enable_x64(True), np.errstate(all="ignore"):
            E = np.asarray(self.sequences(p, batch, target), np.float64)
            if (E < 0).any():
                raise InputError(
                    f"fit: damaged, the {self.name} law has {E.min():g} sequences to its target; "
                    "expected 0 or more; fit again"
                )
            return np.log(E)

    def quantities(self, p: Any, target: Number = None) -> dict[str, np.ndarray]:
        """Return S_min, E_min at B_opt, and S_opt if the law has them, and its `batches`."""
        raise NotImplementedError

    def loss(self, p: Any, steps: Number, batch: Number) -> Number:
        """Return the loss in nats of a joint law after `steps`; the batch size does not change."""
        raise NotImplementedError

    def intrinsic_time(self, p: Any, batch: Number) -> Number:
        """Return the progress of one step at a batch size; a joint law sums it over steps."""
        return 1.0

    def in_tokens(self, p: Any, seq_len: int) -> dict[str, Any]:
        """Return the parameters as in the JSON of a fit."""
        return {name: np.asarray(value, float).tolist() for name, value in p._asdict().items()}

    def from_tokens(self, entry: Mapping[str, Number], seq_len: int) -> Any:
        """Return the parameters from `in_tokens`."""
        return self.parameters(**entry)


@dataclass(frozen=True)
class PerTarget(Law):
    """A law with separate parameters at each target, fitted in units of the best run there.

    Its residual is the error in log E at the batch size of the run times −dL/dlog E / L: a loss
    relative to the target. If the target was not reached, E(B) is above the tokens consumed, and
    the residual is one-sided.

    Attributes:
        units: powers of E and of B in the unit of each parameter, e.g. (1, -1) for steps, S = E/B.
            The law must hold in any unit of E and of B.
        starts: [K, P], fitted numbers to start from.
        lower, upper: [P], their bounds.
    """

    units: ClassVar[tuple[tuple[int, int], ...]]
    starts: ClassVar[Any]
    lower: ClassVar[Any]
    upper: ClassVar[Any]

    def shape(self, theta: Any, data: Mapping[str, Any]) -> Any:
        """Return parameters in units of the problem, from fitted numbers [P, ...], here logs."""
        return self.parameters(*array_module(theta).exp(theta))

    def problem(self, data: EsData, targets: np.ndarray) -> Problem:
        """Return one problem per target; short ones are padded to rows [T, M]."""
        groups = [np.flatnonzero(data.target == target) for target in targets]
        width = max(len(group) for group in groups)
        rows = np.array([np.pad(group, (0, width - len(group)), mode="edge") for group in groups])
        mask = np.array([np.arange(width) < len(group) for group in groups])
        reached = data.reached[rows] & mask
        tokens = np.where(reached, data.sequences[rows], np.inf)
        best = np.take_along_axis(rows, tokens.argmin(axis=1)[:, None], axis=1)[:, 0]
        E_unit = data.sequences[best]
        B_unit = data.batch[best]
        arrays = {
            "batch": data.batch[rows] / B_unit[:, None],
            "observed": np.log(data.sequences[rows] / E_unit[:, None]),
            "reached": reached.astype(float),
            "weight": data.slope[rows] / data.target[rows] * mask,
        }

        def each(values: Any) -> np.ndarray:
            return np.array([values] * len(targets), np.float64)

        return Problem(
            residual=LogError(self),
            starts=each(self.starts),
            lower=each(self.lower),
            upper=each(self.upper),
            data=arrays,
            rows=rows,
            units=np.stack([E_unit, B_unit], axis=1),
        )

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> Any:
        """Return parameters in steps and sequences, from fitted numbers [..., P]."""
        with jax.enable_x64(True):
            shape = self.shape(np.moveaxis(theta, -1, 0), problem.one(index))
            return self._scaled(map(np.asarray, shape), *problem.units[index])

    def scales(self, units: np.ndarray, seq_len: int) -> dict[str, Scale]:
        """Return the scales of parameters whose logarithms are fitted; of a law with `shape`, none.

        E and B are in tokens.
        """
        E, B = units * seq_len
        each = enumerate(zip(self.parameters._fields, self.units, strict=True))
        logs = type(self).shape is PerTarget.shape
        return {name: Scale(i, E**e * B**b, log=True) for i, (name, (e, b)) in each if logs}

    def in_tokens(self, p: Any, seq_len: int) -> dict[str, Any]:
        """Return the parameters with E and B in tokens."""
        return super().in_tokens(self._scaled(p, seq_len, seq_len), seq_len)

    def from_tokens(self, entry: Mapping[str, Number], seq_len: int) -> Any:
        """Return the parameters from `in_tokens`."""
        return self._scaled(self.parameters(**entry), 1 / seq_len, 1 / seq_len)

    def _scaled(self, p: Any, E: Any, B: Any) -> Any:
        pairs = zip(p, self.units, strict=True)
        return self.parameters(*(value * E**e * B**b for value, (e, b) in pairs))


@dataclass(frozen=True)
class LogError:
    """The residual of a law of one target: error in log E times −dL/dlog E / L."""

    law: PerTarget

    def __call__(self, theta: jax.Array, data: Mapping[str, jax.Array]) -> jax.Array:
        """Return residuals [M] of fitted numbers [P]."""
        log_E = jnp.log(self.law.sequences(self.law.shape(theta, data), data["batch"]))
        error = jnp.where(jnp.isfinite(log_E), log_E, NEVER_REACHED) - data["observed"]
        return residuals(error, data)


class HyperbolaParameters(NamedTuple):
    """E_min in sequences, S_min in steps."""

    E_min: Number
    S_min: Number


@dataclass(frozen=True)
class Hyperbola(PerTarget):
    """(E/E_min − 1)(S/S_min − 1) = 1 of McCandlish et al. (arXiv 1812.06162).

    E rises with B, so that no batch size is best; the critical batch size is B_crit = E_min/S_min.
    """

    formula = "(E/E_min - 1)(S/S_min - 1) = 1"
    parameters = HyperbolaParameters
    units = ((1, 0), (1, -1))
    batches = ("B_crit",)
    least = minimum.FEWEST
    # Logs in units of the best run: E_min just below it, and S_min from far below to near it.
    starts = ((-0.5, -6.0), (-0.5, -3.0), (-0.5, -1.0))
    lower = (-12.0, -12.0)  # e^-12: no share of the best run's tokens or steps
    upper = (3.0, 5.0)  # twenty times its tokens, and more than a hundred times its steps

    def sequences(self, p: HyperbolaParameters, batch: Number, target: Number = None) -> Number:
        """Return E = E_min + S_min·B at a batch size, from S = E/B."""
        return p.E_min + p.S_min * batch

    def quantities(self, p: HyperbolaParameters, target: Number = None) -> dict[str, np.ndarray]:
        """Return S_min, E_min in the limit of small batch sizes, and B_crit."""
        E_min = np.asarray(p.E_min)
        S_min = np.asarray(p.S_min)
        return {"S_min": S_min, "E_min": E_min, "B_crit": E_min / S_min}


class MinimumParameters(NamedTuple):
    """E_min in sequences at B_opt in sequences; h, and the powers u above it and v below."""

    E_min: Number
    B_opt: Number
    h: Number
    u: Number
    v: Number


@dataclass(frozen=True)
class AsymmetricMinimum(PerTarget):
    """E = E_min·(1 + h·φ(log B/B_opt)), φ(x) = (v·e^(ux) + u·e^(−vx))/(u + v) − 1 (derived here).

    It has a minimum and a slope on each side of it, but no stages.
    """

    formula = "E = E_min·(1 + h·φ(log B/B_opt)), φ(x) = (v·e^(ux) + u·e^(-vx))/(u + v) - 1"
    parameters = MinimumParameters
    units = ((1, 0), (0, 1), (0, 0), (0, 0), (0, 0))
    batches = ("B_opt",)
    least = 5  # one batch for each parameter
    # B_opt below, at and above the best run, with slopes of two sizes on each side.
    starts = tuple((0.0, b, *rest) for b, *rest in product((-1.5, 0, 1.5), (-1, 1), (0,), (-1, 0)))
    # B_opt up to a factor of 1,000 from the best run. u is at most 1, where E is proportional to B;
    # v is at most 4, steeper than any published curve.
    lower = (-5.0, -7.0, -12.0, np.log(0.05), np.log(0.05))
    upper = (5.0, 7.0, 8.0, 0.0, np.log(4.0))  # see above

    def sequences(self, p: MinimumParameters, batch: Number, target: Number = None) -> Number:
        """Return E at a batch size."""
        xp = array_module(*p, batch)
        return p.E_min * (1 + p.h * asymmetric_bowl(xp.log(batch / p.B_opt), p.u, p.v, xp))

    def quantities(self, p: MinimumParameters, target: Number = None) -> dict[str, np.ndarray]:
        """Return E_min, S_opt and B_opt."""
        E_min = np.asarray(p.E_min)
        B_opt = np.asarray(p.B_opt)
        return {"E_min": E_min, "S_opt": E_min / B_opt, "B_opt": B_opt}


class StageParameters(NamedTuple):
    """S_min < S_1 < S_opt < S_2 in steps, E_min in sequences, C in sequences per step²."""

    S_min: Number
    S_1: Number
    S_opt: Number
    S_2: Number
    C: Number
    E_min: Number


@dataclass(frozen=True)
class Piecewise(PerTarget):
    """The three-stage law of Zhou et al. (arXiv 2601.05034) [secondary], six free parameters.

    The stages, B_min = A_1 and B_opt = E_min/S_opt are from the paper [secondary]; the C¹ joints
    and what follows from them are derived here.

        E(S) = B_m1/(S − S_min) + B_0        S_min < S < S_1   inverse-linear stage
               C·(S − S_opt)² + E_min        S_1 ≤ S ≤ S_2     transition stage
               A_1·S + A_0                   S > S_2           linear stage
    """

    formula = "E = B_m1/(S - S_min) + B_0, then C·(S - S_opt)² + E_min, then A_1·S + A_0"
    parameters = StageParameters
    units = ((1, -1), (1, -1), (1, -1), (1, -1), (-1, 2), (1, 0))
    batches = ("B_min", "B_opt")
    least = 8  # two more than parameters, as the pieces have few batches each
    # B_opt about the best run, and joints near the ends and in the middle of their ranges.
    starts = tuple(
        product((0.0,), (-0.7, 0.0, 0.7), (0.3, 0.8), (0.3, 0.8), (0.3, 0.9), (0.15, 0.6))
    )
    # Two logs within e^5 of the best run, and four shares: the law degenerates at 0 and 1.
    lower = (-5.0, -5.0, *[1e-3] * 4)
    upper = (5.0, 5.0, *[1 - 1e-3] * 4)  # see above

    def shape(self, theta: Any, data: Mapping[str, Any]) -> StageParameters:
        """Return parameters from a box in which every point is admissible (derived here).

        theta = (log E_min, log B_opt, u, v, g, w), with u, v, g and w in (0, 1):

        - u: S_1/S_opt.
        - v: S_min/S_1.
        - g: B_min divided by the smaller of B_opt and the smallest batch that reached the target.
        - w: position of S_2 between S_opt (0) and the point at which A_0 is 0 (1).

        With β = B_min/B_opt: S_2/S_opt = 1 + 2w(1/β − 1), C·S_opt²/E_min = β²/(4w(1 − β)) and
        A_0/E_min = (1 − β)(1 − w) > 0.
        """
        log_E, log_B, u, v, g, w = theta
        met = (data["reached"] > 0) & (data["weight"] > 0)
        xp = array_module(theta)
        smallest = xp.where(met, data["batch"], np.inf).min()
        E_min = xp.exp(log_E)
        B_opt = xp.exp(log_B)
        beta = g * xp.minimum(1.0, smallest / B_opt)
        S_opt = E_min / B_opt
        S_2 = S_opt * (1 + 2 * w * (1 / beta - 1))
        C = E_min / S_opt**2 * beta**2 / (4 * w * (1 - beta))  # see above
        return StageParameters(S_opt * u * v, S_opt * u, S_opt, S_2, C, E_min)

    def scales(self, units: np.ndarray, seq_len: int) -> dict[str, Scale]:
        """Return the scale of E_min, in tokens."""
        return {"E_min": Scale(0, units[0] * seq_len, log=True)}

    def sequences(self, p: StageParameters, batch: Number, target: Number = None) -> Number:
        """Return E at a batch size in closed form (derived here); infinite up to B_min.

        A_0 > 0 makes E/S strictly decreasing, so that each batch size above B_min = A_1 meets the
        law once: on a quadratic in the first two stages, on a line in the last.
        """
        xp = array_module(*p, batch)
        B_m1, B_0, A_1, A_0 = outer_stages(p)
        batch_1 = (p.C * (p.S_1 - p.S_opt) ** 2 + p.E_min) / p.S_1
        batch_2 = (p.C * (p.S_2 - p.S_opt) ** 2 + p.E_min) / p.S_2
        sum_1 = p.S_min + B_0 / batch
        product_1 = (B_0 * p.S_min - B_m1) / batch
        tiny = 1e-300  # the smallest square, as a root has no derivative at 0
        # The larger root of x² − sum·x + product.
        first = 0.5 * (sum_1 + xp.sqrt(xp.maximum(sum_1**2 - 4 * product_1, tiny)))
        sum_2 = p.S_opt + 0.5 * batch / p.C  # half of the sum of the roots
        product_2 = p.S_opt**2 + p.E_min / p.C
        middle = product_2 / (sum_2 + xp.sqrt(xp.maximum(sum_2**2 - product_2, tiny)))
        met = batch > A_1
        last = A_0 / xp.where(met, batch - A_1, 1.0)
        steps = xp.where(batch > batch_1, first, xp.where(batch < batch_2, last, middle))
        return xp.where(met, batch * steps, np.inf)

    def quantities(self, p: StageParameters, target: Number = None) -> dict[str, np.ndarray]:
        """Return S_min, E_min, S_opt, B_min and B_opt."""
        S_min, _, S_opt, S_2, C, E_min = map(np.asarray, p)
        steps = {"S_min": S_min, "E_min": E_min, "S_opt": S_opt}
        return steps | {"B_min": 2 * C * (S_2 - S_opt), "B_opt": E_min / S_opt}


def outer_stages(p: StageParameters) -> tuple[Number, Number, Number, Number]:
    """Return B_m1, B_0, A_1 and A_0 of the outer stages from the C¹ joints (derived here)."""
    left = p.S_opt - p.S_1
    right = p.S_2 - p.S_opt
    reach = p.S_1 - p.S_min
    B_m1 = 2 * p.C * left * reach**2
    B_0 = p.E_min + p.C * left**2 - 2 * p.C * left * reach
    return B_m1, B_0, 2 * p.C * right, p.E_min - p.C * (p.S_2**2 - p.S_opt**2)


class SurfaceParameters(NamedTuple):
    """L_0 in nats, a with S in steps, b in nats·sequences^m, B_phi in sequences."""

    L_0: Number
    a: Number
    alpha: Number
    b: Number
    m: Number
    B_phi: Number


@dataclass(frozen=True)
class Surface(Law):
    """The joint loss model L(S, B) = L_0 + a·[S / sqrt(1 + B_phi/B)]^−α + b/B^m (derived here).

    The functional scaling law of SGD at constant LR and batch size has m = 1 and B_phi = 0. There α
    is the source exponent, and b is proportional to the LR. With B_phi > 0 a step makes less
    progress if gradient noise dominates, as in Adam. The residual is the loss at the observed (S,
    B) over the target, minus 1; it is one-sided if the target was not reached.

    Attributes:
        m: batch exponent; None fits it.
        B_phi: scale of the intrinsic time of Adam in sequences; None fits it, 0 turns it off.
    """

    m: float | None = 1.0
    B_phi: float | None = 0.0

    formula = "L = L_0 + a·S^-alpha + b/B^m"
    parameters = SurfaceParameters
    batches = ("B_min", "B_opt")
    least = 1
    joint = True

    @property
    def free(self) -> int:
        """Number of fitted parameters."""
        always = 4  # L_0, a, alpha, b
        return always + (self.m is None) + (self.B_phi is None)

    @property
    def least_cross_validated(self) -> int:
        """The number of parameters."""
        return self.free

    @property
    def family(self) -> "Surface":
        """The surface with m and B_phi among the parameters of a fit."""
        return Surface("surface")

    def problem(self, data: EsData, targets: np.ndarray) -> Problem:
        """Return one problem over all targets."""
        if len(data.targets) < 2:
            raise InputError(
                "points: one target is reached; the surface needs at least 2, and 3 to fix L_0, "
                "so give more targets or choose the hyperbola"
            )
        S_unit = float(np.exp(np.log(data.steps[data.reached]).mean()))
        B_unit = float(np.exp(np.log(data.batch).mean()))
        steps = data.steps / S_unit
        batch = data.batch / B_unit
        # Batch exponents about 1/2 and 1, those of theory.
        m_box = (0.2, 3.0) if self.m is None else (self.m, self.m)
        # Times the mean batch: beyond it the clock is Σ 1/sqrt(B) throughout.
        phi_box = (0.0, 300.0) if self.B_phi is None else (self.B_phi / B_unit,) * 2
        box = {
            "L_0": (0.0, data.targets[-1] * (1 - 1e-4)),  # below every loss that was reached
            "log a": (-12.0, 12.0),  # e^±12 times the mean steps: no bound in practice
            "log alpha": (np.log(0.02), np.log(5.0)),  # far outside of published exponents
            "log b": (-15.0, 8.0),  # from nothing to far above any loss
            "m": m_box,
            "B_phi": phi_box,
        }
        arrays = {"steps": steps, "batch": batch, "observed": data.target}
        arrays |= {"reached": data.reached.astype(float), "weight": 1 / data.target}
        lower, upper = zip(*box.values(), strict=True)
        return Problem(
            residual=loss_error,
            starts=np.array([self._start(data, steps, batch, phi_box)]),
            lower=np.array([lower]),
            upper=np.array([upper]),
            data={key: value[None] for key, value in arrays.items()},
            rows=np.arange(len(batch))[None],
            units=np.array([[S_unit, B_unit]]),
        )

    def _start(
        self, data: EsData, steps: np.ndarray, batch: np.ndarray, phi_box: tuple[float, ...]
    ) -> list[list[float]]:
        """Return grids of L_0, α and B_phi, with a and b by linear least squares."""
        top = data.targets[0]
        bottom = data.targets[-1]
        power = 1.0 if self.m is None else self.m
        phis = (0.0, 1.0) if self.B_phi is None else phi_box[:1]
        shares = (0.0, 0.5, 0.8, 0.95)  # of the lowest target, which L_0 is
        alphas = (0.2, 0.5, 1.2)  # below, at and above published exponents
        starts = []
        for share, alpha, phi in product(shares, alphas, phis):
            floor = share * bottom
            progress = steps / np.sqrt(1 + phi / batch)
            terms = np.stack([progress**-alpha, batch**-power], axis=1)[data.reached]
            scale = np.linalg.lstsq(terms, data.target[data.reached] - floor, rcond=None)[0]
            a, b = np.log(np.maximum(scale, 1e-2 * (top - floor)))  # a term is never 0
            starts.append([floor, a, np.log(alpha), b, power, phi])
        return starts

    def scales(self, units: np.ndarray, seq_len: int) -> dict[str, Scale]:
        """Return the scales of all parameters but a, and b if m is fitted."""
        B = units[1]
        at = {name: i for i, name in enumerate(self.parameters._fields)}
        known = {
            "L_0": Scale(at["L_0"]),
            "alpha": Scale(at["alpha"], log=True),
            "m": Scale(at["m"]),
            "B_phi": Scale(at["B_phi"], B),
        }
        return known if self.m is None else known | {"b": Scale(at["b"], B**self.m, log=True)}

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> SurfaceParameters:
        """Return parameters in steps and sequences, from fitted numbers [..., 6]."""
        S_unit, B_unit = problem.units[index]
        L_0, log_a, log_alpha, log_b, m, phi = np.moveaxis(theta, -1, 0)
        alpha = np.exp(log_alpha)
        a = np.exp(log_a) * S_unit**alpha
        b = np.exp(log_b) * B_unit**m
        return SurfaceParameters(L_0, a, alpha, b, m, phi * B_unit)

    def loss(self, p: SurfaceParameters, steps: Number, batch: Number) -> Number:
        """Return the loss in nats after `steps`; the batch size does not change."""
        progress = steps * self.intrinsic_time(p, batch)
        return p.L_0 + p.a * progress**-p.alpha + p.b * batch**-p.m

    def intrinsic_time(self, p: SurfaceParameters, batch: Number) -> Number:
        """Return the progress of one step at a batch size: 1 if gradient noise is small."""
        return (1 + p.B_phi / batch) ** -0.5  # 1/sqrt, as in L(S, B)

    def sequences(self, p: SurfaceParameters, batch: Number, target: Number = None) -> Number:
        """Return E in sequences at a loss; infinite if the surface never reaches it."""
        xp = array_module(*p, batch, target)
        excess = target - p.L_0 - p.b * batch**-p.m
        met = excess > 0
        progress = (p.a / xp.where(met, excess, 1.0)) ** (1 / p.alpha)
        return xp.where(met, batch * progress / self.intrinsic_time(p, batch), np.inf)

    def quantities(self, p: SurfaceParameters, target: Number = None) -> dict[str, np.ndarray]:
        """Return asymptotes and minimum of E(S), for target losses above L_0 (derived here).

        With Δ = L − L_0: S_min = (a/Δ)^{1/α}, B_min = (b/Δ)^{1/m}. For B_phi = 0 the minimum is at
        B_opt = (1 + m/α)^{1/m}·B_min; otherwise it is the root of a monotone function of log B,
        bisected. Arguments broadcast as NumPy arrays.
        """
        p = SurfaceParameters(*(np.asarray(value, np.float64) for value in p))
        excess = np.asarray(target, np.float64) - p.L_0
        B_min = (p.b / excess) ** (1 / p.m)
        ratio = p.m / p.alpha
        low = np.zeros_like(B_min)
        high = np.log1p(2 * ratio) / p.m + np.zeros_like(B_min)
        for _ in range(60):  # halvings: to the last bit
            middle = (low + high) / 2
            noise = np.exp(-p.m * middle)
            half_clock = 0.5 * p.B_phi / (B_min * np.exp(middle) + p.B_phi)  # a square root
            rising = 1 - half_clock > ratio * noise / (1 - noise)
            low = np.where(rising, low, middle)
            high = np.where(rising, middle, high)
        B_opt = B_min * np.exp((low + high) / 2)
        progress = (p.a / (excess - p.b * B_opt**-p.m)) ** (1 / p.alpha)
        S_opt = progress / self.intrinsic_time(p, B_opt)
        S_min = (p.a / excess) ** (1 / p.alpha) + np.zeros_like(B_min)
        steps = {"S_min": S_min, "E_min": B_opt * S_opt, "S_opt": S_opt}
        return steps | {"B_min": B_min, "B_opt": B_opt}


def loss_error(theta: Any, data: Mapping[str, Any]) -> Any:
    """Return residuals [M] of fitted numbers [6]; all members of the family share them."""
    logs = slice(1, 4)  # a, alpha and b
    p = SurfaceParameters(theta[0], *jnp.exp(theta[logs]), *theta[logs.stop :])
    error = Surface("surface").loss(p, data["steps"], data["batch"]) - data["observed"]
    return residuals(error, data)


INTERPOLATOR = AsymmetricMinimum("asymmetric")
"""Interpolates tokens between batch sizes if there are too few to cross-validate a law."""
# m = 1/2 is that of gradient noise of which the square adds up.
_EVERY = (
    Surface("surface"),
    Surface("surface, m = 1/2", m=0.5),
    Surface("surface, m free", m=None),
    Surface("surface, Adam clock", B_phi=None),
    Piecewise("piecewise"),
    Hyperbola("hyperbola"),
    INTERPOLATOR,
)
LAWS: Registry[Law] = Registry("law", {law.name: law for law in _EVERY}, of=Law)
FAMILIES = tuple(law for law in LAWS.values() if law.family == law)
