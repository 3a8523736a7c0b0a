"""Planted runs under schedules of rate and batch, by an exact recursion that is not the law.

The risk of one-pass SGD on power-law linear regression with label noise (bss.theory.recursion).
Budgets are 1, 2 and 3.3 times the pilots', peak LRs half, once and twice. Schedules have stairs,
decays and a falling batch. A run is off by .001 of its loss, and each of its losses by as much
again (all derived here).
"""

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from bss.schedules import rates
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve
from bss.theory.recursion import varying_risks
from bss.theory.regression import Task, stable_rate

HORIZON = 2**14  # samples of the shortest runs
HORIZONS = (1.0, 2.0, 3.3)
PEAKS = (0.5, 1.0, 2.0)
NOISE = 1e-3  # of a loss
READ = 80  # losses of a run
SMALLEST = 2
# Batches, how the rate ends, horizon, peak: what is fitted.
PILOTS = (
    ("2", "constant", 1.0, 1.0), ("4", "constant", 1.0, 1.0), ("16", "constant", 1.0, 1.0),
    ("0:2 50%:8", "constant", 1.0, 1.0), ("4", "wsd", 1.0, 1.0),
    ("0:16 40%:4", "constant", 1.0, 1.0),
    ("4", "constant", 2.0, 0.5), ("8", "cosine", 2.0, 1.0),
    ("0:2 30%:4 60%:8", "constant", 2.0, 1.0),
    ("4", "wsd", 2.0, 2.0), ("8", "wsd", 3.3, 1.0), ("0:4 60%:16", "constant", 3.3, 2.0),
    ("4", "cosine", 3.3, 0.5), ("8", "constant", 3.3, 0.5),
)  # fmt: skip
LONG = 3.0  # times the shortest horizon, which runs of one peak do not reach
SHAPES = (
    ("4", "cosine"), ("8", "wsd"), ("0:2 25%:4 50%:8 75%:16", "constant"),
    ("0:8 50%:2", "constant"), ("0:4 80%:16", "wsd"), ("0:2 60%:8", "cosine"),
)  # fmt: skip


@dataclass(frozen=True)
class Planted:
    """Return runs to fit, and final losses to predict, one row each with its new property."""

    runs: pd.DataFrame
    unseen: pd.DataFrame


def planted(seed: int) -> Planted:
    """Return a task drawn from a seed; its runs lack a horizon and a peak by turns, or none."""
    task, peak, rng = _task(seed)
    lacks = ((None, None), (3.3, 2.0), (2.0, 1.0), (None, 0.5), (3.3, None))[seed % 5]
    pilots = [one for one in PILOTS if one[2] != lacks[0] and (one[3] != lacks[1] or one[2] == 1)]
    if lacks[1] == 1.0:  # the constants of the shortest horizon move to half the peak
        pilots = [(b, e, h, 0.5 if p == 1.0 else p) for b, e, h, p in pilots]
    runs = pd.concat([run(task, *one, peak, rng) for one in pilots], ignore_index=True)
    ends = []
    for i, (batch, phase) in enumerate(SHAPES):
        for horizon, times in zip(HORIZONS * 2, PEAKS + PEAKS[2:] + PEAKS[:2], strict=True):
            end = run(task, batch, phase, horizon, times, peak, rng, ends=True)
            new = {"horizon": horizon == lacks[0], "peak": times == lacks[1]}
            ends.append(end.assign(run=f"{i} {batch} {phase} {horizon:g} {times:g}", **new))
    return Planted(runs, pd.concat(ends, ignore_index=True))


def _task(seed: int) -> tuple[Task, float, Any]:
    """Return a task, its peak LR, and the random numbers of its runs."""
    rng = np.random.default_rng([seed, 33])
    task = Task(rng.uniform(0.3, 1.0), rng.uniform(1.5, 2.5), 128, 10 ** rng.uniform(-1, 0.5))
    return task, 0.2 * stable_rate(task, SMALLEST), rng


def one_peak(seed: int) -> Planted:
    """Return runs that all have one peak LR, and ends at half of it, at it, and at twice."""
    task, peak, rng = _task(seed)
    pilots = dict.fromkeys(one[:3] for one in PILOTS if one[2] < LONG)
    runs = pd.concat([run(task, *one, 1.0, peak, rng) for one in pilots], ignore_index=True)
    ends = []
    for i, (batch, phase) in enumerate(SHAPES):
        for horizon, times in itertools.product(HORIZONS[:2], PEAKS):
            end = run(task, batch, phase, horizon, times, peak, rng, ends=True)
            ends.append(end.assign(run=f"{i} {batch} {phase} {horizon:g} {times:g}", times=times))
    return Planted(runs, pd.concat(ends, ignore_index=True))


def run(
    task: Task,
    batch: str,
    phase: str,
    horizon: float,
    times: float,
    peak: float,
    rng: Any,
    *,
    ends: bool = False,
) -> pd.DataFrame:
    """Return the table of one run; losses are the risk for `ends`, else with a run's noise."""
    tokens = round(HORIZON * horizon)
    plan = resolve(BatchSchedule.parse(batch, total=tokens), tokens, 1)
    batches = np.concatenate([np.full(one.steps, float(one.batch)) for one in plan.segments])
    samples = np.cumsum(batches)
    rate = {
        "constant": rates.wsd(times * peak, tokens, 0, 0),
        "wsd": rates.wsd(times * peak, tokens, 0, tokens // 5),
        "cosine": rates.cosine(times * peak, tokens),
    }[phase]
    lr = np.asarray(rate(samples - batches / 2), float) * np.ones(len(samples))
    loss = varying_risks(task, lr, batches)[1:] + task.noise / 2
    at = np.unique(np.linspace(len(loss) / READ, len(loss), READ).astype(int)) - 1
    off = NOISE * (rng.standard_normal() + rng.standard_normal(len(at)))
    risk = loss[at]
    measured = loss[at] * np.exp(off)
    table = {"step": at + 1, "tokens": samples[at].astype(int), "batch": batches[at].astype(int)}
    losses = {"loss": risk, "measured": measured} if ends else {"loss": measured}
    frame = pd.DataFrame(table | {"lr": lr[at]} | losses)
    return frame.assign(run=f"{batch} {phase} {horizon:g} {times:g}", seq_len=1)
