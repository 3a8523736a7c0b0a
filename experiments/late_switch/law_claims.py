"""What the runs show of the functional law (Li et al., arXiv 2509.19189), from committed tables."""

import numpy as np
import pandas as pd

from bss.points.claims import Claim, Source
from bss.points.effects import by_groups, error_of_differences, less
from experiments.es_wsd.curves import Config
from experiments.hypotheses import Hypothesis, judged
from experiments.late_switch.predictions import GROUPS

TABLE = "results/late_switch/predictions.csv"
PREDICTS = "The functional law, its start put on the list after the first had failed, predicts "
PREDICTED: dict[str, tuple[Source, float | None]] = {  # the ratio that is to be beaten
    f"{PREDICTS}differences between unseen runs": ("paper", 1.0),
    f"{PREDICTS}them to half of their spread": ("derived", 0.5),
    f"{PREDICTS}them better than the constant of equal steps": ("derived", None),
}


def predictions(table: pd.DataFrame, tried: pd.DataFrame, config: Config) -> list[Claim]:
    """What the functional law predicts of runs it has not seen, resampled over schedules."""
    every = table.dropna(subset=["predicted", "mean_batch_constant"])
    every = every.loc[every["tokens"] == every["tokens"].max()]
    groups = {"all": every}
    groups["one rate"] = every.loc[np.isclose(every["peak_lr"], config["shared_rate"])]
    groups |= {name: every.loc[every["rate"] == ending] for ending, name in GROUPS.items()}
    claims = []
    for group, rows in groups.items():
        schedules = rows["batch"].tolist()
        if len(set(schedules)) < 3:
            continue
        law, steps = (
            error_of_differences(rows["measured"], rows[predictor])
            for predictor in ("predicted", "mean_batch_constant")
        )
        alone = by_groups(law, schedules)
        apart = by_groups(lambda w, law=law, steps=steps: law(w) - steps(w), schedules)
        even = steps(np.ones(len(rows)))
        condition = f"{group} ({alone.estimate:.2f}, of equal steps {even:.2f})"
        note = f"{len(rows)} runs of {alone.n} batch schedules; error of differences between runs "
        note += "over their spread, held-out losses; jackknife and bootstrap over schedules"
        note += _chosen(tried)
        family = []
        for what, (source, most) in PREDICTED.items():
            effect = less(alone, most) if most else apart
            family.append(Hypothesis(what, source, condition, effect, "of the spread", TABLE, note))
        claims += judged(family)
    return claims


def _chosen(tried: pd.DataFrame) -> str:
    """How the start of the law was found."""
    fits = tried.sort_values("left_out_rmse").to_dict("records")
    chosen = [fit for fit in fits if fit["chosen"]]
    planned = [fit for fit in fits if fit["since"] == 0]
    if not chosen or not planned:
        return ""
    start, error = chosen[0]["since"], planned[0]["all_ratio"]
    return (
        f"; fitted from {start:,} tokens on, chosen by left-out pilots; from 0, as planned, the "
        f"error is {error:.2f} of the spread of all"
    )
