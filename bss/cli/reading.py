"""Options for tables of runs and points, and for fits of them."""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from bss.cli.options import Count, Losses, NamedLaw, Number, Repeated, Resamples
from bss.errors import InputError
from bss.laws import FITS
from bss.laws.groups import one_fit
from bss.laws.problem import parse_ranges
from bss.tables import Reading
from bss.units import parse_tokens

Tables = Annotated[list[Path], Parameter(name="RUNS")]
"""Run tables, which are read as one."""


PointTables = Annotated[list[Path], Parameter(name="POINTS")]
"""Tables of points, which are read as one."""


@Parameter(name="*", group=Group("Fit", sort_key=0))
@dataclass(frozen=True)
class GroupOption:
    """The group of a fit with --by.

    Attributes:
        group: of a fit with --by: its columns and values, e.g. optimizer=Lion,family=low
    """

    group: str | None = None

    def read(
        self,
        named_law: NamedLaw,
        path: Path,
        kinds: Collection[str] = tuple(FITS),
        field: str = "fit",
    ) -> tuple[str, Any]:
        """Return the label of the group, "" without groups, and its fit."""
        return one_fit(named_law.read(path, kinds, field), self.group, field, kinds)


def in_group(label: str, answer: str) -> str:
    """Return the answer of a group with its label; the answer as it is without groups."""
    return f"{label}: {answer}" if label else answer


@Parameter(name="*", group=Group("Reading the table", sort_key=2))
@dataclass(frozen=True)
class TableOptions:
    """Options for reading a table.

    Attributes:
        columns: names of its columns, OURS=THEIRS: params=N,tokens=D,batch=gbsz
        seq_len: tokens per sequence, where no column has it
    """

    columns: str | None = None
    seq_len: Count | None = None

    def reading(self) -> Reading:
        """Return how the table is read."""
        return Reading.parse(self.columns, self.seq_len)

    def given(self) -> dict[str, Any]:
        """Return the options as `bss.fitting` takes them."""
        return {"columns": self.columns, "seq_len": self.seq_len}


@Parameter(name="*", group=Group("Targets", sort_key=3))
@dataclass(frozen=True)
class TargetOptions:
    """Options for measuring steps and tokens to a target loss.

    Attributes:
        targets: losses in nats, e.g. 1.8,1.7; five are chosen by default
        training_loss: use the training loss of all runs, where only some have a held-out loss
        smooth: window over a noisy training loss, in tokens
        warmup: tokens of warm-up, excluded from default targets
    """

    targets: Losses = ()
    training_loss: bool = False
    smooth: Count | None = None
    warmup: str = "0"

    def measuring(self) -> dict[str, Any]:
        """Return keyword arguments of `bss.points.measuring.measure_points`."""
        warmup = parse_tokens(self.warmup, field="--warmup")
        return {"targets": self.targets or None, "warmup": warmup, "smooth": self.smooth}

    def given(self) -> dict[str, Any]:
        """Return the options as `bss.fitting` takes them."""
        return {**self.measuring(), "training_loss": self.training_loss}


@Parameter(name="*", group=Group("Rows", sort_key=4))
@dataclass(frozen=True)
class RowOptions:
    """Options for leaving rows of a table out.

    Attributes:
        drop: leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named
        keep: leave out all rows but these, in the same form, e.g. model=8B or run=web-*
    """

    drop: Repeated = ()
    keep: Repeated = ()

    def rows(self) -> dict[str, Any]:
        """Return the rows as `bss.fitting` takes them."""
        return {"keep": self.keep, "drop": self.drop}


@Parameter(name="*", group=Group("Fit", sort_key=4))
@dataclass(frozen=True)
class DrawOptions(RowOptions):
    """Options for intervals from draws of a curve.

    Attributes:
        resamples: draws of the curve, for intervals; 10 or more
        level: coverage of the intervals
        seed: of the draws
        by: columns, e.g. optimizer,family: a fit for each group of rows, and their differences
        drop: leave rows out, by COLUMN=VALUE joined by commas
        keep: leave out all rows but these, in the same form
    """

    resamples: Resamples | None = None
    level: Number = 0.90
    seed: int = 0
    by: str | None = None

    def given(self) -> dict[str, Any]:
        """Return the options as `bss.fitting.fit_branches` takes them."""
        return {
            **self.rows(),
            "resamples": self.resamples,
            "level": self.level,
            "seed": self.seed,
            "by": self.by,
        }


@Parameter(name="*", group=Group("Fit", sort_key=4))
@dataclass(frozen=True)
class FitOptions(DrawOptions):
    """Options for fitting a law.

    Attributes:
        resamples: refits to resampled runs, for intervals; 10 or more
        level: coverage of the intervals
        seed: of the resampling
        by: columns, e.g. optimizer,family: a fit for each group of rows, and their differences
        drop: leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named
        keep: leave out all rows but these, in the same form, e.g. model=8B or run=web-*
        fix: fix a parameter, e.g. L_0=1.69
        bound: bound a parameter, e.g. L_0=1.5:1.8
    """

    fix: Repeated = ()
    bound: Repeated = ()

    def given(self) -> dict[str, Any]:
        """Return the options as every function of `bss.fitting` takes them."""
        return {**super().given(), "constraints": self.constraints}

    @property
    def constraints(self) -> str:
        """The parameters that are fixed or bounded; InputError for a text that is not a
        constraint."""
        constraints = ", ".join([*self.fix, *self.bound])
        try:
            parse_ranges(constraints)
        except InputError as error:
            raise InputError(f"--fix, --bound: {error}") from None
        return constraints
