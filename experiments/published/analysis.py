"""Published measurements: B_opt over N and D, and ramps.

A source is one unit of replication. Arms that differ in more than the batch size are a separate
group, and no mean is taken over groups or sources. The outcomes were known before this analysis, so
nothing here is preregistered.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from scipy.stats import t as student

from benchmarks.optima import PUBLISHED, Optimum, derived_optima, table_optima
from bss.advice.sources import EUROLLM, TABLE
from bss.rules import answers
from bss.rules.rule import Setting

DERIVED = PUBLISHED / "derived"
LEVEL = 0.95
NOT_DECAYED = "rate not decayed at all"
LARGE = 1.0  # millions of tokens: a constant batch that is several times the best one of Seesaw


def exponents() -> pd.DataFrame:
    """Return B_opt ∝ N^a·D^b by source, and with a common a and b and an effect of each source.

    Columns: source, optima, exponent (of N or D), value, low, high (95%, t; the optima of a source
    count as independent).
    """
    known = {TABLE: table_optima(), EUROLLM: derived_optima(EUROLLM)}
    rows = [row for name in known for row in _exponents(name, {name: known[name]})]
    return pd.DataFrame([*rows, *_exponents("both, one effect each", known)])


def _exponents(
    label: str, sources: Mapping[str, Sequence[Optimum]]
) -> list[dict[str, str | int | float]]:
    """Return the rows of one fit by least squares."""
    pairs = [(i, at) for i, cells in enumerate(sources.values()) for at in cells if at.value]
    effects = np.eye(len(sources))[[i for i, _ in pairs]]
    logs = np.log2([(at.params, at.tokens) for _, at in pairs])
    best = np.log2([at.value or np.nan for _, at in pairs])
    design = np.column_stack([effects, logs])
    found = np.linalg.lstsq(design, best)[0]
    freedom = len(best) - design.shape[1]
    variance = np.sum((best - design @ found) ** 2) / freedom * np.linalg.inv(design.T @ design)
    half = student.ppf((1 + LEVEL) / 2, freedom) * np.sqrt(np.diag(variance))
    return [
        {
            "source": label,
            "optima": len(best),
            "exponent": name,
            "value": found[i],
            "low": found[i] - half[i],
            "high": found[i] + half[i],
        }
        for i, name in ((-2, "N"), (-1, "D"))
    ]


def rule_exponents() -> pd.DataFrame:
    """Return the exponents of published rules of the best batch, and the sources that hold them.

    Columns: rule, exponent (of N or D), value, inside (sources whose interval contains it).
    """
    table = exponents()
    rows = []
    for rule in ("step-law", "power-lines", "deepseek"):
        at = _rule_log2(rule, 1, 1)
        powers = {"N": _rule_log2(rule, 2, 1) - at, "D": _rule_log2(rule, 1, 2) - at}
        for name, value in powers.items():
            own = table[(table["exponent"] == name) & (table["low"] <= value)]
            inside = own.loc[own["high"] >= value, "source"]
            text = " and ".join(inside) or "none"
            rows.append({"rule": rule, "exponent": name, "value": value, "inside": text})
    return pd.DataFrame(rows)


def _rule_log2(rule: str, wider: float, longer: float) -> float:
    """Return log2 of a rule's batch in tokens, at multiples of 1B parameters and 100B tokens."""
    [answer] = answers(Setting(wider * 1e9, longer * 1e11, seq_len=4096), [rule])
    assert answer.hyperparameters and answer.hyperparameters.batch_tokens
    return float(np.log2(answer.hyperparameters.batch_tokens))


def ramps() -> pd.DataFrame:
    """Return the loss of a growing batch minus the loss of a constant one, by group of pairs.

    Columns: source, group, pairs, steps_saved (median share), mnats_median, mnats_low, mnats_high
    (least and largest difference, in 1e-3 nats).
    """
    table = ramp_pairs()
    found = table.groupby(["source", "group"], sort=False).agg(
        pairs=("mnats", "size"),
        steps_saved=("steps_saved", "median"),
        mnats_median=("mnats", "median"),
        mnats_low=("mnats", "min"),
        mnats_high=("mnats", "max"),
    )
    return found.reset_index()


def ramp_pairs() -> pd.DataFrame:
    """Return each pair of a growing and a constant batch: source, group, steps_saved, mnats."""
    table = pd.read_csv(PUBLISHED / "batch_ramps.csv", comment="#")
    table["mnats"] = 1e3 * (table["loss_ramp"] - table["loss_constant"])
    table["steps_saved"] = 1 - table["steps_ramp"] / table["steps_constant"]
    table["group"] = [_group(row) for row in table.to_dict("records")]
    return table[["source", "group", "steps_saved", "mnats"]]


def _group(row: Mapping[str, object]) -> str:
    """Return what a pair of runs compares: its LR schedule, and batch sizes if they are large."""
    schedule = str(row["schedule_constant"])
    differs = str(row["differs"])
    batch = float(str(row["batch_constant"]))
    if row["source"] == "seesaw":
        kind = "step decay" if schedule.startswith("step decay") else "cosine"
        if differs.startswith(NOT_DECAYED):
            return f"{kind}, ramp without decay"
        if kind == "step decay":
            return kind
        large = batch * _sequence_tokens(row) >= LARGE
        return f"{kind}, constant batch {'1M tokens or more' if large else 'below 1M tokens'}"
    if row["source"] == "olmo-1b":
        ended = "decayed to 0" if "linear to 0" in schedule else "not decayed to 0"
        return f"{ended}, constant batch {batch * _sequence_tokens(row):.3g}M tokens"
    return "decayed; LRs, windows and tokens differ too"


def _sequence_tokens(row: Mapping[str, object]) -> float:
    """Return the tokens of a sequence, in millions."""
    return float(str(row["seq_len"])) / 1e6
