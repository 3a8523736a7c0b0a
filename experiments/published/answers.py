"""Answers to questions.toml from the derived tables; each number is of one source.

Units of replication inside a source are its runs, cells (one model and budget), pairs or sizes, as
the test of a row names them. Sources are never pooled here. The outcomes of single tables were
known before, so nothing is preregistered.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
from scipy.stats import t as student

from bss.stats import Effect, effect_of
from experiments.conditions import Conditions
from experiments.findings import Measured, findings, read_questions
from experiments.published.analysis import DERIVED, LEVEL

QUESTIONS = Path(__file__).parent / "questions.toml"
FINDINGS = DERIVED.parent / "findings.csv"
PAPERS = ("2601.05034", "2602.14208", "2410.21676")
NANOGPT = {"constant": (10, 1.0e-3), "ramp": (9, 1.4e-3)}
"""Runs and SD of the final loss, in nats, of KellerJordan/modded-nanogpt 2025-11-29."""
KEPT = 3.0  # 1e-3 nats: what a kept LR may cost, the tolerance of `bss advise`

Found = dict[str, Measured]


def answered() -> pd.DataFrame:
    """Return findings of all papers, from the derived tables."""
    questions = read_questions(QUESTIONS)
    found = measured()
    tables = [
        findings(
            [one for one in questions if one.paper == paper],
            {one.key: found[one.key] for one in questions if one.paper == paper},
            paper=paper,
            command="python -m experiments.published",
        )
        for paper in PAPERS
    ]
    return pd.concat(tables, ignore_index=True)


def measured() -> Found:
    """Return the effect that answers each question, by key."""
    found: Found = {}
    for part in (_minimum, _growth, _ramps, _critical, _penalties, _rates):
        found |= part()
    return found


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(DERIVED / f"{name}.csv")


def _public(
    source: str, sizes: str, tokens: str, units: str, lr: str = "", more: str = ""
) -> Conditions:
    """Return conditions, with "public" and the source."""
    return Conditions(
        sizes=sizes,
        lr=lr,
        beta2="",
        tokens=tokens,
        sequences="",
        phase="",
        seeds=units,
        more=f"public: {source}{'; ' if more else ''}{more}",
    )


def _slope(x: np.ndarray, y: np.ndarray, test: str) -> Effect:
    """Return the slope of y over x by least squares."""
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    rest = y - y.mean() - slope * centred
    freedom = len(x) - 2
    error = math.sqrt(rest @ rest / freedom / (centred @ centred)) if freedom > 0 else math.nan
    return Effect(value=slope, error=error, freedom=freedom, seeds=len(x), test=test)


def _table(name: str) -> str:
    return f"published/derived/{name}.csv"


def _minimum() -> Found:
    """Return tokens of the smallest batch size against the next one, at 8B."""
    table = _read("minimum_8b").set_index("target_loss")
    found = {}
    for key, target in (("public_minimum_early", 4.2), ("public_minimum", 3.3)):
        row = table.loc[target]
        effect = Effect(
            value=row["log_tokens"],
            error=row["error"],
            freedom=row["freedom"],
            seeds=int(row["runs"]),
            test="Welch t over runs",
        )
        conditions = _public(
            "MLPerf curves", "8B parameters", f"to loss {target}", f"{int(row['runs'])} runs",
            "the best of 2 or 3 LRs, which is the highest or lowest tried",
        )  # fmt: skip
        found[key] = Measured(effect, conditions, _table("minimum_8b"))
    return found


def _growth() -> Found:
    """Return the exponents of B_opt in D and N, of each source."""
    table = _read("exponents").set_index(["source", "exponent"])
    scale = {
        "step-law table": ("steplaw", "60M–1.1B parameters", "2–100B tokens"),
        "openeurollm": ("eurollm", "48M–1.7B parameters", "6–300B tokens"),
    }
    found = {}
    for source, (short, sizes, tokens) in scale.items():
        for name, key in (("D", "public_growth"), ("N", "public_growth_size")):
            row = table.loc[(source, name)]
            freedom = int(row["optima"]) - 3
            half = (row["high"] - row["low"]) / 2
            error = half / float(student.ppf((1 + LEVEL) / 2, freedom))
            effect = Effect(
                value=row["value"], error=error, freedom=freedom, seeds=int(row["optima"]),
                test="regression over optima",
            )  # fmt: skip
            conditions = _public(
                source, sizes, tokens, f"{int(row['optima'])} optima", "tuned per batch size"
            )
            found[f"{key}_{short}"] = Measured(effect, conditions, _table("exponents"))
    return found


def _pairs(chosen: Callable[[pd.DataFrame], pd.Series], conditions: Conditions) -> Measured:
    """Return the loss with a growing batch size minus a fixed one, over chosen pairs, in nats."""
    table = _read("ramp_pairs")
    numbers = table.loc[chosen(table), "mnats"].to_numpy() / 1e3
    effect = replace(effect_of(numbers), test="paired t over pairs of one source")
    units = "1 pair" if len(numbers) == 1 else f"{len(numbers)} pairs, one seed each"
    return Measured(effect, replace(conditions, seeds=units), _table("ramp_pairs"))


def _ramps() -> Found:
    """Return the differences of ramps; confounded sources are named and stand alone."""
    seesaw = _public(
        "Seesaw", "151M–571M parameters", "3.3–11B tokens", "", "tuned for the fixed batch size"
    )
    olmo = _public("OLMo 1B", "1B parameters", "", "", "", "confounded: the LR differs too")
    starts = {
        "public_ramp_small": ("cosine, constant batch below", seesaw),
        "public_ramp_large": ("cosine, constant batch 1M", seesaw),
        "public_ramp_step": ("step decay", seesaw),
        "public_no_decay": ("cosine, ramp without decay", seesaw),
        "public_ramp_olmo": ("not decayed to 0, constant batch 4.19M", olmo),
        "public_ramp_olmo_decayed": ("decayed to 0, constant batch 4.19M", olmo),
    }
    found = {}
    for key, (start, conditions) in starts.items():
        phase = start.partition(", ")[0]
        found[key] = _pairs(
            lambda table, start=start: table["group"].str.startswith(start),
            replace(conditions, phase="" if phase == "step decay" else phase),
        )
    found["public_ramp_nanogpt"] = _nanogpt()
    return found


def _nanogpt() -> Measured:
    """Return the difference of modded-nanogpt, by Welch's test from its means and SDs."""
    table = _read("ramp_pairs")
    [mnats] = table.loc[table["source"].str.startswith("modded-nanogpt"), "mnats"]
    parts = {name: sd**2 / runs for name, (runs, sd) in NANOGPT.items()}
    weights = sum(parts[name] ** 2 / (runs - 1) for name, (runs, _) in NANOGPT.items())
    total = sum(parts.values())
    runs = sum(runs for runs, _ in NANOGPT.values())
    effect = Effect(
        value=mnats / 1e3, error=math.sqrt(total), freedom=total**2 / weights, seeds=runs,
        test="Welch t over runs",
    )  # fmt: skip
    conditions = _public(
        "modded-nanogpt", "85M parameters", "", f"{runs} runs", "",
        "confounded: LRs, attention windows and tokens differ too",
    )  # fmt: skip
    return Measured(effect, conditions, _table("ramp_pairs"))


