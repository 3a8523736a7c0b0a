"""Loss curves of other trainers and trackers, imported as run tables.

The format of a text is one declaration (`formats.toml`); tables have one reader (`table.py`),
trackers their metrics by name (`names.toml`). An `Importer` recognises a file and reads its runs
as Logs. `runs.py` makes run tables of them: restarts merged, batches resolved, every table checked.
A custom importer is named `package.module:ATTRIBUTE`.
"""

from bss.importers.batches import LogOptions
from bss.importers.files import read_logs
from bss.importers.formats import LineFormat, declared_formats
from bss.importers.golden import GoldenValues, ListOfLosses
from bss.importers.huggingface import PrintedDicts, TrainerState
from bss.importers.log import AnyOf, Importer
from bss.importers.names import TRAINERS
from bss.importers.notebooks import Notebooks
from bss.importers.own import RunTables
from bss.importers.plain import LongTable, PlainTable
from bss.importers.runs import Report, import_runs
from bss.importers.tensorboard import EventFiles, ScalarTables
from bss.importers.wandb import WandbExports
from bss.registry import Registry

__all__ = [
    "ANY",
    "IMPORTERS",
    "Importer",
    "LineFormat",
    "LogOptions",
    "Report",
    "import_runs",
    "read_logs",
]


def _with_files(lines: Importer, name: str) -> Importer:
    """Return an importer of a trainer's lines, and of its files that have none."""
    other = _READ_IN_PYTHON.get(name)
    return lines if other is None else AnyOf(f"{lines.about}; {other.about}", (lines, other))


def _trainer(own: Importer, name: str) -> Importer:
    """Return an importer of a trainer's logs, and of what it and its later versions track."""
    metrics = tuple(n for n in TRAINERS if n.trainer in (name, f"{name}-core"))
    return AnyOf(own.about, (WandbExports(metrics), EventFiles(metrics), own)) if metrics else own


_HUGGING_FACE = AnyOf(
    "Hugging Face Trainer: trainer_state.json, printed dicts, the table in a notebook",
    (TrainerState(), PrintedDicts(), Notebooks()),
)

_READ_IN_PYTHON = {"megatron": GoldenValues(), "torchtitan": ListOfLosses()}
"""Files of trainers whose lines are declared."""

_TENSORBOARD = "TensorBoard: event files (extra `tensorboard`), CSV files of its page"

IMPORTERS: Registry[Importer] = Registry(
    "format",
    {
        "wandb": WandbExports(TRAINERS),
        "tensorboard": AnyOf(_TENSORBOARD, (EventFiles(TRAINERS), ScalarTables())),
        "huggingface": _trainer(_HUGGING_FACE, "huggingface"),
        **{
            name: _trainer(_with_files(own, name), name) for name, own in declared_formats().items()
        },
        "bss": RunTables(),
        "long": LongTable(),
        "plain": PlainTable(),
    },
    Importer,
)
ANY: Importer = AnyOf("any known format", tuple(IMPORTERS.values()))
"""The importer `auto`: each file is read by the first format that recognises it."""
