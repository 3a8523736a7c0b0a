"""What the figures and the notebook show: tables of the committed results."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.files import write_json
from bss.laws.base import Options
from bss.laws.es.compare import compare
from bss.points.curve import default_targets, points
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling, half_life
from bss.stats import half_interval
from bss.tables import write_table
from bss.values import from_dict, to_dict
from experiments.es_wsd_archive.measure import Laws, fit_laws
from experiments.second_moment.losses import (
    Cell,
    Part,
    endings_of,
    of_beta2,
)
from experiments.tables import Tables

LOSSES = {"constant": "eval_loss", "averaged": "eval_loss_avg_4%"}
"""The held-out losses at constant LR, by LR phase."""
GRID = 40
TARGETS = 6
SHOWN = ("hyperbola", "piecewise")
"""Laws that are shown beside the one that is chosen."""


def at_one_rate(part: Part) -> Part:
    """One rule at one rate, those of the most runs, on the seeds at which every batch has them."""
    counts = part.runs.groupby(["rule", "peak_lr"], sort=False)["run"].nunique()
    rule, rate = counts.idxmax()  # type: ignore[misc]
    contenders, runs = (
        table.loc[(table["rule"] == rule) & (table["peak_lr"] == rate)]
        for table in (part.contenders, part.runs)
    )
    batches = contenders.groupby("seed")["batch"].nunique()
    whole = batches.index[batches == contenders["batch"].nunique()]
    contenders, runs = (table.loc[table["seed"].isin(whole)] for table in (contenders, runs))
    return replace(part, contenders=contenders, runs=runs)


def enveloped(first: Part, second: Part) -> dict[Cell, pd.DataFrame]:
    """Judged losses of both parts by rule and ending, and those of each batch at its best rule."""
    both, _ = of_beta2(first, second)
    chose = first.chose | second.chose
    for ending in endings_of(both):
        rules = [rule for rule, own in both if own == ending]
        tables = ({rule: some[rule, ending] for rule in rules} for some in (both, chose))
        both["best rule of each batch", ending], _ = envelope(*tables)
    return both


def half_lives(first: Part, second: Part) -> dict[str, pd.DataFrame]:
    """Every cell of both parts by ending, with its loss above that of the batch's best rule.

    Returns:
        Columns rule, batch, tokens and steps of the half-life, loss, above, and half, half the
        interval of above at 95% over paired seeds.
    """
    both, config = of_beta2(first, second)
    by_ending = {}
    for ending in endings_of(both):
        table = cells({rule: some for (rule, own), some in both.items() if own == ending}, config)
        named, values = table.iloc[:, :4], table.iloc[:, 4:]
        tables = []
        for _, rows in values.groupby(table["batch"]):
            means = rows.mean(axis=1)
            apart = (rows - rows.loc[means.idxmin()]).to_numpy(float)
            columns = {"loss": means, "above": apart.mean(axis=1), "half": half_interval(apart.T)}
            tables.append(named.loc[rows.index].assign(**columns))
        by_ending[ending] = pd.concat(tables)
    return by_ending


def beside(part: Part, column: str, reference: str) -> dict[str, pd.DataFrame]:
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
    tables, flat = {}, constants(part)
    for name in sorted(curves, key=lambda name: (name not in flat, len(name), name)):
        pairs = [(curves[name][s], curves[reference][s]) for s in curves[name]]
        apart = [np.interp(grid, *own) - np.interp(grid, *other) for own, other in pairs]
        mean, half = np.mean(apart, axis=0), half_interval(np.array(apart))
        columns = {"difference": mean, "low": mean - half, "high": mean + half}
        if name != reference:
            tables[name] = pd.DataFrame({"tokens": np.exp(grid), **columns})
    return tables


def constants(part: Part) -> set[str]:
    """The names of the constants of a part."""
    table = named(part)
    return set(table.loc[table["role"] == "constant", "name"])


def named(part: Part) -> pd.DataFrame:
    """The final losses of a part at one rate, contenders named by their batches."""
    final = at_one_rate(part).contenders
    return final.assign(name=[short(str(batch), part) for batch in final["batch"]])


def short(batch: str, part: Part) -> str:
    """A batch schedule in a few letters: "8", "2 → 8 at 70%", or all its batches."""
    total = part.config["setup"]["schedule"]["tokens"]
    schedule = BatchSchedule.parse(batch, total=total)
    arrow = " → ".join(map(str, schedule.batches))
    if len(schedule.batches) != 2:
        return arrow
    return f"{arrow} at {100 * schedule.starts[1] / total:g}%"


def e_of_s(part: Part, column: str = "eval_loss", kind: str = "stable") -> pd.DataFrame:
    """Points at evenly spaced targets, the lowest of which most batches reach."""
    return points(*targets_of(part, column), column=column, kind=kind)


def targets_of(part: Part, column: str) -> tuple[pd.DataFrame, tuple[float, ...]]:
    """The runs of the part at one rate, and their automatic targets, highest first."""
    runs, warmup = at_one_rate(part).runs, part.config["setup"]["schedule"]["warmup"]
    return runs, default_targets(runs, TARGETS, warmup_tokens=warmup, column=column)


def write_laws(part: Part, folder: Path) -> None:
    """Measures E(S), fits it and writes points.csv and fits.json."""
    measured = e_of_s(part)
    write_table(measured, folder / "points.csv")
    laws = fit_laws(measured, Options(part.config["resamples"]), SHOWN)
    write_json(folder / "fits.json", to_dict(laws))


def read_laws(part: Part, folder: Path) -> tuple[pd.DataFrame, Laws]:
    """The points and laws of `write_laws`, which writes them first where they are not there."""
    kept = Tables(folder)
    if "fits.json" not in kept:
        write_laws(part, folder)
    return kept.read("points.csv"), from_dict(Laws, kept.json("fits.json"), strict=False)


def reached(measured: pd.DataFrame) -> pd.DataFrame:
    """How many seeds of each batch reached each target: [target, batch]."""
    return measured.pivot_table("reached", "target_loss", "batch", aggfunc="sum").iloc[::-1]


def cells(tables: Mapping[str, pd.DataFrame], config: dict[str, Any]) -> pd.DataFrame:
    """A row for each rule and batch: rule, batch, tokens and steps of its half-life; seeds follow.

    Args:
        tables: losses [batch, seed] by rule, of one ending.
        config: of a study with all the rules.
    """
    changes = {rule["name"]: rule["changes"] for rule in config["rules"]}
    length, rows = config["setup"]["text"]["seq_len"], []
    for rule, table in tables.items():
        for batch, losses in zip(table.index, table.to_numpy(float), strict=True):
            tokens = half_life_of(changes[rule], int(batch) * length)
            steps = tokens / (int(batch) * length)
            cell = {"rule": rule, "batch": batch, "tokens": tokens, "steps": steps}
            rows.append(cell | dict(zip(table.columns, losses, strict=True)))
    return pd.DataFrame(rows).dropna(axis="columns")


def beta2_of(changes: dict, batch_tokens: int) -> float:
    """A rule's beta2, at a step of so many tokens."""
    beta2 = changes.get("optimizer.beta2", Coupling.beta2)
    coupling = Coupling(beta2=beta2, beta2_half_life=changes["optimizer.beta2_half_life"] or None)
    return coupling.settings(1.0, 1, batch_tokens).beta2


