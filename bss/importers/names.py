"""Trainers by the names that they log, and their settings by name; logs from named columns.

names.toml declares the names.

Corrections give the columns of a trainer their meaning in a Log.
"""

import re
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.importers.attempts import each_attempt, refuse_epochs
from bss.importers.lines import Cells, misspelt
from bss.importers.log import (
    COLUMNS,
    COUNTS,
    LOSSES,
    Correction,
    Log,
    Rows,
    only,
    present,
    run_name,
    some,
)
from bss.tables.likeness import (
    clear_held_out_loss,
    held_out_name,
    held_out_source,
    kind_of_name,
    states_training,
    words_of_name,
)

USUAL = ("loss", "eval_loss", "lr", "planned_steps")
"""Columns that are found by their usual names where a trainer has no other."""


def plain_name(name: str) -> str:
    """Return a name in lower case, joined by single underscores."""
    return re.sub(r"[^a-z0-9]+", "_", name.lower()).strip("_")


def by_plain_name(names: Iterable[str]) -> dict[str, str]:
    """Return the names by plain name, the first of equals."""
    plain: dict[str, str] = {}
    for name in names:
        plain.setdefault(plain_name(name), name)
    plain.pop("", None)
    return plain


def as_logged(rows: Rows) -> Rows:
    """Return the rows unchanged: their step counts completed steps."""
    return rows


def completed(rows: Rows) -> Rows:
    """Return the rows of a trainer whose step is the index of the step just done, from 0 on."""
    return rows.assign(step=rows["step"] + 1) if "step" in rows else rows


def losses_completed(rows: Rows) -> Rows:
    """Return the rows with training losses one step on, and held-out ones as they are."""
    if not {"step", "loss"} <= {*rows}:
        return rows
    trained = completed(rows).drop(columns="eval_loss", errors="ignore")
    there = rows["loss"].notna()
    alone = there & rows.filter(["eval_loss"]).isna().all(axis=1)
    both = pd.concat([trained[there], rows.drop(columns="loss")[~alone]])
    return both.sort_index(kind="stable")


def falling(rows: Rows) -> Rows:
    """Return the rows; refuse a held-out value that rises, as an accuracy does."""
    values = rows.filter(["eval_loss"]).to_numpy()
    values = values[np.isfinite(values)]
    if len(values) > 1 and values[-1] > values[0] and values.max() <= 1:
        raise InputError("eval_accuracy rises, so it is an accuracy and no loss; leave the log out")
    return rows


def samples_completed(rows: Rows) -> Rows:
    """Return the rows of `falling`; a training loss at 0 samples shows that counts begin a step.

    The samples of training losses are then of one batch more. Those of held-out losses are not.
    """
    rows = falling(rows)
    if "batch" in rows:
        rows = rows.assign(batch=rows["batch"].ffill().bfill())
    if not {"samples", "batch", "loss"} <= {*rows}:
        return rows
    trained = rows["loss"].notna()
    if not (trained & (rows["samples"] == 0)).any():
        return rows
    return rows.assign(samples=rows["samples"] + rows["batch"].where(trained, 0))


def diverged(rows: Rows) -> Rows:
    """Return the rows, with an infinite loss in NaN iterations after the last finite loss."""
    losses = rows.filter(LOSSES)
    if "nan" not in rows or losses.empty:
        return rows
    finite = np.isfinite(losses).any(axis=1)
    lost = losses.isna().all(axis=1) & (rows["nan"] > 0) & ~finite[::-1].cummax()[::-1]
    return rows.assign(loss=np.where(lost, np.inf, rows.get("loss", np.nan)))


def batch_tokens(rows: Rows) -> Rows:
    """Return the rows with the tokens of a step, from the tokens and steps before it."""
    if not {"steps_before", "tokens_before"} <= {*rows}:
        return rows
    sizes = (rows["tokens_before"] / rows["steps_before"])[rows["steps_before"] > 0].unique()
    sizes = sizes[np.isfinite(sizes)]
    one = len(sizes) == 1 and sizes[0] % 1 == 0
    return rows.assign(batch_tokens=sizes[0]) if one else rows


CORRECTIONS: dict[str, Correction] = {
    "as_logged": as_logged,
    "completed": completed,
    "losses_completed": losses_completed,
    "samples_completed": each_attempt(samples_completed),
    "diverged": each_attempt(diverged),
    "batch_tokens": each_attempt(batch_tokens),
}
"""Corrections by name."""


