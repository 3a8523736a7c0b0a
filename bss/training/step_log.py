"""The log of single steps: steps.csv in the run directory, and the loggers.

Metrics are read one dispatch late, like the metrics of a curve. So a log delays no step
and changes no bit. A resumed run cuts the log at its checkpoint and continues it.
"""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from bss.files import write_text

STEPS = "steps.csv"
STEP_LOG_COLUMNS = (
    *("step", "tokens", "batch", "lr", "loss", "grad_norm", "update_norm"),
    *("tokens_per_second", "mfu", "noise_scale", "skipped"),
)


class StepLog:
    """The log of every N-th step of one run.

    Attributes:
        every: N.
        peak: tokens per second at the devices' peak FLOP/s; None if unknown.
    """

    def __init__(
        self,
        path: Path,
        every: int,
        tell: Callable[[dict[str, Any]], None],
        *,
        writable: bool,
        peak: float | None,
    ) -> None:
        """Open the log of a run directory; nothing is written before `begin`.

        Args:
            path: the run directory.
            every: N.
            tell: receives each row.
            writable: False in processes that leave writing to process 0.
            peak: see above.
        """
        self.every = every
        self.peak = peak
        self._file = path / STEPS
        self._tell = tell
        self._writable = writable
        self._rows: list[dict[str, Any]] = []
        self._read = 0, 0.0
        self._logged = 0, 0.0

    def begin(self, tokens: int, seconds: float) -> None:
        """Cut the log at the tokens at which the run continues, after `seconds` of training."""
        self._read = tokens, seconds
        self._logged = tokens, seconds
        if not self._writable:
            return
        kept = [row for row in read_steps(self._file.parent) if row["tokens"] <= tokens]
        write_text(self._file, _lines(kept, header=True))  # whole: a kill loses no row before it

    def add(self, row: Mapping[str, Any], tokens: int, seconds: float) -> None:
        """Add the row of a step.

        The throughput is a mean since the row before. Within a dispatch all tokens take equal time.

        Args:
            row: the columns, without throughput.
            tokens: tokens consumed after the dispatch.
            seconds: seconds in training steps after the dispatch.
        """
        since, began = self._read
        share = (row["tokens"] - since) / (tokens - since)
        at = began + share * (seconds - began)
        took = at - self._logged[1]
        speed = (row["tokens"] - self._logged[0]) / took if took > 0 else None
        self._logged = row["tokens"], at
        mfu = speed / self.peak if speed and self.peak else None
        self._rows.append({**row, "tokens_per_second": speed, "mfu": mfu})

    def end_dispatch(self, tokens: int, seconds: float) -> None:
        """Write the rows of a dispatch that ends at `tokens`."""
        self._read = tokens, seconds
        if not self._rows:
            return
        rows = self._rows
        self._rows = []
        if self._writable:
            with open(self._file, "a") as file:
                file.write(_lines(rows))
        for row in rows:
            self._tell(row)


def read_steps(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a run directory's step log, up to an incomplete line; [] without a log."""
    try:
        text = (path / STEPS).read_text(errors="replace")
    except FileNotFoundError:
        return []
    whole = text[: text.rfind("\n") + 1]
    return [
        {name: _number(value) for name, value in row.items() if name}
        for row in csv.DictReader(io.StringIO(whole))
    ]


def _lines(rows: list[dict[str, Any]], *, header: bool = False) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, STEP_LOG_COLUMNS, lineterminator="\n")
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _number(text: str | None) -> float | int | None:
    if not text:
        return None
    return int(text) if text.isdecimal() else float(text)
