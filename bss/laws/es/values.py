"""A fitted law E(S) as a value, and its JSON form, which is readable without this package.

S is in steps, E in tokens, B in sequences.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import jax
import numpy as np

from bss.errors import InputError, check
from bss.laws.base import BestBatch, Estimate, Fit
from bss.laws.es.law import Law
from bss.laws.resampling import RunEffects

NO_MINIMUM = BestBatch(None, note="unidentified: not measured", status="too_few_batches")
ASKED = "asked for"
CHOSEN = "predicts left-out batches best"
AVERAGED = "averaged with those that predict left-out batches as well"
NONE_CHOSEN = (
    "no law is chosen with fewer than 6 batches at a target; the runs' own least tokens answer"
)
METHOD = "parametric bootstrap, run offset and independent noise; percentiles"


@dataclass(frozen=True)
class Comparison:
    """Errors of predicting left-out batches.

    Attributes:
        table: per law: law, parameters, points, and the root mean squares interior_loss (of the
            error in log E times −dL/dlog E), interior_log_E and edge_log_E; best first.
        winner: the law of the lowest interior_loss.
        level: it and those that are level with it, best first.
        error: root mean square error in log E of the choice, at batches that it has not seen;
            None with fewer than six.
        left_out: laws that too few batches or targets let nobody judge.
    """

    table: tuple[dict[str, Any], ...]
    winner: str
    level: tuple[str, ...]
    error: float | None
    left_out: tuple[str, ...]


@dataclass(frozen=True)
class OutlierRun:
    """A run that does not fit the others at a target.

    Attributes:
        run: its name; batch in sequences; target_loss in nats.
        off: log of its tokens over what the others say.
        times: over the scatter.
        moves: B_opt without it over B_opt with it; None where either is not told.
    """

    run: str
    batch: float
    target_loss: float
    off: float
    times: float
    moves: float | None

    def __str__(self) -> str:
        """The run by name, how far off it is, and what B_opt is without it."""
        side = "above" if self.off > 0 else "below"
        place = (
            f"run {self.run}, batch {self.batch:g}: {abs(self.off):.3f} {side} the others in log "
            f"tokens to {self.target_loss:g}, {self.times:.0f} times the scatter"
        )
        moved = "" if self.moves is None else f"; without it B_opt moves by {self.moves - 1:+.0%}"
        return f"{place}{moved} (--drop 'run={self.run}')"


@dataclass(frozen=True)
class TargetFit:
    """What a law says of one target loss.

    Attributes:
        target_loss: in nats.
        S_min, S_opt: steps that no batch can undercut, and at B_opt; None where the law has none.
        E_min: fewest tokens: at B_opt, or where a law has none, in the limit of small batches.
        batches: the law's batch quantities, in sequences, and B_opt, which every fit has.
        intervals: of S_min, E_min and S_opt; these are None where unidentified.
        parameters: of a law of this target, E and B in tokens; empty for a joint law.
        status: "converged", "not converged" or "unidentified: ...".
        points, runs: rows that reached the target, and runs with a row at it.
        draws: refits of the parameters, where they are kept.
        measured: the best batch by the runs of this target alone, in sequences.
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
    measured: BestBatch = NO_MINIMUM

    @property
    def best(self) -> BestBatch | None:
        """B_opt; None of a law that was asked for and has none."""
        batch = self.batches.get("B_opt")
        return batch if isinstance(batch, BestBatch) else None

    def shown(self, name: str) -> Estimate | None:
        """A batch that the law tells, if it converged here, or the runs by themselves."""
        batch = self.batches.get(name)
        own = isinstance(batch, BestBatch) and batch.method == "measured"
        return batch if own or self.status == "converged" else None

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The JSON form, with each of `batches` as a key of its own."""
        return plain | plain.pop("batches")

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields, of the JSON form; an estimate that is no field is a batch."""
        known = {one.name for one in fields(cls)}
        others = {key: value for key, value in entry.items() if key not in known}
        estimates = {k: x for k, x in others.items() if isinstance(x, Mapping) and "value" in x}
        return entry | {"batches": estimates}


