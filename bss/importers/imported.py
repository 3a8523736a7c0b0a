"""Logs into a run table by one call: the runs, what was left out of them, and why."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.cells import lines_html
from bss.errors import InputError
from bss.importers import ANY, IMPORTERS, Importer, LogOptions, Report, import_runs
from bss.importers.batches import LONG, Batches, LogReading
from bss.importers.files import SkippedFile, read_logs
from bss.importers.formats import own_lines
from bss.importers.log import Log
from bss.importers.runs import rows_of_files, scaling_with_batch, total_rows
from bss.units import parse_tokens

NAMED = 20
"""Unread files that a warning names."""


@dataclass(frozen=True)
class ImportReport:
    """A count of the files and rows of an import: read, kept and left out.

    Attributes:
        runs: One report per run.
        skipped: Files below a directory that were not read, and why.
        scaling: A warning if the losses grow with the batch size; empty otherwise.
    """

    runs: tuple[Report, ...]
    skipped: tuple[SkippedFile, ...]
    scaling: str = ""

    @property
    def unread(self) -> list[str]:
        """Files that look like logs of runs and were not read."""
        return [one.file for one in self.skipped if one.log]

    @property
    def files(self) -> int:
        """The number of files that were found."""
        read = {source for one in self.runs for source in one.sources}
        return len(read | {one.file for one in self.skipped})

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt the table as a whole."""
        warnings = [self.scaling] if self.scaling else []
        if 0 < sum("eval_loss" in one.missing for one in self.runs) < len(self.runs):
            warnings.append("some runs have no eval_loss; fits of the table need one of all runs")
        if self.unread:
            names = ", ".join(Path(name).name for name in self.unread[:NAMED])
            count = "1 file looks like the log of a run and is"
            if len(self.unread) > 1:
                count = f"{len(self.unread)} files look like logs of runs and are"
            warnings.append(f"{count} not read: {names}; --skip-unread accepts that")
        return warnings

    @property
    def left_out(self) -> pd.DataFrame:
        """One row per file and reason: file, rows (of a file that was read), reason."""
        rows = [
            {"file": one.file, "rows": count, "reason": reason}
            for one in rows_of_files(self.runs)
            for reason, count in one.left_out.items()
        ]
        rows += [{"file": one.file, "rows": None, "reason": one.reason} for one in self.skipped]
        return pd.DataFrame(rows, columns=["file", "rows", "reason"]).astype({"rows": "Int64"})

    def to_dict(self) -> dict[str, Any]:
        """Return the report for JSON."""
        by_file = rows_of_files(self.runs)
        total = asdict(total_rows(by_file))
        return {
            "runs": [asdict(one) for one in self.runs],
            "warnings": self.warnings,
            "files": self.files,
            "skipped": [asdict(one) for one in self.skipped],
            "unread": self.unread,
            "rows": {name: n for name, n in total.items() if name != "file"},
            "rows_by_file": [asdict(one) for one in by_file],
        }


