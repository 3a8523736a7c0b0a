"""The tables of a late-switch study, from what it trained."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import CurveFit
from bss.points.standings import differences, tuned
from bss.schedules.batch import BatchSchedule
from bss.sweeps.contenders import Contender, contender_table
from bss.sweeps.table import run_table
from experiments.late_switch.law import law_switch
from experiments.late_switch.predictions import candidates, predictions, repredicted, scores
from experiments.late_switch.runs import is_whole
from experiments.late_switch.study import Study
from experiments.late_switch.tables import (
    Curve,
    catch_up,
    curves,
    exponent,
    switch_points,
    switches_of,
)
from experiments.late_switch.trained import Trained
from experiments.study import say
from experiments.trainer import Trainer


def ended(study: Study, trained: Trained) -> list[Contender]:
    """What is compared at equal tokens."""
    return [*(c for c in trained.stable if is_whole(study, c)), *trained.decays, *trained.cosines]


def final_tables(study: Study, trained: Trained, trainer: Trainer) -> dict[str, pd.DataFrame]:
    """Final losses at every rate, at the best, and their differences."""
    contenders = ended(study, trained)
    final = contender_table(contenders, trainer.statuses)
    names = list(dict.fromkeys(c.name for c in contenders if c.role != "constant"))
    conditions = {
        "tuned": tuned(final),
        "shared": final.loc[np.isclose(final["peak_lr"], study.shared_rate)],
    }
    apart = [differences(table, names).assign(rates=kind) for kind, table in conditions.items()]
    return {
        "every_rate.csv": final,
        "contenders.csv": conditions["tuned"],
        "differences.csv": pd.concat(apart),
    }


def switch_tables(study: Study, trained: Trained, trainer: Trainer) -> dict[str, pd.DataFrame]:
    """Catch-up after each switch, and the best switch of each budget with its exponent."""
    runs = trainer.runs
    small, large = (
        at_rate(study, trained.constants, batch, runs) for batch in (study.small, study.large)
    )
    late = [c for c in trained.stable if c.role == "late"]
    every, whole = (
        {at: curves(runs, seeds) for at, seeds in switches_of(some, study.shared_rate)}
        for some in (late, [c for c in late if is_whole(study, c)])
    )
    budgets = [round(part * study.tokens) for part in study.budgets]
    points = pd.concat(
        [switch_points(every, small, large, budgets), law_points(study, trained.fit)]
    )
    continued = curves(runs, [c.run for c in trained.continued]) or large
    exponents = [exponent(points, source) for source in ("measured", "law")]
    return {
        "catch_up.csv": catch_up(whole, small, large, continued),
        "switch_points.csv": points,
        "exponents.csv": pd.DataFrame(exponents),
    }


def law_tables(trained: Trained) -> dict[str, Any]:
    """The law, what it was fitted to and what it recommends."""
    return {
        "pilots.parquet": trained.means,
        "fit.json": trained.fit.to_dict() if trained.fit else {},
        "schedules.json": {name: str(schedule) for name, schedule in trained.lawful.items()},
    }


def prediction_tables(study: Study, trained: Trained, trainer: Trainer) -> dict[str, pd.DataFrame]:
    """What the law predicts of runs it has not seen, beside what the other fits would have."""
    contenders = ended(study, trained)
    flat = [c for c in contenders if c.role == "constant"]
    unseen = [
        c for c in contenders if c.role != "constant" and (c.role, c.ending) != ("late", "constant")
    ]
    table = predictions(trained.fit, trained.pilots, unseen, flat, trainer.statuses)
    tried = [(fit, repredicted(table, fit, unseen)) for fit in trained.fits]
    return {
        "candidates.csv": candidates(tried, trained.fit, study.shared_rate),
        "predictions.csv": table,
        "scores.csv": scores(table, study.shared_rate),
    }


def at_rate(
    study: Study, constants: Sequence[Contender], batch: int, runs: Path
) -> dict[int, Curve]:
    """The curves of a constant batch at the shared rate, by seed."""
    same = BatchSchedule.constant(batch)
    chosen = [c.run for c in constants if c.run.schedule.batch == same]
    return curves(runs, [r for r in chosen if np.isclose(r.optimizer.lr, study.shared_rate)])


def law_points(study: Study, fit: CurveFit | None) -> pd.DataFrame:
    """The best switch by the law at budgets its losses reach, and beyond; as `switch_points`."""
    rows: list[dict[str, Any]] = []
    warmup = study.setup.schedule.warmup
    budgets = [round(part * study.tokens) for part in (*study.budgets, *study.extrapolated)]
    for budget in budgets:
        if fit is not None and budget <= fit.since:
            continue
        try:
            if fit is None:
                raise InputError("there is no fit")
            after, loss = law_switch(
                fit, budget, study.shared_rate, warmup, study.small, study.large
            )
        except InputError as error:
            say(f"the law gives no switch point: {error}")
            break
        # At the bounds of the search it is no optimum.
        inside = 0.95 * budget > after > 3 * study.large * study.setup.text.seq_len
        rows.append(
            {"budget": budget, "source": "law", "after": after, "interior": inside, "loss": loss}
        )
    return pd.DataFrame(rows)


def named_runs(contenders: Sequence[Contender], runs: Path) -> pd.DataFrame:
    """The run table of all contenders with their names and kinds of rate, equal runs once."""
    first = {contender.run.id: contender for contender in reversed(contenders)}
    table = run_table(runs, [contender.run for contender in first.values()])
    table["name"] = [first[run].name for run in table["run"]]
    table["rate"] = [first[run].ending for run in table["run"]]
    return table
