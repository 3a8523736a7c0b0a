"""Writes down what is expected of the rungs, from the pilots below them and from other studies.

    python -m experiments.ladder.register results/ladder

Nothing is trained. Losses are those of `bss fit table` on the pilots, by their own budgets; best
batches go from that of results/momentum by the exponents of results/critical_batch. Commit the
file before the first rung.
"""

import datetime
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from bss.laws import TableFit, check_losses, fit_table
from bss.laws.fitting.estimate import Estimate, Options
from bss.models.written import model_of
from bss.points.batch_means import BatchMeans
from bss.points.valley import valleys
from bss.predictions.registration import Prediction, Registration, digest, register
from bss.provenance import commit
from bss.sweeps.sweep import prepared_run
from bss.values import from_dict, to_dict
from configs.ladder import get_config
from experiments.ladder.scores import decayed, final_losses
from experiments.ladder.study import Study
from experiments.momentum.ended import BATCHES, KEPT, SHORT, Ended
from experiments.study import say
from experiments.tables import Tables, folder_asked

PILOTS = ("pilot_rates", "pilots")
PREDICTED = ("es_99k", "es_380k", "es_790k")
METRIC = "test_loss"
NANO, LENGTH = 98_752, 64  # parameters and sequences of results/momentum
Z90, Z95 = 1.645, 1.96
STATEMENTS = {
    "losses": "of each rung, 80% or more of its losses lie in their 90% intervals. Right: so. "
    "Wrong: half or fewer. Else undecided",
    "batches": "the best batch of each (rung, budget) is the one told. Right: the measured one "
    "(bss fit table) lies in its interval, or the bound that was measured holds all of it. Wrong: "
    "the two intervals are disjoint. Else undecided",
    "smallest": "at 99k and .38M, at either budget, batch 1 ends below batch 2 after the decay: "
    "the one test of runs to come (bss.contests.moderated, all batches its table), paired seeds, "
    "after Holm. Right: every one is shown. Wrong: the opposite of one. Else undecided",
    "exponents": "best batches grow with tokens and parameters as the critical batches of "
    "results/critical_batch do (joint law). Right, wrong, undecided: as of batches",
    "rates": "of the three rates at batches 1, 4 and 16, an eighth of the budget, the one that is "
    "best at 99k costs .01 nats or less at .38M, decayed. Right: at all three. Wrong: it costs "
    "more than .02 at one. Else undecided: one seed",
    "width": "at 1M tokens the batch whose decayed loss is .1 above the least, each at the best of "
    "its rates, grows from width 64 to 128 by a factor of .8 to 1.5, linearly in log batch. Right: "
    "so. Wrong: beyond .67 to 1.8. Else undecided: one seed",
    "mixture": "that batch of the mixture is .67 to 1.5 of that of the dense model of as many "
    "active parameters (2 x 128), at the same rates. Right: so. Wrong: beyond .5 to 2. Else "
    "undecided: one seed",
    "switch": "of the mixture, 4 to 32 at 70% ends above the best constant after a decay. Right: "
    "by .01 or more. Wrong: below it by .01 or more. Else undecided: one seed",
}
"""What is expected, and how it is scored; losses are those of the test split."""


def main(pilots: Path) -> None:
    """Registers what is predicted."""
    fit = fit_table(losses(pilots), options=Options(100))
    predictions = [one for part in PREDICTED for one in predicted(part, fit)]
    own = {"statements": STATEMENTS, "batches": forecasts(), "exponents": to_dict(exponents())}
    registration = Registration(
        "ladder",
        METRIC,
        tuple(predictions),
        fit.to_dict() | own,
        exclusions=("parts late, es_4.7M, width_gpu and large: no GPU was at hand",),
        date=datetime.date.today().isoformat(),
        commit=commit(),
    )
    path = register(registration, Path("results/predictions"))
    say(f"registered in {path}, {digest(path)}; commit it, then train")


def losses(pilots: Path) -> pd.DataFrame:
    """The decayed losses of the pilots, as `bss fit table` reads them."""
    tables = [decayed(Tables(pilots / name).read("finals.csv"), name) for name in PILOTS]
    return check_losses(final_losses(pd.concat(tables)))


def predicted(part: str, fit: TableFit) -> Iterator[Prediction]:
    """What the law says of a part's decayed runs, those of all seeds as one."""
    study = study_of(part)
    base, _ = prepared_run(study.setup)
    (rung,) = study.rungs
    of_seeds = [list(study.runs(base, rung, seed)) for seed in study.seeds]
    for runs in zip(*of_seeds, strict=True):
        first = runs[0]
        if first.schedule.decay:
            sizes = float(first.model.counts().active), float(first.schedule.tokens)
            batch = first.schedule.batch.constant_batch
            told = fit.prediction(*sizes, batch * first.data.seq_len, extrapolate=True)
            yield Prediction(
                f"{rung.name}, {first.schedule.tokens:,} tokens, batch {batch}",
                tuple(run.id for run in runs),
                first.plan().tokens,
                told.loss,
                ending="decay",
                peak_lr=first.optimizer.lr,
                schedule=first.schedule,
                extrapolates=tuple(f"{name} {by:.3g} times" for name, by in told.beyond.items()),
            )


def study_of(part: str) -> Study:
    """The study of a part."""
    return from_dict(Study, json.loads(get_config(part).to_json_best_effort()))


def exponents() -> dict[str, Estimate]:
    """Of best batches in N and D: those of the critical batches of results/critical_batch, 95%."""
    laws = Tables(Path("results/critical_batch")).read("laws.csv")
    joint = laws.loc[laws["law"] == "joint"].set_index("variable").to_dict("index")
    symbols = {"N": joint["params"], "D": joint["tokens"]}
    return {
        symbol: Estimate(one["exponent"], one["low"], one["high"], level=0.95)
        for symbol, one in symbols.items()
    }


def forecasts() -> list[dict[str, Any]]:
    """The best batch of each rung and budget in tokens: the middle 90% of a log-normal."""
    ended = Ended.read("results/momentum/finals.csv")
    table = pd.DataFrame({batch: ended.loss(batch, KEPT) for batch in (*BATCHES, 5, 6)}).stack()
    seeds, batches = (table.index.get_level_values(i).to_numpy(float) for i in (0, 1))
    (valley,) = valleys([BatchMeans.of_runs(LENGTH * batches, table.to_numpy(float), seed=seeds)])
    by, told = exponents(), []
    for study in map(study_of, PREDICTED):
        for rung, end in itertools.product(study.rungs, study.ends):
            params = model_of(rung.changes["model"]).counts().active
            tokens = round(end * rung.tokens)
            logs = {"N": math.log(params / NANO), "D": math.log(tokens / SHORT)}
            mean, variance = math.log(valley.batch), valley.spread**2
            for symbol, times in logs.items():
                one = by[symbol]
                assert one.value is not None and one.low is not None and one.high is not None
                mean += times * one.value
                variance += (times * (one.high - one.low) / 2 / Z95) ** 2
            low, high = (math.exp(mean + sign * Z90 * math.sqrt(variance)) for sign in (-1, 1))
            sizes = {"rung": rung.name, "params": params, "tokens": tokens}
            told.append(sizes | {"value": math.exp(mean), "low": low, "high": high})
    return told


if __name__ == "__main__":
    main(folder_asked(__doc__))
