"""Is the L_0 that a law E(S) reports the language's own? On synthetic text the truth is known.

Each seed is one practitioner: one constant-rate trunk per batch, points E(S), a fit of every law
that has an L_0, its interval. The truth is the conditional entropy of the language. A fitted L_0
can miss it for two reasons, which are told apart (derived here): the law is wrong or its data too
few, or the model cannot reach the language's entropy. For the second, reference runs, longer and
decayed to zero, show how low this model comes; that is an upper bound of the model's own floor.

    python -m experiments.irreducible_loss --config=configs/irreducible_loss.py:smoke
"""

import time
from pathlib import Path

from bss.data.synthetic import entropy
from bss.sweeps.grid import overlay
from bss.sweeps.table import run_table
from bss.values import to_dict
from experiments.irreducible_loss.measure import (
    conclusions,
    corrected,
    fitted,
    held_out_surprise,
    language_of,
    reference_runs,
    summarize,
    trunk_runs,
)
from experiments.irreducible_loss.study import Study
from experiments.study import (
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

    runs, ended = (
        corrected(run_table(Path(execution.runs), chosen), luck) for chosen in (trunks, references)
    )
    reached = float(ended.drop_duplicates("run", keep="last")["eval_loss"].to_numpy(float).min())
    measured, estimates = fitted(study, runs, known.nats, reached)
    summary = summarize(estimates)
    told = conclusions(summary, known, reached)
    say("\n".join(told))
    write_results(
        Path(study.results),
        {
            "experiment.json": {
                "title": study.title,
                "L_0": known.nats,
                "L_0_standard_error": known.standard_error,
                "held_out_minus_L_0": luck,
                "model_reached": reached,
                "conclusions": told,
                **provenance(to_dict(study), started, [*trunks, *references], execution.runs),
            },
            "points.csv": measured,
            "irreducible.csv": estimates,
            "summary.csv": summary,
        },
    )
    say(f"done in {(time.monotonic() - started) / 60:.1f} min; tables in {study.results}")


if __name__ == "__main__":
    run_experiment(Study, experiment)
