"""Fits the law to the pilots, draws schedules and writes down what is predicted of them.

    python -m experiments.predictions.register --config=configs/predictions.py:cpu

Nothing is trained. Commit the file that it names before `python -m experiments.predictions`.
"""

import datetime
from collections.abc import Sequence

from bss.laws import CurveFit, fit_curve
from bss.laws.fitting.estimate import Options
from bss.predictions.draw import Drawn
from bss.predictions.registration import Registration, digest, predictions, register
from bss.provenance import commit
from bss.sweeps.sweep import prepared_run
from bss.training.config import RunConfig
from experiments.main import run_experiment
from experiments.predictions.study import (
    METRIC,
    RULE,
    STEPS,
    Study,
    constants,
    curves,
    equal_steps,
    runs_of,
)
from experiments.study import say


def experiment(study: Study) -> None:
    """Registers the predictions of a study."""
    base, _ = prepared_run(study.setup)
    drawn = study.drawn
    finals, pilots = constants(study), curves(study)
    steps = {one.name: equal_steps(finals, one) for one in drawn}
    fit = fit_curve(
        pilots,
        warmup=study.setup.schedule.warmup,
        since=round(study.since * study.setup.schedule.tokens),
        options=Options(study.resamples),
        report=say,
    )
    say(f"{fit.clock} clock: rms error of log loss {fit.rmse:.2g}, at left-out ends "
        f"{fit.left_out_rmse.get(fit.clock)}")  # fmt: skip
    path = register(registration(study, fit, drawn, base, steps), study.file.parent)
    say(f"registered in {path}, {digest(path)}; commit it, then train")


def registration(
    study: Study,
    fit: CurveFit,
    drawn: Sequence[Drawn],
    base: RunConfig,
    steps: dict[str, tuple[float, bool]],
) -> Registration:
    """What is predicted, and by what.

    Args:
        study: of which name, draw and pilots are told.
        fit: the law.
        drawn: the schedules.
        base: the run that they change.
        steps: the baseline by their names, as `equal_steps` has it.
    """
    runs = {one.name: [run.id for run in runs_of(study, base, one)] for one in drawn}
    clamped = [name[:2] for name, (_, beyond) in steps.items() if beyond]
    rule = RULE.format(table=f"{study.pilots}/every_rate.csv", clamped=", ".join(clamped) or "none")
    values = {name: loss for name, (loss, _) in steps.items()}
    fitted = {"pilots": f"{study.pilots}/runs.parquet, seeds averaged", "runs": study.fitted}
    return Registration(
        study.name,
        METRIC,
        predictions(fit, drawn, runs, {STEPS: values}),
        fit.to_dict() | {"fitted": fitted},
        {STEPS: rule},
        study.exclusions,
        study.draw,
        study.ranges,
        datetime.date.today().isoformat(),
        commit(),
    )


if __name__ == "__main__":
    run_experiment(Study, experiment)
