"""Is the L_0 that a law E(S) reports the language's own? On synthetic text the truth is known.

Each seed is one practitioner: one constant-rate trunk per batch, points E(S), a fit of every law
that has an L_0, its interval. The truth is the conditional entropy of the language. A fitted L_0
can miss it for two reasons, which are told apart (derived here): the law is wrong or its data too
few, or the model cannot reach the language's entropy. For the second, reference runs, longer and
decayed to zero, show how low this model comes; that is an upper bound of the model's own floor.

    python -m experiments.irreducible_loss --config=configs/irreducible_loss.py:smoke
"""

import math
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.data.synthetic import Entropy, SyntheticLanguage, entropy, held_out, tables, truth
from bss.errors import InputError
from bss.laws.es.compare import CANDIDATES, fit_candidate
from bss.laws.es.values import EsFit
from bss.laws.fitting.estimate import Options
from bss.points.curve import default_targets, points
from bss.sweeps.grid import expand, overlay, seeded
from bss.sweeps.table import run_table
from bss.training.config import RunConfig
from bss.training.source import SYNTHETIC
from bss.values import to_dict
from experiments.study import (
    Setup,
    base_run,
    check_results,
    make_engine,
    print_price,
    provenance,
    run_experiment,
    say,
    train_all,
    write_results,
)

LAWS = tuple(name for name, candidate in CANDIDATES.items() if candidate["law"] == "surface")


@dataclass(frozen=True)
class Study:
    """The question.

    Attributes:
        title: of the report.
        batches: constant batches, in sequences.
        results: directory of tables.
        seeds: each is an initialisation and a data order; the language stays.
        vocab_size: of the language and the model.
        targets: target losses of each seed's points.
        target_warmup: the highest target is below every run's loss at twice these tokens.
        share: the lowest target is one that this share of the batches reaches.
        entropy_sequences: behind the true L_0.
        reference_tokens: length of a reference run; its rate falls linearly to zero.
        reference_batch: in sequences.
        references: how many reference runs, at the first seeds.
        resamples: bootstrap refits behind each interval.
        setup: model, data, optimizer, horizon, engine.

    Raises:
        InputError: on construction, if the corpus has no known entropy or there are too few seeds.
    """

    title: str
    batches: tuple[int, ...]
    results: str
    seeds: tuple[int, ...] = tuple(range(10))
    vocab_size: int = 16
    targets: int = 8
    target_warmup: int = 30_000
    share: float = 0.6
    entropy_sequences: int = 65_536
    reference_tokens: int = 4_000_000
    reference_batch: int = 32
    references: int = 2
    resamples: int = 500
    setup: Setup = field(default_factory=Setup)

    def __post_init__(self) -> None:
        if self.setup.text.corpus != SYNTHETIC:
            raise InputError(
                f"setup.text.corpus is {self.setup.text.corpus!r}; expected {SYNTHETIC!r}, the "
                "one whose irreducible loss is known"
            )
        if len(self.seeds) < 2:
            raise InputError(f"seeds are {list(self.seeds)}; expected 2 or more, for an error")
        if not 1 <= self.references <= len(self.seeds):
            raise InputError(
                f"references is {self.references}; expected 1 to {len(self.seeds)}, one per seed"
            )


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    started = time.monotonic()
    check_results(Path(study.results), to_dict(study))
    base, execution = base_run(study.setup)
    base = overlay(base, {"model.vocab_size": study.vocab_size})
    known = entropy(language_of(base), sequences=study.entropy_sequences)
    luck = held_out_surprise(base) - known.nats
    say(f"L_0 {known.nats:.4f} ± {known.standard_error:.4f}; held-out text {luck:+.4f} from it")
    with make_engine(study.setup) as engine:
        trunks, references = trunk_runs(study, base), reference_runs(study, base)
        print_price("1/2 trunks", trunks)
        trunks = train_all(engine, trunks, execution, "1/2 trunks")
        print_price("2/2 references", references)
        references = train_all(engine, references, execution, "2/2 references")

    runs_directory = Path(execution.runs)
    runs, ended = (
        corrected(run_table(runs_directory, chosen), luck) for chosen in (trunks, references)
    )
    last = ended.drop_duplicates("run", keep="last")
    reached = float(last["eval_loss"].to_numpy(float).min())
    rows, measured = [], []
    for seed in study.seeds:
        measured.append(seed_points(study, runs.loc[runs["seed"] == seed]))
        for law in LAWS:
            fit = fit_candidate(measured[-1], law, Options(study.resamples))
            rows.append(estimate_row(seed, law, fit, known.nats, reached))
    estimates = pd.DataFrame(rows)
    summary = summarize(estimates)
    for line in conclusions(summary, known, reached):
        say(line)
    write_results(
        Path(study.results),
        {
            "experiment.json": {
                "title": study.title,
                "L_0": known.nats,
                "L_0_standard_error": known.standard_error,
                "held_out_minus_L_0": luck,
                "model_reached": reached,
                "conclusions": conclusions(summary, known, reached),
                **provenance(to_dict(study), started, [*trunks, *references], execution.runs),
            },
            "points.csv": pd.concat(measured, ignore_index=True),
            "irreducible.csv": estimates,
            "summary.csv": summary,
        },
    )
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


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


