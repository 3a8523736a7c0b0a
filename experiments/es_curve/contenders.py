"""The schedule that E(S) calls for, and what it is tested against."""

import pandas as pd

from bss.laws import EsFit
from bss.policies import POLICIES
from bss.policies.policy import Basis, Limits
from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import late_switch
from bss.sweeps.contenders import Contender
from bss.sweeps.grid import overlay
from bss.training.config import RunConfig
from experiments.es_curve.study import Study
from experiments.study import batch_unit


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
    entries = [Contender(f"constant {t.schedule.batch}", "constant", "constant", t) for t in trunks]
    for trunk in (t for t in trunks if t.schedule.batch.constant_batch == best):
        for name, role, batch in tried:
            run = overlay(trunk, {"schedule.batch": str(batch)})
            entries.append(Contender(name, role, "constant", run))
        late = late_switch(trunk, round(study.late_at * horizon), best * study.late_factor)
        entries.append(Contender(f"late {late.schedule.batch}", "late", "constant", late))
    return entries


def best_constant_batch(runs: pd.DataFrame) -> int:
    """The batch with the lowest final held-out loss, averaged over seeds."""
    last = runs.drop_duplicates("run", keep="last")
    losses = last.pivot_table("eval_loss", "batch")["eval_loss"]
    return int(losses.index[losses.argmin()])
