"""A law as a formula: what a user writes, and what fits, predictions, plots and JSON follow from.

A law is a value in a module of the user, named `package.module:LAW`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from bss.errors import InputError
from bss.laws.problem import Parameter
from bss.registry import Registry

PRIOR = 0.01  # of log measured, that one standard deviation of a prior weighs: two runs' noise


@dataclass(frozen=True)
class OwnLaw:
    """A law y = f(x) of positive numbers; errors are of log y.

    Attributes:
        name: in tables and messages.
        formula: for people, in the names of the parameters.
        measured: the column of y.
        columns: the columns of x.
        parameters: of f, each with its bounds and, if it has one, its prior.
        replication: the column whose rows share an error, such as the luck of a run.
        left_out: the column whose values are left out one at a time; by default that of
            replication.
        unit: of y, for people.

    Examples:
        >>> class Power(OwnLaw):
        ...     formula, measured, columns = "y = A·N^a", "y", ("params",)
        ...     parameters = (Parameter("A", 0.1, 10.0), Parameter("a", 0.0, 2.0))
        ...     def value(self, p, x):
        ...         return p.A * x["params"] ** p.a
        >>> law = Power("power")
        >>> law.names
        ('A', 'a')
        >>> np.exp(law.logs({"A": 3.0, "a": 0.5}, {"params": [4.0]})).round(2).tolist()
        [6.0]
    """

    name: str

    formula: ClassVar[str]
    measured: ClassVar[str]
    columns: ClassVar[tuple[str, ...]]
    parameters: ClassVar[tuple[Parameter, ...]]
    replication: ClassVar[str] = "run"
    left_out: ClassVar[str] = ""
    unit: ClassVar[str] = ""

    @classmethod
    def parse(cls, law: "OwnLaw | str") -> "OwnLaw":
        """Return a law, or the law of `package.module:ATTRIBUTE`."""
        return law if isinstance(law, OwnLaw) else OWN_LAWS.load(law)

    def __str__(self) -> str:
        """Return the text that `parse` takes; the name if the law cannot be imported."""
        try:
            return OWN_LAWS.name_of(self)
        except InputError:
            return self.name

    def value(self, p: Any, x: Mapping[str, Any]) -> Any:
        """Return y [N], positive, of parameters by name and columns [N], traced by JAX."""
        raise NotImplementedError

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the parameters."""
        return tuple(one.name for one in self.parameters)

    @property
    def folds_by(self) -> str:
        """The column whose values are left out one at a time."""
        return self.left_out or self.replication

    def check(self) -> None:
        """Raise InputError if two parameters, or a parameter and a column, have one name."""
        seen = dict.fromkeys((*self.columns, self.measured), "a column")
        for one in self.parameters:
            if one.name in seen:
                raise InputError(
                    f"law {self.name}: {one.name} is a parameter and {seen[one.name]}; rename one"
                )
            seen[one.name] = "another parameter"
            low = one.fitted(one.lower)
            high = one.fitted(one.upper)
            if not (np.isfinite([low, high]).all() and low <= high):
                raise InputError(
                    f"law {self.name}: {one.name} is bounded by {one.lower} and {one.upper}; "
                    "write finite bounds in order, above 0 of a logarithm"
                )

    def printed(self, theta: Any, xp: Any = np) -> dict[str, Any]:
        """Return parameters by name, of fitted numbers [P, ...]."""
        pairs = zip(self.parameters, theta, strict=True)
        return {one.name: xp.exp(x) if one.log else x for one, x in pairs}

    def logs(self, parameters: Mapping[str, Any], columns: Mapping[str, Any]) -> np.ndarray:
        """Return log y of parameters by name, each a number or an array that broadcasts with x."""
        with jax.enable_x64(True):
            own = {name: jnp.asarray(np.asarray(x, float)) for name, x in parameters.items()}
            x = {name: jnp.asarray(np.asarray(columns[name], float)) for name in self.columns}
            return np.asarray(self._log(own, x), np.float64)

    def _log(self, parameters: Mapping[str, Any], x: Mapping[str, Any]) -> Any:
        try:
            return jnp.log(self.value(SimpleNamespace(**parameters), x))
        except Exception as error:  # whatever a user's formula raises
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            raise InputError(f"law {self.name}: its formula fails: {what}") from error


@dataclass(frozen=True)
class OwnErrors:
    """Errors [N] of log y of a law, fitted minus measured."""

    law: OwnLaw

    def __call__(self, theta: Any, data: Mapping[str, Any]) -> Any:
        """Return errors of fitted numbers [P]."""
        log_y = self.law._log(self.law.printed(theta, jnp), data["columns"])
        return (log_y - data["observed"]) * data["weight"]


@dataclass(frozen=True)
class OwnResidual:
    """The errors, and how far parameters are from their usual values."""

    law: OwnLaw

    def __call__(self, theta: Any, data: Mapping[str, Any]) -> Any:
        """Return residuals [N + priors] of fitted numbers [P]."""
        errors = OwnErrors(self.law)(theta, data)
        pairs = zip(self.law.parameters, theta, strict=True)
        priors = [
            PRIOR * (x - one.fitted(one.usual)) / one.spread
            for one, x in pairs
            if np.isfinite(one.spread)
        ]
        return jnp.concatenate([errors, jnp.array(priors)]) if priors else errors


OWN_LAWS: Registry[OwnLaw] = Registry("law", {}, of=OwnLaw)
"""Laws of users by `package.module:ATTRIBUTE`; the package has none."""
