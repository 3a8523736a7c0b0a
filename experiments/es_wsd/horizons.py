"""The best constant batch of each horizon, after the decay: measured, and as a law has it."""

import numpy as np
import pandas as pd

from bss.laws import EsFit
from bss.laws.es.values import predicted_loss
from bss.points.crossings import mean
from bss.training.config import RunConfig
from bss.training.directory import read_status, run_path
from bss.training.execution import Execution


def horizon_table(decays: list[RunConfig], execution: Execution, law: EsFit) -> pd.DataFrame:
    """Every batch at every horizon, at the rate with the lowest held-out loss.

    Args:
        decays: runs decayed to zero; their stop is the horizon.
        execution: where they ran.
        law: fitted to the annealed losses.

    Returns:
        Columns horizon (tokens), batch, peak_lr, trials (rates tried), eval_loss and test_loss
        (means over seeds), best (lowest held-out loss of the horizon), law_best (the law's choice),
        and excess: test loss above that of the best, paired by seed, with excess_error, 2 standard
        errors.
    """
    rows = []
    for end in sorted({run.schedule.tokens for run in decays}):
        tuned = _tuned([run for run in decays if run.schedule.tokens == end], execution)
        best = min(tuned, key=lambda batch: tuned[batch]["eval_loss"])
        law_best = min(tuned, key=lambda batch: predicted_loss(law, end, batch))
        reference = tuned[best]["tests"]
        for batch, entry in tuned.items():
            tests = entry["tests"]
            excess = mean([tests[s] - reference[s] for s in tests if s in reference])
            rows.append(
                {
                    "horizon": end,
                    "batch": batch,
                    **{name: value for name, value in entry.items() if name != "tests"},
                    "best": batch == best,
                    "law_best": batch == law_best,
                    "excess": excess.value,
                    "excess_error": excess.error,
                }
            )
    return pd.DataFrame(rows)


def _tuned(runs: list[RunConfig], execution: Execution) -> dict[int, dict]:
    """Each batch at the rate with the lowest held-out loss, averaged over seeds."""
    losses: dict[int, dict[float, dict[int, tuple[float, float]]]] = {}
    for run in runs:
        status = read_status(run_path(execution.runs, run))
        rates = losses.setdefault(run.schedule.batch.constant_batch, {})
        seeds = rates.setdefault(run.optimizer.lr, {})
        seeds[run.seed] = (status["eval_loss"], status["test_loss"])
    found = {}
    for batch, rates in sorted(losses.items()):
        held_out = {
            lr: np.mean([loss for loss, _ in seeds.values()]) for lr, seeds in rates.items()
        }
        lr = min(held_out, key=lambda rate: held_out[rate])
        tests = {seed: test for seed, (_, test) in rates[lr].items()}
        found[batch] = {
            "peak_lr": lr,
            "trials": len(rates),
            "eval_loss": float(held_out[lr]),
            "test_loss": float(np.mean(list(tests.values()))),
            "tests": tests,
        }
    return found
