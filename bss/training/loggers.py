"""Loggers: where the curves of runs go in addition to the run directory.

A custom logger is a class that inherits from `Logger`, named `package.module:ATTRIBUTE`.
"""

import contextlib
import json
import os
import secrets
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from bss.errors import InputError
from bss.files import write_json
from bss.registry import Registry
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunStatus
from bss.values import to_dict


class Logger:
    """Receives the curve of one run. If it raises, it is dropped, and training continues.

    Attributes:
        package: class attribute, the package that must be installed; "" if none.
        extra: class attribute, the extra of bss that installs it.
    """

    package: ClassVar[str] = ""
    extra: ClassVar[str] = ""

    @classmethod
    def check(cls) -> None:
        """Raise InputError if the package is not installed."""
        if cls.package and find_spec(cls.package) is None:
            raise InputError(
                f"execution.trackers: {cls.__name__} needs {cls.package}, which is not installed; "
                f"pip install 'batch-size-scaling[{cls.extra}]'"
            )

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """Start, or continue at `tokens`: rows after them are repeated."""

    def row(self, row: Mapping[str, Any]) -> None:
        """Receive a curve row; a missing number is None."""

    def step(self, row: Mapping[str, Any]) -> None:
        """Receive the row of a step, with `execution.log_every`; by default it is ignored."""

    def end(self, status: RunStatus) -> None:
        """Stop; `begin` may follow, unless the run has finished."""


class TensorBoard(Logger):
    """Event files in the run's directory, one scalar per column, by tokens."""

    package = "tensorboardX"
    extra = "tensorboard"

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """Open an event file that replaces what was written after `tokens`."""
        from tensorboardX import SummaryWriter

        folder = directory / "tensorboard"
        purged = tokens + 1 if tokens else None
        # Without a suffix, two files of the same second have the same name.
        suffix = f".{len([*folder.glob('events*')]):04d}"
        self._writer = SummaryWriter(str(folder), purge_step=purged, filename_suffix=suffix)
        config = json.dumps(to_dict(run), indent=2)
        self._writer.add_text("config", f"```\n{config}\n```", tokens)

    def row(self, row: Mapping[str, Any]) -> None:
        """Add scalars."""
        for name, value in row.items():
            if value is not None and name != "tokens":
                self._writer.add_scalar(name, value, row["tokens"])
        self._writer.flush()

    def step(self, row: Mapping[str, Any]) -> None:
        """Add scalars step/COLUMN."""
        for name, value in row.items():
            if value is not None and name != "tokens":
                self._writer.add_scalar(f"step/{name}", value, row["tokens"])

    def end(self, status: RunStatus) -> None:
        """Close the file."""
        self._writer.add_text("status", status.status, status.tokens)
        self._writer.close()


class WeightsAndBiases(Logger):
    """A page of Weights & Biases, which the run continues when it is resumed.

    The page's id is random and is kept in the run's directory: a colleague's run with the same
    config has another page. Environment variables set project, mode and everything else: with
    WANDB_MODE=offline it writes to the run's directory only.
    """

    package = "wandb"
    extra = "wandb"

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """Start or continue the run of W&B."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bss"),
            id=_read_page(directory),
            name=run.id,
            dir=str(directory),
            config=to_dict(run),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off"),
        )
        self._run.define_metric("*", step_metric="tokens")

    def row(self, row: Mapping[str, Any]) -> None:
        """Log the row."""
        self._run.log({name: value for name, value in row.items() if value is not None})

    def step(self, row: Mapping[str, Any]) -> None:
        """Log the row as step/COLUMN."""
        named = {f"step/{name}": x for name, x in row.items() if x is not None and name != "tokens"}
        self._run.log({"tokens": row["tokens"], **named})

    def end(self, status: RunStatus) -> None:
        """End W&B's run, as failed if this one did not finish."""
        self._run.summary.update(to_dict(status))
        self._run.finish(exit_code=0 if status.finished else 1)


def _read_page(directory: Path) -> str:
    """Return the id of a run's page of W&B; the first time it is made and written."""
    file = directory / "wandb.json"
    with contextlib.suppress(FileNotFoundError, ValueError, KeyError, TypeError):  # none; damaged
        return str(json.loads(file.read_text())["id"])
    page = secrets.token_hex(8)
    write_json(file, {"id": page})
    return page


LOGGERS: Registry[type[Logger]] = Registry(
    "execution.trackers",
    {"tensorboard": TensorBoard, "wandb": WeightsAndBiases},
    of=type[Logger],
)


class Loggers:
    """The loggers of one run, of which none can stop it."""

    def __init__(self, names: Sequence[str]) -> None:
        """Raise InputError if a name is unknown or a package is missing."""
        self._classes = {name: LOGGERS.load(name) for name in names}
        self._active: dict[str, Logger] = {}
        for kind in self._classes.values():
            kind.check()

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """See `Logger`."""
        self._active = {name: kind() for name, kind in self._classes.items()}
        self.each(lambda logger: logger.begin(run, directory, tokens))

    def each(self, call: Callable[[Logger], None]) -> None:
        """Call every logger; drop one that raises, with a warning."""
        for name, logger in [*self._active.items()]:
            try:
                call(logger)
            except Exception as error:  # a custom class or a service may raise anything
                del self._active[name]
                first = str(error).partition("\n")[0]
                warnings.warn(
                    f"logger {name}: {type(error).__name__}: {first}; training continues without "
                    "it, and the run directory has the whole curve",
                    RuntimeWarning,
                    stacklevel=3,
                )
