"""The law of beta1 that what was measured carries, with its range: bss/schedules/momentum.json.

    python -m experiments.momentum.betas

Derived here. Of every batch and length with three beta1 or more, judged and decayed, a parabola of
the mean loss in log(1 - beta1) through the best and its neighbours has the best beta1 and how much
it costs to miss it; a line through these, weighed by the latter, is the law in the steps of a run.
What it is worth is told by the same seeds: it has two numbers, of some forty means.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.contests.claims import Question
from bss.contests.contrasts import Contrast, Effect, judge
from bss.contests.scatter import Scatter
from bss.files import write_json
from experiments.momentum.claims import (
    BATCHES,
    BETAS,
    KEPT,
    LONG,
    SHORT,
    TABLE,
    Ended,
    Statement,
    judged,
    statements,
)
from experiments.tables import Tables

FILE = "bss/schedules/momentum.json"
INSIDE = "4 → 32, beta1 .43, less .9"

Measured = Mapping[tuple[int, int], pd.DataFrame]
"""Losses [seed, beta1] by batch in sequences and tokens of a run."""


def law(results: Path) -> dict[str, Any]:
    """The law as `bss.schedules.momentum.Law` has it, from a results directory of the question."""
    ended = Ended.read(results / "finals.csv")
    curves = Tables(results).read("curves.parquet")
    (params,), (seq_len,) = curves["params"].unique(), curves["seq_len"].unique()
    known = measured(ended)
    steps = {kind: kind[1] / (kind[0] * seq_len) for kind in known}
    slope, first = line(known, steps)
    seeds = {seed for losses in known.values() for seed in losses.index}
    left_out = [line(known, steps, seed)[0] for seed in seeds]
    jackknife = Scatter((len(seeds) - 1) * float(np.var(left_out)), len(seeds) - 1)
    one = judge({"power": Effect(slope, len(seeds), jackknife)}, single=True)["power"]
    own = {
        kind: min(losses, key=lambda beta1: abs(np.log1p(-beta1) - first - slope * np.log(n)))
        for (kind, losses), n in zip(known.items(), steps.values(), strict=True)
    }
    asked = Question.of_loss("the law's beta1 ends lower than .9")
    gains = judged({str(kind): _gain(ended, kind, own[kind]) for kind in own if own[kind] != KEPT})
    inside = judged(statements(ended.finals)["4"])[INSIDE]
    return {
        "source": TABLE,
        "params": int(params),
        "scale": _short(np.exp(first)),
        "power": _short(slope),
        "power_low": _short(one.low),
        "power_high": _short(one.high),
        "gains": [
            {"batch_tokens": int(kind[0] * seq_len), "tokens": kind[1], "beta1": own[kind]}
            | _told(gains[str(kind)], asked)
            for kind in own
            if str(kind) in gains
        ],
        "inside": _told(inside, asked),
    }


def measured(ended: Ended) -> Measured:
    """The judged, decayed losses of each batch and length that has three beta1 or more."""
    known = {}
    for kind in ((batch, stop) for stop in (SHORT, LONG) for batch in BATCHES):
        every = {beta1: ended.loss(kind[0], beta1, stop=kind[1]) for beta1 in BETAS}
        losses = pd.DataFrame({beta1: loss for beta1, loss in every.items() if len(loss) > 1})
        if len(losses.columns) >= 3:
            known[kind] = losses.dropna()
    return known


def line(
    known: Measured, steps: Mapping[tuple[int, int], float], without: int = -1
) -> tuple[float, float]:
    """Slope and intercept of log(1 - beta1) against log steps, by all seeds without one."""
    rows = []
    for kind, losses in known.items():
        mean = losses.drop(index=without, errors="ignore").mean()
        bend, best = _best(np.log1p(-losses.columns.to_numpy(float)), mean.to_numpy())
        rows.append((np.log(steps[kind]), best, np.sqrt(bend)))
    x, y, weights = np.array(rows).T
    slope, first = np.polyfit(x, y, 1, w=weights)
    return float(slope), float(first)


def _best(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """How bent the parabola through the lowest and its neighbours is, and where it is lowest."""
    at = min(max(int(np.argmin(y)), 1), len(x) - 2)
    bend, rise, _ = np.polyfit(x[at - 1 : at + 2], y[at - 1 : at + 2], 2)
    if bend <= 0:  # the lowest at an end: it tells nothing
        return 0.0, float(x[np.argmin(y)])
    return float(bend), float(np.clip(-rise / (2 * bend), x.min(), x.max()))


def _gain(ended: Ended, kind: tuple[int, int], beta1: float) -> Statement:
    """The loss at a beta1 less that at .9, each at its rate."""
    own, kept = (ended.loss(kind[0], beta, stop=kind[1]) for beta in (beta1, KEPT))
    return Statement(((1.0, own), (-1.0, kept)))


def _told(one: Contrast, asked: Question) -> dict[str, Any]:
    """A contrast in nats, as the law has it."""
    ends = {"less": one.estimate, "low": one.low, "high": one.high}
    return {name: _short(value) for name, value in ends.items()} | {"verdict": asked.verdict(one)}


def _short(value: Any) -> float:
    return float(f"{value:.3g}")


if __name__ == "__main__":
    write_json(FILE, law(Path(TABLE).parent))
