"""Live progress of a sweep: one bar over all its tokens, with the time left."""

import math
import threading
import time
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from bss.units import format_tokens

_PLAIN_SECONDS = 15


class Progress:
    """Tokens trained over all runs of a sweep. Shown as a bar on a terminal, else as lines."""

    def __init__(self, title: str, *, quiet: bool = False) -> None:
        self._title = title
        self._done: dict[str, int] = {}
        self._tokens: dict[str, int] = {}
        self._ended: dict[str, str] = {}
        self._printed = time.monotonic()
        self._lock = threading.Lock()
        self._console = Console(stderr=True, quiet=quiet)
        self._bar = Bar(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[state]}"),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(elapsed_when_finished=False),
            console=self._console,
            disable=quiet or not self._console.is_terminal,
            speed_estimate_period=math.inf,
        )
        self._task = self._bar.add_task(title, total=None, state="")

    def __enter__(self) -> "Progress":
        self._bar.start()
        self._show()
        return self

    def __exit__(self, *_: Any) -> None:
        self._show(last=True)
        self._bar.stop()

    def add(self, run: str, tokens: int) -> None:
        """Add a run with its number of tokens."""
        self._done[run] = 0
        self._tokens[run] = tokens

    def update(self, run: str, tokens: int) -> None:
        """Set the number of tokens that a run has consumed."""
        with self._lock:
            self._done[run] = tokens
            self._show()

    def finish(self, run: str, status: str) -> None:
        """Record that a run has ended with a status."""
        with self._lock:
            self._ended[run] = status
            self._done[run] = self._tokens[run]
            self._show()

    def _show(self, *, last: bool = False) -> None:
        total = sum(self._tokens.values())
        done = sum(self._done.values())
        bad = sum(status != "finished" for status in self._ended.values())
        state = f"{len(self._ended)}/{len(self._tokens)} runs"
        state += f", {bad} not finished" if bad else ""
        shown = done if done in (0, total) else done // 10_000 * 10_000
        state += f", {format_tokens(shown)} of {format_tokens(total)} tokens"
        self._bar.update(self._task, completed=done, total=total)
        task = self._bar.tasks[0]
        state += f", {task.speed / 1000:.1f}k/s" if task.speed else ""
        self._bar.update(self._task, state=state)
        if self._bar.disable and (last or time.monotonic() - self._printed > _PLAIN_SECONDS):
            self._printed = time.monotonic()
            left = f", {task.time_remaining / 60:.1f} min left" if task.time_remaining else ""
            self._console.print(f"{self._title}: {state}{left}", highlight=False, soft_wrap=True)
