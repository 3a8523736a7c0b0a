"""Runs written as each format writes them, after its documentation; the readers' counterparts."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tensorboard.compat.proto import event_pb2, summary_pb2
from tensorboard.summary.writer.record_writer import RecordWriter

from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve

Event, Summary = vars(event_pb2)["Event"], vars(summary_pb2)["Summary"]
Row = dict[str, float]
SEQ_LEN = 64
SCHEDULE = "0:8 200K:16"


def rows_of_run(seed: int, rows: int = 30, schedule: str = SCHEDULE) -> list[Row]:
    """A run that logs at equal distances in steps, with a held-out loss in every third row."""
    rng = np.random.default_rng(seed)
    every = int(rng.integers(20, 40))
    plan = resolve(BatchSchedule.parse(schedule), 10**8, SEQ_LEN)
    told = []
    for i in range(1, rows + 1):
        step = i * every
        tokens = plan.tokens_at(step)
        loss = round(2 + 5 * tokens**-0.08 + float(rng.normal(0, 0.02)), 2)
        row = {
            "step": step,
            "tokens": tokens,
            "batch": plan.at(step - 1).batch,
            "lr": round(1e-3 - 2e-5 * i, 5),
            "loss": loss,
        }
        told.append({**row, "eval_loss": round(loss + 0.11, 2)} if i % 3 == 0 else row)
    return told


def _lines(path: Path, lines: Sequence[str]) -> Path:
    path.write_text("\n".join(lines) + "\n")
    return path


def megatron(folder: Path, rows: Sequence[Row]) -> Path:
    lines = [f"  seq_length {'.' * 38} {SEQ_LEN}"]
    for row in rows:
        lines.append(
            f" [2026-01-02 03:04:05] iteration {row['step']:8d}/    9000 | consumed samples: "
            f"{row['tokens'] // SEQ_LEN:12d} | elapsed time per iteration (ms): 12.3 | "
            f"learning rate: {row['lr']:.6E} | global batch size: {row['batch']:5d} | "
            f"lm loss: {row['loss']:.6E} | loss scale: 1.0 | grad norm: 1.234 | "
            "number of skipped iterations:   0 | number of nan iterations:   0 |"
        )
        if "eval_loss" in row:
            loss = row["eval_loss"]
            line = f"validation loss at iteration {row['step']} | lm loss value: {loss:.6E} | "
            lines += ["-" * 80, f"{line}lm loss PPL: {np.exp(loss):.6E} | "]
    return _lines(folder / "run.log", lines)


def trainer_state(folder: Path, rows: Sequence[Row]) -> Path:
    history = []
    for row in rows:
        count = {"step": row["step"], "num_input_tokens_seen": row["tokens"], "epoch": 0.5}
        history.append({**count, "loss": row["loss"], "learning_rate": row["lr"]})
        if "eval_loss" in row:
            history.append({**count, "eval_loss": row["eval_loss"], "eval_runtime": 1.0})
    history.append({"step": 9000, "train_loss": 4.5, "train_runtime": 9.0})
    state = {"global_step": 9000, "log_history": history, "train_batch_size": 4}
    path = folder / "run" / "trainer_state.json"
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(state, indent=2, sort_keys=True) + "\n")
    return path


def _named(row: Row, names: dict[str, str]) -> Row:
    return {name: row[column] for column, name in names.items() if column in row}


OLMO_CORE = {
    "step": "_step",
    "tokens": "throughput/total tokens",
    "lr": "optim/LR (group 0)",
    "loss": "train/CE loss",
    "eval_loss": "eval/lm/c4/CE loss",
}


def history_jsonl(folder: Path, rows: Sequence[Row]) -> Path:
    told = [{"_runtime": 1.5, **_named(row, OLMO_CORE)} for row in rows]
    return _lines(folder / "run.jsonl", [json.dumps(row) for row in told])


def history_csv(folder: Path, rows: Sequence[Row]) -> Path:
    told = [_named(row, OLMO_CORE) for row in rows]
    lines = [",".join(["", *OLMO_CORE.values()])]
    for i, row in enumerate(told):
        cells = ("NaN" if row.get(n) != row.get(n) else row.get(n, "") for n in OLMO_CORE.values())
        lines.append(",".join([str(i), *map(str, cells)]))
    return _lines(folder / "run.csv", lines)


def history_parquet(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "run" / "0000.parquet"
    path.parent.mkdir(exist_ok=True)
    names = {**OLMO_CORE, "tokens": "throughput/total_tokens", "lr": "optim/learning_rate"}
    names |= {"loss": "train/loss", "eval_loss": "eval/loss"}
    told = [_named({**row, "step": row["step"] - 1}, names) for row in rows]
    columns = {name: pa.array([row.get(name) for row in told]) for name in names.values()}
    pq.write_table(pa.table(columns), path)
    return path


def chart(folder: Path, rows: Sequence[Row], group: str = "") -> Path:
    """A chart of the training loss and one of the held-out loss, of one run."""
    for column, metric in (("loss", "train/loss"), ("eval_loss", "eval/loss")):
        name = f"{group}run - {metric}"
        lines = [f'"Step","{name}","{name}__MIN","{name}__MAX"']
        for row in rows:
            if column in row:
                lines.append(",".join(f'"{v}"' for v in (row["step"], *[row[column]] * 3)))
        _lines(folder / f"{column}.csv", lines)
    return folder / "loss.csv"


def grouped(folder: Path, rows: Sequence[Row]) -> Path:
    return chart(folder, rows, "Group: ")


def events(folder: Path, rows: Sequence[Row]) -> Path:
    path = folder / "run" / "events.out.tfevents.1700000000.host.1.0"
    path.parent.mkdir(exist_ok=True)
    tags = {"lr": "learning-rate", "batch": "batch-size", "loss": "lm loss"}
    tags |= {"eval_loss": "lm loss validation"}
    with path.open("wb") as opened:
        writer = RecordWriter(opened)
        writer.write(Event(file_version="brain.Event:2").SerializeToString())
        for row in rows:
            values = [
                Summary.Value(tag=tag, simple_value=row[column])
                for column, tag in tags.items()
                if column in row
            ]
            summary = Summary(value=values)
            event = Event(step=int(row["step"]), summary=summary)
            writer.write(event.SerializeToString())
            twin = Summary.Value(tag="lm loss vs samples", simple_value=row["loss"])
            event = Event(step=int(row["tokens"]) // SEQ_LEN, summary=Summary(value=[twin]))
            writer.write(event.SerializeToString())
    return path


def olmo_console(folder: Path, rows: Sequence[Row]) -> Path:
    lines = ["2026-01-02 03:04:05 host:0 olmo.train INFO Pre-train system metrics"]
    for row in rows:
        lines += [
            f"2026-01-02 03:04:05 host:0 olmo.train:908 INFO    [step={row['step']}/9000,epoch=0]",
            f"    train/CrossEntropyLoss={row['loss']}",
            f"    train/Perplexity={np.exp(row['loss']):.3f}",
            f"    throughput/total_tokens={row['tokens']:,d}",
        ]
        if "eval_loss" in row:
            loss = row["eval_loss"]
            lines += ["[eval_step=1/4]", f"    eval/c4_en-validation/CrossEntropyLoss={loss}"]
    return _lines(folder / "run.log", lines)


def levanter_json(folder: Path, rows: Sequence[Row]) -> Path:
    lines = ['I {"tracker": "json_logger", "event": "hparams", "hparams": {"seed": 0}}']
    names = {"tokens": "total_tokens"}
    for row in rows:
        metrics = {
            "train/loss": row["loss"],
            "optim/learning_rate": row["lr"],
            "throughput": _named(row, names),
        }
        record = {"tracker": "json_logger", "event": "log", "step": row["step"] - 1}
        lines.append("I " + json.dumps({**record, "metrics": metrics}))
        if "eval_loss" in row:
            lines.append("I " + json.dumps({**record, "metrics": {"eval/loss": row["eval_loss"]}}))
    return _lines(folder / "run.log", lines)


def torchtitan(folder: Path, rows: Sequence[Row]) -> Path:
    lines = []
    for row in rows:
        start = "[rank0]:[titan] 2026-01-02 03:04:05,678 - root - INFO - "
        tail = "\x1b[38;2;54;234;195mmemory:  5.20GiB(6.50%)  \x1b[34mtps: 12,345\x1b[39m"
        lines.append(
            f"{start}\x1b[31mstep: {row['step']:2}  \x1b[32mloss: {row['loss']:7.4f}  "
            f"\x1b[33mgrad_norm:  1.2345  {tail}"
        )
        if "eval_loss" in row:
            loss = row["eval_loss"]
            lines.append(
                f"{start}\x1b[33mvalidate step: {row['step']:2}  loss: {loss:7.4f}  {tail}"
            )
    return _lines(folder / "run.log", lines)


def _human(number: float) -> str:
    number, magnitude = float(f"{number:.3g}"), 0
    while abs(number) >= 1000:
        number, magnitude = number / 1000, magnitude + 1
    return f"{number:f}".rstrip("0").rstrip(".") + ["", "K", "M", "B", "T"][magnitude]


def nanotron(folder: Path, rows: Sequence[Row]) -> Path:
    lines = [
        f"01/02/2026 03:04:05 [INFO|DP=0|PP=0|TP=0]: iteration: {row['step']} / 9000 | "
        f"consumed_tokens: {_human(row['tokens'])} | time_per_iteration_ms: 12.3 | "
        f"global_batch_size: {_human(row['batch'] * SEQ_LEN)} | lm_loss: {_human(row['loss'])} | "
        f"lr: {_human(row['lr'])} | model_tflops_per_gpu: 1.2 | eta: 0:00:01"
        for row in rows
    ]
    return _lines(folder / "run.log", lines)


def nemo(folder: Path, rows: Sequence[Row]) -> Path:
    lines = [
        f"[default0]:Training epoch 0, iteration {row['step'] - 1}/8999 | lr: {row['lr']:.4g} | "
        f"global_batch_size: {row['batch']} | global_step: {row['step'] - 1} | "
        f"reduced_train_loss: {row['loss']:.4g} | train_step_timing in s: 10.2 | "
        f"consumed_samples: {row['tokens'] // SEQ_LEN}"
        for row in rows
    ]
    return _lines(folder / "run.log", lines)


PROGRAM = """import torch
@dataclass
class Hyperparameters:
    val_tokens = 10485760
    batch_size : int = 2*4 # batch size, in sequences, across all devices
    sequence_length : int = 64