@dataclass(frozen=True)
class MetricNames:
    """The names that a trainer logs.

    Attributes:
        trainer: Name of the trainer.
        names: Names of each column of a Log, the first one present being used; `*` matches
            anything, and is used if it matches one metric.
        config: Paths, by dots, of settings for seq_len, batch, batch_tokens or vocabulary.
        corrected: Gives steps and tokens their meaning in a Log.
        marks: Names of which one must be present, if the others could be any trainer's.
        counts_logs: Whether W&B's step counts calls of log, because the trainer gives it none.
        ignored: Names that look like a loss or a time and are summaries; no note names them.
    """

    trainer: str
    names: Mapping[str, tuple[str, ...]]
    config: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    corrected: Correction = CORRECTIONS["as_logged"]
    marks: tuple[str, ...] = ()
    counts_logs: bool = False
    ignored: tuple[str, ...] = ()

    def named_in(self, available: Iterable[str]) -> dict[str, list[str]]:
        """Return the names that are present by column: one, or all that a pattern matches."""
        available = dict.fromkeys(available)
        by_column: dict[str, list[str]] = {}
        if self.marks and not set(self.marks) & available.keys():
            return by_column
        for column, names in self.names.items():
            for name in names:
                if there := matching(name, available):
                    by_column[column] = there
                    break
        return by_column

    def settings(self, config: Mapping[str, Any]) -> dict[str, int]:
        """Return the settings of a config that are whole numbers."""
        settings: dict[str, int] = {}
        for column, paths in self.config.items():
            values = (at_path(config, path) for path in paths)
            value = next((value for value in values if value is not None), None)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if number and 1 <= value == value // 1:
                settings[column] = int(value)
        return settings


def matching(name: str, available: Collection[str]) -> list[str]:
    """Return the names that are a name, or that it matches as a pattern if it has a `*`."""
    if "*" not in name:
        return [name] if name in available else []
    pattern = name.replace("[", "[[]")
    return [one for one in available if fnmatchcase(one, pattern)]


def at_path(config: Any, path: str) -> Any:
    """Return the value of a nested dict at a path of keys joined by dots; None if it has none."""
    for key in [path] if path in config else path.split("."):
        if not isinstance(config, Mapping):
            return None
        config = config.get(key)
        if isinstance(config, Mapping) and "value" in config and set(config) <= {"value", "desc"}:
            config = config["value"]
    return config


@dataclass(frozen=True)
class Chosen:
    """The names of a log that are read.

    Attributes:
        trainer: The trainer that has most of its names.
        names: The name of each column.
        notes: Columns with several names, of which none was chosen.
        unread: Names that look like a loss, a learning rate, a step or a time and are not read.
    """

    trainer: MetricNames
    names: dict[str, str]
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


def last_test(names: Mapping[str, str], sizes: Mapping[str, int], given: Mapping[str, str]) -> str:
    """Return the name of a test loss that is logged once or twice next to a curve; "" if none is.

    It is the result of a run and no curve, so it does not take the place of the training losses.
    """
    name = names.get("eval_loss", "")
    few = sizes.get(name, 0) <= 2 < sizes.get(names.get("loss", ""), 0)
    return name if few and "eval_loss" not in given and "test" in words_of_name(name) else ""


def choose(
    trainers: Iterable[MetricNames],
    available: Iterable[str],
    columns: Mapping[str, str],
    source: str,
    *,
    all_named: bool = False,
) -> Chosen:
    """Return the names of a log that are read, and those that seem to be worth it.

    Args:
        trainers: Trainers, the likelier first.
        available: Names in the log.
        columns: Names that the user gave; they go first.
        source: Path of the log, for messages.
        all_named: Whether the trainers name all losses of the log, so that none is read by what
            its name looks like.

    Raises:
        InputError: If a name that the user gave is not present, or no loss is known.
    """
    available = list(available)
    for ours, theirs in columns.items():
        if theirs not in available:
            raise InputError(f"{source}: no metric {theirs} for {ours}; it has {some(available)}")
    trainers = tuple(trainers)
    only = trainers if len(trainers) == 1 else (MetricNames("own", {}),)
    trainer = [*fitting(trainers, available, columns), *only][0]
    given = {column: [name] for column, name in columns.items()}
    ignored = [name for pattern in trainer.ignored for name in matching(pattern, available)]
    usual = usual_losses(name for name in available if name not in ignored)
    names = {**usual, **trainer.named_in(available), **given}
    if not set(LOSSES) & set(names):
        raise InputError(
            f"{source}: no loss is known by its name; name a training loss with --columns "
            f"loss=NAME, a held-out one with eval_loss=NAME, of {some(available)}"
        )
    known = all_named or "eval_loss" in names
    held_out = [] if known else held_out_by_name(available, ignored)
    if held_out:
        names["eval_loss"] = held_out
    several = {column: there for column, there in names.items() if len(there) > 1}
    notes = [
        f"{column} left out: {some(there)} are logged; choose with --columns {column}=NAME"
        for column, there in several.items()
    ]
    notes += [f"{name} is read as the held-out loss, by its name" for name in held_out]
    chosen = {c: there[0] for c, there in names.items() if c not in several}
    told = {*ignored, *chosen.values(), *(name for there in several.values() for name in there)}
    return Chosen(trainer, chosen, tuple(notes), unread_of(available, told, columns))


