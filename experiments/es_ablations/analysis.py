"""What changing one thing moves, of the ablations of arXiv 2601.05034, from the committed tables.

Every run has the shared rate, not tuned anew.
"""

from typing import Any

import pandas as pd

from bss.points.crossings import mean
from bss.schedules.batch import BatchSchedule
from bss.stats import Comparison
from experiments.es_wsd_archive.measure import optimum_table

Config = dict[str, Any]
HELD = "constant 4"
WEIGHTS = {"constant": "raw weights", "averaged": "averaged weights"}


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
        points: of `varied`.
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


def by_size(points: pd.DataFrame, config: Config) -> dict[str, str]:
    """Variations of the model alone, called by their parameters."""
    alone = [v["name"] for v in config["variations"] if not v["changes"] and not v["after"]]
    params = dict(zip(points["variation"], points["params"], strict=True))
    return {name: f"{params[name]:,} parameters" for name in alone if name in params}


def optimizers(config: Config) -> dict[str, str]:
    """The reference and the variation under SGD."""
    names = {config["variations"][0]["name"]: "Adam"}
    changed = [v for v in config["variations"] if v["changes"].get("optimizer.name") == "sgd"]
    return names | {v["name"]: "SGD" for v in changed}


def varied(points: pd.DataFrame, optima: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The points with the variation that each run is of, of those whose E(S) was measured."""
    measured = table["variation"].isin([*optima["variation"].unique()])
    runs = table.loc[measured, ["run", "variation"]].drop_duplicates()
    return points.merge(runs, on="run")


def by_ending(
    table: pd.DataFrame, config: Config, *, longer: bool = False
) -> dict[str, pd.DataFrame]:
    """Losses by ending, [(change, contender), seed], of the variations in which a batch grows.

    Args:
        table: contenders.csv, where every run is told by the weights that it ends with.
        config: of the study.
        longer: whether to keep the variations in which the sequences grow too.
    """
    grown = set(table.loc[table["role"] != "constant", "variation"])
    rows = table.loc[table["variation"].isin([*grown])]
    contest = {HELD, *rows.loc[rows["role"] != "constant", "name"]}
    rows = rows.loc[rows["name"].isin([*contest])]
    if not longer:
        rows = rows[~rows["variation"].isin([*_longer(config)])]
    shapes = {v["name"]: v["changes"].get("schedule.rate") for v in config["variations"]}
    column, shape = Comparison(table).column, rows["variation"].map(shapes)
    told = rows["ending"].map(WEIGHTS).where(shape.isna(), shape)
    rows = rows.assign(told=told)[shape.isna() | (rows["ending"] == "constant")]
    contender = ["variation", "name"]
    return {
        str(ending): some.pivot_table(column, index=contender, columns="seed", sort=False)
        for ending, some in rows.groupby("told", sort=False)
    }


def _longer(config: Config) -> dict[str, int]:
    """Sequence lengths after the switch, by variation."""
    after = {v["name"]: v["after"] for v in config["variations"]}
    return {name: some["data.seq_len"] for name, some in after.items() if some}
