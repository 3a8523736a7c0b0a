"""Ends a process whose device, or whose link to another, no longer answers.

Nothing else would: what waits for a device waits for good, and its heart goes on beating.
"""

import contextlib
import os
import sys
import threading
from collections.abc import Iterator

LOST = os.EX_UNAVAILABLE
"""The status of a process whose device, or whose partner, is gone: what another start may mend."""


class Watchdog:
    """Lets no block of `watched` take longer than a limit; use it in one thread, then `close` it.

    Only seconds in which this process ran are counted: one that was held is not ended for it.
    """

    def __init__(self, seconds: float, name: str):
        """Begins to watch; 0 seconds are no limit, and the name is of the runs."""
        self._seconds, self._name = seconds, name
        self._waited, self._watching = 0.0, False
        self._closed = threading.Event()
        if seconds:
            threading.Thread(target=self._watch, name="watchdog", daemon=True).start()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """A block that waits for devices."""
        self._waited, self._watching = 0.0, True
        try:
            yield
        finally:
            self._watching = False

    def close(self) -> None:
        """Watches no more."""
        self._closed.set()

    def _watch(self) -> None:
        tick = min(self._seconds / 4, 1.0)
        while not self._closed.wait(tick):
            self._waited += tick
            if self._watching and self._waited > self._seconds:
                told = (
                    f"{self._name}: a step has not ended within {self._seconds:g} seconds "
                    "(execution.step_limit), so a device, or a link to another, hangs; the same "
                    "command continues from the last checkpoint\n"
                )
                sys.stderr.write(told)
                sys.stderr.flush()
                os._exit(LOST)
