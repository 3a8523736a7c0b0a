"""Is it the rule, or the batch? Losses over batches and half-lives of the second moment.

Every cell is a batch under a rule, at its own rate. If the batch is bad for what its rule makes of
the second moment, a model with the half-life in it predicts left-out cells better than one with the
batch alone (derived here). The envelope has each batch at its best rule.
"""

from collections.abc import Mapping

import numpy as np
import pandas as pd

from bss.points.contrasts import Contrast, over_seeds
from bss.schedules.coupling import Coupling, half_life
from experiments.second_moment.losses import Cell, Config

MODELS: dict[str, tuple[str, ...]] = {
    "batch alone": ("batch",),
    "half-life in tokens": ("tokens",),
    "half-life in steps": ("steps",),
    "batch and half-life in tokens": ("batch", "tokens"),
    "batch and half-life in steps": ("batch", "steps"),
}
"""What each model has a parabola in the logarithm of."""


def cells(ended: dict[Cell, pd.DataFrame], ending: str, config: Config) -> pd.DataFrame:
    """A row for each rule and batch: rule, batch, tokens and steps of its half-life; seeds follow.

    Args:
        ended: losses [batch, seed] by rule and ending, of every part.
        ending: which.
        config: of a study with all the rules.
    """
    changes = {rule["name"]: rule["changes"] for rule in config["rules"]}
    length, rows = config["setup"]["text"]["seq_len"], []
    for (rule, own), table in ended.items():
        if own == ending:
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


def left_out(table: pd.DataFrame, model: str) -> np.ndarray:
    """Rms error in nats of a model at cells left out one by one, of each seed fitted alone.

    Args:
        table: as of `cells`.
        model: of MODELS.
    """
    logs = [np.log(table[name].to_numpy(float)) for name in MODELS[model]]
    design = np.stack([np.ones(len(table)), *(x**k for x in logs for k in (1, 2))], axis=1)
    losses = table.drop(columns=["rule", "batch", "tokens", "steps"]).to_numpy(float)
    # The residual of a cell left out is its own over one less its leverage.
    hat = design @ np.linalg.pinv(design)
    residuals = (losses - hat @ losses) / (1 - np.diag(hat))[:, None]
    return np.sqrt(np.mean(residuals**2, axis=0))


def compared(table: pd.DataFrame) -> dict[str, Contrast]:
    """Every model's error at left-out cells less that of the batch alone, over seeds."""
    first, *others = MODELS
    alone = left_out(table, first)
    return over_seeds({model: left_out(table, model) - alone for model in others})


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
