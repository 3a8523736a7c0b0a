"""The losses that are judged: at rates chosen on the first seeds, of the seeds after them."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bss.stats import LR_PHASES, Comparison
from experiments.tables import Tables

Config = dict[str, Any]
Cell = tuple[str, str]
"""A rule and an ending."""


def endings_of(ended: Mapping[Cell, Any]) -> list[str]:
    """The endings of some rules, in the order of LR_PHASES."""
    return [ending for ending in LR_PHASES if any(own == ending for _, own in ended)]


@dataclass(frozen=True)
class Part:
    """What a part of the study wrote: final losses, curves at constant rate, its config.

    And errors of laws at left-out batches, of the part whose E(S) was fitted.
    """

    contenders: pd.DataFrame
    runs: pd.DataFrame
    config: Config
    left_out: pd.DataFrame | None = None

    @cached_property
    def judged(self) -> dict[Cell, pd.DataFrame]:
        """Test losses of the seeds that are judged, [batch, seed], by rule and ending."""
        return losses(judged(self.contenders, self.config))

    @cached_property
    def chose(self) -> dict[Cell, pd.DataFrame]:
        """Held-out losses [batch, seed] of the seeds that chose the rates, at the best rate."""
        seeds = self.contenders["seed"].isin(self.config["seeds"][: self.config["choosing"]])
        constant = self.contenders["role"] == "constant"
        return dict(
            _by_cell(Comparison(self.contenders.loc[seeds & constant]).tuned().table, "eval_loss")
        )

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""
        return int(self.config["setup"]["text"]["seq_len"])


def read_part(folder: Path) -> Part:
    """A part from its folder of results; InputError where they are not there."""
    tables = Tables(folder)
    left_out = tables.read("left_out.csv") if "left_out.csv" in tables else None
    return Part(tables.read("contenders.csv"), tables.read("runs.parquet"), tables.config, left_out)


def of_both(first: Part, second: Part) -> tuple[dict[Cell, pd.DataFrame], Config]:
    """Judged losses of two parts, and a config with the rules of both."""
    rules = {rule["name"]: rule for part in (first, second) for rule in part.config["rules"]}
    return first.judged | second.judged, {**first.config, "rules": [*rules.values()]}


def of_beta2(first: Part, second: Part) -> tuple[dict[Cell, pd.DataFrame], Config]:
    """The same of the rules that change how beta2 follows the batch, and nothing else."""
    ended, config = of_both(first, second)
    own = {"optimizer.beta2", "optimizer.beta2_half_life"}
    rules = [rule["name"] for rule in config["rules"] if rule["changes"].keys() <= own]
    return {cell: table for cell, table in ended.items() if cell[0] in rules}, config


def judged(table: pd.DataFrame, config: Config) -> pd.DataFrame:
    """The rows of contenders.csv that are judged, with `trials`, how many rates were tried.

    Where no arm has several rates every seed is judged.
    """
    seeds = config["seeds"][: config["choosing"]]
    best = Comparison(whole(table, seeds)).tuned().table.drop_duplicates(["name", "ending"])
    keys = ["name", "ending", "peak_lr"]
    chosen = table.merge(best[[*keys, "trials"]], on=keys)
    several = bool((chosen["trials"] > 1).any())
    return chosen.loc[~chosen["seed"].isin(seeds)] if several else chosen


def whole(table: pd.DataFrame, seeds: Collection[int]) -> pd.DataFrame:
    """The rows of rates at which every one of these seeds finished."""
    some = table[table["seed"].isin([*seeds])]
    counts = some.groupby(["name", "ending", "peak_lr"])["seed"].transform("nunique")
    return some.loc[counts == len(seeds)]


def losses(table: pd.DataFrame) -> dict[Cell, pd.DataFrame]:
    """Test losses of constant batches by rule and ending, [batch, seed]; seeds that all have.

    Args:
        table: rows of contenders.csv, one peak_lr for each name and ending.
    """
    return {cell: seeds.dropna(axis="columns") for cell, seeds in _by_cell(table, "test_loss")}


def _by_cell(table: pd.DataFrame, column: str) -> Iterator[tuple[Cell, pd.DataFrame]]:
    """A column of constant batches, [batch, seed], by rule and ending."""
    constants = table.loc[table["role"] == "constant"].astype({"batch": int})
    for (rule, ending), rows in constants.groupby(["rule", "ending"], sort=False):  # type: ignore[misc]
        yield (str(rule), str(ending)), rows.pivot(index="batch", columns="seed", values=column)