@dataclass(frozen=True, repr=False)
class ImportedLogs:
    """Runs of other trainers' logs as a run table, and what was not read.

    Attributes:
        runs: The run table, as `bss.check_runs` describes it: one row per logged step.
        report: What became of every file and row.

    Examples:
        >>> row = {"run": "b8", "batch": 8, "seq_len": 64, "step": 10, "loss": 3.0}
        >>> logs = ImportedLogs(pd.DataFrame([row]), ImportReport((), ()))
        >>> len(logs.runs), len(logs.left_out)
        (1, 0)
    """

    runs: pd.DataFrame
    report: ImportReport

    @property
    def left_out(self) -> pd.DataFrame:
        """A table of what was not read: file, rows (of a file that was read), reason."""
        return self.report.left_out

    @property
    def warnings(self) -> list[str]:
        """Reasons to doubt losses, each with the runs that it is about."""
        texts = {report.run: report.warnings for report in self.report.runs}
        return [*self.report.warnings, *by_text(texts)]

    def __repr__(self) -> str:
        runs = self.report.runs
        batches = self.runs["batch"]
        answer = f"{len(runs)} runs, {len(self.runs)} rows, batch sizes {batches.min():g} to "
        answer += f"{batches.max():g}; left_out has {len(self.left_out)} entries"
        return "\n".join([answer, *(f"warning: {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        """Return the same as HTML."""
        return lines_html(repr(self).splitlines()[0], self.warnings)


def import_logs(
    path: str | PathLike[str] | Sequence[str | PathLike[str]],
    seq_len: int | None = None,
    *,
    run_regex: str | None = None,
    batch: int | str | Sequence[str] = (),
    columns: Mapping[str, str] | None = None,
    format: str = "auto",
    train_line: str | None = None,
    eval_line: str | None = None,
) -> ImportedLogs:
    r"""Read logs of other trainers as a run table.

    Args:
        path: A file or a directory, or several.
        seq_len: Tokens per sequence, if the logs do not have it.
        run_regex: Searched in run names; its groups size, batch, lr, seed, run, ... become columns,
            e.g. r"bs(?P<batch>\d+)".
        batch: Batch size in sequences of every run, or a schedule "0:256 2B:512", or several of the
            form "RUN_GLOB=SCHEDULE".
        columns: Names of metrics in the logs by their names here, e.g. {"loss": "train/ce"}.
        format: "auto", "lines", a named format, or `package.module:ATTRIBUTE`.
        train_line: For the format "lines": a regular expression of a line of training.
        eval_line: For the format "lines": the same of a line of validation.

    Returns:
        The runs, and what was left out.

    Raises:
        InputError: If there is no such file, no file is a log, a file is damaged, or the logs lack
            a batch size or a sequence length.

    Examples:
        >>> import tempfile
        >>> folder = tempfile.mkdtemp()
        >>> with open(f"{folder}/bs8.csv", "w") as file:
        ...     _ = file.write("_step,train/loss\n10,3.0\n20,2.5\n30,2.25\n")
        >>> logs = import_logs(folder, seq_len=64, run_regex=r"bs(?P<batch>\d+)")
        >>> logs.runs[["run", "batch", "tokens", "loss"]].tail(1)
           run  batch  tokens  loss
        2  bs8      8   15360  2.25
    """
    paths = _paths(path)
    if seq_len is not None:
        seq_len = parse_tokens(seq_len, field="seq_len")
    if run_regex is not None and not isinstance(run_regex, str):
        raise InputError(f"run_regex: {run_regex!r} given; write a regular expression")
    texts = [str(batch)] if isinstance(batch, int | str) else [*batch]
    names = LogReading(columns or {}, seq_len).columns
    options = LogOptions(Batches.parse(texts), seq_len, run_regex, names)
    logs, skipped = read_logs(paths, importer_of(format, train_line, eval_line, names), options)
    frames: list[pd.DataFrame] = []
    report = collect(logs, skipped, options, frames.append)
    return ImportedLogs(pd.concat(frames, ignore_index=True), report)


def collect(
    logs: Sequence[Log],
    skipped: Sequence[SkippedFile],
    options: LogOptions,
    append: Callable[[pd.DataFrame], Any],
) -> ImportReport:
    """Pass the table of each run on, and return the report of all."""
    reports: list[Report] = []
    first: list[tuple[int, float]] = []
    for frame, read in import_runs(logs, options):
        append(frame)
        reports.append(read)
        first += _first_loss(frame)
    scaling = scaling_with_batch(pd.DataFrame(first, columns=["batch", "loss"]))
    return ImportReport(tuple(reports), tuple(skipped), scaling)


def importer_of(
    kind: str, train_line: str | None, eval_line: str | None, columns: Collection[str] = ()
) -> Importer:
    """Return the importer of a format.

    Args:
        kind: Name of the format. If `columns` names the columns of a long table, auto is the format
            long.
        train_line: Regular expression for the format lines.
        eval_line: The same of held-out losses.
        columns: Columns that the user named.

    Raises:
        InputError: If there is no such format, or a line is given for another one than "lines", or
            columns of a long table for another one than "long".
    """
    of_long = [name for name in LONG if name in columns]
    if of_long and kind not in ("auto", "long"):
        raise InputError(f"--columns {of_long[0]}: is for the format long; name it first")
    if of_long:
        return IMPORTERS["long"]
    if kind == "lines":
        return own_lines(train_line or "", eval_line or "")
    for option, given in (("--train-line", train_line), ("--eval-line", eval_line)):
        if given is not None:
            raise InputError(f"{option}: is for the format lines; name it first")
    return ANY if kind == "auto" else IMPORTERS.load(kind)


def by_text(texts: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the texts of runs, each once with the number of its runs, or its run."""
    runs: dict[str, list[str]] = {}
    for run, notes in texts.items():
        for note in notes:
            runs.setdefault(note, []).append(run)
    return [f"{r[0] if len(r) == 1 else f'{len(r)} runs'}: {note}" for note, r in runs.items()]


def _paths(path: Any) -> list[Path]:
    """Return the paths given; InputError for anything else."""
    several = [path] if isinstance(path, str | PathLike) else path
    if not isinstance(several, Sequence) or not several:
        raise InputError(f"path: {path!r} given; expected a file, a directory, or a list of them")
    if wrong := [one for one in several if not isinstance(one, str | PathLike)]:
        raise InputError(f"path: {wrong[0]!r} given; expected a file or a directory")
    return [Path(one) for one in several]


def _first_loss(run: pd.DataFrame) -> list[tuple[int, float]]:
    """Return the batch and the loss of a run's first row; the held-out one if it has no other."""
    losses = run["loss" if "loss" in run else "eval_loss"].to_numpy()
    batches = run["batch"].to_numpy()
    return [(batches[row], losses[row]) for row in np.flatnonzero(losses > 0)[:1]]
