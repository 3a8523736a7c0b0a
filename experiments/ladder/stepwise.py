"""What each rung would have been told from all below it, the rung before it included.

    python -m experiments.ladder.stepwise results/ladder

What was registered is from the pilots alone. It writes stepwise.csv; nothing of it was registered.
"""

from pathlib import Path

import pandas as pd

from bss.laws import check_losses, fit_table
from bss.laws.base import Options
from bss.tables import write_table
from experiments.ladder.scores import decayed, ended, final_losses
from experiments.tables import Tables, folder_asked

PILOTS = ("pilot_rates", "pilots")
PREDICTED = ("es_99k", "es_380k", "es_790k")
COLUMNS = ["params", "tokens", "batch", "seq_len", "lr", "loss"]


def stepwise(results: Path) -> pd.DataFrame:
    """Decayed losses that `bss fit table` gives to each rung that has ended, by those below it.

    Returns:
        part, stop, batch, predicted, low, high (90%) and measured, mean over seeds.
    """
    pilots = [decayed(Tables(results / name).read("finals.csv"), name) for name in PILOTS]
    known = check_losses(final_losses(pd.concat(pilots))).loc[:, COLUMNS]
    table, rows = ended(results), []
    for part in (part for part in PREDICTED if part in {*table["part"]}):
        rung = table.loc[table["part"] == part].astype({"batch": float})
        fit = fit_table(check_losses(known), options=Options(100))
        for (stop, batch), some in rung.groupby(["stop", "batch"]):  # type: ignore[misc]
            params, seq_len = (float(some[name].iloc[0]) for name in ("params", "seq_len"))
            told = fit.prediction(params, stop, batch * seq_len, extrapolate=True).loss
            row = {"part": part, "stop": stop, "batch": batch, "predicted": told.value}
            ends = {"low": told.low, "high": told.high}
            rows.append(row | ends | {"measured": some["test_loss"].mean()})
        known = pd.concat([known, final_losses(rung)])
    return pd.DataFrame(rows)


if __name__ == "__main__":
    folder = folder_asked(__doc__)
    found = stepwise(folder)
    write_table(found, folder / "stepwise.csv")
    print(found.to_string(index=False))
