"""Losses by rule of the second moment, from the tables of the parts."""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bss.schedules.coupling import Coupling, half_life
from bss.stats import half_interval
from experiments.second_moment.losses import Cell, Part, of_beta2, phases_in


def with_best_rule(first: Part, second: Part) -> dict[Cell, pd.DataFrame]:
    """Return losses of both parts by rule and LR phase, and of each batch size at its best rule.

    The best rule is chosen on the seeds on which the LRs were chosen.
    """
    losses, _ = of_beta2(first, second)
    chose = first.chose | second.chose
    for phase in phases_in(losses):
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
    for phase in phases_in(losses):
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
