"""Runs that are registered, trained and scored in a repository of a test's own."""

import subprocess
from pathlib import Path

import pytest

from bss.laws.fitting.estimate import Estimate
from bss.models.sizes import named
from bss.predictions.registration import Prediction, Registration, digest, register
from bss.sweeps.grid import overlay
from bss.training.config import RunConfig
from bss.training.record.directory import open_run
from bss.training.record.status import RunStatus

TOKENS = 999_936
ENDINGS = ("constant", "wsd")
LOSSES = (2.0, 1.9, 2.1, 1.8, 2.2, 1.7)
BASELINE = "constant of equal steps"


class Lab:
    """Six schedules of two seeds, predicted 1% too high; the baseline says 2 of each.

    Attributes:
        configs: the runs by name of their schedule.
        registration: what is predicted of them.
        file: where it is, once it is registered.
        runs: directory of run directories.
    """

    def __init__(self, folder: Path):
        base = overlay(RunConfig(named("nano", 256)), {"schedule.tokens": 1_000_000})
        self.configs = {
            f"s{i}": [
                overlay(base, {"seed": seed, "optimizer.lr": 1e-3 * (i + 1)}) for seed in (3, 4)
            ]
            for i in range(len(LOSSES))
        }
        told = [
            Prediction(
                name,
                tuple(run.id for run in runs),
                TOKENS,
                Estimate(1.01 * loss, 0.99 * loss, 1.03 * loss),
                {BASELINE: 2.0},
                ENDINGS[i % 2],
            )
            for i, ((name, runs), loss) in enumerate(zip(self.configs.items(), LOSSES, strict=True))
        ]
        rules = {BASELINE: "2 nats"}
        self.registration = Registration("six", "test_loss", tuple(told), {}, rules, seed=7)
        self.folder, self.runs = folder, folder / "runs"
        self.file = folder / "predictions" / "six.json"
        self.git("init", "--quiet")
        self.commit("first")

    def git(self, *arguments: str) -> str:
        name = "-c", "user.name=test", "-c", "user.email=test@example.org"
        done = subprocess.run(
            ["git", *name, *arguments], cwd=self.folder, capture_output=True, text=True, check=True
        )
        return done.stdout.strip()

    def commit(self, message: str) -> str:
        """All of the folder but the runs; returns the commit as runs record it."""
        (self.folder / ".gitignore").write_text("runs\n")
        self.git("add", "--all")
        self.git("commit", "--quiet", "--allow-empty", "--message", message)
        return self.head()

    def head(self) -> str:
        return self.git("describe", "--always", "--abbrev=12", "--dirty=+")

    def register(self) -> str:
        """Registers; returns the hash that runs record."""
        return digest(register(self.registration, self.file.parent))

    def train(self, registration: str, commit: str, but: tuple[str, ...] = ()) -> None:
        """Writes what training leaves: seeds end .01 about LOSSES; not those named."""
        for runs, loss in zip(self.configs.values(), LOSSES, strict=True):
            for run, off in zip(runs, (-0.01, 0.01), strict=True):
                if run.id not in but:
                    ended = RunStatus("finished", TOKENS, losses={"test_loss": loss + off})
                    self.write(run, ended, registration, commit)

    def write(self, run: RunConfig, status: RunStatus, registration: str, commit: str) -> None:
        with open_run(self.runs / run.id) as directory:
            directory.check_config(run)
            directory.add_execution({"commit": commit, "registration": registration})
            directory.end(status)


@pytest.fixture
def lab(tmp_path):
    return Lab(tmp_path)
