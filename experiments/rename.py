"""Rewrites committed tables and fits under the names of `bss.renamed`; prints each changed file.

    python -m experiments.rename [results]

Kept until the runs of results/predictions/es_wsd_conditions.json are committed: they are trained
from an earlier commit, whose rows have the old names. Registrations (predictions/*.json) and the
archive are never changed. Numbers keep their digits: a CSV file is rewritten as text.
"""

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq

from bss.files import write_text
from bss.renamed import COLUMNS, LAWS, PHASE_COLUMNS, PHASES
from bss.tables import write_table
from bss.tables.renaming import with_new_names
from experiments.arms import without_labels

GROUPS = {"stable": "constant", "annealed": "decayed", "wsd": "decayed"}
"""First parts of the names of groups of fits, e.g. of "stable, shared"."""
SCHEMAS = {("critical", 3): 4, ("es", 4): 5}
"""By kind and schema of a fit, the schema with the new names."""
CONFIG = {"fleet": "vmap_runs"}
"""Keys of experiment.json that were renamed, of a group `engine`."""


def rename_csv(text: str) -> str:
    """Return a CSV table under the new names; every other cell keeps its text."""
    rows = list(csv.reader(io.StringIO(text)))
    if len({len(row) for row in rows}) != 1:  # with comments above it: a table of others
        return text
    table = pd.DataFrame(rows[1:], columns=rows[0], dtype=str)
    if table.columns.has_duplicates:
        return text
    renamed, _ = with_new_names(table)
    if "E_min" in renamed and list(renamed.get("unit", [])) == ["sequences"] * len(renamed):
        renamed = renamed.rename(columns={"E_min": "E_min_sequences"})
    renamed = without_labels(renamed)
    if "law" in renamed:
        renamed = renamed.assign(law=renamed["law"].replace(LAWS))
    if renamed.equals(table):
        return text
    return renamed.to_csv(index=False, lineterminator="\n")


def rename_json(entry: Any) -> Any:
    """Return the JSON of fits under the new names: LR phases of curves and names of laws."""
    if isinstance(entry, list):
        return [rename_json(one) for one in entry]
    if isinstance(entry, str):
        for old, new in LAWS.items():
            entry = entry.replace(old, new)
        return entry
    if not isinstance(entry, dict):
        return entry
    renamed: dict[str, Any] = {}
    if {"target_loss", "S_opt", "status"} <= entry.keys() and "solver_status" not in entry:
        best = entry.get("B_opt", {})
        best = best if "status" in best else entry["measured"]
        entry = entry | {"solver_status": entry["status"], "status": best["status"]}
    for key, value in entry.items():
        if key in PHASE_COLUMNS and value in PHASES:
            renamed |= dict(zip(("lr_phase", "weights"), PHASES[value], strict=True))
            continue
        first, comma, rest = key.partition(", ")
        name = LAWS.get(key) or COLUMNS.get(key) or GROUPS.get(first, first) + comma + rest
        renamed[name] = rename_json(value)
    if (known := (entry.get("kind"), entry.get("schema"))) in SCHEMAS:
        renamed["schema"] = SCHEMAS[known]
    return renamed


def rename_config(entry: Any) -> Any:
    """Return the record of an experiment under the new names of its engine's settings."""
    if not isinstance(entry, dict):
        return entry
    renamed = {key: rename_config(value) for key, value in entry.items()}
    if isinstance(engine := renamed.get("engine"), dict):
        renamed["engine"] = {CONFIG.get(key, key): value for key, value in engine.items()}
    return renamed


def rename_file(path: Path) -> bool:
    """Rewrite a file under the new names; return whether it changed."""
    if path.suffix == ".parquet":
        if not {*pq.read_schema(path).names} & {"name", *PHASE_COLUMNS, *COLUMNS}:
            return False
        table = pd.read_parquet(path)
        renamed = without_labels(with_new_names(table)[0])
        if [*renamed] == [*table]:
            return False
        write_table(renamed, path)
        return True
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".csv":
        new = rename_csv(text)
    else:
        entry = json.loads(text)
        change = rename_config if path.name == "experiment.json" else rename_json
        if (changed := change(entry)) == entry:
            return False
        new = as_written(changed, text)
    if new == text:
        return False
    write_text(path, new)
    return True


def as_written(entry: Any, text: str) -> str:
    """Return JSON in the form of the text that it replaces."""
    indent = 1 if "\n" in text.strip() else None
    separators = None if indent or ": " in text else (",", ":")
    ends = "\n" if text.endswith("\n") else ""
    how: dict[str, Any] = {"indent": indent, "separators": separators}
    return json.dumps(entry, ensure_ascii=text.isascii(), **how) + ends


def files_of(results: Path) -> list[Path]:
    """Return the tables and fits of a results directory that are neither frozen nor registered."""
    found = []
    for path in sorted(results.rglob("*")):
        where = path.relative_to(results).parts
        registered = where[0] == "predictions" and len(where) == 2
        if path.suffix in (".csv", ".parquet", ".json") and where[0] != "archive":
            found += [] if registered else [path]
    return found


def main(arguments: list[str] | None = None) -> int:
    """Rewrite the tables of a results directory."""
    parser = argparse.ArgumentParser(prog="experiments.rename")
    parser.add_argument("results", nargs="?", type=Path, default=Path("results"))
    for path in files_of(parser.parse_args(arguments).results):
        if rename_file(path):
            print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
