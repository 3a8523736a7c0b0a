"""Train one run per seed and batch size on synthetic text, and longer references; fit L_0.

A fitted L_0 can differ from the entropy for two reasons (derived here). Either the law is wrong or
has too few data, or the model cannot reach the entropy. Longer reference runs, with the LR decayed
to zero, test the second reason. Their lowest loss is an upper bound of the lowest loss that the
model can reach.
"""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from bss.data.log_bilinear import SyntheticLanguage, tables
from bss.data.synthetic import entropy, held_out, truth
from bss.errors import InputError
from bss.laws import fit_es
from bss.laws.base import Options
from bss.points.curve import default_targets, points
from bss.sweeps.grid import expand, overlay, seeded
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.training.batches import SYNTHETIC
from bss.training.run_config import RunConfig
from experiments.irreducible_loss.analysis import SURFACES, estimate_row, summarize
from experiments.study import PricedStudy, say


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """One size of the experiment.

    Attributes:
        batches: Fixed batch sizes, in sequences.
        seeds: As in every study; the language is the same for all.
        vocab_size: Vocabulary of the language and the model.
        targets: Target losses of each seed's points.
        target_warmup: The highest target is below every run's loss at twice these tokens.
        share: The lowest target is one that this fraction of the batch sizes reaches.
        entropy_sequences: Sequences of the entropy estimate.
        reference_tokens: Tokens of a reference run; its LR falls linearly to zero.
        reference_batch: Its batch size in sequences.
        references: Number of reference runs, at the first seeds.

    Raises:
        InputError: If the text is not synthetic, so that its entropy is not known.
    """

    batches: tuple[int, ...]
    seeds: tuple[int, ...] = tuple(range(10))
    vocab_size: int = 16
    targets: int = 8
    target_warmup: int = 30_000
    share: float = 0.6
    entropy_sequences: int = 65_536
    reference_tokens: int = 4_000_000
    reference_batch: int = 32
    references: int = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.setup.text.corpus != SYNTHETIC:
            raise InputError(
                f"setup.text.corpus is {self.setup.text.corpus!r}; expected {SYNTHETIC!r}, whose "
                "entropy is known"
            )


def experiment(study: Study) -> None:
    """Train the study and write its tables."""
    results = Results(study)
    with study.training() as (base, trainer):
        base = overlay(base, {"model.vocab_size": study.vocab_size})
        known = entropy(language_of(base), sequences=study.entropy_sequences)
        luck = held_out_surprise(base) - known.nats
        say(f"L_0 {known.nats:.4f} ± {known.standard_error:.4f}; held-out text {luck:+.4f} above")
        constants = trainer.train(constant_runs(study, base), "1/2 fixed batch sizes")
        references = trainer.train(reference_runs(study, base), "2/2 references")

    runs, last = (
        corrected(run_table(trainer.runs, chosen), luck) for chosen in (constants, references)
    )
    reached = float(last.drop_duplicates("run", keep="last")["eval_loss"].to_numpy(float).min())
    measured, estimates = fitted(study, runs, known.nats, reached)
    summary = summarize(estimates)
    print(summary.to_string(index=False))
    results.write(
        {"points.csv": measured, "irreducible.csv": estimates, "summary.csv": summary},
        trainer,
        L_0=known.nats,
        L_0_standard_error=known.standard_error,
        held_out_minus_L_0=luck,
        model_reached=reached,
    )


def constant_runs(study: Study, base: RunConfig) -> list[RunConfig]:
    """Return one run at constant LR for each seed and batch size."""
    axes = {"seed": study.seeds, "schedule.batch": [str(batch) for batch in study.batches]}
    return expand(base, seeded(axes))


def reference_runs(study: Study, base: RunConfig) -> list[RunConfig]:
    """Return longer runs whose LR falls to zero."""
    change = {
        "schedule.tokens": study.reference_tokens,
        "schedule.batch": str(study.reference_batch),
        "schedule.rate": "linear",
    }
    seeds = study.seeds[: study.references]
    return expand(base, [{**change, "seed": seed, "data.seed": seed} for seed in seeds])


def language_of(run: RunConfig) -> SyntheticLanguage:
    """Return the language that a run is trained on."""
    return SyntheticLanguage(run.model.vocab_size, run.data.seq_len)


def held_out_surprise(run: RunConfig) -> float:
    """Return the loss of the true distribution on the run's held-out tokens."""
    language = language_of(run)
    sequences = held_out(language, "validation", run.evaluation.tokens)
    return -float(np.asarray(truth(tables(language), sequences)[0], np.float64).mean())


def corrected(runs: pd.DataFrame, luck: float) -> pd.DataFrame:
    """Return held-out losses minus the excess surprise of the held-out tokens (a control)."""
    return runs.assign(eval_loss=runs["eval_loss"] - luck)


def fitted(
    study: Study, runs: pd.DataFrame, true_loss: float, reached: float
) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Return the points of all seeds, and a row of `estimate_row` for each seed and law."""
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
