"""A table written run after run, so that it need not fit in memory."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from bss.errors import InputError
from bss.files import replacing
from bss.tables.storage import check_name


class Appending:
    """Appends frames to a Parquet file; a column that only some have is null in the others."""

    def __init__(self, path: Path):
        self._path = path
        self._writer: pq.ParquetWriter | None = None

    def append(self, frame: pd.DataFrame) -> None:
        """Adds the rows of a frame."""
        table = pa.Table.from_pandas(frame, preserve_index=False, nthreads=1)
        table = table.replace_schema_metadata()
        if self._writer is None:
            self._writer = self._writing(table.schema)
        elif set(table.column_names) - set(self._writer.schema.names):
            self._widen(table.schema)
        self._writer.write_table(_fitted(table, self._writer.schema))

    def close(self) -> None:
        """Ends the file; there is none if nothing was appended."""
        if self._writer is not None:
            self._writer.close()

    def _writing(self, schema: pa.Schema) -> pq.ParquetWriter:
        """A writer; only text repeats itself enough for a dictionary."""
        text: Any = [field.name for field in schema if not pa.types.is_primitive(field.type)]
        return pq.ParquetWriter(self._path, schema, use_dictionary=text)

    def _widen(self, schema: pa.Schema) -> None:
        """Writes again what is there, with the new columns."""
        self.close()
        before = self._path.with_name(self._path.name + ".narrow")
        self._path.rename(before)
        with pq.ParquetFile(before) as read:
            known = read.schema_arrow
            wide = pa.schema([*known, *(new for new in schema if new.name not in known.names)])
            self._writer = self._writing(wide)
            for i in range(read.num_row_groups):
                self._writer.write_table(_fitted(read.read_row_group(i), wide))
        before.unlink()


@contextmanager
def appending(path: str | Path) -> Iterator[Appending]:
    """A table to append to, at `path` whole when the block ends, or not at all.

    Raises:
        InputError: the name ends in neither .csv nor .parquet, its directory does not exist, or
            nothing was appended.
    """
    path = Path(path)
    check_name(path)
    with replacing(path) as temporary:
        table = Appending(temporary)
        try:
            yield table
        finally:
            table.close()
        if not temporary.exists():
            raise InputError(f"{path}: there are no rows to write")
        if path.suffix == ".csv":
            pd.read_parquet(temporary).to_csv(temporary, index=False)


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with the columns of a schema, null where it has none."""
    whole = pa.concat_tables([schema.empty_table(), table], promote_options="permissive")
    return whole.cast(schema)