def usual_losses(available: Iterable[str]) -> dict[str, list[str]]:
    """Return the losses that are present under a usual name of any trainer."""
    plain = by_plain_name(available)
    there = NAMES["plain"].named_in(plain)
    return {column: [plain[there[column][0]]] for column in USUAL if column in there}


def held_out_by_name(available: Iterable[str], ignored: Collection[str]) -> list[str]:
    """Return the name if it clearly is of a held-out loss, whatever else it contains."""
    clear = [n for n in available if clear_held_out_loss(n) and n not in ignored]
    return clear if len(clear) == 1 else []


def unread_of(
    available: Iterable[str], read: Iterable[str], given: Iterable[str] = ()
) -> tuple[str, ...]:
    """Return the names that look like a loss, a learning rate, a step or a time and are not read.

    Args:
        available: Names in the log.
        read: Names that are read.
        given: Columns that the user named: he has chosen among names of their kind.
    """
    read = set(read)
    given = set(given)
    unread = [name for name in available if name not in read]
    return tuple(name for name in unread if kind_of_name(name) not in {"", *given})


def fitting(
    trainers: Iterable[MetricNames], available: Iterable[str], given: Iterable[str] = ()
) -> list[MetricNames]:
    """Return the trainers that have most names of a log, in their order; none without a loss.

    Args:
        trainers: Trainers.
        available: Names in the log.
        given: Columns that the user named.
    """
    available = list(available)
    given = set(given)
    own = [(trainer, set(trainer.named_in(available))) for trainer in trainers]
    named = [(trainer, names | given) for trainer, names in own if names]
    most = max((len(names) for _, names in named if set(LOSSES) & names), default=0)
    return [t for t, names in named if len(names) == most and set(LOSSES) & names]


LABELS = ("seed", "peak_lr")
"""Settings that are columns of one value for the whole run."""
HELD_OUT_WORD = "<held_out>"
HELD_OUT_ORDER = ("eval", "val", "valid", "validation", "evaluation", "dev", "heldout", "held_out",
                  "holdout", "test")  # fmt: skip
"""Words of held-out data in usual names, the likelier to be meant first."""

EPOCH = {"epoch": ("epoch", "train/epoch")}
"""Names of the number of passes over the data, of every trainer."""


def declared(file: str) -> dict[str, Any]:
    """Return the declarations in a TOML file of this package."""
    return tomllib.loads((files("bss.importers") / file).read_text(encoding="utf-8"))


def metric_names(trainer: str, declaration: dict[str, Any]) -> MetricNames:
    """Return the names of a trainer as a declaration has them."""
    names = {column: _alternatives(there) for column, there in declaration["names"].items()}
    config = {name: _alternatives(there) for name, there in declaration.get("config", {}).items()}
    corrected = CORRECTIONS[declaration.get("corrected", "as_logged")]
    marks = tuple(declaration.get("marks", ()))
    counts = declaration.get("counts_logs", False)
    ignored = _alternatives(declaration.get("ignored", []))
    return MetricNames(trainer, {**EPOCH, **names}, config, corrected, marks, counts, ignored)


def _alternatives(declared: str | list[str]) -> tuple[str, ...]:
    """Return the names in a declaration, one for each word of held-out data for `<held_out>`."""
    texts = [declared] if isinstance(declared, str) else declared
    names = [name for text in texts for name in text.split("|")]
    forms = [name for name in names if HELD_OUT_WORD in name]
    common = [name for name in names if HELD_OUT_WORD not in name]
    words = HELD_OUT_ORDER if forms else ()
    return (*common, *(form.replace(HELD_OUT_WORD, word) for word in words for form in forms))


NAMES = {trainer: metric_names(trainer, d) for trainer, d in declared("names.toml").items()}
"""The names of each trainer, and of formats whose values have names."""

TRAINERS = tuple(n for n in NAMES.values() if n.trainer not in ("plain", "trainer_state", "mllog"))
"""Trainers that trackers know; the first of those that fit equally well is used."""