def _critical() -> Found:
    """Return exponents of the critical batch size b/a."""
    table = _read("critical")
    theirs = table[table["source"] == "zhang"]
    logs = np.log(theirs[["budget", "kappa"]].to_numpy(float))
    zhang = _slope(logs[:, 0], logs[:, 1], "regression over model sizes")
    conditions = _public(
        "Zhang et al.", "85M–1.2B parameters", "1.7–24.6B tokens", "5 sizes, 1 run per batch size",
        "tuned per batch size",
    )  # fmt: skip
    found = {"public_together": Measured(zhang, conditions, _table("critical"))}
    offset = replace(zhang, value=zhang.value - 0.47)
    found["public_published_exponent"] = Measured(offset, conditions, _table("critical"))
    found["public_data"] = _data(table)
    models = table[table["source"] == "mlperf points"]
    logs = np.log(models[["params", "kappa"]].to_numpy(float))
    conditions = _public(
        "MLPerf points", "334M, 8B and 175B parameters", "1.1–1.2B tokens", "3 models", "",
        "confounded: masked loss at 334M, a checkpoint at 175B",
    )  # fmt: skip
    by_size = _slope(logs[:, 0], logs[:, 1], "regression over models")
    found["public_size"] = Measured(by_size, conditions, _table("critical"))
    return found


