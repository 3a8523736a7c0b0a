"""The law of a late-switch study fitted again to its pilots, and scored on the runs it was put to.

After a change of the law or of its fit: nothing is trained and nothing is tuned. The schedules that
the law recommended stay those of the fit that recommended them. Of the study's tables those of the
law are written again, and the old scores printed beside the new ones.

    python -m experiments.late_switch.rescore results/late_switch
"""

import datetime
import math
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import read_json, write_json
from bss.laws import CurveFit
from bss.laws.functional.values import predict
from bss.schedules.batch import BatchSchedule
from bss.tables import write_table
from bss.training.execution import commit
from bss.values import from_dict
from experiments.late_switch.law import chosen_fit, fit_pilots, kinds_of_rate, law_points
from experiments.late_switch.measure import exponent
from experiments.late_switch.predictions import candidates, scores
from experiments.late_switch.study import Study
from experiments.study import say


def rescored(study: Study, pilots: pd.DataFrame, old: dict[str, pd.DataFrame]) -> dict[str, Any]:
    """The tables of the law again, by file name.

    Args:
        study: as it was run.
        pilots: mean curves, a run table.
        old: predictions, switch_points and exponents as they were.

    Raises:
        InputError: no fit can speak of schedules that change.
    """
    starts = [round(part * study.tokens) for part in study.starts]
    fits = fit_pilots(pilots, starts, study.setup.schedule.warmup, study.resamples)
    fit = chosen_fit(fits)
    if fit is None:
        raise InputError("pilots.parquet: no law can be fitted to them; run the study again")
    predicted = [(one, predictions(study, one, old["predictions"])) for one in fits]
    table = next(table for one, table in predicted if one is fit)
    measured = {
        name: old[name].query("source == 'measured'") for name in ("switch_points", "exponents")
    }
    points = pd.concat([measured["switch_points"], law_points(study, fit)])
    law = pd.DataFrame([exponent(points, "law")])
    return {
        "fit.json": fit.to_dict(),
        "candidates.csv": candidates(predicted, fit, study.shared_rate),
        "predictions.csv": table,
        "scores.csv": scores(table, study.shared_rate),
        "switch_points.csv": points,
        "exponents.csv": pd.concat([measured["exponents"], law]),
    }


def predictions(study: Study, fit: CurveFit, table: pd.DataFrame) -> pd.DataFrame:
    """A table of predictions with what a fit predicts of the same runs; NaN where it cannot."""

    def predicted(row: Any) -> float:
        kinds = kinds_of_rate(row.peak_lr, row.tokens, study.setup.schedule.warmup, study.decay)
        try:
            schedule = BatchSchedule.parse(row.batch, total=row.tokens)
            return float(predict(fit, schedule, row.tokens, kinds[row.rate])[0])
        except InputError:
            return math.nan

    return table.assign(predicted=[predicted(row) for row in table.itertuples()])


def main(folder: Path) -> None:
    """Scores a results directory again, in place."""
    record = read_json(folder / "experiment.json", "run the experiment first")
    study = from_dict(Study, record["config"])
    names = "predictions", "switch_points", "exponents"
    old = {name: pd.read_csv(folder / f"{name}.csv") for name in names}
    before = pd.read_csv(folder / "scores.csv")
    found = rescored(study, pd.read_parquet(folder / "pilots.parquet"), old)
    write_json(folder / "fit.json", found.pop("fit.json"))
    for name, table in found.items():
        write_table(table, folder / name)
    made = {"command": f"python -m experiments.late_switch.rescore {folder}", "commit": commit()}
    record["rescored"] = made | {"date": datetime.date.today().isoformat()}
    write_json(folder / "experiment.json", record)
    both = before.merge(found["scores.csv"], on=["group", "predictor"], suffixes=("_old", ""))
    columns = ["group", "ratio_old", "ratio", "rank_correlation_old", "rank_correlation"]
    say(both.loc[both["predictor"] == "predicted", columns].to_string(index=False))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (IndexError, InputError) as error:
        sys.exit(f"python -m experiments.late_switch.rescore RESULTS: {error}")
