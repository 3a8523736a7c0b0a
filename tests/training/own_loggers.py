"""Loggers of a user's own, good and bad."""

import json

from bss.training.loggers import Logger

NOT_A_CLASS = 1


class Lines(Logger):
    """Writes a line of JSON for each call, into the run's directory."""

    def begin(self, run, directory, tokens):
        """Notes where."""
        self._file = directory / "told.jsonl"
        self._add("begin", tokens)

    def row(self, row):
        """Notes the row."""
        self._add("row", row)

    def step(self, row):
        """Notes the step."""
        self._add("step", row)

    def end(self, status):
        """Notes how."""
        self._add("end", status.status)

    def _add(self, what, value):
        with self._file.open("a") as file:
            file.write(json.dumps([what, value]) + "\n")


class Raises(Logger):
    """Its service is down."""

    def row(self, row):
        """Raises."""
        raise OSError("the service is down")


class NotInstalled(Logger):
    """Needs what is not there."""

    package, extra = "not_there", "there"
