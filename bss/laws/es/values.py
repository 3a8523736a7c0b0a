"""A fitted law E(S) as a value: estimates per target, predictions, residuals and the JSON form.

S is in steps, E in tokens, B in sequences. The interval of a new run's tokens combines the refits
of the parameters with the run effects about the law, so that it includes the lack of fit. Between
the targets of a law per target, log tokens and log batches are interpolated linearly in the loss
(derived here).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal

import jax
import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.laws.at_batch import Steps, StepsAtBatch, steps_at_batch
from bss.laws.base import (
    BestBatch,
    Estimate,
    Fit,
    Outlier,
    as_positive,
    check_lengths,
    check_names,
    check_positive,
    check_status,
    described,
    notes_of,
    outside,
    run_table,
    tails,
)
from bss.laws.es.law import Law
from bss.laws.resampling import RunEffects, draw_noise
from bss.points.second_moment import UNKNOWN
from bss.values import SLACK, Count, Finite, Positive, PositiveCount

RUNS = 10  # new runs per refit: 2,000 draws for the tails of 200 refits
NO_MINIMUM = BestBatch(None, note="unidentified: not measured", status="too_few_batches")
REQUESTED: Literal["requested"] = "requested"
CROSS_VALIDATED: Literal["cross-validated"] = "cross-validated"
UNSELECTED: Literal["unselected"] = "unselected"
Choice = Literal["requested", "cross-validated", "unselected"]
METHOD = "parametric bootstrap, run offset and independent noise; percentiles"
NO_DRAWS = "no interval: the fit keeps no refits; fit the runs again"
IN_SEQUENCES = "points in sequences"
NEVER = "never reached at this batch, by the law"
ROWS = ("run", "batch", "target_loss", "relative_loss", "steps", "measured", "fitted")
OF_THE_LAW = ("relative_loss", "fitted")
ERRORS = ("interior_loss", "interior_log_E", "edge_log_E")
"""Columns of `EsFit.rows`, and the errors in a row of `Comparison.table`."""


@dataclass(frozen=True)
class Comparison:
    """Errors of predicting left-out batch sizes.

    Attributes:
        table: per law: law, parameters, points, and the root mean squares interior_loss (of the
            error in log E times −dL/dlog E), interior_log_E and edge_log_E; lowest first.
        winner: the law of the lowest interior_loss.
        excluded: laws that need more batch sizes or targets.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    table: tuple[dict[str, Any], ...]
    winner: str
    excluded: tuple[str, ...] = field(default=(), metadata={"key": "left_out"})

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from is damaged."""
        for i, row in enumerate(self.table):
            for name in ("law", "parameters", "points", *ERRORS):
                wanted = str if name == "law" else (int, float)
                known = row.get(name, math.inf)
                if known is None and name in ERRORS:
                    continue
                if not isinstance(known, wanted) or isinstance(known, bool) or known == math.inf:
                    raise InputError(f"{where}table[{i}].{name} is {row.get(name)!r}")
        if self.winner not in [row["law"] for row in self.table]:
            raise InputError(f"{where}winner is {self.winner!r}, which is not in its table")


@dataclass(frozen=True)
class TargetFit:
    """The estimates at one target loss.

    Attributes:
        target_loss: in nats.
        S_min, S_opt: steps in the limit of large batch sizes, and at B_opt; None if unidentified.
        E_min: fewest tokens: at B_opt, or for a law without B_opt in the limit of small batches.
        batches: the batch quantities of the law, in sequences, and B_opt.
        intervals: of S_min, E_min and S_opt, if identified.
        parameters: of a law of this target, E and B in tokens; empty for a joint law.
        status: of the law: "converged", "not converged" or "unidentified: ...". In JSON it is
            `solver_status`, and `status` is that of B_opt, as in the table.
        points, runs: rows that reached the target, and runs with a row at it.
        draws: refits of the parameters.
        measured: the measured minimum over batch sizes, in sequences.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    target_loss: Positive
    S_min: Positive | None
    E_min: Positive | None
    S_opt: Positive | None
    batches: dict[str, Estimate]
    intervals: dict[str, Estimate]
    parameters: dict[str, Finite]
    status: str = field(metadata={"key": "solver_status"})
    points: Count
    runs: Count
    draws: dict[str, tuple[float, ...]] = field(default_factory=dict)
    measured: BestBatch = NO_MINIMUM

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        check_status(self.status, where)
        check_positive({**self.batches, **self.intervals, "measured": self.measured}, where)
        if self.best.value is not None and self.E_min is None:
            raise InputError(f"{where}E_min is None with B_opt {self.best.value:g}")
        for name in ("S_min", "E_min", "S_opt"):
            given = getattr(self, name)
            one = self.intervals.get(name)
            if given and one and one.value and not math.isclose(given, one.value):
                raise InputError(
                    f"{where}{name} is {given:g}, but its interval is of {one.value:g}"
                )
        if self.draws:
            check_names(self.draws, self.parameters, f"{where}draws")
            check_lengths(self.draws, f"{where}draws.")

    @property
    def best(self) -> BestBatch:
        """B_opt; the measured minimum if the law that was requested has no B_opt."""
        batch = self.batches.get("B_opt")
        return batch if isinstance(batch, BestBatch) else self.measured

    def shown(self, name: str) -> Estimate | None:
        """Return a batch quantity; None if it is of a law that did not converge."""
        batch = self.batches.get(name)
        measured = isinstance(batch, BestBatch) and batch.method == "measured"
        return batch if measured or self.status == "converged" else None

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON form, with each of `batches` as a key."""
        return plain | plain.pop("batches") | {"status": self.best.status}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of a JSON form; estimates and batches among others go to `batches`."""
        known = {one.name for one in fields(cls)}
        others = {key: value for key, value in entry.items() if key not in known}
        found = {k for k, x in others.items() if isinstance(x, Mapping) and "value" in x}
        found |= {key for key in others if key.startswith("B_")}
        return entry | {"batches": {key: x for key, x in others.items() if key in found}}