def log_of(
    file: Path,
    rows: Rows,
    settings: Mapping[str, float],
    notes: Iterable[str] = (),
    cut: str = "",
    run: str = "",
    unread: tuple[str, ...] = (),
) -> Log:
    """Return the run of a file.

    Args:
        file: Path of the log.
        rows: Columns, some of COLUMNS, and `steps_per_second`; others are left out, and so is
            `epoch` unless the data is read more than once.
        settings: Its seq_len, vocabulary, and a batch or batch_tokens if no row has one.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        run: Name of the run in a file of several. Default: the file's name, or its directory's.
        unread: As in `Chosen`.

    Raises:
        InputError: If no row has a loss.
    """
    if not set(LOSSES) & set(rows):
        raise InputError(f"{file}: no line has a loss; give the log of the rank that prints it")
    refuse_epochs(rows, str(file))
    if "steps_per_second" in rows and "step_time" not in rows:
        rates = rows["steps_per_second"]
        rows = rows.assign(step_time=1 / rates.where(rates > 0))
    passes = _passes(rows)
    log = Log(
        run=run or run_name(file),
        rows=only(rows, [name for name in COLUMNS if name != "epoch" or passes]),
        source=str(file),
        place=f"{file}:{run}" if run else str(file),
        notes=(*notes, *_uncounted(rows), *passes),
        cut=cut,
        labelled=bool(run),
        unread=unread,
    )
    return with_settings(log, settings)


def with_settings(log: Log, settings: Mapping[str, float]) -> Log:
    """Return a log with its settings; a batch or planned end counts if no row has one."""
    rows = log.rows
    if "planned_steps" in settings and "planned_steps" not in rows:
        rows = rows.assign(planned_steps=float(settings["planned_steps"]))
    if not {"batch", "batch_tokens"} & {*rows}:
        sizes = {"batch", "batch_tokens"} & settings.keys()
        rows = rows.assign(**{name: float(settings[name]) for name in sizes})
    labels = {**(log.labels or {}), **_labels(settings)}
    return replace(
        log,
        rows=rows,
        labels=labels or None,
        seq_len=_whole(settings.get("seq_len")),
        vocabulary=_whole(settings.get("vocabulary")),
    )


def _labels(settings: Mapping[str, float]) -> dict[str, float]:
    """Return the settings that are columns, a seed as a whole number."""
    there = {name: settings[name] for name in LABELS if name in settings}
    return {name: int(value) if name == "seed" else value for name, value in there.items()}


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def held_out_by_source(log: Log, theirs: str, columns: Mapping[str, str]) -> Log:
    """Return a log whose loss is held-out if its file or run is named so.

    Args:
        log: The run of a file.
        theirs: The name of its loss in the file.
        columns: Names given by --columns. A loss that the user named is moved only if the file is
            named as a held-out loss.
    """
    if "loss" not in log.rows or "eval_loss" in log.rows or states_training(theirs):
        return log
    sources = [Path(log.source).stem, log.run]
    named = any(held_out_name(name) for name in sources)
    if not named and ("loss" in columns or not any(held_out_source(name) for name in sources)):
        return log
    note = f"{theirs} is read as a held-out loss, by the name of its file or run"
    rows = log.rows.rename(columns={"loss": "eval_loss"})
    return replace(log, rows=rows, notes=(*log.notes, note))


def named_log(
    file: Path,
    cells: Cells,
    trainers: tuple[MetricNames, ...],
    columns: Mapping[str, str],
    notes: Iterable[str] = (),
    cut: str = "",
    config: Mapping[str, Any] | None = None,
) -> Log:
    """Return the run of a file whose values have names.

    Args:
        file: Path of the log.
        cells: Its values by name.
        trainers: Trainers whose names they may be, the likelier first.
        columns: Names given by --columns.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        config: Its settings.

    Raises:
        InputError: If it has no loss of a known name, or a value is not a number.
    """
    sizes = cells.sizes
    chosen = choose(trainers, sizes, columns, str(file), all_named=True)
    notes = (*chosen.notes, *misspelt(sizes, chosen.names.values()), *notes)
    rows = chosen.trainer.corrected(cells.rows(chosen.names, file))
    settings = chosen.trainer.settings(config or {})
    return log_of(file, rows, settings, notes, cut, unread=chosen.unread)


def _uncounted(rows: Rows) -> Iterator[str]:
    """Yield the number of losses in rows without any count."""
    counted = np.zeros(len(rows), bool)
    for count in COUNTS:
        if count in rows:
            counted |= present(rows, count)
    for column in LOSSES:
        lost = int(present(rows, column)[~counted].sum()) if column in rows else 0
        if lost:
            yield f"{lost} values of {column} have no step and are left out"


def _passes(rows: Rows) -> tuple[str, ...]:
    """Return a note if the data is read more than once.

    Epochs that are whole numbers count from 0 or 1.
    """
    epochs = rows["epoch"].to_numpy() if "epoch" in rows else np.zeros(0)
    epochs = epochs[np.isfinite(epochs) & (epochs >= 0)]
    if not len(epochs):
        return ()
    passes = epochs.max() - (0 if (epochs % 1).any() else epochs.min() - 1)
    if passes <= 1.005:
        return ()
    return (f"{passes:.3g} epochs over its data; repeated tokens are counted each time",)
