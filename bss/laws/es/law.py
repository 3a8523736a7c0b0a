"""A law E(S) as a value: what fitting, cross-validation, schedules, plots and reports use.

Data are counted in sequences, E = B·S, so that the batch size B of a run is E/S. A law is solved
for E at the batch size of a run, which is exact: E and S share their noise, so E is never regressed
on S. The parameters of a law are a NamedTuple of scalars or arrays, traced or not, in steps and
sequences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.laws.constraints import Constraints
from bss.laws.es.data import EsData
from bss.laws.solver import Residual

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
        data: arrays [R, M]; among them `observed`, the measured value; `weight`, which turns errors
            of the law into residuals; and `reached`, 0 if the target was not reached, so that the
            residual is one-sided.
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
        from bss.laws.es import LAWS

        return law if isinstance(law, Law) else LAWS[law]

    def __str__(self) -> str:
        """Return the text that `parse` takes; the name if the law cannot be imported."""
        from bss.laws.es import LAWS

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

    def constrained(self, problem: Problem, constraints: Constraints, seq_len: int) -> Problem:
        """Return a problem with fixed or bounded parameters, named as in the JSON of a fit."""
        names, boxes = self.parameters._fields, []
        for i, box in enumerate(zip(problem.lower, problem.upper, strict=True)):

            def printed(theta: np.ndarray, i: int = i) -> list[float]:
                return [*self.in_tokens(self.decoded(theta, problem, i), seq_len).values()]

            boxes.append(constraints.box(box, names, printed, f"the {self.name} law"))
        lower, upper = (np.array(ends) for ends in zip(*boxes, strict=True))
        return replace(problem, lower=lower, upper=upper)

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> Any:
        """Return parameters in steps and sequences, from fitted numbers [..., P]."""
        raise NotImplementedError

    def sequences(self, p: Any, batch: Number, target: Number = None) -> Number:
        """Return E at a batch size; infinite if the target is never reached."""
        raise NotImplementedError

    def quantities(self, p: Any, target: Number = None) -> dict[str, np.ndarray]:
        """Return S_min, E_min and S_opt if the law has them, and its `batches`."""
        raise NotImplementedError

    def numbers(self, p: Any, target: Number = None) -> dict[str, np.ndarray]:
        """Return `quantities`; E_min defaults to E at B_opt."""
        quantities = dict(self.quantities(p, target))
        if "E_min" not in quantities and "B_opt" in quantities:
            with jax.enable_x64(True):
                quantities["E_min"] = np.asarray(self.sequences(p, quantities["B_opt"], target))
        return quantities

    def stages(self, p: Any, target: float) -> dict[str, float]:
        """Return the steps between stages, for figures; S_1 and S_2 enclose a transition."""
        return {}

    def loss(self, p: Any, steps: Number, batch: Number) -> Number:
        """Return the loss in nats of a joint law after `steps` at a constant batch size."""
        raise NotImplementedError

    def intrinsic_time(self, p: Any, batch: Number) -> Number:
        """Return the progress of one step at a batch size; a joint law sums it over steps."""
        return 1.0

    def in_tokens(self, p: Any, seq_len: int) -> dict[str, float]:
        """Return the parameters as in the JSON of a fit."""
        return {name: float(value) for name, value in p._asdict().items()}

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
        return self.parameters(*jnp.exp(theta))

    def problem(self, data: EsData, targets: np.ndarray) -> Problem:
        """Return one problem per target; short ones are padded to rows [T, M]."""
        groups = [np.flatnonzero(data.target == target) for target in targets]
        width = max(len(group) for group in groups)
        rows = np.array([np.pad(group, (0, width - len(group)), mode="edge") for group in groups])
        mask = np.array([np.arange(width) < len(group) for group in groups])
        reached = data.reached[rows] & mask
        tokens = np.where(reached, data.sequences[rows], np.inf)
        best = np.take_along_axis(rows, tokens.argmin(axis=1)[:, None], axis=1)[:, 0]
        E_unit, B_unit = data.sequences[best], data.batch[best]
        arrays = {
            "batch": data.batch[rows] / B_unit[:, None],
            "observed": np.log(data.sequences[rows] / E_unit[:, None]),
            "reached": reached.astype(float),
            "weight": data.slope[rows] / data.target[rows] * mask,
        }
        starts, lower, upper = (
            np.array([box] * len(targets), np.float64)
            for box in (self.starts, self.lower, self.upper)
        )
        units = np.stack([E_unit, B_unit], axis=1)
        return Problem(LogError(self), starts, lower, upper, arrays, rows, units)

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> Any:
        """Return parameters in steps and sequences, from fitted numbers [..., P]."""
        with jax.enable_x64(True):
            shape = self.shape(jnp.moveaxis(jnp.asarray(theta), -1, 0), problem.one(index))
            return self._scaled(map(np.asarray, shape), *problem.units[index])

    def in_tokens(self, p: Any, seq_len: int) -> dict[str, float]:
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
