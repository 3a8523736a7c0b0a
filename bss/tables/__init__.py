"""The tables that packages exchange, and the reading and checking of CSV and Parquet files."""

from bss.tables.reading import SETTINGS, Reading
from bss.tables.schema import POINTS, check_runs, holds_points, read_points, read_runs
from bss.tables.storage import write_table

__all__ = [
    "POINTS",
    "SETTINGS",
    "Reading",
    "check_runs",
    "holds_points",
    "read_points",
    "read_runs",
    "write_table",
]