args = Hyperparameters()
print0(f"step:{step}/{train_steps} val_loss:{val_loss:.4f} train_time:...")"""


def modded_nanogpt(folder: Path, rows: Sequence[Row]) -> Path:
    lines = [PROGRAM, "=" * 100, "Running Python 3.12.7", "=" * 100]
    for row in rows:
        if "eval_loss" in row:
            loss = row["eval_loss"]
            lines.append(
                f"step:{row['step']}/9000 val_loss:{loss:.4f} train_time:9ms step_avg:nanms"
            )
        lines.append(f"step:{row['step']}/9000 train_time:9ms step_avg:1.23ms")
    return _lines(folder / "run.txt", lines)


def llmc(folder: Path, rows: Sequence[Row]) -> Path:
    lines = []
    for row in rows:
        lines.append(f"s:{row['step'] - 1} trl:{row['loss']:.4f} lr:{row['lr']:.6f} norm:1.23")
        if "eval_loss" in row:
            lines.append(f"s:{row['step']} tel:{row['eval_loss']:.4f}")
            lines.append(f"s:{row['step']} eval:0.2512")
    return _lines(folder / "run.log", lines)


def llmc_printed(folder: Path, rows: Sequence[Row]) -> Path:
    lines = [
        f"| sequence length T     | {SEQ_LEN:<50} |",
        f"| total batch size      | {8 * SEQ_LEN:<50} |",
    ]
    for row in rows:
        lines.append(
            f"step {row['step']:4d}/9000 | loss {row['loss']:.6f} (+0.12z)| norm 1.2345 (-0.34z)| "
            f"lr {row['lr']:.2e} | 12.34 ms | 45.6% bf16 MFU | 12345 tok/s"
        )
        if "eval_loss" in row:
            lines.append(f"val loss {row['eval_loss']:.6f}")
    return _lines(folder / "run.log", lines)


@dataclass(frozen=True)
class Written:
    """A format as tests write it.

    Attributes:
        format: its name.
        write: rows of a run to files; the first is given back.
        says: columns that it tells beside step; nothing else is compared.
        needs: options that it needs.
        schedule: of the batch, where it cannot be given.
    """

    format: str
    write: Callable[[Path, Sequence[Row]], Path]
    says: tuple[str, ...]
    needs: tuple[str, ...] = ("batch", "seq_len")
    schedule: str = SCHEDULE


ALL = ("tokens", "lr", "loss", "eval_loss")
BOTH = ("loss", "eval_loss")
FORMATS = {
    "megatron": Written("megatron", megatron, ("samples", "batch", *ALL[1:]), ()),
    "huggingface": Written("huggingface", trainer_state, ALL),
    "wandb-jsonl": Written("wandb", history_jsonl, ALL),
    "wandb-csv": Written("wandb", history_csv, ALL),
    "wandb-parquet": Written("levanter", history_parquet, ALL),
    "wandb-chart": Written("wandb", chart, BOTH),
    "wandb-grouped": Written("wandb", grouped, BOTH),
    "tensorboard": Written("tensorboard", events, ("samples", "batch", *ALL[1:]), ("seq_len",)),
    "olmo": Written("olmo", olmo_console, ("tokens", *BOTH)),
    "levanter": Written("levanter", levanter_json, ALL),
    "torchtitan": Written("torchtitan", torchtitan, BOTH),
    "nanotron": Written("nanotron", nanotron, ("rounded_tokens", "lr", "loss")),
    "nemo": Written("nemo", nemo, ("samples", "lr", "loss"), ("seq_len",)),
    "modded-nanogpt": Written("modded-nanogpt", modded_nanogpt, ("eval_loss",), (), "8"),
    "llm.c": Written("llm.c", llmc, ALL[1:]),
    "llm.c-printed": Written("llm.c", llmc_printed, ALL[1:], (), "8"),
}
