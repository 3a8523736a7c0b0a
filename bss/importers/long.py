"""Tables with one row per value: run, metric, value, step (MLflow's database, W&B archives)."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from bss.importers.build import log_of
from bss.importers.lines import misspelt
from bss.importers.log import COLUMNS, Importer, Log, Rows
from bss.importers.names import MetricNames, choose
from bss.importers.plain import METRICS, by_plain_name, plain_name
from bss.importers.table import names_in, table_of

METRIC = ("metric", "key", "metric_name", "tag", "variable", "name")
VALUE = ("value", "metric_value")
RUN = (*METRICS.names["run"], "experiment", "experiment_id")
LONG_METRICS = replace(METRICS, names={c: METRICS.names.get(c, ()) for c in COLUMNS[1:]})
"""Names of metrics; the step is a column."""


@dataclass(frozen=True)
class LongTable(Importer):
    """A table with a row per value."""

    about: str = "CSV, TSV, JSON lines or Parquet of run, metric, value, step"

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether there are columns of metric, value and step."""
        return all(_roles(by_plain_name(names_in(file, head)), {})[:3])

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield the runs of a table."""
        table = table_of(file)
        names = by_plain_name(table.names)
        metric, value, step, by = (names.get(role, "") for role in _roles(names, columns))
        cells = table.read([value, step], filter(None, (metric, by)))
        numbers = cells.rows({"step": step, "value": value}, file)
        values = numbers.assign(run=cells.labels(by), name=cells.labels(metric))
        given = {ours: plain_name(theirs) for ours, theirs in columns.items() if ours != "run"}
        told = {"notes": table.notes, "cut": table.cut, "plain": plain_name}
        for run, part in values.groupby("run", sort=False):
            yield long_log(file, part, (LONG_METRICS,), given, run=str(run), **told)


def _roles(names: Mapping[str, str], columns: Mapping[str, str]) -> list[str]:
    """Return the plain names of the metric, the value, the step and the run; "" if none."""
    run = (plain_name(columns["run"]),) if "run" in columns else RUN
    roles = (METRIC, VALUE, METRICS.names["step"], run)
    return [next((name for name in role if name in names), "") for role in roles]


def long_log(
    file: Path,
    values: pd.DataFrame,
    trainers: tuple[MetricNames, ...],
    columns: Mapping[str, str],
    notes: tuple[str, ...] = (),
    cut: str = "",
    run: str = "",
    plain: Callable[[str], str] = str,
) -> Log:
    """Return the run of a file whose values have a name and a step each.

    Args:
        file: Path of the log.
        values: The columns name, step and value, in the order written.
        trainers: Trainers whose names they may be, the likelier first.
        columns: Names given by --columns.
        notes: Remarks for the report.
        cut: Why the end of the log is missing.
        run: As in `log_of`.
        plain: Returns the name that is compared with those of trainers.

    Raises:
        InputError: If it has no loss of a known name.
    """
    sizes = Counter(values["name"])
    names = {name: plain(name) for name in sizes}
    trainer, chosen, more = choose(trainers, dict.fromkeys(names.values()), columns, str(file))
    ours = {theirs: column for column, theirs in chosen.items()}
    read = {name: ours[names[name]] for name in names if names[name] in ours}
    known = values[values["name"].isin(read)]
    rows = _wide(known.assign(name=known["name"].map(read)))
    notes = (*more, *misspelt(sizes, read), *notes)
    return log_of(file, trainer.corrected(rows), {}, notes, cut, run)


def _wide(values: pd.DataFrame) -> Rows:
    """Return a row for every step, in the order written; a repeated value makes another row."""
    values = values.dropna(subset="step")
    values["time"] = values.groupby(["name", "step"]).cumcount()
    wide = values.pivot(index=["time", "step"], columns="name", values="value")
    wide = wide.loc[pd.MultiIndex.from_frame(values[["time", "step"]].drop_duplicates())]
    return wide if "step" in wide else wide.reset_index("step")