def _data(table: pd.DataFrame) -> Measured:
    """Return the exponent of b/a in the tokens to loss, along the 8B curves."""
    curve = table[table["source"] == "mlperf curves"].set_index("target_loss")
    first = curve.loc[4.2]
    last = curve.loc[3.3]
    doublings = math.log(last["tokens"] / first["tokens"])
    effect = Effect(
        value=math.log(last["kappa"] / first["kappa"]) / doublings,
        error=math.hypot(first["log_error"], last["log_error"]) / doublings,
        freedom=9,  # ten runs at the batch size with the fewest
        seeds=int(first["runs"]),
        test="resampled runs, t with 9 degrees of freedom",
    )
    conditions = _public(
        "MLPerf curves", "8B parameters", "loss 4.2 to 3.3", f"{effect.seeds} runs",
        "the best of 1 to 3 LRs",
    )  # fmt: skip
    return Measured(effect, conditions, _table("critical"))


def _penalties() -> Found:
    """Return what decides the penalty of a large batch: optimizer, checkpoint, beta2."""
    table = _read("penalties").set_index(["family", "optimizer", "batch_tokens"])
    muon = table.loc[("standard_wd", "Muon", 2097152)]
    adam = table.loc[("standard_wd", "Adam", 2097152)]
    effect = Effect(
        value=(muon["mnats"] - adam["mnats"]) / 1e3,
        error=math.hypot(muon["error"], adam["error"]) / 1e3,
        freedom=int(muon["freedom"]),
        seeds=5,
        test="t, pooled SD of repeated runs",
    )
    conditions = _public(
        "arXiv 2610.08975", "85M parameters", "1.7B tokens", "2 or 3 runs per point",
        "tuned per batch size", "2.1M against 131K tokens per batch, with weight decay",
    )  # fmt: skip
    found = {"public_optimizer": Measured(effect, conditions, _table("penalties"))}
    branches = np.log(_read("branches").to_numpy(float))
    conditions = _public(
        "Muon branches", "85M parameters", "0.13–1.6B tokens", "12 checkpoints of one run", "",
        "a diagnostic: only hidden matrices take the larger batch",
    )  # fmt: skip
    slope = _slope(branches[:, 0], branches[:, 1], "regression over checkpoints")
    found["public_checkpoint"] = Measured(slope, conditions, _table("branches"))
    gains = _read("beta2_gains")
    slopes = [
        np.polyfit(np.log2(cell["batch"]), cell["gain"], 1)[0]
        for _, cell in gains.groupby("d_model")
    ]
    conditions = _public(
        "marin", "mixtures of width 768 and 1024", "", "2 sizes, one run per point",
        "by the source's rule",
    )  # fmt: skip
    effect = replace(effect_of(slopes), test="paired t over model sizes")
    found["public_beta2"] = Measured(effect, conditions, _table("beta2_gains"))
    return found


def _rates() -> Found:
    """Return the power of the best LR in the batch size, and what a kept LR costs."""
    powers = _read("lr_powers")
    kept = _read("kept_lr")
    found = {}
    for source, short in (("step-law table", "steplaw"), ("openeurollm", "eurollm")):
        power = effect_of(powers.loc[powers["source"] == source, "power"].to_numpy())
        power = replace(power, test="t over cells of one source")
        cells = kept[kept["source"] == source]
        extra = (cells["kept_mnats"] - cells["tuned_mnats"] - KEPT).to_numpy() / 1e3
        cost = replace(effect_of(extra), test="t over cells of one source")
        for key, effect, name in (
            ("public_lr", power, "lr_powers"),
            ("public_lr_sqrt", replace(power, value=power.value - 0.5), "lr_powers"),
            ("public_kept", cost, "kept_lr"),
        ):
            conditions = _public(source, _sizes(name, source), "", f"{effect.seeds} cells")
            found[f"{key}_{short}"] = Measured(effect, conditions, _table(name))
    return found


def _sizes(name: str, source: str) -> str:
    """Return the range of sizes of a source in a derived table."""
    cells = _read(name)
    params = cells.loc[cells["source"] == source, "params"] / 1e6
    return f"{params.min():.0f}M–{params.max() / 1e3:.1f}B parameters"
