"""The schedule that E(S) calls for, and what it is tested against."""

import pandas as pd

from bss.errors import InputError
from bss.laws import EsFit
from bss.laws.es.compare import Comparison
from bss.policies import POLICIES
from bss.policies.follow_optimum import FollowOptimum
from bss.policies.measured import Measured
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import late_switch
from bss.sweeps.contenders import Contender
from bss.sweeps.grid import overlay
from bss.training.config import RunConfig
from experiments.es_curve.study import Study
from experiments.study import batch_unit


def derive_schedule(
    study: Study, fits: dict[str, EsFit], comparison: Comparison, measured: pd.DataFrame
) -> tuple[BatchSchedule, str, str]:
    """The schedule of the law that predicts left-out batches best and can support one.

    Where no law identifies B_opt, the best measured batch at each target is followed instead.

    Returns:
        The schedule, its law, and a sentence on how it was chosen.
    """
    horizon, limits = study.setup.schedule.tokens, Limits(study.stages, batch_unit(study.setup))
    seq_len = study.setup.text.seq_len
    refused: list[str] = []
    for law in (row["law"] for row in comparison.table):
        try:
            schedule = FollowOptimum()(Basis(seq_len, fits[law]), horizon, limits)
        except InputError as error:
            refused.append(f"{law} ({error})")
            continue
        if not refused:
            return schedule, law, f"{law} predicts left-out batches best"
        note = f"{law} predicts left-out batches best of the laws that give a schedule"
        return schedule, law, f"{note}; without one: {', '.join(refused)}"
    schedule = Measured()(Basis(seq_len, points=measured), horizon, limits)
    note = "no law gives a schedule, so the best measured batch at each target is followed"
    return schedule, "measured", f"{note}; {', '.join(refused)}"


def other_schedules(
    study: Study, fit: EsFit | None, measured: pd.DataFrame
) -> dict[str, BatchSchedule]:
    """What the policies of the study make of the law that was chosen, if any, and the points."""
    basis = Basis(study.setup.text.seq_len, fit, measured)
    limits = Limits(study.stages, batch_unit(study.setup))
    horizon = study.setup.schedule.tokens
    return {name: POLICIES[name](basis, horizon, limits) for name in study.policies}


def contenders(
    study: Study,
    trunks: list[RunConfig],
    schedule: BatchSchedule,
    others: dict[str, BatchSchedule],
    runs: pd.DataFrame,
) -> list[Contender]:
    """The runs compared at constant rate, for every seed."""
    horizon, unit = study.setup.schedule.tokens, batch_unit(study.setup)
    best = best_constant_batch(runs)
    average = unit * max(1, round(schedule.mean_batch(horizon) / unit))
    tried = [("derived schedule", "schedule", schedule)]
    if average not in study.batches:
        tried.append((f"constant {average}", "average", BatchSchedule.constant(average)))
    tried += [(name, "policy", other) for name, other in others.items()]
    found = [Contender(f"constant {t.schedule.batch}", "constant", "constant", t) for t in trunks]
    for trunk in (t for t in trunks if t.schedule.batch.constant_batch == best):
        for name, role, batch in tried:
            run = overlay(trunk, {"schedule.batch": str(batch)})
            found.append(Contender(name, role, "constant", run))
        late = late_switch(trunk, round(study.late_at * horizon), best * study.late_factor)
        found.append(Contender(f"late {late.schedule.batch}", "late", "constant", late))
    return found


def best_constant_batch(runs: pd.DataFrame) -> int:
    """The batch with the lowest final held-out loss, averaged over seeds."""
    last = runs.drop_duplicates("run", keep="last")
    losses = last.pivot_table("eval_loss", "batch")["eval_loss"]
    return int(losses.index[losses.argmin()])