def half_life_of(changes: dict, batch_tokens: int) -> float:
    """The half-life of a rule's second moment in tokens, at a step of so many tokens."""
    return half_life(beta2_of(changes, batch_tokens), batch_tokens)


def envelope(
    judged: Mapping[str, pd.DataFrame], chose: Mapping[str, pd.DataFrame]
) -> tuple[pd.DataFrame, dict[int, str]]:
    """Each batch at its best rule: losses [batch, seed], and the rule by batch.

    Args:
        judged: losses [batch, seed] by rule, of the seeds that are judged.
        chose: held-out losses by rule, of the seeds that choose.
    """
    means = pd.DataFrame({rule: table.mean(axis="columns") for rule, table in chose.items()})
    best = {int(str(batch)): str(rule) for batch, rule in means.idxmin(axis="columns").items()}
    rows = {batch: judged[rule].loc[batch] for batch, rule in best.items()}
    return pd.DataFrame(rows).T.dropna(axis="columns"), best


def mean_curve(run: pd.DataFrame) -> pd.DataFrame:
    """The curve of a schedule's seeds, where all of them were evaluated.

    Args:
        run: columns seed, tokens, step, eval_loss, of one schedule at one rate.

    Returns:
        Columns tokens, steps, loss (the mean), low and high (the lowest and the highest seed).
    """
    seeds = run["seed"].nunique()
    grouped = run.groupby("tokens")
    losses = grouped["eval_loss"]
    table = losses.agg(loss="mean", low="min", high="max")
    table.insert(0, "steps", grouped["step"].first())
    return table.loc[losses.count() == seeds].reset_index()


def left_out(part: Part) -> pd.DataFrame:
    """Return errors in nats of three stages and of the hyperbola at cross-validated batches.

    Returns:
        Columns kind, seed, piecewise, hyperbola; each seed is fitted alone.
    """
    rows, laws = [], ("piecewise", "hyperbola")
    for kind, phase in {"stable": "constant", "averaged": "averaged"}.items():
        for seed, alone in e_of_s(part, LOSSES[phase], kind).groupby("seed"):
            errors = {row["law"]: row["interior_loss"] for row in compare(alone, laws).table}
            rows.append((kind, seed, *(float(errors[law]) for law in laws)))
    return pd.DataFrame(rows, columns=pd.Index(["kind", "seed", *laws]))
