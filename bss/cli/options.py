"""Options that several commands share, a frozen dataclass per group of the help page."""

import math
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

from cyclopts import Group, Parameter, Token, validators

from bss.errors import InputError
from bss.files import read_json
from bss.laws import FITS, fit_from_dict
from bss.rules import Setting
from bss.units import parse_tokens

if TYPE_CHECKING:
    import pandas as pd

    from bss.laws.base import Options
    from bss.tables import Reading


def parse_count(_: Any, tokens: Sequence[Token]) -> int:
    """Return the count of a text such as 10M, at least 1."""
    token = tokens[0]
    count = parse_tokens(token.value, field=token.keyword or "count")
    if not count:
        raise InputError(f"{token.keyword} 0: expected a count above 0, e.g. 10M")
    return count


Count = Annotated[int, Parameter(converter=parse_count, accepts_keys=False)]
"""A positive count, written as 10M, 2^20 or 1500."""


def parse_positive(_: Any, tokens: Sequence[Token]) -> float:
    """Return the positive finite number of a text."""
    text = tokens[0].value
    with suppress(ValueError):
        if 0 < float(text) < math.inf:
            return float(text)
    raise InputError(f"{tokens[0].keyword} {text}: expected a positive number, e.g. 4e-3")


Positive = Annotated[float, Parameter(converter=parse_positive, accepts_keys=False)]
"""A positive number."""


def parse_list(kind: Any, tokens: Sequence[Token]) -> tuple[Any, ...]:
    """Return the positive numbers of a text such as 1.8,1.7."""
    token = tokens[-1]
    with suppress(ValueError):
        values = tuple(get_args(kind)[0](part) for part in token.value.split(","))
        if all(0 < value < math.inf for value in values):
            return values
    raise InputError(f"{token.keyword} {token.value!r}: expected positive numbers, e.g. 8,32")


Losses = Annotated[tuple[float, ...], Parameter(converter=parse_list)]
"""Losses in nats, written as 1.8,1.7."""

Sizes = Annotated[tuple[int, ...], Parameter(converter=parse_list)]
"""Batch sizes in sequences, written as 8,32."""

Resamples = Annotated[int, Parameter(validator=validators.Number(gte=10))]
"""A number of refits, enough for an interval."""

Repeated = Annotated[tuple[str, ...], Parameter(consume_multiple=False)]
"""An option that may be given several times."""


@Parameter(name="*", group=Group("Planned run", sort_key=1))
@dataclass(frozen=True)
class RunOptions:
    """The planned run.

    Attributes:
        params: non-embedding parameters, e.g. 85M
        tokens: token budget, e.g. 2.5B
        seq_len: tokens per sequence, e.g. 2048
        d_model: width, for rules that need it
        loss: expected final loss in nats per token, for rules that need it
        noise_scale: gradient noise scale in tokens, for rules that need it
        lr: peak learning rate, for rules and fits that need it
    """

    params: Count
    tokens: Count
    seq_len: int
    d_model: int | None = None
    loss: float | None = None
    noise_scale: Count | None = None
    lr: float | None = None

    def setting(self, **others: Any) -> Setting:
        """Return the run as rules take it."""
        return Setting(**vars(self) | others)


@Parameter(name="*", group=Group("Reading the table", sort_key=2))
@dataclass(frozen=True)
class TableOptions:
    """Options for reading a table.

    Attributes:
        columns: names of its columns, OURS=THEIRS: params=N,tokens=D,batch=gbsz
        seq_len: tokens per sequence, where no column has it
    """

    columns: str | None = None
    seq_len: int | None = None

    def reading(self) -> "Reading":
        """Return how the table is read."""
        from bss.tables import Reading

        return Reading.parse(self.columns, self.seq_len)


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
        return {
            "targets": self.targets or None,
            "warmup": parse_tokens(self.warmup, field="--warmup"),
            "smooth": self.smooth,
        }


def read_fit(path: Path, kinds: Collection[str] = tuple(FITS), option: str = "--from") -> Any:
    """Read a fit of one of some kinds.

    Raises:
        InputError: the file has no fit, or a fit of another kind, or is damaged.
    """
    entry = read_json(path, "save a fit with `bss fit … --json`", option)
    if (kind := str(entry.get("kind"))) in kinds:
        return fit_from_dict(entry)
    name, wanted = f"{option} {path}".strip(), " or ".join(sorted(kinds))
    raise InputError(f"{name}: is of kind {kind}, no fit of kind {wanted}; `bss fit` makes these")