@dataclass(frozen=True, repr=False)
class EsFit(Fit):
    """A law E(S) fitted to the points of one model.

    Attributes:
        law: the law; of a family, the member that includes all others.
        seq_len: tokens per sequence.
        fits: one per target, highest loss first.
        joint, joint_intervals: parameters of a joint law; None and none for a law per target.
        batches: measured batch sizes in sequences, ascending.
        rows: columns of the reached points: run, batch, target_loss, relative_loss (error of the
            law relative to the loss), steps, measured and fitted (tokens).
        points, runs: rows that reached a target, and runs with any row.
        draws: refits of the parameters of a joint law.
        scatter: run effects of the residuals, over all targets for a joint law, else per target.
        choice: how the law was chosen. "unselected": there are too few batch sizes to
            cross-validate a law, so B_opt is the measured minimum.
        comparison: cross-validated errors of laws; None without cross-validation.
        outliers: runs far from the others.
        beta2: the rule of Adam's second moment that B_opt belongs to, in words; "unknown".
        source: "points", or "points in sequences" if their sequence length is unknown, so that
            tokens are sequences; empty for loss curves.
        lr_phase: of the losses: "constant", "decayed" or "cosine"; empty in older files.

    Source: E(S) is of Zhou et al. (arXiv 2601.05034); the hyperbola is of McCandlish et al. (arXiv
    1812.06162); other laws are derived here.

    Examples:
        >>> from bss import fit_es
        >>> points = [{"target_loss": 2.0, "batch": b, "steps": 900 / b + 9 * b**.2, "seq_len": 64}
        ...           for b in (4, 8, 16, 32)]
        >>> fit_es(pd.DataFrame(points), resamples=20).summary()["status"].tolist()
        ['at_boundary']
    """

    KIND = "es"
    SCHEMA = 5  # of the JSON
    may_lack = ("constraints", "beta2", "source", "lr_phase")
    RESIDUAL_UNIT = "log tokens"
    RESIDUAL_AXES: ClassVar = {
        "batch": "batch (sequences)",
        "log_batch_over_best": "log $B/B_{opt}$",
        "steps": "steps S",
        "target_loss": "target loss (nats)",
    }

    law: Law
    seq_len: PositiveCount
    fits: tuple[TargetFit, ...]
    joint: dict[str, Finite] | None = field(default=None, metadata={"key": "surface"})
    joint_intervals: dict[str, Estimate] = field(
        default_factory=dict, metadata={"key": "surface_intervals"}
    )
    batches: tuple[Positive, ...] = field(default=(), metadata={"key": "measured_batches"})
    rows: dict[str, tuple[float | str, ...]] = field(
        default_factory=dict, metadata={"key": "residuals"}
    )
    points: Count = 0
    runs: Count = 0
    draws: dict[str, tuple[float, ...]] = field(default_factory=dict)
    scatter: tuple[RunEffects, ...] = ()
    choice: Choice = REQUESTED
    comparison: Comparison | None = None
    outliers: tuple[Outlier, ...] = ()
    beta2: str = UNKNOWN
    source: str = ""
    lr_phase: str = ""
    method: str = field(default=METHOD, kw_only=True)

    def check(self, where: str) -> None:
        """See `Fit.check`."""
        for name, some in (("fits", self.fits), ("measured_batches", self.batches)):
            check_lengths({name: some}, where)
        losses = [at.target_loss for at in self.fits]
        for name, ascending in (("fits", losses[::-1]), ("measured_batches", self.batches)):
            if (np.diff(ascending) <= 0).any():
                raise InputError(f"{where}{name} are not in order, or one occurs twice")
        self._check_parameters(where)
        if (self.draws or any(at.draws for at in self.fits)) and not self.scatter:
            raise InputError(f"{where}scatter has 0 values; expected some, as the fit has draws")
        if self.rows:
            self._check_rows(where)
        if self.choice == CROSS_VALIDATED and self.comparison is None:
            raise InputError(f"{where}comparison is missing; the law is cross-validated")

    def _check_parameters(self, where: str) -> None:
        names = self.law.parameters._fields
        if self.law.joint != (self.joint is not None):
            raise InputError(f"{where}surface does not go with the law {self.law.name}")
        if self.joint is not None:
            check_names(self.joint, names, f"{where}surface")
        if self.draws:
            check_names(self.draws, names, f"{where}draws")
            check_lengths(self.draws, f"{where}draws.")
        has_best = self.choice != REQUESTED or "B_opt" in self.law.batches
        for i, at in enumerate(self.fits):
            if at.parameters:
                check_names(at.parameters, names, f"{where}fits[{i}].parameters")
            if has_best and not isinstance(at.batches.get("B_opt"), BestBatch):
                raise InputError(f"{where}fits[{i}].B_opt is missing; expected it with its status")

    def _check_rows(self, where: str) -> None:
        check_names(self.rows, ROWS, f"{where}residuals")
        check_lengths(self.rows, f"{where}residuals.")
        if not all(isinstance(run, str) for run in self.rows["run"]):
            raise InputError(f"{where}residuals.run has a name that is no text")
        for name in ROWS[1:]:
            numbers = self.rows[name]
            if name in OF_THE_LAW:  # NaN at a target that has no law of its own
                numbers = [x for x in numbers if isinstance(x, str) or not math.isnan(x)]
            if any(isinstance(x, str) or not math.isfinite(x) for x in numbers):
                raise InputError(f"{where}residuals.{name} has a value that is no number")
            if name != "relative_loss" and min(map(float, numbers), default=1.0) <= 0:
                raise InputError(f"{where}residuals.{name} has a value of 0 or less")

    @property
    def in_sequences(self) -> bool:
        """Whether the sequence length is unknown, so that tokens are sequences."""
        return self.source == IN_SEQUENCES

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """See `Fit.encoded`; `source` and `lr_phase` only if they are not empty."""
        kept = {name: x for name, x in plain.items() if x or name not in ("source", "lr_phase")}
        return super().encoded(kept)

    @property
    def law_name(self) -> str:
        """The name of the law; "measured" if none was selected."""
        return "measured" if self.choice == UNSELECTED else self.law.name

    @property
    def cv_error(self) -> float | None:
        """Root mean square error in log E at left-out batches; None without cross-validation."""
        rows = self.comparison.table if self.comparison else ()
        return next((row["interior_log_E"] for row in rows), None)

    @property
    def lack_of_fit(self) -> tuple[float, float]:
        """SD of a run's loss about the law, relative, and degrees of freedom (of runs)."""
        freedom = np.array([each.offset_dof for each in self.scatter])
        variance = np.array([each.offset**2 + each.noise**2 for each in self.scatter])
        return math.sqrt(float(variance @ freedom / freedom.sum())), float(freedom.sum())

    def at(self, target_loss: float) -> TargetFit:
        """Return the fit of one target.

        Raises:
            InputError: If the target was not fitted.
        """
        for fit in self.fits:
            if np.isclose(fit.target_loss, target_loss):
                return fit
        known = ", ".join(f"{fit.target_loss:g}" for fit in self.fits)
        raise InputError(f"target_loss: {target_loss:g} was not fitted; choose one of {known}")

    def parameters(self, target_loss: float) -> Any:
        """Return the parameters of the law at a target, in steps and sequences.

        Raises:
            InputError: If they are unidentified.
        """
        entry = self.joint if self.law.joint else self.at(target_loss).parameters
        if not entry:
            name = self.law.name
            raise InputError(f"target_loss: the {name} law is unidentified at {target_loss:g}")
        return self.law.from_tokens(entry, self.seq_len)

    @property
    def _lowest(self) -> TargetFit:
        """The fit at the lowest target that identifies B_opt, or at the lowest target."""
        known = [at for at in self.fits if at.best.value is not None]
        return (known or self.fits)[-1]

    @property
    def goal(self) -> str:
        """B_opt at the lowest target that identifies it."""
        return f"B_opt@{self._lowest.target_loss:g}"

    @property
    def answer(self) -> str:
        """B_opt at the lowest target that identifies it, or its bound at the lowest target."""
        at = self._lowest
        by = "measured minimum" if at.best.method == "measured" else f"{self.law.name} law"
        method = at.best.status if at.best.value is None else by
        how = f"{method}; beta2 {self.beta2}"
        return described(f"B_opt at loss {at.target_loss:g}", at.best, "sequences", how)

    def summary(self) -> pd.DataFrame:
        """Return one row per target loss (nats), highest first.

        Columns: B_opt with low and high, and B_min, in sequences; tokens_at_B_opt and
        steps_at_B_opt; other batch quantities of the law (sequences); method and status of B_opt;
        signal_to_noise: rise in log tokens from the best batch to the nearer end, over the
        residual SD; S_min (steps) and E_min (tokens), asymptotes of the law.
        """
        rows = []
        for at in self.fits:
            best = at.best
            row = {"target_loss": at.target_loss, "B_opt": best.value}
            row |= {"low": best.low, "high": best.high}
            tokens = at.E_min if at.S_opt is not None else None
            row |= {"tokens_at_B_opt": tokens, "steps_at_B_opt": at.S_opt}
            others = {name: one.value for name, one in at.batches.items() if name != "B_opt"}
            row |= {"B_min": None, **others, "method": best.method, "status": best.status}
            row |= {"signal_to_noise": self._signal(at.target_loss)}
            rows.append(row | {"S_min": at.S_min, "E_min": at.E_min})
        return pd.DataFrame(rows)

    def details(self) -> dict[str, pd.DataFrame]:
        """Return errors of the laws at left-out batch sizes; the first one chooses the law."""
        if self.comparison is None:
            return {}
        errors = {"interior_loss": "ranking error (nats)"}
        errors |= {"interior_log_E": "CV error (log tokens)"}
        errors |= {"edge_log_E": "at the smallest and largest batch"}
        table = pd.DataFrame(self.comparison.table)[["law", "parameters", *errors]]
        chosen = table["law"].eq(self.comparison.winner) & (self.choice == CROSS_VALIDATED)
        return {"Cross-validation": table.rename(columns=errors).assign(chosen=chosen)}

    def _signal(self, target_loss: float) -> float:
        """Rise in mean log tokens to the nearer end batch, over the SD within batches."""
        table = self.residuals()
        at = table.loc[np.isclose(table["target_loss"].to_numpy(float), target_loss)]
        noise = np.sqrt((at["residual"] ** 2).mean())
        means = np.log(at["measured"].astype(float)).groupby(at["batch"]).mean()
        return float((means.iloc[[0, -1]].min() - means.min()) / noise) if noise > 0 else math.nan

    def tokens(self, batch: Any, target_loss: Any) -> np.ndarray:
        """Return tokens [n] to losses in nats at batches in sequences; infinite if never reached.

        Raises:
            InputError: If the law is unidentified, or was fitted at one target that is not this.
        """
        batch, loss = np.broadcast_arrays(np.asarray(batch, float), np.asarray(target_loss, float))
        return np.exp(self._log_tokens(batch.ravel(), loss.ravel()[:, None])[:, 0])

    def token_draws(self, batch: np.ndarray, target_loss: float) -> np.ndarray:
        """Return tokens [n, R] to a loss in nats at batches [n] in sequences, of each refit.

        R is 0 if the fit keeps no refits. Tokens are infinite if the loss is never reached.

        Raises:
            InputError: If a law per target was not fitted at the loss.
        """
        draws = self.draws if self.law.joint else self.at(target_loss).draws
        if not draws:
            return np.empty((len(batch), 0))
        entry = {name: np.array(x)[None] for name, x in draws.items()}
        return np.exp(self._log_law(entry, batch[:, None], target_loss))

    def draws_at(self, table: pd.DataFrame) -> np.ndarray:
        """Return draws [R, n] of log tokens to one target_loss, at batches in sequences."""
        (loss,) = table["target_loss"].unique()
        return np.log(self.token_draws(table["batch"].to_numpy(float), loss)).T

    def losses(self, batch: Any, tokens: Any) -> np.ndarray:
        """Return losses [n] in nats after `tokens` at batch sizes (sequences) that do not change.

        A law per target is interpolated between targets in log tokens, and extrapolated beyond the
        outer ones.

        Raises:
            InputError: If a number of tokens is not positive, or the law is unidentified.
        """
        batch, tokens = np.broadcast_arrays(np.asarray(batch, float), np.asarray(tokens, float))
        lowest = float(tokens.min())
        check(lowest > 0, "tokens", int(lowest), "the horizon in tokens, above 0")
        if self.law.joint:
            p = self.parameters(self.fits[0].target_loss)
            with jax.enable_x64(True):
                loss = self.law.loss(p, tokens / (batch * self.seq_len), batch)
                return np.asarray(loss, np.float64).ravel()
        targets = np.array([target.target_loss for target in self.fits if target.parameters])
        if not len(targets):
            raise InputError(
                f"fit: the {self.law.name} law is unidentified at every target; add batches"
            )
        logs = np.array([np.log(self.tokens(batch.ravel(), loss)) for loss in targets])
        pairs = zip(np.log(tokens.ravel()).tolist(), logs.T, strict=True)
        return np.array([_line(at, needed, targets) for at, needed in pairs])

    def predict(
        self, runs: pd.DataFrame | None = None, *, loss: Any = None, batch: Any = None
    ) -> pd.DataFrame:
        """Return tokens and steps of new runs to a loss, with the intervals of new runs.

        Args:
            runs: One run per row: target_loss (nats) and batch (sequences).
            loss: Target loss in nats, without a table; a number or several.
            batch: Batch size in sequences, without a table; by default B_opt at the loss.

        Returns:
            Columns tokens, tokens_low, tokens_high, steps, steps_low, steps_high and note. Without
            `draws`, the ends are NaN. If the law is unidentified at a loss, they are by
            S = a + b/B of the points (`bss.laws.at_batch`), as the note has it.

        Raises:
            InputError: If the law was fitted at one target that is not this, or is unidentified and
                fewer than three batch sizes reached the loss.
        """
        if runs is None and loss is None:
            raise InputError("predict: loss missing; give a loss, or a table of runs")
        if runs is None and batch is None:
            batch = [self._optimum(target) for target in np.ravel(loss)]
        needed = ("target_loss", "batch")
        runs = run_table(runs, needed, {"target_loss": loss, "batch": batch})
        without = np.array([not self.has_law(x) for x in runs["target_loss"]], bool)
        if not without.any():
            return self._by_law(runs)
        parts = [self._by_points(runs.loc[without])]
        if not without.all():
            parts.append(self._by_law(runs.loc[~without]))
        return pd.concat(parts).loc[runs.index]

    def has_law(self, target_loss: float) -> bool:
        """Whether the law is identified at a loss in nats."""
        if self.law.joint:
            return bool(self.joint)
        near = [at for at in self.fits if math.isclose(at.target_loss, target_loss, rel_tol=SLACK)]
        return any(at.parameters for at in near or self.fits)

    def by_points(self, target_loss: float, batch: float) -> StepsAtBatch:
        """Return steps of a new run to a loss by the points alone, without the law.

        Raises:
            InputError: If fewer than three batch sizes reached a target near the loss.
        """
        if not self.rows:
            raise InputError(f"fit: the {self.law.name} law is unidentified; add batches")
        columns = {n: np.array(self.rows[n], float) for n in ("batch", "target_loss", "steps")}
        targets = []
        for at in self.fits:
            here = np.isclose(columns["target_loss"], at.target_loss)
            if here.any():
                sizes = columns["batch"][here]
                steps = columns["steps"][here]
                targets.append(Steps.of_runs(at.target_loss, sizes, steps))
        found = steps_at_batch(targets, batch, target_loss, self.level)
        return replace(found, source=f"{found.source} ({self.source or 'loss curves'})")

    def _by_points(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Return `predict` by the points alone."""
        found = [self.by_points(*row) for row in runs[["target_loss", "batch"]].to_numpy()]
        size = runs["batch"].to_numpy() * self.seq_len
        ends = {"": "value", "_low": "low", "_high": "high"}
        steps = {
            f"steps{end}": np.array([getattr(one.steps, name) for one in found], float)
            for end, name in ends.items()
        }
        tokens = {f"tokens{end}": steps[f"steps{end}"] * size for end in ends}
        notes = notes_of(self, runs, [one.source for one in found])
        return pd.DataFrame({**tokens, **steps, "note": notes}, runs.index)

    def _by_law(self, runs: pd.DataFrame) -> pd.DataFrame:
        """Return `predict` by the law."""
        loss = runs["target_loss"].to_numpy()
        batch = runs["batch"].to_numpy()
        kept = [self.draws, *(at.draws for at in self.fits)]
        refits = max((len(next(iter(one.values()))) for one in kept if one), default=0)
        tokens = self.tokens(batch, loss)
        low, high = np.full((2, len(tokens)), np.nan)
        if refits:
            draws = np.exp(self._drawn_tokens(batch, loss, RUNS * refits))
            low, high = np.nanquantile(draws, tails(self.level), axis=1, method="nearest")
        columns = {
            "tokens": tokens,
            "tokens_low": np.minimum(low, tokens),
            "tokens_high": np.maximum(high, tokens),
        }
        steps = zip(("steps", "steps_low", "steps_high"), columns.values(), strict=True)
        columns |= {name: value / (batch * self.seq_len) for name, value in steps}
        note = np.where(np.isinf(tokens), NEVER, "" if refits else NO_DRAWS)
        notes = notes_of(self, runs, note.tolist())
        return pd.DataFrame(columns | {"note": notes}, runs.index)

    def _drawn_tokens(self, batch: np.ndarray, loss: np.ndarray, draws: int) -> np.ndarray:
        """Return log tokens [n, draws] of new runs: refits of the law, with noise of the runs.

        The noise is in loss. A law of one target has no slope in the loss, and its noise is that
        of the residuals, in log tokens.
        """
        random = np.random.default_rng(0)
        if self.law.joint or len(self.fits) > 1:
            scatter = draw_noise(*self.lack_of_fit, (draws, 1), random)[:, 0]
            return self._log_tokens(batch, loss[:, None] / (1 + scatter), drawn=True)
        logs = self._log_tokens(batch, np.tile(loss[:, None], draws), drawn=True)
        return logs + self.noise * random.standard_normal(draws)

    def _optimum(self, target_loss: Any) -> float:
        """Return B_opt at a loss; InputError if it has no value."""
        best = self.best_batch(target_loss)
        if best.value is None:
            raise InputError(f"batch: missing, and B_opt is {best.note or 'unknown'}; give it")
        return best.value

    def untested(self, run: Mapping[str, Any]) -> list[str]:
        """Return what of a run is outside the targets and the batch sizes of the fit."""
        lines = outside("loss", run["target_loss"], [at.target_loss for at in self.fits])
        for batches in self._compared(run["target_loss"]) if "batch" in run else ():
            lines += outside("batch", run["batch"], batches)
        return [*dict.fromkeys(lines)]

    def _compared(self, target_loss: float) -> list[tuple[float, ...]]:
        """Return the batch sizes that a prediction is from; without a law, of its targets alone."""
        if self.has_law(target_loss) or not self.rows:
            return [self.batches] if self.batches else []
        targets = np.array(self.rows["target_loss"], float)
        near = sorted({*targets.tolist()}, key=lambda target: abs(target - target_loss))
        used = near[:1] if math.isclose(near[0], target_loss, rel_tol=SLACK) else near[:2]
        batch = np.array(self.rows["batch"], float)
        return [tuple(batch[np.isclose(targets, target)].tolist()) for target in used]

    def best_batches(self, target_loss: float) -> dict[str, Estimate]:
        """Return the batch quantities at a loss, in sequences, B_opt, and E_min in tokens.

        A batch that is unidentified at a nearest target is unidentified between targets.

        Raises:
            InputError: If nothing is identified at the nearest target.
        """
        near = sorted(self.fits, key=lambda at: abs(at.target_loss - target_loss))[:2]
        names = tuple(dict.fromkeys((*self.law.batches, "B_opt", "E_min")))
        known = [_identified(at) for at in near]
        if len(near) == 1 or math.isclose(near[0].target_loss, target_loss):
            return {name: known[0][name] for name in names if name in known[0]}
        first = near[0].target_loss
        second = near[1].target_loss
        share = (target_loss - first) / (second - first)
        names = [name for name in names if all(name in one for one in known)]
        return {name: _between(known[0][name], known[1][name], share) for name in names}

    def best_batch(self, loss: float | None = None) -> Estimate:
        """Return B_opt in sequences at a loss in nats, interpolated between targets.

        Args:
            loss: Target loss; by default the lowest target that identifies B_opt.

        Raises:
            InputError: If the loss is no positive number, or nothing is identified near it.
        """
        if loss is None:
            return self._lowest.best
        (target,) = as_positive("loss", [loss])
        return self.best_batches(target).get("B_opt", self.fits[0].best)

    def residuals(self) -> pd.DataFrame:
        """Return one row per reached point; residual is log measured − log fitted tokens.

        Columns run, batch, target_loss, relative_loss, steps, measured, fitted,
        log_batch_over_best, residual. fitted is NaN if the law never reaches the target.
        """
        names = ("run", "batch", "target_loss", "relative_loss", "steps", "measured", "fitted")
        table = pd.DataFrame(self.rows, columns=[*names])
        best = {at.target_loss: at.best.value or np.nan for at in self.fits}
        log_best = np.log(table["target_loss"].map(best).to_numpy(float))
        residual = np.log(table["measured"].to_numpy(float) / table["fitted"].to_numpy(float))
        relative = np.log(table["batch"].to_numpy(float)) - log_best
        return table.assign(log_batch_over_best=relative, residual=residual)

    def _log_tokens(
        self, batch: np.ndarray, loss: np.ndarray, *, drawn: bool = False
    ) -> np.ndarray:
        """Return log E in tokens [n, K] at batches [n] and losses [n, K], of the fit or of refits.

        The refits are repeated to K. The targets of a law per target share the luck of the runs, so
        that their refits are paired by rank.
        """
        if self.law.joint:
            entries = {0.0: self.draws if drawn else self.joint or {}}
        else:
            entries = {at.target_loss: at.draws if drawn else at.parameters for at in self.fits}
        logs = {}
        for target, entry in entries.items():
            if not entry:
                continue
            shape = loss.shape
            refits = loss.shape[1]
            given = {n: np.broadcast_to(np.resize(x, refits), shape) for n, x in entry.items()}
            logs[target] = self._log_law(given, np.broadcast_to(batch[:, None], shape), loss)
        if not logs:
            raise InputError(f"fit: the {self.law.name} law is unidentified; add batches")
        return next(iter(logs.values())) if self.law.joint else _at_losses(logs, loss)

    def _log_law(self, entry: dict[str, Any], batch: np.ndarray, loss: Any) -> np.ndarray:
        """Return log E in tokens of the law with parameters as in the JSON of a fit."""
        p = self.law.from_tokens(entry, self.seq_len)
        return self.law.log_sequences(p, batch, loss) + math.log(self.seq_len)


def _at_losses(logs: dict[float, np.ndarray], loss: np.ndarray) -> np.ndarray:
    """Return logs [n, K] at losses [n, K], linear in the loss between logs [n, K] of targets."""
    targets = np.array(sorted(logs))
    if len(targets) == 1:
        if np.allclose(loss, targets[0], rtol=1e-9):  # equal but for rounding
            return logs[targets[0]]
        raise InputError(f"loss: the law was fitted at {targets[0]:g} alone; fit two targets")
    values = np.array([np.sort(logs[target], axis=1) for target in targets.tolist()])
    upper = np.clip(np.searchsorted(targets, loss), 1, len(targets) - 1)
    low = np.take_along_axis(values, upper[None] - 1, 0)[0]
    high = np.take_along_axis(values, upper[None], 0)[0]
    share = (loss - targets[upper - 1]) / np.diff(targets)[upper - 1]
    with np.errstate(invalid="ignore"):
        between = low + share * (high - low)
    exact = np.where(share == 0, low, high)
    reached = np.isfinite(low) & np.isfinite(high)
    return np.where((share == 0) | (share == 1), exact, np.where(reached, between, np.inf))


def _line(log_tokens: float, needed: np.ndarray, targets: np.ndarray) -> float:
    """Return the loss at log tokens on lines through targets [T] and their log tokens [T]."""
    met = np.isfinite(needed)
    if met.sum() < 2:
        # One target has no slope: fewer tokens to it are all that can be compared.
        return float(targets[0] + needed[0] - log_tokens) if met.any() else math.inf
    x = needed[met]
    y = targets[met]
    i = int(np.clip(np.searchsorted(x, log_tokens), 1, len(x) - 1))
    slope = (y[i] - y[i - 1]) / (x[i] - x[i - 1])
    return float(y[i] + slope * (log_tokens - x[i]))


def _identified(at: TargetFit) -> dict[str, Estimate]:
    """Return the estimates of a target that are interpolated between targets."""
    fewest = at.intervals.get("E_min")
    if at.status.startswith("unidentified") and fewest is None and at.best.value is None:
        raise InputError(f"loss: {at.target_loss:g} is {at.status}")
    return at.batches | ({} if fewest is None else {"E_min": fewest})


def _between(first: Estimate, second: Estimate, share: float) -> Estimate:
    """Return the estimate at a share of the way from the first to the second, in logarithms."""
    for one in (first, second):
        if one.value is None:
            return one
    ends = np.array([(one.low, one.value, one.high) for one in (first, second)], float)
    low, value, high = np.exp((1 - share) * np.log(ends[0]) + share * np.log(ends[1])).tolist()
    known = [x for x in (low, value, high) if np.isfinite(x)]  # ends may cross beyond the targets
    lowest = min(known) if np.isfinite(low) else None
    highest = max(known) if np.isfinite(high) else None
    return replace(first, value=value, low=lowest, high=highest)
