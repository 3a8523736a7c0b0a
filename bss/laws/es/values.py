"""A fitted law E(S) as a value, and its JSON form, which is readable without this package.

S is in steps, E in tokens, B in sequences.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

from bss.errors import InputError
from bss.laws.es.law import Law
from bss.laws.fitting.bootstrap import RunEffects
from bss.laws.fitting.estimate import Estimate, Fit

METHOD = "parametric bootstrap, run offset and independent noise; percentiles"


@dataclass(frozen=True)
class TargetFit:
    """What a law says of one target loss.

    Attributes:
        target_loss: in nats.
        S_min, S_opt: steps that no batch can undercut, and at B_opt; None where the law has none.
        E_min: fewest tokens: at B_opt, or where a law has none, in the limit of small batches.
        batches: the law's batch quantities, in sequences.
        intervals: of S_min, E_min and S_opt; these are None where unidentified.
        parameters: of a law of this target, E and B in tokens; empty for a joint law.
        status: "converged", "not converged" or "unidentified: ...".
        points, runs: rows that reached the target, and runs with a row at it.
        draws: refits of the parameters, where they are kept.
    """

    target_loss: float
    S_min: float | None
    E_min: float | None
    S_opt: float | None
    batches: dict[str, Estimate]
    intervals: dict[str, Estimate]
    parameters: dict[str, float]
    status: str
    points: int
    runs: int
    draws: dict[str, tuple[float, ...]] = field(default_factory=dict)

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The JSON form, with each of `batches` as a key of its own."""
        return plain | plain.pop("batches")

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields, of the JSON form."""
        batches = {key: value for key, value in entry.items() if key.startswith("B_")}
        return entry | {"batches": batches}


@dataclass(frozen=True)
class EsFit(Fit):
    """A law E(S) fitted to the points of one model.

    Attributes:
        law: the law; of a family, the member that the parameters make any other.
        seq_len: tokens per sequence.
        fits: one per target, highest loss first.
        surface, surface_intervals: parameters of a joint law; None and none for a law per target.
        measured_batches: batches with any point, ascending.
        residuals: per reached point: run, batch, target_loss and the error relative to that loss.
        points, runs: rows that reached a target, and runs behind them.
        draws: refits of a joint law's parameters, where they are kept.
        scatter: of the residuals, between and within runs: of a joint law, else of each target.
    """

    KIND = "es"

    law: Law
    seq_len: int
    fits: tuple[TargetFit, ...]
    surface: dict[str, float] | None = None
    surface_intervals: dict[str, Estimate] = field(default_factory=dict)
    measured_batches: tuple[float, ...] = ()
    residuals: tuple[dict[str, Any], ...] = ()
    points: int = 0
    runs: int = 0
    draws: dict[str, tuple[float, ...]] = field(default_factory=dict)
    scatter: tuple[RunEffects, ...] = ()
    method: str = field(default=METHOD, kw_only=True)

    def at(self, target_loss: float) -> TargetFit:
        """The fit of one target.

        Raises:
            InputError: there is none.
        """
        for fit in self.fits:
            if np.isclose(fit.target_loss, target_loss):
                return fit
        known = ", ".join(f"{fit.target_loss:g}" for fit in self.fits)
        raise InputError(f"target_loss: {target_loss:g} was not fitted; choose one of {known}")

    def parameters(self, target_loss: float) -> Any:
        """The law's parameters at a target, in steps and sequences.

        Raises:
            InputError: they are unidentified there.
        """
        entry = self.surface if self.law.joint else self.at(target_loss).parameters
        if not entry:
            name = self.law.name
            raise InputError(f"target_loss: the {name} law is unidentified at {target_loss:g}")
        return self.law.from_tokens(entry, self.seq_len)


def tokens_to_target(fit: EsFit, batches: Sequence[float], target_loss: float) -> np.ndarray:
    """E in tokens at batches in sequences, by the fitted law; infinite where it is never reached.

    Raises:
        InputError: a law per target was not fitted at this one; a joint law takes any.
    """
    batch, parameters = np.asarray(batches, np.float64), fit.parameters(target_loss)
    with jax.enable_x64(True):
        sequences = fit.law.sequences(parameters, batch, target_loss)
        return np.asarray(sequences) * fit.seq_len


def predicted_loss(fit: EsFit, tokens: int, batch: float) -> float:
    """The loss after so many tokens at a constant batch, in nats.

    A joint law has it in closed form. A law per target is interpolated between its targets, in
    log tokens, and continued beyond the outer ones with their slope (derived here).

    Raises:
        InputError: the law is unidentified at every target.
    """
    if tokens <= 0:
        raise InputError(f"tokens: {tokens} is not positive; give the horizon in tokens")
    if fit.law.joint:
        parameters = fit.parameters(fit.fits[0].target_loss)
        return float(fit.law.loss(parameters, tokens / (batch * fit.seq_len), batch))
    targets = [target.target_loss for target in fit.fits if target.parameters]
    if not targets:
        raise InputError(
            f"fit: the {fit.law.name} law is unidentified at every target; add batches"
        )
    needed = np.array([float(tokens_to_target(fit, [batch], loss)[0]) for loss in targets])
    met = np.isfinite(needed)
    if met.sum() < 2:
        # With one target there is no slope: fewer tokens to it is all that can be compared.
        return targets[0] + math.log(needed[0] / tokens) if met.any() else math.inf
    x, y = np.log(needed[met]), np.array(targets)[met]
    i = int(np.clip(np.searchsorted(x, math.log(tokens)), 1, len(x) - 1))
    slope = (y[i] - y[i - 1]) / (x[i] - x[i - 1])
    return float(y[i] + slope * (math.log(tokens) - x[i]))
