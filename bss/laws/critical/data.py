"""Points to a target, as the curves S(B) from which critical batch sizes are estimated.

One curve per (model, size, tokens, target, LR phase, weights, sequence length). Each batch size has
the hyper-parameter setting that needs the fewest steps, as in Zhang et al. (arXiv 2410.21676). A
minimum over many settings is biased low, so the number of settings is kept. Steps are geometric
means over seeds; only the settings with the most seeds are compared.
"""

import math
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import pandas as pd

from bss.errors import InputError, check
from bss.laws.base import check_lengths
from bss.laws.minimum import FEWEST
from bss.points.conditions import refuse_mixed_rows
from bss.points.groups import USUAL_SLOPE
from bss.tables.reading import SETTINGS
from bss.values import Positive, Range

UNITS = ("sequences", "tokens")
Unknown = Annotated[float, Range(0, inside=True, nan=True)]
Measured = Annotated[np.ndarray, Range(0, inside=True)]


@dataclass(frozen=True)
class StepsCurve:
    """Steps to one target loss against the batch.

    Attributes:
        model: its name.
        params, seq_len: non-embedding parameters, tokens per sequence; NaN if not given.
        tokens: the budget of the size.
        target_loss: in nats.
        lr_phase, weights: of that loss.
        batch: [n] ascending, in sequences or tokens.
        steps, seeds: [n], geometric means over `seeds` seeds, and how many.
        settings: [n], hyper-parameter settings that the minimum was taken over.
        seed_noise: standard deviation of log steps over seeds; NaN if no batch has two.
        censored: batches at which no run reached the target, and the steps taken there.
    """

    may_lack: ClassVar[tuple[str, ...]] = ()

    model: str
    params: Unknown
    tokens: Unknown
    target_loss: Positive
    lr_phase: str
    weights: str
    seq_len: Unknown
    batch: Measured
    steps: Measured
    seeds: Measured
    settings: Measured
    seed_noise: Annotated[float, Range(0, nan=True)] = np.nan
    censored: dict[float, float] = field(default_factory=dict)

    def check(self, where: str) -> None:
        """Raise InputError if the JSON that it was read from contradicts itself."""
        columns = {name: getattr(self, name) for name in ("batch", "steps", "seeds", "settings")}
        check_lengths(columns, where)
        if (np.diff(self.batch) <= 0).any():
            raise InputError(f"{where}batch is not in order, or has a value twice")
        for numbers in self.censored.items():
            Range(0, inside=True).check(numbers, f"{where}not_reached")

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """Return the JSON form, with `censored` as a list because JSON keys are strings."""
        censored = plain.pop("censored").items()
        return plain | {"not_reached": [{"batch": b, "steps": s} for b, s in censored]}

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields again."""
        return entry | {"censored": {at["batch"]: at["steps"] for at in entry["not_reached"]}}

    def covers(self, batch: float) -> bool:
        """Return whether a batch is within those measured."""
        return bool(self.batch[0] <= batch <= self.batch[-1])

    @property
    def unseen_rounding(self) -> np.ndarray:
        """Relative rounding [n] of the steps that seeds do not show; 0 if they do or are missing.

        A run is tested after every step, or less often. So seeds may agree to the last digit
        although each reached the target up to one test earlier. The distance of
        tests is taken to be the greatest common divisor of all sequences to the target.
        """
        none = np.zeros(len(self.batch))
        consumed = self.batch * self.steps
        whole = np.round(consumed)
        if not np.isfinite(self.seed_noise) or not np.isclose(consumed, whole).all():
            return none
        rounding = math.gcd(*whole.astype(int).tolist()) / consumed
        uniform = rounding.min() / math.sqrt(12)  # standard deviation of a uniform distribution
        return rounding if self.seed_noise < uniform else none

    @property
    def name(self) -> str:
        """The name in messages."""
        return f"model {self.model}, target {self.target_loss:g}"


def steps_curves(points: pd.DataFrame, unit: str = "sequences") -> list[StepsCurve]:
    """Return the curves of a table of points, in its order.

    Args:
        points: as `bss.tables.read_points` returns it; a column batch_tokens is checked. Budgets
            that equal steps times batch (times seq_len) are tokens consumed, and no budget.
        unit: of the batch: "sequences", or "tokens" to compare context lengths.

    Raises:
        InputError: if sequence lengths are mixed, batches in tokens contradict those in
            sequences, runs are of several conditions, or a target was reached at fewer than 3
            batches.
    """
    check(unit in UNITS, "unit", unit, f"one of {', '.join(UNITS)}")
    _check_units(points, unit)
    points = _without_consumed(points)
    keys = ["model", "params", "budget_tokens", "target_loss", "lr_phase", "weights", "seq_len"]
    reached = points.loc[points["reached"].to_numpy(bool)]
    levels = reached.assign(log_steps=np.log(reached["steps"].astype(float)))
    cell = [*keys, "batch", "peak_lr", *SETTINGS]
    refuse_mixed_rows(levels, cell, "log_steps", USUAL_SLOPE)
    groups = points.groupby(keys, dropna=False, sort=False)
    return [_curve(key, rows, unit) for key, rows in groups]


def _without_consumed(points: pd.DataFrame) -> pd.DataFrame:
    """Return points without budgets if these are the tokens or sequences consumed to the target.

    A budget is that of a size, whatever the batch. What steps consumed differs with the batch.
    """
    budget = points["budget_tokens"].to_numpy(float)
    sequences = points["steps"].to_numpy(float) * points["batch"].to_numpy(float)
    lengths = points["seq_len"].to_numpy(float)
    for consumed in (sequences, sequences * lengths):
        # 1%: tokens are printed with two digits or more.
        if np.isclose(budget, consumed, rtol=0.01).all() and np.ptp(budget) > 0:
            return points.assign(budget_tokens=np.nan)
    return points


def _check_units(points: pd.DataFrame, unit: str) -> None:
    lengths = sorted(points["seq_len"].dropna().unique())
    if unit == "tokens" and bool(points["seq_len"].isna().any()):
        raise InputError("seq_len: missing, so batches cannot be put in tokens; add the column")
    if unit == "sequences" and len(lengths) > 1:
        raise InputError(
            f"seq_len: {', '.join(f'{n:g}' for n in lengths)} are mixed; fit each length on its "
            "own, or count batches in tokens (--unit tokens)"
        )
    for row in points.to_dict("records") if "batch_tokens" in points else ():
        size = row["batch"] * row["seq_len"]
        if np.isfinite(size) and row["batch_tokens"] != size:
            raise InputError(
                f"batch_tokens: {row['batch_tokens']:g} at model {row['model']}, batch "
                f"{row['batch']:g}, but batch times seq_len is {size:g}; correct one of them"
            )


def _curve(key: Hashable, rows: pd.DataFrame, unit: str) -> StepsCurve:
    model, params, tokens, target, lr_phase, weights, seq_len = key  # type: ignore[misc]
    met = []
    censored = {}
    for batch, here in rows.groupby("batch"):
        size = float(batch) * (seq_len if unit == "tokens" else 1.0)  # type: ignore[arg-type]
        reached = here.loc[here["reached"]]
        if reached.empty:
            censored[size] = max(here["steps"].tolist())
            continue
        tried = ["peak_lr", *(name for name in SETTINGS if name in reached)]
        settings = reached.groupby(tried, dropna=False)["steps"]
        logs = [np.log(steps.to_numpy(float)) for _, steps in settings]
        most = max(len(log) for log in logs)
        best = min((log for log in logs if len(log) == most), key=lambda log: float(log.mean()))
        met.append((size, np.exp(best.mean()), most, len(logs), best - best.mean()))
    name = model or (f"{params:.4g}" if np.isfinite(params) else "unnamed")
    if len(met) < FEWEST:
        raise InputError(
            f"model {name}, target {target:g}: {len(met)} batches reached the target, a fit "
            f"needs {FEWEST}; measure more, or leave it out"
        )
    *columns, deviations = zip(*met, strict=True)
    batch, steps, seeds, settings = map(np.array, columns)
    dof = int(seeds.sum()) - len(seeds)
    noise = float(np.sqrt(np.sum(np.concatenate(deviations) ** 2) / dof)) if dof else np.nan
    where = (name, params, tokens, target, lr_phase, weights, seq_len)
    return StepsCurve(*where, batch, steps, seeds, settings, noise, censored)
