"""Loss curves of other trainers and trackers, imported as run tables.

One file a format: an `Importer` that says whether a file is of it, and reads its runs as Logs. What
is made of them, whatever the format, is in `runs.py`: restarts merged, the batch of every step, the
checks of every run table, a report. A user's own is named `package.module:ATTRIBUTE`.
"""

from bss.importers import (
    hf_printed,
    huggingface,
    levanter,
    llmc,
    megatron,
    modded_nanogpt,
    nanochat,
    nanogpt,
    nanotron,
    nemo,
    olmo,
    parameter_golf,
    plain,
    torchtitan,
)
from bss.importers.batches import LogOptions
from bss.importers.files import PassedBy, read_logs
from bss.importers.log import AnyOf, Importer, Log
from bss.importers.metrics import MetricNames
from bss.importers.runs import Report, import_runs
from bss.importers.tensorboard import EventFiles
from bss.importers.tracked import TRACKED
from bss.importers.wandb import WandbExports
from bss.registry import Registry

__all__ = [
    "ANY",
    "IMPORTERS",
    "Importer",
    "Log",
    "LogOptions",
    "MetricNames",
    "PassedBy",
    "Report",
    "import_runs",
    "read_logs",
]

TRAINERS = (
    huggingface.METRICS,
    megatron.METRICS,
    olmo.CORE,
    olmo.OLMO,
    levanter.METRICS,
    torchtitan.METRICS,
    nanotron.METRICS,
    *TRACKED,
)
"""Trainers whose names of metrics are known; of equals the first is meant."""


def _trainer(own: Importer, *metrics: MetricNames) -> Importer:
    """A trainer's own logs, or what it logs to trackers."""
    return AnyOf(own.about, (WandbExports(metrics), EventFiles(metrics), own))


IMPORTERS: Registry[Importer] = Registry(
    "format",
    {
        "wandb": WandbExports(TRAINERS),
        "tensorboard": EventFiles(TRAINERS),
        "huggingface": _trainer(
            AnyOf(
                "Hugging Face Trainer: trainer_state.json, or the dicts that it prints",
                (huggingface.TrainerState(), hf_printed.PRINTED),
            ),
            huggingface.METRICS,
        ),
        "megatron": _trainer(megatron.STANDARD_OUTPUT, megatron.METRICS),
        "olmo": _trainer(olmo.Console(), olmo.CORE, olmo.OLMO),
        "levanter": _trainer(levanter.JsonTracker(), levanter.METRICS),
        "torchtitan": _trainer(torchtitan.STANDARD_OUTPUT, torchtitan.METRICS),
        "nanotron": _trainer(nanotron.LOGGED_LINES, nanotron.METRICS),
        "nemo": nemo.PROGRESS_PRINTER,
        "nanogpt": nanogpt.NANOGPT,
        "nanochat": nanochat.BASE_TRAIN,
        "parameter-golf": parameter_golf.PRINTED,
        "modded-nanogpt": modded_nanogpt.RecordedRun(),
        "llm.c": AnyOf("llm.c: main.log, or what it prints", (llmc.MAIN_LOG, llmc.PRINTED)),
        "plain": plain.PlainTable(),
    },
    Importer,
)
ANY: Importer = AnyOf("any known format", tuple(IMPORTERS.values()))
"""What `auto` is: each file by the first format that recognises it."""
