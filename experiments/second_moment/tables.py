"""What the figures and the notebook show beside the claims: tables of the committed results."""

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pandas as pd

from bss.points.contrasts import half_interval
from bss.points.standings import ENDINGS
from bss.schedules.batch import BatchSchedule
from experiments.second_moment.half_lives import cells, envelope
from experiments.second_moment.judged import (
    Cell,
    Config,
    choosing,
    judged,
    losses,
    of_beta2,
    of_both,
    read_part,
)

GRID = 40


@dataclass(frozen=True)
class Trained:
    """What a part of the study wrote: final losses, curves at constant rate, its config."""

    contenders: pd.DataFrame
    runs: pd.DataFrame
    config: Config

    @cached_property
    def judged(self) -> dict[Cell, pd.DataFrame]:
        """Test losses of the seeds that are judged, [batch, seed], by rule and ending."""
        return losses(judged(self.contenders, self.config))

    @cached_property
    def chose(self) -> dict[Cell, pd.DataFrame]:
        """Held-out losses [batch, seed] of the seeds that chose the rates, at those rates."""
        return choosing(self.contenders, self.config)

    @property
    def seq_len(self) -> int:
        """Tokens of a sequence."""
        return int(self.config["setup"]["text"]["seq_len"])


def read_trained(folder: Path) -> Trained:
    """A part from its folder of results."""
    contenders, config = read_part(folder)
    return Trained(contenders, pd.read_parquet(folder / "runs.parquet"), config)


def at_one_rate(part: Trained) -> Trained:
    """One rule at one rate, those of the most runs, on the seeds at which every batch has them."""
    keys = ["rule", "peak_lr"]
    most = part.runs.groupby(keys, sort=False)["run"].nunique().idxmax()
    contenders, runs = (
        table.loc[table[keys].apply(tuple, axis=1) == most]
        for table in (part.contenders, part.runs)
    )
    batches = contenders.groupby("seed")["batch"].nunique()
    whole = batches.index[batches == contenders["batch"].nunique()]
    contenders, runs = (table.loc[table["seed"].isin(whole)] for table in (contenders, runs))
    return Trained(contenders, runs, part.config)


def merged(first: Trained, second: Trained) -> tuple[dict[Cell, pd.DataFrame], Config]:
    """Judged losses of two parts, without the controls, and a config with the rules of both."""
    ended, config = of_both(*((part.contenders, part.config) for part in (first, second)))
    own = of_beta2(config)
    return {cell: table for cell, table in ended.items() if cell[0] in own}, config


def enveloped(first: Trained, second: Trained) -> dict[Cell, pd.DataFrame]:
    """Judged losses of both parts by rule and ending, and those of each batch at its best rule."""
    both, _ = merged(first, second)
    chose = first.chose | second.chose
    for ending in [known for known in ENDINGS if any(own == known for _, own in both)]:
        rules = [rule for rule, own in both if own == ending]
        tables = ({rule: some[rule, ending] for rule in rules} for some in (both, chose))
        both["best rule of each batch", ending], _ = envelope(*tables)
    return both


def half_lives(first: Trained, second: Trained) -> dict[str, pd.DataFrame]:
    """Every cell of both parts by ending, with its loss above that of the batch's best rule.

    Returns:
        Columns rule, batch, tokens and steps of the half-life, loss, above, and half, half the
        interval of above at 95% over paired seeds.
    """
    both, config = merged(first, second)
    found = {}
    for ending in [known for known in ENDINGS if any(own == known for _, own in both)]:
        table = cells(both, ending, config)
        named, values = table.iloc[:, :4], table.iloc[:, 4:]
        tables = []
        for _, rows in values.groupby(table["batch"]):
            best = rows.mean(axis=1).to_numpy().argmin()
            apart = (rows - rows.iloc[best]).to_numpy(float)
            half = half_interval(apart.T)
            columns = {"loss": rows.mean(axis=1), "above": apart.mean(axis=1), "half": half}
            tables.append(named.loc[rows.index].assign(**columns))
        found[ending] = pd.concat(tables)
    return found


def beside(part: Trained, column: str, reference: str) -> dict[str, pd.DataFrame]:
    """Each schedule's losses less those of a constant at equal tokens, over the last two e-folds.

    Args:
        part: its runs at one rate are compared.
        column: of the losses.
        reference: a constant, by its batch as text.

    Returns:
        By name, columns tokens, difference, low and high: the mean over paired seeds in nats with
        its interval at 95%. Losses between evaluations are linear in log tokens.
    """
    curves: dict[str, dict[int, tuple[np.ndarray, np.ndarray]]] = {}
    runs = at_one_rate(part).runs
    for (batch, seed), rows in runs.groupby(["schedule.batch", "seed"], sort=False):  # type: ignore[misc]
        seen = rows.loc[rows[column].notna()]
        at = np.log(seen["tokens"].to_numpy(float)), seen[column].to_numpy(float)
        curves.setdefault(short(str(batch), part), {})[int(str(seed))] = at
    ends = [x[-1] for seeds in curves.values() for x, _ in seeds.values()]
    grid = np.linspace(min(ends) - 1.0, min(ends), GRID)
    found = {}
    flat = constants(part)
    for name in sorted(curves, key=lambda name: (name not in flat, len(name), name)):
        pairs = [(curves[name][s], curves[reference][s]) for s in curves[name]]
        apart = [np.interp(grid, *own) - np.interp(grid, *other) for own, other in pairs]
        mean, half = np.mean(apart, axis=0), half_interval(np.array(apart))
        columns = {"difference": mean, "low": mean - half, "high": mean + half}
        if name != reference:
            found[name] = pd.DataFrame({"tokens": np.exp(grid), **columns})
    return found


def constants(part: Trained) -> set[str]:
    """The names of the constants of a part."""
    table = named(part)
    return set(table.loc[table["role"] == "constant", "name"])


def named(part: Trained) -> pd.DataFrame:
    """The final losses of a part at one rate, contenders named by their batches."""
    final = at_one_rate(part).contenders
    return final.assign(name=[short(str(batch), part) for batch in final["batch"]])


def short(batch: str, part: Trained) -> str:
    """A batch schedule in a few letters: "8", "2 → 8 at 70%", or all its batches."""
    total = part.config["setup"]["schedule"]["tokens"]
    schedule = BatchSchedule.parse(batch, total=total)
    arrow = " → ".join(map(str, schedule.batches))
    if len(schedule.batches) != 2:
        return arrow
    return f"{arrow} at {100 * schedule.starts[1] / total:g}%"


def reached(points: pd.DataFrame) -> pd.DataFrame:
    """How many seeds of each batch reached each target: [target, batch]."""
    table = points.pivot_table(
        index="target_loss", columns="batch", values="reached", aggfunc="sum"
    )
    return table.iloc[::-1]
