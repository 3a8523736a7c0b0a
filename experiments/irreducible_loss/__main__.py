"""Is the L_0 that a law E(S) reports the language's own? On synthetic text the truth is known.

Each seed is one practitioner: one constant-rate trunk per batch, points E(S), a fit of every law
that has an L_0, its interval. The truth is the conditional entropy of the language. A fitted L_0
can miss it for two reasons, which are told apart (derived here): the law is wrong or its data too
few, or the model cannot reach the language's entropy. For the second, reference runs, longer and
decayed to zero, show how low this model comes; that is an upper bound of the model's own floor.

    python -m experiments.irreducible_loss --config=configs/irreducible_loss.py:smoke
"""

import math
from typing import Any

import numpy as np
import pandas as pd

from bss.data.log_bilinear import SyntheticLanguage, tables
from bss.data.synthetic import Entropy, entropy, held_out, truth
from bss.laws import EsFit, fit_es
from bss.laws.base import Options
from bss.laws.es import LAWS
from bss.points.curve import default_targets, points
from bss.sweeps.grid import expand, overlay, seeded
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.training.run_config import RunConfig
from experiments.irreducible_loss.study import Study
from experiments.main import run_experiment
from experiments.study import say

SURFACES = tuple(name for name, law in LAWS.items() if law.joint)


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    results = Results(study)
    with study.training() as (base, trainer):
        base = overlay(base, {"model.vocab_size": study.vocab_size})
        known = entropy(language_of(base), sequences=study.entropy_sequences)
        luck = held_out_surprise(base) - known.nats
        say(f"L_0 {known.nats:.4f} ± {known.standard_error:.4f}; held-out text {luck:+.4f} from it")
        trunks = trainer.train(trunk_runs(study, base), "1/2 trunks")
        references = trainer.train(reference_runs(study, base), "2/2 references")

    runs, ended = (
        corrected(run_table(trainer.runs, chosen), luck) for chosen in (trunks, references)
    )
    reached = float(ended.drop_duplicates("run", keep="last")["eval_loss"].to_numpy(float).min())
    measured, estimates = fitted(study, runs, known.nats, reached)
    summary = summarize(estimates)
    sentences = conclusions(summary, known, reached)
    say("\n".join(sentences))
    results.write(
        {"points.csv": measured, "irreducible.csv": estimates, "summary.csv": summary},
        trainer,
        L_0=known.nats,
        L_0_standard_error=known.standard_error,
        held_out_minus_L_0=luck,
        model_reached=reached,
        conclusions=sentences,
    )


def trunk_runs(study: Study, base: RunConfig) -> list[RunConfig]:
    """One constant-rate run for each seed and batch."""
    axes = {"seed": study.seeds, "schedule.batch": [str(batch) for batch in study.batches]}
    return expand(base, seeded(axes))


def reference_runs(study: Study, base: RunConfig) -> list[RunConfig]:
    """Longer runs whose rate falls to zero: how low the model comes."""
    change = {
        "schedule.tokens": study.reference_tokens,
        "schedule.batch": str(study.reference_batch),
        "schedule.rate": "linear",
    }
    seeds = study.seeds[: study.references]
    return expand(base, [{**change, "seed": seed, "data.seed": seed} for seed in seeds])


def language_of(run: RunConfig) -> SyntheticLanguage:
    """The language that a run is trained on."""
    return SyntheticLanguage(run.model.vocab_size, run.data.seq_len)


def held_out_surprise(run: RunConfig) -> float:
    """Loss of the predictor that knows the law, on the very tokens that the run is evaluated on."""
    language = language_of(run)
    sequences = held_out(language, "validation", run.evaluation.tokens)
    return -float(np.asarray(truth(tables(language), sequences)[0], np.float64).mean())


def corrected(runs: pd.DataFrame, luck: float) -> pd.DataFrame:
    """Held-out losses less what the held-out tokens are harder than the language (a control)."""
    return runs.assign(eval_loss=runs["eval_loss"] - luck)


def fitted(
    study: Study, runs: pd.DataFrame, true_loss: float, reached: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """The points of all seeds, and a row of `estimate_row` for each seed and law."""
    measured, rows = [], []
    for seed in study.seeds:
        own = runs.loc[runs["seed"] == seed]
        early, share = study.target_warmup, study.share
        targets = default_targets(own, study.targets, warmup_tokens=early, share=share)
        measured.append(points(own, targets))
        for law in SURFACES:
            fit = fit_es(measured[-1], law, options=Options(study.resamples))
            rows.append(estimate_row(seed, law, fit, true_loss, reached))
    return pd.concat(measured, ignore_index=True), pd.DataFrame(rows)


def estimate_row(
    seed: int, law: str, fit: EsFit, true_loss: float, reached: float
) -> dict[str, Any]:
    """One seed's L_0 under one law, in nats: its interval, and what that covers.

    That is the truth, the language's entropy, and the lowest loss that the reference runs reached.
    """
    estimate = fit.joint_intervals["L_0"]
    low = -math.inf if estimate.low is None else estimate.low
    high = math.inf if estimate.high is None else estimate.high
    errors = np.array(fit.rows["relative_loss"])
    return {
        "seed": seed,
        "law": law,
        "L_0": estimate.value,
        "low": low,
        "high": high,
        "level": estimate.level,
        "truth": true_loss,
        "covers": low <= true_loss <= high,
        "reached": reached,
        "covers_reached": low <= reached <= high,
        "rms_relative_residual": float(np.sqrt(np.mean(errors**2))),
        "warnings": "; ".join(fit.warnings),
    }


def summarize(estimates: pd.DataFrame) -> pd.DataFrame:
    """Coverage and bias of each law over seeds, in nats.

    `bias` is the mean of L_0 less the truth, and `standard_error` that of this mean over seeds.
    `bias_to_reached` is what is left once the model's distance from the truth is taken out: the
    mean of L_0 less the lowest loss that the reference runs reached.
    """
    rows = []
    for law, group in estimates.groupby("law", sort=False):
        L_0 = group["L_0"]
        rows.append(
            {
                "law": law,
                "covered": group["covers"].sum(),
                "covered_reached": group["covers_reached"].sum(),
                "seeds": len(group),
                "bias": (L_0 - group["truth"]).mean(),
                "bias_to_reached": (L_0 - group["reached"]).mean(),
                "standard_error": L_0.sem(),
                "median_width": (group["high"] - group["low"]).median(),
                "rms_relative_residual": group["rms_relative_residual"].mean(),
            }
        )
    return pd.DataFrame(rows)


def conclusions(summary: pd.DataFrame, known: Entropy, reached: float) -> list[str]:
    """What was measured, in sentences; whether a law is biased is told by the claims."""
    sentences = [
        f"the language's L_0 is {known.nats:.4f} nats (s.e. {known.standard_error:.4f}); the model "
        f"reached {reached:.4f}, {reached - known.nats:+.4f} from it"
    ]
    for row in summary.to_dict("records"):
        error = math.hypot(row["standard_error"], known.standard_error)
        sentences.append(
            f"{row['law']}: covers the truth in {row['covered']} of {row['seeds']} seeds, off by "
            f"{row['bias']:+.4f} nats (s.e. {error:.4f}); "
            f"{row['bias_to_reached']:+.4f} from what the model reached, which it covers in "
            f"{row['covered_reached']}"
        )
    return sentences


if __name__ == "__main__":
    run_experiment(Study, experiment)