def read_run_table(
    path: Path, how: "Reading", *, need_loss: bool = True, only_finished: bool = False
) -> "tuple[pd.DataFrame, list[str]]":
    """Read a run table; return it with warnings.

    Args:
        path: CSV or Parquet; a directory with runs.parquet; or one of run directories, whose runs
            are read as far as they got.
        how: names of the columns.
        need_loss: as in `bss.tables.check_runs`.
        only_finished: exclude unfinished runs of a directory.

    Raises:
        InputError: no such file, no trained run, or a refused line.
    """
    from bss.tables import check_runs, read_runs

    file = path / "runs.parquet" if path.is_dir() else path
    if not path.is_dir() or file.is_file():
        return read_runs(file, how, need_loss=need_loss), []
    from bss.sweeps.table import trained_table
    from bss.tables.columns import Origin

    frame, warnings = trained_table(path, only_finished=only_finished)
    frame = how.read(frame, Origin(str(path)))
    return check_runs(frame, str(path), need_loss=need_loss), warnings


def read_curves(
    path: Path, table: TableOptions, targets: TargetOptions
) -> "tuple[pd.DataFrame, list[str]]":
    """Read a run table with the losses that the options ask for; return it with warnings."""
    runs, warnings = read_run_table(path, table.reading())
    if targets.training_loss and "eval_loss" in runs:
        if runs["loss"].equals(runs["eval_loss"]):
            raise InputError("--training-loss: the runs have only held-out losses; leave it out")
        runs = runs.drop(columns="eval_loss")
    return runs, warnings


def measured_points(
    path: Path, table: TableOptions, targets: TargetOptions, at_rate: float | None
) -> "tuple[pd.DataFrame, list[str]]":
    """Measure steps and tokens to the targets; return the points with warnings.

    A table of points is read unchanged. If a batch size has several peak LRs, each target uses the
    best one, or the one that `at_rate` selects.
    """
    from bss.points.measuring import measure_points, tuned_points
    from bss.tables import holds_points, read_points

    if path.is_file() and holds_points(path, table.reading()):
        points = read_points(path, table.reading())
        return tuned_points(points, targets.measuring()["targets"], at_rate)
    runs, warnings = read_curves(path, table, targets)
    points, more = measure_points(runs, **targets.measuring(), at_rate=at_rate)
    return points, [*warnings, *more]


@Parameter(name="*", group=Group("Fit", sort_key=4))
@dataclass(frozen=True)
class FitOptions:
    """Options for fitting a law.

    Attributes:
        resamples: refits to resampled runs, for intervals; 10 or more
        level: coverage of the intervals
        seed: of the resampling
        drop: leave rows out, by COLUMN=VALUE joined by commas, as an outlier is named
        keep: leave out all rows but these, in the same form, e.g. model=8B
        fix: fix a parameter, e.g. L_0=1.69
        bound: bound a parameter, e.g. L_0=1.5:1.8
    """

    resamples: Resamples | None = None
    level: float = 0.90
    seed: int = 0
    drop: Repeated = ()
    keep: Repeated = ()
    fix: Repeated = ()
    bound: Repeated = ()

    def options(self, resamples: int, draws: int = 0) -> "Options":
        """Return how intervals are made; `resamples` is the default of the kind of fit."""
        from bss.laws.base import Options

        return Options(self.resamples or resamples, self.level, self.seed, draws)

    def selected(self, table: "pd.DataFrame") -> "pd.DataFrame":
        """Return the rows of --keep without those of --drop."""
        from bss.tables.reading import only, without

        return without(only(table, self.keep), self.drop)

    def constraints(self) -> str:
        """Return the parameters that are fixed or bounded.

        Raises:
            InputError: a text is not a constraint.
        """
        from bss.laws.base import parse_ranges

        constraints = ", ".join([*self.fix, *self.bound])
        try:
            parse_ranges(constraints)
        except InputError as error:
            raise InputError(f"--fix, --bound: {error}") from None
        return constraints
