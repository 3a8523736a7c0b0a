"""What the user says of logs: batches, lengths, and what the names of runs and metrics mean."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from bss.errors import InputError, check
from bss.importers.batches import Batches
from bss.importers.log import COLUMNS


@dataclass(frozen=True)
class LogOptions:
    """What the user says of the logs.

    Attributes:
        batches: of the runs, by patterns.
        seq_len: tokens per sequence, where the log does not say it.
        run_regex: searched in a run's name; its groups become columns: `size` is params, `lr`
            peak_lr, `run` the run's name, `batch` its batch, and others as they are called.
        columns: names of metrics, by ours.
        otherwise: batches of runs whose batch nothing else says.
        answered: fields that were asked for.

    Raises:
        InputError: on construction: no regular expression, or one without named groups.
    """

    batches: Batches = field(default_factory=Batches)
    seq_len: int | None = None
    run_regex: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    otherwise: Batches = field(default_factory=Batches)
    answered: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check(self.seq_len is None or self.seq_len >= 1, "--seq-len", self.seq_len, "1 or more")
        if self.run_regex is not None:
            try:
                groups = re.compile(self.run_regex).groupindex
            except re.error as error:
                raise InputError(f"--run-regex {self.run_regex!r}: {error}") from None
            check(bool(groups), "--run-regex", self.run_regex, "named groups, as b(?P<batch>\\d+)")
            for name in set(groups) & {*COLUMNS, "seq_len"} - {"batch", "lr"}:
                raise InputError(f"--run-regex: the log says {name}; rename the group")
        for name in set(self.columns) - {*COLUMNS, "run"}:
            raise InputError(f"--columns: {name} is not read; known are run, {', '.join(COLUMNS)}")

    def named(self, run: str) -> dict[str, str]:
        """What the run's name says, by group."""
        if self.run_regex is None:
            return {}
        groups = re.search(self.run_regex, run)
        if groups is None:
            raise InputError(f"--run-regex {self.run_regex!r} does not match run {run!r}")
        return {name: value for name, value in groups.groupdict().items() if value is not None}
