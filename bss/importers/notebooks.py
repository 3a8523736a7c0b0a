"""Jupyter notebooks: the table that Hugging Face's Trainer shows (`NotebookProgressCallback`).

transformers, `src/transformers/utils/notebook.py`: an output of HTML with the progress of training,
`[250/250 01:02, Epoch 2/2]`, and a table of `Step` or `Epoch`, `Training Loss`, `Validation Loss`
and other metrics. A cell without a value is `No log`. Other tables of a notebook are not read.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, ClassVar

from bss.errors import InputError
from bss.files import read_json
from bss.importers.lines import columns_of
from bss.importers.log import HEAD, PART, Importer, Log
from bss.importers.names import NAMES, by_plain_name, choose, log_of, plain_name

PROGRESS = re.compile(r"\[\s*(\d+)/(\d+)\b[^\]]*?(?:Epoch\s+[\d.]+/(\d+))?\]")
TRAINING = "<th>Training Loss</th>"
HEADER = re.compile("<th>(?:Step|Epoch|Training Loss|Validation Loss)</th>")
"""Any name of the Trainer's table: one of them may be damaged."""


@dataclass(frozen=True)
class Notebooks(Importer):
    """Notebooks in which the Trainer has shown its table."""

    about: str = "Hugging Face Trainer: the table in a notebook (.ipynb)"
    empty: ClassVar[str] = (
        "is a notebook without a table of Hugging Face's Trainer; save what it printed to a file"
    )

    def recognises(self, file: Path, head: str) -> bool:
        """Return whether the head has such a table, or a notebook is too long for a head."""
        if file.suffix != ".ipynb":
            return False
        return TRAINING in head or file.stat().st_size > HEAD + 2 * PART

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """Yield one log with the tables of all trainings; nothing if there is none.

        Raises:
            InputError: If a table has epochs and no steps, and its steps are not a multiple of the
                epochs, or if it has neither.
        """
        rows: list[tuple[int, Mapping[str, Any]]] = []
        left_out = 0
        for html in _shown(read_json(file, "it may be cut off; copy it again")):
            page = _Cells()
            page.feed(html)
            header, *others = page.rows or [[]]
            whole = [row for row in others if len(row) == len(header)]
            left_out += len(others) - len(whole)
            named = [dict(zip(header, row, strict=True)) for row in whole]
            rows += enumerate(_with_steps(file, html, named), len(rows) + 1)
        if not rows:
            return
        cells = columns_of(rows)
        names = by_plain_name(cells.numbers)
        given = {ours: plain_name(theirs) for ours, theirs in columns.items()}
        chosen = choose((NAMES["plain"],), names, given, str(file))
        read = cells.rows({ours: names[theirs] for ours, theirs in chosen.names.items()}, file)
        notes = [*chosen.notes]
        if left_out:
            notes.append(f"{left_out} rows have other columns than the table's header: left out")
        log = log_of(file, read, {}, notes, unread=chosen.unread)
        yield replace(log, run=file.stem)


def _shown(notebook: Mapping[str, Any]) -> Iterator[str]:
    """Yield the outputs of HTML that have the Trainer's table."""
    for cell in notebook.get("cells", []):
        for output in cell.get("outputs", []):
            html = output.get("data", {}).get("text/html", "")
            html = "".join(html) if isinstance(html, list) else html
            if HEADER.search(html) and "<progress" in html:
                yield html


class _Cells(HTMLParser):
    """The cells of the tables of a page, a list for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: list[list[str]] = []
        self._open = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "tr":
            self.rows.append([])
        self._open = tag in ("th", "td") and bool(self.rows)
        if self._open:
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._open = self._open and tag not in ("th", "td")

    def handle_data(self, data: str) -> None:
        if self._open:
            self.rows[-1][-1] += data.strip()


def _with_steps(file: Path, html: str, rows: Iterable[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the rows of a table, each with its step and the last step of the training."""
    progress = PROGRESS.search(html)
    last = int(progress[2]) if progress else None
    epochs = int(progress[3] or 0) if progress else 0
    planned = {} if last is None else {"max_steps": last}
    for row in rows:
        if "Step" in row:
            yield row | planned
            continue
        if last is None or not epochs or last % epochs:
            raise InputError(
                f"{file}: its table has epochs and no steps, which {last} steps in {epochs} "
                "epochs do not give; give trainer_state.json instead"
            )
        try:
            step = float(row["Epoch"]) * last / epochs
        except (KeyError, ValueError):
            raise InputError(
                f"{file}: its table has a row without a Step or an Epoch; give trainer_state.json "
                "instead"
            ) from None
        yield row | planned | {"Step": step}
