"""A law E(S) as a value: all that fitting, comparing, schedules, plots and reports ask of one.

The amount of data is counted in sequences, E = B·S, so that the batch B of a run in sequences is
E/S. A law is solved for E at the batch of a run, which is exact: E and S share their noise, so E
is never regressed on S. A law's parameters are a NamedTuple of scalars or arrays, traced or not,
in steps and sequences.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.laws.constraints import Constraints
from bss.laws.es.design import Design
from bss.laws.solver import Residual

Number = Any
"""A scalar or an array, of NumPy or traced."""


@dataclass(frozen=True)
class Problem:
    """R problems of one law over rows [M], ready for `bss.laws.solver.solve`.

    Attributes:
        residual: equal for members of a family, so that they share one compiled program.
        starts: [R, K, P].
        lower, upper: [R, P]; equal where a parameter is held fixed.
        data: arrays [R, M]; among them `observed`, what the law is held against, `weight`, that
            turns its errors into the residuals, and `reached`, 0 where the target was not, so that
            the residual is one-sided.
        rows: [R, M], the design's row behind each of them; padding has weight 0.
        units: [R, 2], in sequences or steps, what the data count E (a joint law: S) and B in.
    """

    residual: Residual
    starts: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    data: dict[str, np.ndarray]
    rows: np.ndarray
    units: np.ndarray

    def one(self, index: int) -> dict[str, np.ndarray]:
        """The data of one of the problems."""
        return {key: value[index] for key, value in self.data.items()}


def residuals(error: Any, data: Mapping[str, Any]) -> Any:
    """Weighted errors of a law, one-sided where the target was not reached."""
    return data["weight"] * jnp.where(data["reached"] > 0, error, jnp.minimum(error, 0.0))


@dataclass(frozen=True)
class Law:
    """What is assumed of E(S). Methods take its parameters as `p`.

    Attributes:
        name: what people and tables call it.
        formula: in the symbols of its parameters.
        parameters: the NamedTuple they form.
        batches: the batch quantities it has, such as B_opt, which policies follow.
        least: how many batches must reach a target for it to be fitted.
        joint: whether all targets share one problem. A joint law has a `loss`, and an E at any
            target; the others know the targets that they were fitted to.
    """

    name: str

    formula: ClassVar[str]
    parameters: ClassVar[Any]
    batches: ClassVar[tuple[str, ...]]
    least: ClassVar[int]
    joint: ClassVar[bool] = False

    @classmethod
    def parse(cls, law: "Law | str") -> "Law":
        """A law, or that of a name: one of `bss.laws.es`, or `package.module:ATTRIBUTE`."""
        from bss.laws.es import LAWS

        return law if isinstance(law, Law) else LAWS[law]

    def __str__(self) -> str:
        """What `parse` takes; of a law that nobody can import, its name."""
        from bss.laws.es import LAWS

        try:
            return LAWS.name_of(self)
        except InputError:
            return self.name

    @property
    def free(self) -> int:
        """How many parameters are fitted: in all by a joint law, else at each target."""
        return len(self.parameters._fields)

    @property
    def least_judged(self) -> int:
        """How many batches must reach a target for one to be left out and predicted."""
        return self.least + 1

    @property
    def family(self) -> "Law":
        """The registered law that explains a fit of this one, given the fitted parameters."""
        return self

    def problem(self, design: Design, targets: np.ndarray) -> Problem:
        """The law put to the shared fitter, at targets that enough batches reach.

        Raises:
            InputError: the design has too few targets.
        """
        raise NotImplementedError

    def held(self, problem: Problem, constraints: Constraints, seq_len: int) -> Problem:
        """A problem with parameters held, which are named as a fit's JSON has them."""
        names, boxes = self.parameters._fields, []
        for i, box in enumerate(zip(problem.lower, problem.upper, strict=True)):

            def printed(theta: np.ndarray, i: int = i) -> list[float]:
                return [*self.in_tokens(self.decoded(theta, problem, i), seq_len).values()]

            boxes.append(constraints.box(box, names, printed, f"the {self.name} law"))
        lower, upper = (np.array(ends) for ends in zip(*boxes, strict=True))
        return replace(problem, lower=lower, upper=upper)

    def decoded(self, theta: np.ndarray, problem: Problem, index: int) -> Any:
        """The parameters in steps and sequences, of fitted numbers [..., P] of one problem."""
        raise NotImplementedError

    def sequences(self, p: Any, batch: Number, target: Number = None) -> Number:
        """E at a batch; infinite where the target is never reached."""
        raise NotImplementedError

    def quantities(self, p: Any, target: Number = None) -> dict[str, np.ndarray]:
        """S_min, E_min and S_opt where it has them, in steps and sequences, and its `batches`."""
        raise NotImplementedError

    def numbers(self, p: Any, target: Number = None) -> dict[str, np.ndarray]:
        """`quantities`, with E_min of a law that does not tell it: E at B_opt, where it has one."""
        quantities = dict(self.quantities(p, target))
        if "E_min" not in quantities and "B_opt" in quantities:
            with jax.enable_x64(True):
                quantities["E_min"] = np.asarray(self.sequences(p, quantities["B_opt"], target))
        return quantities

    def stages(self, p: Any, target: float) -> dict[str, float]:
        """Steps that mark the law's stages, for figures; S_1 and S_2 enclose a transition."""
        return {}

    def loss(self, p: Any, steps: Number, batch: Number) -> Number:
        """The loss in nats of a joint law after `steps` at a constant batch."""
        raise NotImplementedError

    def clock(self, p: Any, batch: Number) -> Number:
        """Progress of one step at a batch; a joint law adds it up where the batch changes."""
        return 1.0

    def in_tokens(self, p: Any, seq_len: int) -> dict[str, float]:
        """The parameters as a fit's JSON has them."""
        return {name: float(value) for name, value in p._asdict().items()}

    def from_tokens(self, entry: Mapping[str, Number], seq_len: int) -> Any:
        """`in_tokens`, read back."""
        return self.parameters(**entry)
