"""Under which conditions runs were trained, read from their rows.

A statement of questions.toml names sizes, LR, beta2, tokens and LR phase only as fields, e.g.
"{phase} ... at {sizes}". They are filled in from the runs that were measured, so that an answer
cannot name what was not.
"""

import re
import string
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError

PHASES = {
    "constant": "at constant LR",
    "averaged": "with averaged weights",
    "decayed": "after a decay to zero",
    "cosine": "under a cosine to zero",
}


@dataclass(frozen=True)
class Conditions:
    """The conditions of a measurement, in words.

    Attributes:
        sizes: Model sizes, e.g. "12k parameters".
        lr: How the LR depends on the batch size, and its value if there is one.
        beta2: The second moment, e.g. "beta2 0.95 per step".
        tokens: Tokens of a run.
        sequences: Length of the sequences.
        phase: LR phase, e.g. "at constant LR".
        seeds: Number of seeds.
        more: What else belongs to the measurement.
    """

    sizes: str
    lr: str
    beta2: str
    tokens: str
    sequences: str
    phase: str
    seeds: str
    more: str = ""

    def __str__(self) -> str:
        return "; ".join(text for text in asdict(self).values() if text)

    def fill(self, statement: str) -> str:
        """Return a statement with its fields filled in.

        Raises:
            InputError: If a field is none of `Conditions`.
        """
        fields = {name for _, name, _, _ in string.Formatter().parse(statement) if name}
        if unknown := fields - asdict(self).keys():
            raise InputError(
                f"statement {statement!r}: fields {sorted(unknown)} are unknown; use "
                f"{sorted(asdict(self))}"
            )
        text = statement.format_map(asdict(self))
        return text[:1].upper() + text[1:]


def conditions_of(
    runs: pd.DataFrame, config: Mapping[str, Any], phase: str = "constant", more: str = ""
) -> Conditions:
    """Return the conditions of runs.

    Args:
        runs: Their run table, with params, model, seed, peak_lr, batch, seq_len and tokens.
        config: Config of their study, for optimizer settings that no column has.
        phase: A key of PHASES; "" if several are compared.
        more: What else belongs to the measurement.
    """
    last = runs.groupby("run")["tokens"].max()
    lengths = sorted({int(length) for length in runs["seq_len"]})
    return Conditions(
        sizes=_sizes(runs),
        lr=_lr(runs),
        beta2=_beta2(runs, config["setup"]["optimizer"]),
        tokens=f"{_span(last.min(), last.max())} tokens",
        sequences=f"{_listed(lengths)}-token sequences",
        phase=PHASES.get(phase, ""),
        seeds=f"{runs['seed'].nunique()} seeds",
        more=more,
    )


def _sizes(runs: pd.DataFrame) -> str:
    """Return the model sizes: their names, or the parameters; experts are named."""
    own = runs["size"] if "size" in runs else pd.Series("", runs.index)
    mixed = runs["model"].str.contains(r"-\d+e\d+$")
    counted = runs["params"].map(_short).where(~mixed, (runs["params"] / 1e3).map("{:.3g}k".format))
    sizes = own.str.extract(r"^([\d.]+[kM])\b", expand=False).fillna(counted)
    shapes = pd.DataFrame({"model": runs["model"], "params": runs["params"], "size": sizes})
    names = []
    for model, _, size in shapes.drop_duplicates().sort_values("params").itertuples(index=False):
        experts = re.search(r"-(\d+)e(\d+)$", str(model))
        mixture = "{} experts, {} active, ".format(*experts.groups()) if experts else ""
        names.append(f"{mixture}{size}{' active' if experts else ''}")
    return f"{_listed([*dict.fromkeys(names)])} parameters"


def _lr(runs: pd.DataFrame) -> str:
    rates = sorted({float(rate) for rate in runs["peak_lr"]})
    if len(rates) == 1:
        return f"one LR ({rates[0]:g}) for all batch sizes"
    several = runs.groupby(["params", "seq_len"])["peak_lr"].nunique()
    return "the LR tuned for each batch size" if (several > 1).any() else "one LR per size"


def _beta2(runs: pd.DataFrame, optimizer: Mapping[str, Any]) -> str:
    """Return the rule of beta2 in words, with its floor, which `beta2_rule` does not know."""
    half_life = float(optimizer.get("beta2_half_life") or 0)
    column = runs.get("optimizer.beta2_half_life")
    if column is not None:
        found = {float(value) for value in column.fillna(0)}
        half_life = found.pop() if len(found) == 1 else -1.0
    if half_life < 0:
        return "several rules of beta2"
    if half_life:
        return f"beta2 with a half-life of {_short(half_life)} tokens"
    values = runs.get("optimizer.beta2", pd.Series(optimizer["beta2"], index=runs.index))
    if values.nunique() == 1:
        return f"beta2 {values.iloc[0]:g} per step"
    tokens = runs["batch"] * runs["seq_len"]
    lives = (tokens * np.log(0.5) / np.log(values)).round(-2)
    usual = lives.mode().iloc[0]
    floor = values.loc[(lives / usual - 1).abs() > 0.02].unique()  # 2%: rounding of beta2
    if len(floor) > 1:
        return "several rules of beta2"
    least = f" (at least {floor[0]:g} per step)" if len(floor) else ""
    return f"beta2 with a half-life of {_short(usual)} tokens{least}"


def _short(count: float) -> str:
    """Return a count in k or M with up to three digits, e.g. 12k or 1.5M."""
    if count >= 1e6:
        return f"{count / 1e6:.3g}M"
    return f"{count / 1e3:.0f}k" if count >= 1e3 else f"{count:g}"


def _span(low: float, high: float) -> str:
    """Return one number, or two that differ by more than a step of the largest batch."""
    ends = [f"{_short(float(f'{end:.2g}'))}" for end in (low, high)]
    return ends[0] if ends[0] == ends[1] else "–".join(ends)


def _listed(names: list) -> str:
    texts = [str(name) for name in names]
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]
