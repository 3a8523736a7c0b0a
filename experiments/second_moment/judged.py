"""The losses that are judged: at rates chosen on the first seeds, of the seeds after them."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pandas as pd

from bss.files import read_json
from bss.points.interior import Position, positions
from bss.points.standings import tuned

Config = dict[str, Any]
Cell = tuple[str, str]
"""A rule and an ending."""

Part = tuple[pd.DataFrame, Config]
"""The contenders of a part, and its config."""

STEP, TOKENS = "0.95 per step", "half-life 7K"
"""The two rules that were registered."""


def read_part(results: Path) -> Part:
    """A part's results; InputError where they are not there."""
    config = read_json(results / "experiment.json", "run the part first")["config"]
    return pd.read_csv(results / "contenders.csv"), config


def read_curves(results: Path) -> pd.DataFrame:
    """The curves of a part at constant rate, with the role of each."""
    ended = pd.read_csv(results / "contenders.csv")
    roles = ended.loc[ended["rate"] == "constant"].set_index("run")["role"]
    curves = pd.read_parquet(results / "runs.parquet")
    return curves.assign(role=curves["run"].map(roles))


def of_beta2(config: Config) -> list[str]:
    """The rules of a part that change how beta2 follows the batch, and nothing else."""
    own = {"optimizer.beta2", "optimizer.beta2_half_life"}
    return [rule["name"] for rule in config["rules"] if rule["changes"].keys() <= own]


def of_both(first: Part, second: Part) -> tuple[dict[Cell, pd.DataFrame], Config]:
    """Judged losses of two parts, and a config with the rules of both."""
    ended = losses(judged(*first)) | losses(judged(*second))
    rules = {rule["name"]: rule for _, config in (first, second) for rule in config["rules"]}
    return ended, {**first[1], "rules": [*rules.values()]}


def judged(table: pd.DataFrame, config: Config) -> pd.DataFrame:
    """The rows of contenders.csv that are judged, with `trials`, how many rates were tried.

    Where no arm has several rates every seed is judged.
    """
    seeds = config["seeds"][: config["choosing"]]
    best = tuned(whole(table, seeds)).drop_duplicates(["name", "rate"])
    kept = table.merge(best[["name", "rate", "peak_lr", "trials"]], on=["name", "rate", "peak_lr"])
    several = bool((kept["trials"] > 1).any())
    return kept.loc[~kept["seed"].isin(seeds)] if several else kept


def whole(table: pd.DataFrame, seeds: Collection[int]) -> pd.DataFrame:
    """The rows of rates at which every one of these seeds finished."""
    some = table[table["seed"].isin([*seeds])]
    counts = some.groupby(["name", "rate", "peak_lr"])["seed"].transform("nunique")
    return some.loc[counts == len(seeds)]


def losses(table: pd.DataFrame) -> dict[Cell, pd.DataFrame]:
    """Test losses of constant batches by rule and ending, [batch, seed]; seeds that all have.

    Args:
        table: rows of contenders.csv, one peak_lr for each name and ending.
    """
    constants = table.loc[table["role"] == "constant"]
    constants = constants.assign(batch=constants["batch"].astype(int))
    return {
        (str(rule), str(ending)): rows.pivot(
            index="batch", columns="seed", values="test_loss"
        ).dropna(axis="columns")
        for (rule, ending), rows in constants.groupby(["rule", "rate"], sort=False)  # type: ignore[misc]
    }


def choosing(table: pd.DataFrame, config: Config) -> dict[Cell, pd.DataFrame]:
    """Held-out losses [batch, seed] at the best rate, of the seeds that chose it."""
    chose = table["seed"].isin(config["seeds"][: config["choosing"]])
    best = tuned(table.loc[chose & (table["role"] == "constant")])
    best = best.assign(batch=best["batch"].astype(int))
    return {
        (str(rule), str(ending)): rows.pivot(index="batch", columns="seed", values="eval_loss")
        for (rule, ending), rows in best.groupby(["rule", "rate"], sort=False)  # type: ignore[misc]
    }


def best_inner(table: pd.DataFrame, config: Config) -> dict[Cell, float]:
    """The batch between the ends with the lowest held-out loss on the seeds that chose the rate."""
    return {
        cell: float(chose.mean(axis="columns").iloc[1:-1].idxmin())  # type: ignore[arg-type]
        for cell, chose in choosing(table, config).items()
    }


def where_best(table: pd.DataFrame, config: Config) -> dict[Cell, Position]:
    """Where the best batch lies, by rule and ending: what was guessed before the runs."""
    return positions(losses(judged(table, config)), best_inner(table, config))


def score(found: Mapping[Cell, Position], guess: Mapping[str, Mapping[str, str]]) -> pd.DataFrame:
    """The guess beside what was found, a row for each rule and ending."""
    return pd.DataFrame(
        [
            {
                "rule": rule,
                "ending": ending,
                "guess": guess[rule][ending],
                "found": at.found,
                "right": guess[rule][ending] == at.found,
                **{"best batch": at.best, "inner": at.inner},
                **{"smallest above": at.smallest_above, "largest above": at.largest_above},
                **{"p": at.p, "p adjusted": at.p_adjusted, "seeds": at.n},
            }
            for (rule, ending), at in found.items()
        ]
    )
