"""Tables of what decides the best batch size, from the tables of the parts.

    python -m experiments.second_moment.analysis results/second_moment/long

It writes points.csv, fits.json and left_out.csv of the part, which has one LR.
Notebook: notebooks/what_decides.ipynb.
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import pandas as pd

from bss.files import write_json
from bss.laws import EsFit
from bss.laws.base import Options
from bss.laws.es.fit import compare
from bss.laws.es.values import Comparison
from bss.points.curve import default_targets, points
from bss.schedules.coupling import Coupling, half_life
from bss.stats import half_interval
from bss.tables import write_table
from bss.values import from_dict, to_dict
from experiments.second_moment.losses import Cell, Part, of_beta2, phases_of, read_part
from experiments.shared import fit_laws
from experiments.tables import Tables, analyze

LOSSES = {"constant": "eval_loss", "averaged": "eval_loss_avg_4%"}
"""Held-out losses at constant LR, by LR phase."""
GRID = 40
TARGETS = 6
SHOWN = ("hyperbola", "piecewise")  # laws next to the one that is chosen


def with_best_rule(first: Part, second: Part) -> dict[Cell, pd.DataFrame]:
    """Return losses of both parts by rule and LR phase, and of each batch size at its best rule.

    The best rule is chosen on the seeds that chose the learning rates.
    """
    losses, _ = of_beta2(first, second)
    chose = first.chose | second.chose
    for phase in phases_of(losses):
        rules = [rule for rule, own in losses if own == phase]
        means = pd.DataFrame({rule: chose[rule, phase].mean(axis="columns") for rule in rules})
        best = {batch: str(rule) for batch, rule in means.idxmin(axis="columns").items()}
        rows = {batch: losses[rule, phase].loc[batch] for batch, rule in best.items()}
        losses["best rule of each batch", phase] = pd.DataFrame(rows).T.dropna(axis="columns")
    return losses


def half_lives(first: Part, second: Part) -> dict[str, pd.DataFrame]:
    """Return every rule and batch size by LR phase, with its loss above the batch's best rule.

    Returns:
        Columns rule, batch, tokens and steps of the half-life, loss, above, and half, half of the
        95% interval of above over paired seeds.
    """
    losses, rules = of_beta2(first, second)
    by_phase = {}
    for phase in phases_of(losses):
        tables = {rule: table for (rule, own), table in losses.items() if own == phase}
        seeds = sorted(set.intersection(*({*table} for table in tables.values())))
        rows = []
        for batch in sorted({batch for table in tables.values() for batch in table.index}):
            own = {rule: table for rule, table in tables.items() if batch in table.index}
            each = np.array([table.loc[batch, seeds] for table in own.values()], float)
            apart = each - each[int(np.argmin(each.mean(axis=1)))]
            means = each.mean(axis=1), apart.mean(axis=1), half_interval(apart.T)
            values = zip(own, *means, strict=True)
            for rule, loss, above, half in values:
                step = int(str(batch)) * first.seq_len
                tokens = half_life(beta2_of(rules[rule], step), step)
                row = {"rule": rule, "batch": batch, "tokens": tokens, "steps": tokens / step}
                rows.append(row | {"loss": loss, "above": above, "half": half})
        by_phase[phase] = pd.DataFrame(rows)
    return by_phase


def beta2_of(changes: Mapping, batch_tokens: int) -> float:
    """Return a rule's beta2 at a batch size in tokens."""
    beta2 = changes.get("optimizer.beta2", Coupling.beta2)
    coupling = Coupling(beta2=beta2, beta2_half_life=changes["optimizer.beta2_half_life"] or None)
    return coupling.settings(1.0, 1, batch_tokens).beta2


def differences(part: Part, column: str, reference: str) -> dict[str, pd.DataFrame]:
    """Return each schedule's losses minus those of a constant at equal tokens, last e-fold.

    Args:
        part: Its runs at one LR are compared.
        column: The loss.
        reference: Batch size of the constant as text.

    Returns:
        By name, columns tokens, difference, low and high: the mean over paired seeds in nats with
        its 95% interval. Losses between evaluations are linear in log tokens.
    """
    curves: dict[str, dict[int, tuple[np.ndarray, np.ndarray]]] = {}
    runs = part.at_one_rate().runs
    for (batch, seed), rows in runs.groupby(["schedule.batch", "seed"], sort=False):  # type: ignore[misc]
        seen = rows.loc[rows[column].notna()]
        at = np.log(seen["tokens"].to_numpy(float)), seen[column].to_numpy(float)
        curves.setdefault(part.short(str(batch)), {})[int(str(seed))] = at
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
    """Return the names of the constants of a part."""
    table = part.named()
    return set(table.loc[table["role"] == "constant", "name"])


def e_of_s(part: Part, column: str = "eval_loss", kind: str = "stable") -> pd.DataFrame:
    """Return points of the runs at one LR, at evenly spaced targets that most batches reach."""
    runs, warmup = part.at_one_rate().runs, part.config["setup"]["schedule"]["warmup"]
    targets = default_targets(runs, TARGETS, warmup_tokens=warmup, column=column)
    return points(runs, targets, column=column, kind=kind)


def reached(measured: pd.DataFrame) -> pd.DataFrame:
    """Return how many seeds of each batch size reached each target: [target, batch]."""
    return measured.pivot_table("reached", "target_loss", "batch", aggfunc="sum").iloc[::-1]


def read_laws(part: Part, folder: Path) -> tuple[pd.DataFrame, dict[str, EsFit], Comparison]:
    """Return the points, fits and comparison that `write` wrote; write them if they are missing."""
    kept = Tables(folder)
    if "fits.json" not in kept:
        write(folder)
    entry = kept.json("fits.json")
    fits = {law: EsFit.from_dict(one) for law, one in entry["fits"].items()}
    return kept.read("points.csv"), fits, from_dict(Comparison, entry["comparison"], strict=False)


def write(folder: Path) -> None:
    """Measure E(S) of a part, fit it, and compare two laws at left-out batch sizes."""
    part = read_part(folder)
    measured = e_of_s(part)
    write_table(measured, folder / "points.csv")
    fits, comparison = fit_laws(measured, Options(part.config["resamples"]), SHOWN)
    write_json(folder / "fits.json", to_dict({"comparison": comparison, "fits": fits}))
    rows = []
    for kind, phase in {"stable": "constant", "averaged": "averaged"}.items():
        for seed, alone in e_of_s(part, LOSSES[phase], kind).groupby("seed"):
            errors = {row["law"]: row["interior_loss"] for row in compare(alone, SHOWN[::-1]).table}
            row = {"kind": kind, "seed": seed}
            rows.append(row | {law: float(errors[law]) for law in SHOWN[::-1]})
    write_table(pd.DataFrame(rows), folder / "left_out.csv")


if __name__ == "__main__":
    analyze(__doc__, write)
