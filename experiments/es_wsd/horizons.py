"""The best constant batch of each horizon, after the decay: measured, and as a law has it."""

import pandas as pd

from bss.laws import EsFit
from bss.laws.es.values import predicted_loss
from bss.points.crossings import mean
from bss.points.standings import tuned


def horizon_table(decays: pd.DataFrame, law: EsFit) -> pd.DataFrame:
    """Every batch at every horizon, at the rate with the lowest held-out loss.

    Args:
        decays: finals of constant batches decayed to zero; their stop is the horizon.
        law: fitted to the annealed losses.

    Returns:
        Columns horizon (tokens), batch, peak_lr, trials (rates tried), eval_loss and test_loss
        (means over seeds), best (lowest held-out loss of the horizon), law_best (the law's choice),
        and excess: test loss above that of the best, paired by seed, with excess_error, 2 standard
        errors.
    """
    rows = []
    sized = decays.assign(batch=decays["batch"].astype(int)).sort_values("batch", kind="stable")
    kept = tuned(sized, ["stop", "batch"])
    for end, ended in kept.groupby("stop"):
        at = {int(str(batch)): seeds.set_index("seed") for batch, seeds in ended.groupby("batch")}
        held_out = {
            batch: float(seeds["eval_loss"].to_numpy(float).mean()) for batch, seeds in at.items()
        }
        best = min(at, key=lambda batch: held_out[batch])
        law_best = min(at, key=lambda batch: predicted_loss(law, int(str(end)), batch))
        for batch, seeds in at.items():
            apart = seeds["test_loss"] - at[best]["test_loss"]
            excess = mean(apart.dropna().tolist())
            rows.append(
                {
                    "horizon": end,
                    "batch": batch,
                    "peak_lr": seeds["peak_lr"].iloc[0],
                    "trials": seeds["trials"].iloc[0],
                    "eval_loss": held_out[batch],
                    "test_loss": mean(seeds["test_loss"].tolist()).value,
                    "best": batch == best,
                    "law_best": batch == law_best,
                    "excess": excess.value,
                    "excess_error": excess.error,
                }
            )
    return pd.DataFrame(rows)
