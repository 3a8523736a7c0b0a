"""One table of all public points: results/published/atlas.csv.

Every row is one open measurement, or one number derived from a table without a licence.
"""

import pandas as pd

from benchmarks.optima import PUBLISHED, derived_optima
from experiments.published import tuning
from experiments.published.critical import ZHANG

ATLAS = PUBLISHED / "atlas.csv"
COLUMNS = [
    *("source", "licence", "optimizer", "params", "tokens", "batch", "batch_tokens", "lr"),
    *("beta2", "schedule", "phase", "quantity", "value", "low", "high", "runs"),
]
DERIVED = "none; derived number"
RAMPS = {"seesaw": "Apache-2.0", "olmo-1b": "a paper's table", "modded-nanogpt": "MIT"}
"""Licences of the sources of batch_ramps.csv."""
UNTOLD = ("openeurollm", "nqs_lm1b", "optimizer_batch")


def atlas() -> pd.DataFrame:
    """Return one row per point, with the columns COLUMNS; what a source does not state is empty."""
    parts = [
        _steplaw(),
        _mlperf(),
        _zhang(),
        _seesaw(),
        _seven(),
        _marin(),
        *_ramps(),
        *map(_best, UNTOLD),
    ]
    parts += [_penalties(), _branches()]
    known = [part.reindex(columns=COLUMNS).dropna(axis=1, how="all") for part in parts]
    return pd.concat(known, ignore_index=True).reindex(columns=COLUMNS)


def _read(name: str) -> pd.DataFrame:
    return pd.read_csv(PUBLISHED / name, comment="#")


def _steplaw() -> pd.DataFrame:
    table = tuning.steplaw()
    return table.assign(
        source="step-law/steplaw",
        licence="CC-BY-4.0",
        optimizer="AdamW",
        batch_tokens=table["batch"] * table["seq_len"],
        schedule="cosine",
        phase="end",
        quantity="training loss",
        value=table["loss"],
        runs=1,
    )


def _mlperf() -> pd.DataFrame:
    table = _read("mlperf_rcp.csv")
    keys = ["model", "params", "target_loss", "batch", "seq_len", "lr"]
    table = table.groupby(keys, as_index=False).agg(
        steps=("steps", "median"), runs=("seed", "size")
    )
    size = table["batch"] * table["seq_len"]
    return table.assign(
        source="mlcommons/logging, " + table["model"],
        licence="Apache-2.0",
        batch_tokens=size,
        tokens=table["steps"] * size,
        phase="to a loss",
        quantity="steps to loss " + table["target_loss"].astype(str),
        value=table["steps"],
    )


def _zhang() -> pd.DataFrame:
    table = pd.read_csv(ZHANG, comment="#")
    size = table["batch"] * 512
    return table.assign(
        source="hlzhang109/critical-batch-size",
        licence="MIT",
        params=1e6 * table["params_m"],
        batch_tokens=size,
        tokens=table["steps"] * size,
        schedule="constant",
        phase="to a loss, averaged",
        quantity="steps to loss " + table["target_loss"].astype(str),
        value=table["steps"],
        runs=1,
    )


def _seesaw() -> pd.DataFrame:
    table = _read("seesaw_constant_batch.csv")
    return table.assign(
        source="alexandrumeterez/seesaw",
        licence="Apache-2.0",
        optimizer="AdamW",
        beta2=0.95,
        batch_tokens=table["batch"] * table["seq_len"],
        schedule="cosine to 0.1",
        phase="end",
        quantity="held-out loss",
        value=table["loss"],
        runs=1,
    )


def _seven() -> pd.DataFrame:
    """Return seven optimizers at one LR each, so that batch size and LR are confounded."""
    table = _read("optimizer_batch_150m.csv")
    return table.assign(
        source="alexandrumeterez/seesaw, one LR each",
        licence="Apache-2.0",
        batch_tokens=table["batch"] * table["seq_len"],
        phase="end",
        quantity="held-out loss",
        value=table["loss"],
        runs=1,
    )


def _marin() -> pd.DataFrame:
    table = _read("marin_beta2.csv")
    return table.assign(
        source="marin-community/marin, issue 4567, width " + table["d_model"].astype(str),
        licence="numbers of a public comment",
        phase="end",
        quantity="bits per byte, C4",
        value=table["c4_en_bpb"],
        runs=1,
    )


def _ramps() -> list[pd.DataFrame]:
    """Return the fixed and the growing run of each pair; a growing run has no one batch size."""
    table = _read("batch_ramps.csv")
    shared = table[["source", "optimizer", "params", "lr"]].assign(
        licence=table["source"].str.partition(" ")[0].map(RAMPS),
        quantity="loss, " + table["loss_of"],
        phase="end",
        lr=pd.to_numeric(table["lr"], errors="coerce"),  # some sources have several
    )
    fixed = shared.assign(
        tokens=table["tokens_constant"],
        schedule=table["schedule_constant"],
        batch=table["batch_constant"],
        batch_tokens=table["batch_constant"] * table["seq_len"],
        value=table["loss_constant"],
        runs=table["runs_constant"],
    )
    growing = shared.assign(
        tokens=table["tokens_ramp"],
        schedule="growing batch: " + table["ramp"],
        value=table["loss_ramp"],
        runs=table["runs_ramp"],
    )
    return [fixed, growing]


def _best(name: str) -> pd.DataFrame:
    table = pd.DataFrame([at._asdict() for at in derived_optima(name)])
    return table.assign(
        source=name,
        licence=DERIVED,
        phase="end",
        batch_tokens=table["value"],
        quantity="best batch in tokens",
    )


def _penalties() -> pd.DataFrame:
    table = pd.read_csv(PUBLISHED / "derived/penalties.csv")
    return table.assign(
        source="arXiv 2610.08975",
        licence=DERIVED,
        params=84934656,
        tokens=1703936000,
        optimizer=table["optimizer"] + ", " + table["family"],
        phase="end",
        quantity="loss difference to 131072 tokens per batch, 1e-3 nats",
        value=table["mnats"],
    )


def _branches() -> pd.DataFrame:
    table = pd.read_csv(PUBLISHED / "derived/branches.csv")
    return table.assign(
        source="dangxingyu/batch-size-blog",
        licence=DERIVED,
        optimizer="Muon",
        params=84934656,
        tokens=table["checkpoint_tokens"],
        batch_tokens=2097152,
        phase="branch",
        quantity="loss difference to the fixed batch, hidden matrices only, 1e-3 nats",
        value=table["penalty_mnats"],
        runs=1,
    )
