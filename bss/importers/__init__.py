"""Loss curves of other trainers and trackers, imported as run tables.

A format of text is one declaration (`trainers.py`); tables have one reader (`table.py`), trackers
their metrics by name (`names.py`). An `Importer` recognises a file and reads its runs as Logs, from
which `runs.py` makes run tables: restarts merged, batches resolved, every table checked. A custom
importer is named `package.module:ATTRIBUTE`.
"""

from bss.importers import names, records, trainers
from bss.importers.batches import LogOptions
from bss.importers.files import SkippedFile, read_logs
from bss.importers.huggingface import PrintedDicts, TrainerState
from bss.importers.log import AnyOf, Importer, Log
from bss.importers.names import MetricNames
from bss.importers.plain import LongTable, PlainTable
from bss.importers.runs import Report, import_runs
from bss.importers.tensorboard import EventFiles
from bss.importers.text import LineFormat
from bss.importers.wandb import WandbExports
from bss.registry import Registry

__all__ = [
    "ANY",
    "IMPORTERS",
    "Importer",
    "LineFormat",
    "Log",
    "LogOptions",
    "MetricNames",
    "Report",
    "SkippedFile",
    "import_runs",
    "read_logs",
]


def _trainer(own: Importer, *metrics: MetricNames) -> Importer:
    """Return an importer of a trainer's logs, and of what it logs to trackers."""
    return AnyOf(own.about, (WandbExports(metrics), EventFiles(metrics), own))


_HUGGING_FACE = AnyOf(
    "Hugging Face Trainer: trainer_state.json, or the dicts that it prints",
    (TrainerState(), PrintedDicts()),
)

IMPORTERS: Registry[Importer] = Registry(
    "format",
    {
        "wandb": WandbExports(names.TRAINERS),
        "tensorboard": EventFiles(names.TRAINERS),
        "huggingface": _trainer(_HUGGING_FACE, names.HUGGING_FACE),
        "mllog": records.MLLOG,
        "megatron": _trainer(trainers.MEGATRON, names.MEGATRON),
        "olmo": _trainer(records.OLMO_CONSOLE, names.OLMO_CORE, names.OLMO),
        "levanter": _trainer(records.LEVANTER_JSON, names.LEVANTER),
        "torchtitan": _trainer(trainers.TORCHTITAN, names.TORCHTITAN),
        "nanotron": _trainer(trainers.NANOTRON, names.NANOTRON),
        "nemo": trainers.NEMO,
        "maxtext": _trainer(trainers.MAXTEXT, names.MAXTEXT),
        "composer": _trainer(records.COMPOSER_CONSOLE, names.COMPOSER),
        "fairseq": trainers.FAIRSEQ,
        "torchtune": trainers.TORCHTUNE,
        "nanogpt": trainers.NANOGPT,
        "nanochat": trainers.NANOCHAT,
        "parameter-golf": trainers.PARAMETER_GOLF,
        "modded-nanogpt": trainers.MODDED_NANOGPT,
        "llm.c": trainers.LLM_C,
        "long": LongTable(),
        "plain": PlainTable(),
    },
    Importer,
)
ANY: Importer = AnyOf("any known format", tuple(IMPORTERS.values()))
"""The importer `auto`: each file is read by the first format that recognises it."""
