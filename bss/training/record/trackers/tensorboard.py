"""Event files for TensorBoard, in the run's directory; the horizontal axis is tokens."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bss.training.config import RunConfig
from bss.training.record.status import RunStatus
from bss.training.record.trackers.base import Tracker
from bss.values import to_dict


class TensorBoard(Tracker):
    """A scalar for each column: `tensorboard --logdir runs`."""

    package, extra = "tensorboardX", "tensorboard"

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """Opens an event file that takes the place of what was written behind `tokens`."""
        from tensorboardX import SummaryWriter

        folder, purged = directory / "tensorboard", tokens + 1 if tokens else None
        suffix = f".{len([*folder.glob('events*')]):04d}"  # else two of one second have one name
        self._writer = SummaryWriter(str(folder), purge_step=purged, filename_suffix=suffix)
        config = json.dumps(to_dict(run), indent=2)
        self._writer.add_text("config", f"```\n{config}\n```", tokens)

    def row(self, row: Mapping[str, Any]) -> None:
        """Adds scalars."""
        for name, value in row.items():
            if value is not None and name != "tokens":
                self._writer.add_scalar(name, value, row["tokens"])
        self._writer.flush()

    def end(self, status: RunStatus) -> None:
        """Closes the file."""
        self._writer.add_text("status", status.status, status.tokens)
        self._writer.close()