@dataclass(frozen=True, repr=False)
class EsFit(Fit):
    """A law E(S) fitted to the points of one model.

    Attributes:
        law: the law; of a family, the member that the parameters make any other.
        seq_len: tokens per sequence.
        fits: one per target, highest loss first.
        joint, joint_intervals: parameters of a joint law; None and none for a law per target.
        measured_batches: batches with any point, ascending.
        residuals: per reached point: run, batch, target_loss and the error relative to that loss.
        points, runs: rows that reached a target, and runs behind them.
        draws: refits of a joint law's parameters, where they are kept.
        scatter: of the residuals, between and within runs: of a joint law, else of each target.
        choice: how the law came to be this one.
        comparison: of laws by left-out batches; None where nothing could be left out.
        level_with: fits of other laws that predict as well, with which it is averaged.
        outliers: runs that do not fit the others.
    """

    KIND = "es"
    SCHEMA = 3

    law: Law
    seq_len: int
    fits: tuple[TargetFit, ...]
    joint: dict[str, float] | None = field(default=None, metadata={"key": "surface"})
    joint_intervals: dict[str, Estimate] = field(
        default_factory=dict, metadata={"key": "surface_intervals"}
    )
    measured_batches: tuple[float, ...] = ()
    residuals: tuple[dict[str, Any], ...] = ()
    points: int = 0
    runs: int = 0
    draws: dict[str, tuple[float, ...]] = field(default_factory=dict)
    scatter: tuple[RunEffects, ...] = ()
    choice: str = ASKED
    comparison: Comparison | None = None
    level_with: tuple["EsFit", ...] = ()
    outliers: tuple[OutlierRun, ...] = ()
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

    @property
    def averaged(self) -> tuple["EsFit", ...]:
        """The fits whose predictions are averaged: this one, and those level with it."""
        return (self, *self.level_with)

    @property
    def law_name(self) -> str:
        """Of the law by which the fit is asked."""
        return self.law.name

    @property
    def name(self) -> str:
        """Of the law, or of all that are averaged."""
        if self.choice == NONE_CHOSEN:
            return "no"
        return " + ".join(fit.law.name for fit in self.averaged)

    @property
    def voice(self) -> str:
        """What says its best batches, for people."""
        return "the runs' own least tokens" if self.name == "no" else f"the {self.name} law"

    @property
    def error(self) -> float | None:
        """Root mean square error in log E at left-out batches: of the choice, else of the law."""
        if self.comparison is None:
            return None
        if self.choice != ASKED:
            return self.comparison.error
        rows = {row["law"]: row["interior_log_E"] for row in self.comparison.table}
        return rows.get(self.comparison.winner)

    def parameters(self, target_loss: float) -> Any:
        """The law's parameters at a target, in steps and sequences.

        Raises:
            InputError: they are unidentified there.
        """
        entry = self.joint if self.law.joint else self.at(target_loss).parameters
        if not entry:
            name = self.law.name
            raise InputError(f"target_loss: the {name} law is unidentified at {target_loss:g}")
        return self.law.from_tokens(entry, self.seq_len)


def tokens_to_target(fit: EsFit, batches: Sequence[float], target_loss: float) -> np.ndarray:
    """E in tokens at batches in sequences, by the fitted law; infinite where it is never reached.

    Of laws that are averaged those count that were fitted at the target.

    Raises:
        InputError: a law per target was not fitted at this one; a joint law takes any.
    """
    batch, logs = np.asarray(batches, np.float64), []
    fitted = [one for one in fit.averaged if one.law.joint or one.at(target_loss).parameters]
    for one in fitted or [fit]:
        parameters = one.parameters(target_loss)
        with jax.enable_x64(True), np.errstate(divide="ignore"):
            logs.append(np.log(np.asarray(one.law.sequences(parameters, batch, target_loss))))
    return np.exp(np.mean(logs, axis=0)) * fit.seq_len


def predicted_loss(fit: EsFit, tokens: int, batch: float) -> float:
    """The loss after so many tokens at a constant batch, in nats.

    A joint law has it in closed form. A law per target is interpolated between its targets, in
    log tokens, and continued beyond the outer ones with their slope (derived here).

    Raises:
        InputError: the law is unidentified at every target.
    """
    check(tokens > 0, "tokens", tokens, "the horizon in tokens, above 0")
    if fit.level_with:
        each = [predicted_loss(replace(one, level_with=()), tokens, batch) for one in fit.averaged]
        return float(np.mean(each))
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
