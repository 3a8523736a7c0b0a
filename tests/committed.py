"""The committed tables and fits."""

from pathlib import Path


def files_of(results: Path) -> list[Path]:
    """Return the tables and fits of a results directory that are neither frozen nor registered."""
    found = []
    for path in sorted(results.rglob("*")):
        where = path.relative_to(results).parts
        registered = where[0] == "predictions" and len(where) == 2
        if path.suffix in (".csv", ".parquet", ".json") and where[0] != "archive":
            found += [] if registered else [path]
    return found
