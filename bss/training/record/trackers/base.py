"""What a tracker is: it is told of one run, when it begins, of every curve row, and of its end."""

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from bss.errors import InputError
from bss.training.config import RunConfig
from bss.training.record.status import RunStatus


class Tracker:
    """Told of one run. The run directory is the first; the others may fail without harm to the run.

    Attributes:
        package: that must be installed, and `extra` what installs it with bss; empty for none.
    """

    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    @classmethod
    def check(cls) -> None:
        """Refuses one whose package is not installed."""
        if cls.package and find_spec(cls.package) is None:
            raise InputError(
                f"execution.trackers: {cls.__name__} needs {cls.package}, which is not installed; "
                f"pip install 'batch-size-scaling[{cls.extra}]'"
            )

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """The run goes on from some tokens, 0 for its beginning: rows behind them come again."""

    def row(self, row: Mapping[str, Any]) -> None:
        """One more row of the curve; None where a number is missing."""

    def end(self, status: RunStatus) -> None:
        """The run stands still; it may begin again, from a checkpoint, unless it has finished."""
