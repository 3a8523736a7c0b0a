"""What the notebook shows of the ablations beside their claims."""

import pandas as pd

from bss.points.crossings import mean
from bss.schedules.batch import BatchSchedule
from experiments.es_ablations.claims import HELD, Config, by_ending
from experiments.es_wsd.measure import optimum_table


def gains(table: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Every growing contender less the held constant under the same change, paired by seed.

    Returns:
        Columns change, contender (its batches, where the sequences grow too those of as many
        tokens a step), weights, difference (nats), error (2 standard errors).
    """
    total, short = config["setup"]["schedule"]["tokens"], config["setup"]["text"]["seq_len"]
    lengths = {v["name"]: v["after"].get("data.seq_len", short) for v in config["variations"]}
    rows = []
    for ending, losses in by_ending(table, config, longer=True).items():
        for change, name in losses.index:
            if name != HELD and (change, HELD) in losses.index:
                apart = losses.loc[(change, name)] - losses.loc[(change, HELD)]
                apart = mean(apart.dropna().tolist())
                *before, last = BatchSchedule.parse(name, total=total).batches
                batches = " → ".join(map(str, (*before, last * lengths[change] // short)))
                rows.append((change, f"batch {batches}", ending, apart.value, apart.error))
    columns = ["change", "contender", "weights", "difference", "error"]
    return pd.DataFrame(rows, columns=pd.Index(columns)).astype({"error": float})


def optima_of(points: pd.DataFrame, names: dict[str, str]) -> dict[str, dict[str, pd.DataFrame]]:
    """Measured optima by kind of loss and by what a variation is called.

    Args:
        points: of `experiments.es_ablations.claims.varied`.
        names: what variations are called, those that are shown.
    """
    return {
        f"{kind} loss": {
            called: optimum_table(some.loc[some["variation"] == name])
            for name, called in names.items()
            if name in set(some["variation"])
        }
        for kind, some in points.groupby("kind", sort=False)
    }


def sizes(points: pd.DataFrame, config: Config) -> dict[str, str]:
    """Variations of the model alone, called by their parameters."""
    alone = [v["name"] for v in config["variations"] if not v["changes"] and not v["after"]]
    params = dict(zip(points["variation"], points["params"], strict=True))
    return {name: f"{params[name]:,} parameters" for name in alone if name in params}


def optimizers(config: Config) -> dict[str, str]:
    """The reference and the variation under SGD."""
    names = {config["variations"][0]["name"]: "Adam"}
    changed = [v for v in config["variations"] if v["changes"].get("optimizer.name") == "sgd"]
    return names | {v["name"]: "SGD" for v in changed}
