"""Weights & Biases: a run of the same id, which goes on when the run does.

Project, mode and all else are set as W&B's environment variables say: WANDB_MODE=offline writes to
the run's directory alone.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bss.training.config import RunConfig
from bss.training.record.status import RunStatus
from bss.training.record.trackers.base import Tracker
from bss.values import to_dict


class WeightsAndBiases(Tracker):
    """Every row of the curve, by tokens."""

    package, extra = "wandb", "wandb"

    def begin(self, run: RunConfig, directory: Path, tokens: int) -> None:
        """Starts a run of W&B, or goes on with it."""
        import wandb

        self._run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", "bss"),
            id=run.id,
            name=run.id,
            dir=str(directory),
            config=to_dict(run),
            resume="allow",
            reinit="create_new",
            settings=wandb.Settings(console="off"),
        )
        self._run.define_metric("*", step_metric="tokens")

    def row(self, row: Mapping[str, Any]) -> None:
        """Logs it."""
        self._run.log({name: value for name, value in row.items() if value is not None})

    def end(self, status: RunStatus) -> None:
        """Ends W&B's run, as failed where this one did not finish."""
        self._run.summary.update(to_dict(status))
        self._run.finish(exit_code=0 if status.finished else 1)
