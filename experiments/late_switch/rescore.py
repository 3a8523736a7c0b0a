"""The law of a late-switch study fitted again to its pilots, and scored on the runs it was put to.

After a change of the law or of its fit: nothing is trained and nothing is tuned. The schedules that
the law recommended stay those of the fit that recommended them. Of the study's tables those of the
law are written again, and the old scores printed beside the new ones.

    python -m experiments.late_switch.rescore results/late_switch
"""

import datetime
import sys
from pathlib import Path
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.files import read_json, write_json
from bss.provenance import commit
from bss.tables import write_table
from bss.values import from_dict
from experiments.late_switch.law import chosen_fit, fit_pilots
from experiments.late_switch.measure import law_tables
from experiments.late_switch.study import Study
from experiments.study import say


def rescored(folder: Path, study: Study) -> dict[str, Any]:
    """The tables of the law again, by file name.

    Raises:
        InputError: no fit can speak of schedules that change.
    """
    fits = fit_pilots(study, pd.read_parquet(folder / "pilots.parquet"))
    fit = chosen_fit(fits)
    if fit is None:
        raise InputError("pilots.parquet: no law can be fitted to them; run the study again")
    unseen, points = (pd.read_csv(folder / f"{n}.csv") for n in ("predictions", "switch_points"))
    return law_tables(study, fits, fit, unseen, points.query("source == 'measured'"))


def main(folder: Path) -> None:
    """Scores a results directory again, in place."""
    record = read_json(folder / "experiment.json", "run the experiment first")
    study = from_dict(Study, record["config"])
    before = pd.read_csv(folder / "scores.csv")
    tables = rescored(folder, study)
    write_json(folder / "fit.json", tables.pop("fit.json"))
    for name, table in tables.items():
        write_table(table, folder / name)
    call = {"command": f"python -m experiments.late_switch.rescore {folder}", "commit": commit()}
    record["rescored"] = call | {"date": datetime.date.today().isoformat()}
    write_json(folder / "experiment.json", record)
    both = before.merge(tables["scores.csv"], on=["group", "predictor"], suffixes=("_old", ""))
    columns = ["group", "ratio_old", "ratio", "rank_correlation_old", "rank_correlation"]
    say(both.loc[both["predictor"] == "predicted", columns].to_string(index=False))


if __name__ == "__main__":
    try:
        main(Path(sys.argv[1]))
    except (IndexError, InputError) as error:
        sys.exit(f"python -m experiments.late_switch.rescore RESULTS: {error}")
