"""Is the L_0 that a law E(S) reports the language's own? On synthetic text the truth is known.

Each seed is one practitioner: one constant-rate trunk per batch, points E(S), a fit of every law
that has an L_0, its interval. The truth is the conditional entropy of the language. A fitted L_0
can miss it for two reasons, which are told apart (derived here): the law is wrong or its data too
few, or the model cannot reach the language's entropy. For the second, reference runs, longer and
decayed to zero, show how low this model comes; that is an upper bound of the model's own floor.

    python -m experiments.irreducible_loss --config=configs/irreducible_loss.py:smoke
"""

from bss.data.synthetic import entropy
from bss.sweeps.grid import overlay
from bss.sweeps.results import Results
from bss.sweeps.table import run_table
from bss.sweeps.trainer import Trainer
from experiments.irreducible_loss import measure
from experiments.irreducible_loss.study import Study
from experiments.main import run_experiment
from experiments.study import base_run, say


def experiment(study: Study) -> None:
    """Runs the study and writes its tables."""
    results = Results(study)
    base, execution = base_run(study.setup)
    base = overlay(base, {"model.vocab_size": study.vocab_size})
    known = entropy(measure.language_of(base), sequences=study.entropy_sequences)
    luck = measure.held_out_surprise(base) - known.nats
    say(f"L_0 {known.nats:.4f} ± {known.standard_error:.4f}; held-out text {luck:+.4f} from it")
    with Trainer(study.open_engine(), execution) as trainer:
        trunks = trainer.train(measure.trunk_runs(study, base), "1/2 trunks")
        references = trainer.train(measure.reference_runs(study, base), "2/2 references")

    runs, ended = (
        measure.corrected(run_table(trainer.runs, chosen), luck) for chosen in (trunks, references)
    )
    reached = float(ended.drop_duplicates("run", keep="last")["eval_loss"].to_numpy(float).min())
    measured, estimates = measure.fitted(study, runs, known.nats, reached)
    summary = measure.summarize(estimates)
    sentences = measure.conclusions(summary, known, reached)
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


if __name__ == "__main__":
    run_experiment(Study, experiment)
