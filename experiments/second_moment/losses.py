"""Final losses of a part at the chosen LRs, on the seeds that were not used for the choice."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from bss.stats import LR_PHASES, Comparison, phases_of
from experiments.tables import Tables

Config = dict[str, Any]
Cell = tuple[str, str]
"""A rule and an LR phase."""
PHASE = ("lr_phase", "weights")


@dataclass(frozen=True)
class Part:
    """The tables of a part.

    Attributes:
        contenders: Final losses.
        config: Config of the study.
    """

    contenders: pd.DataFrame
    config: Config

    @cached_property
    def judged(self) -> dict[Cell, pd.DataFrame]:
        """Test losses [batch, seed] of fixed batch sizes by rule and phase, at the chosen LR."""
        return by_cell(judged(self.contenders, self.config), "test_loss")

    @cached_property
    def chose(self) -> dict[Cell, pd.DataFrame]:
        """Held-out losses [batch, seed] of the seeds that chose the LR, at the best LR."""
        seeds = self.contenders["seed"].isin(self.config["seeds"][: self.config["choosing"]])
        constant = self.contenders["role"] == "constant"
        table = Comparison(self.contenders.loc[seeds & constant]).tuned().table
        return by_cell(table, "eval_loss", complete=False)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""
        return int(self.config["setup"]["text"]["seq_len"])


def read_part(folder: Path) -> Part:
    """Return a part from its results directory."""
    tables = Tables(folder)
    return Part(tables.read("contenders.csv"), tables.config)


def phases_in(losses: Mapping[Cell, Any]) -> list[str]:
    """Return the LR phases of some cells, in the order of LR_PHASES."""
    return [phase for phase in LR_PHASES if any(own == phase for _, own in losses)]


def of_beta2(first: Part, second: Part) -> tuple[dict[Cell, pd.DataFrame], dict[str, dict]]:
    """Return losses of two parts, and the changes of each rule, of rules of beta2 alone."""
    rules = {r["name"]: r["changes"] for part in (first, second) for r in part.config["rules"]}
    own = {"optimizer.beta2", "optimizer.beta2_half_life"}
    rules = {name: changes for name, changes in rules.items() if changes.keys() <= own}
    losses = first.judged | second.judged
    return {cell: table for cell, table in losses.items() if cell[0] in rules}, rules


def judged(table: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Return the final losses at the chosen LR, of the seeds that were not used for the choice.

    `trials` is the number of LRs that were tried. If no arm has several, all seeds are returned.
    """
    seeds = config["seeds"][: config["choosing"]]
    best = Comparison(whole(table, seeds)).tuned().table.drop_duplicates(["name", *PHASE])
    keys = ["name", *PHASE, "peak_lr"]
    chosen = table.merge(best[[*keys, "trials"]], on=keys)
    several = bool((chosen["trials"] > 1).any())
    return chosen.loc[~chosen["seed"].isin(seeds)] if several else chosen


def whole(table: pd.DataFrame, seeds: Collection[int]) -> pd.DataFrame:
    """Return the rows of the LRs at which all of these seeds finished."""
    some = table[table["seed"].isin([*seeds])]
    counts = some.groupby(["name", *PHASE, "peak_lr"])["seed"].transform("nunique")
    return some.loc[counts == len(seeds)]


def by_cell(table: pd.DataFrame, column: str, *, complete: bool = True) -> dict[Cell, pd.DataFrame]:
    """Return a column of fixed batch sizes, [batch, seed], by rule and LR phase.

    Args:
        table: Final losses, with one peak_lr for each name and LR phase.
        column: A loss.
        complete: Keep the seeds that all batch sizes have.
    """
    constants = table.loc[table["role"] == "constant"].astype({"batch": int})
    found = {}
    for (rule, phase), rows in constants.groupby(["rule", phases_of(constants)], sort=False):  # type: ignore[misc]
        losses = rows.pivot(index="batch", columns="seed", values=column)
        found[str(rule), str(phase)] = losses.dropna(axis="columns") if complete else losses
    return found