def seed_points(study: Study, runs: pd.DataFrame) -> pd.DataFrame:
    """Points E(S) of one seed's runs."""
    early, share = study.target_warmup, study.share
    targets = default_targets(runs, study.targets, warmup_tokens=early, share=share)
    return points(runs, targets)


def estimate_row(
    seed: int, law: str, fit: EsFit, true_loss: float, reached: float
) -> dict[str, Any]:
    """One seed's L_0 under one law: the interval, and what it covers.

    Args:
        seed: of the runs behind the fit.
        law: its name.
        fit: of a surface.
        true_loss: entropy of the language, in nats.
        reached: lowest loss of the reference runs, in nats.
    """
    found = fit.surface_intervals["L_0"]
    low = -math.inf if found.low is None else found.low
    high = math.inf if found.high is None else found.high
    errors = np.array([row["relative_loss"] for row in fit.residuals])
    return {
        "seed": seed,
        "law": law,
        "L_0": found.value,
        "low": low,
        "high": high,
        "level": found.level,
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
        names = ("L_0", "truth", "reached", "low", "high", "rms_relative_residual")
        L_0, true, reached, low, high, residual = (group[name].to_numpy(float) for name in names)
        covers, covers_reached = (
            group[name].to_numpy(bool) for name in ("covers", "covers_reached")
        )
        rows.append(
            {
                "law": law,
                "covered": int(covers.sum()),
                "covered_reached": int(covers_reached.sum()),
                "seeds": len(group),
                "bias": (L_0 - true).mean(),
                "bias_to_reached": (L_0 - reached).mean(),
                "standard_error": L_0.std(ddof=1) / math.sqrt(len(group)),
                "median_width": np.median(high - low),
                "rms_relative_residual": residual.mean(),
            }
        )
    return pd.DataFrame(rows)


def conclusions(summary: pd.DataFrame, known: Entropy, reached: float) -> list[str]:
    """The answer in sentences: coverage of each law, and how far its L_0 is off."""
    found = [
        f"the language's L_0 is {known.nats:.4f} nats (s.e. {known.standard_error:.4f}); the model "
        f"reached {reached:.4f}, {reached - known.nats:+.4f} from it"
    ]
    for row in summary.to_dict("records"):
        error = math.hypot(row["standard_error"], known.standard_error)
        verdict = "biased" if abs(row["bias"]) > 2 * error else "no bias seen"
        found.append(
            f"{row['law']}: covers the truth in {row['covered']} of {row['seeds']} seeds, "
            f"{verdict}: {row['bias']:+.4f} nats (s.e. {error:.4f}); "
            f"{row['bias_to_reached']:+.4f} from what the model reached, which it covers in "
            f"{row['covered_reached']}"
        )
    return found


if __name__ == "__main__":
    run_experiment(Study, experiment)
