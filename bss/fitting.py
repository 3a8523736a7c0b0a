"""The fits from what a user has: a table, a file, a directory, or several of them.

`bss fit` prints what these functions return.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

import pandas as pd

from bss import laws
from bss.errors import InputError
from bss.laws.base import DRAWS, Estimate, Fit, Options, as_positive
from bss.laws.es.values import IN_SEQUENCES
from bss.points.curve import default_targets
from bss.points.units import in_nats
from bss.reading import (
    measured_points,
    read_branches,
    read_loss_tables,
    read_own_tables,
    read_point_tables,
    read_run_table,
    read_unchecked,
    selected,
    sources_of,
)
from bss.tables import Reading, check_runs
from bss.tables.columns import Origin
from bss.tables.joining import stacked
from bss.units import parse_tokens

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from bss.laws import EsFit

TABLE = Origin("table")
AnyFit = TypeVar("AnyFit", bound=Fit)
ColumnNames = str | Mapping[str, str] | None
"""The table's names of columns by the names here: {"batch": "gbsz"} or "batch=gbsz"."""


@dataclass(frozen=True, repr=False)
class FitsApart(Mapping[int, Any]):
    """Fits of E(S) of runs with several sequence lengths, one fit for each length.

    Attributes:
        fits: By sequence length, ascending: `fits[2048].save("fit.json")`.
    """

    fits: "dict[int, EsFit]"

    def __getitem__(self, seq_len: int) -> "EsFit":
        if seq_len not in self.fits:
            known = ", ".join(map(str, self.fits))
            raise InputError(f"seq_len: no fit of {seq_len!r}; choose one of {known}")
        return self.fits[seq_len]

    def __iter__(self) -> Iterator[int]:
        return iter(self.fits)

    def __len__(self) -> int:
        return len(self.fits)

    @property
    def answer(self) -> str:
        """The answer of each fit, one line each."""
        return "\n".join(f"seq_len {n}: {fit.answer}" for n, fit in self.fits.items())

    @property
    def warnings(self) -> list[str]:
        """The warnings of each fit, with its sequence length."""
        return [f"seq_len {n}: {text}" for n, fit in self.fits.items() for text in fit.warnings]

    def summary(self) -> pd.DataFrame:
        """Return the summaries of the fits, with a column seq_len."""
        return self._joined(lambda fit: fit.summary())

    def residuals(self) -> pd.DataFrame:
        """Return the residuals of the fits, with a column seq_len."""
        return self._joined(lambda fit: fit.residuals())

    def predict(self, *args: Any, **kwargs: Any) -> pd.DataFrame:
        """Return the predictions of each fit, with a column seq_len; see `EsFit.predict`."""
        return self._joined(lambda fit: fit.predict(*args, **kwargs))

    def best_batch(self, *args: Any, **kwargs: Any) -> dict[int, Estimate]:
        """Return the best batch size of each fit by sequence length; see `EsFit.best_batch`."""
        return {n: fit.best_batch(*args, **kwargs) for n, fit in self.fits.items()}

    def schedule(self, tokens: str | int, **how: Any) -> dict[int, Any]:
        """Return the schedule of each fit by sequence length, as `bss.plan` takes it."""
        return {n: fit.schedule(tokens, **how) for n, fit in self.fits.items()}

    def plot(self, ax: "Sequence[Axes] | None" = None) -> "list[Axes]":
        """Plot each fit on axes, one for each sequence length; see `EsFit.plot`."""
        axes = [None] * len(self) if ax is None else [*ax]
        if len(axes) != len(self):
            raise InputError(f"ax: {len(axes)} axes given; write one for each of {len(self)} fits")
        drawn = [fit.plot(one) for fit, one in zip(self.fits.values(), axes, strict=True)]
        for n, one in zip(self.fits, drawn, strict=True):
            one.set_title(f"{n}-token sequences", loc="right")
        return drawn

    def save(self, path: Any) -> None:
        """Refuse to write several fits as one."""
        raise InputError(f"{path}: a file has one fit; write e.g. fit[{next(iter(self))}].save()")

    def to_dict(self) -> dict[int, Any]:
        """Return the JSON form of each fit by sequence length."""
        return {n: fit.to_dict() for n, fit in self.fits.items()}

    def _joined(self, table: "Callable[[EsFit], pd.DataFrame]") -> pd.DataFrame:
        return stacked([table(fit).assign(seq_len=n) for n, fit in self.fits.items()])

    def __repr__(self) -> str:
        return "\n".join(f"seq_len {n}: {fit!r}" for n, fit in self.fits.items())

    def _repr_html_(self) -> str:
        """Return what a notebook shows of each fit."""
        return "".join(f"<h4>seq_len {n}</h4>{fit._repr_html_()}" for n, fit in self.fits.items())


def _lengths(runs: Any) -> list[int]:
    """Return the sequence lengths of a table; none for anything else, whose check refuses it."""
    if not isinstance(runs, pd.DataFrame) or "seq_len" not in runs or runs.columns.nlevels > 1:
        return []
    column = pd.to_numeric(pd.Series(runs["seq_len"].to_numpy().ravel()), errors="coerce")
    known = column.dropna().unique()
    return sorted({int(n) for n in known if 1 <= n < math.inf and n % 1 == 0})


def fit_es(
    runs: Any,
    targets: Sequence[float] | float | None = None,
    *,
    law: Any = None,
    peak_lr: float | None = None,
    training_loss: bool = False,
    warmup: str | int = 0,
    smooth: str | int | None = None,
    by: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    constraints: str = "",
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit a law E(S): tokens and steps to target losses against batch size.

    Args:
        runs: Runs of one model at several batch sizes: a table, a file (CSV, Parquet) or a
            directory, or a list of them. Columns run, batch, loss (or eval_loss), step or tokens,
            seq_len or batch_tokens; or points, with target_loss, batch and steps.
        targets: Losses in nats; by default five are chosen.
        law: "piecewise", "hyperbola", a surface, `package.module:ATTRIBUTE`, or a law; by default
            the one that predicts left-out batch sizes best.
        peak_lr: Only runs with this peak LR; by default the best LR at each target.
        training_loss: Whether to use the training loss, also if there is a held-out loss.
        warmup: Tokens of LR warm-up, excluded from default targets.
        smooth: Window over a noisy training loss, in tokens.
        by: Columns, e.g. "optimizer,family" or a list: each group of rows has its own fit.
        seq_len: Tokens per sequence, if no column has it.
        columns: The table's names of columns, by the names here.
        keep: Rows to keep, as "COLUMN=VALUE", e.g. "run=web-*"; several are alternatives.
        drop: Rows to leave out, in the same form, as outliers are named.
        constraints: Fixed or bounded parameters, e.g. "L_0=1.69, alpha=.2:1".
        level: Coverage of the intervals.
        resamples: Refits to resampled runs, 500 by default.
        seed: Of the resampling.
        options: level, resamples and seed as one value, in their place.

    Returns:
        The fit: `answer`, `summary()`, `predict(loss=, batch=)`, `plot()`, `schedule(tokens)`. If a
        DataFrame has several sequence lengths, one fit for each, by length (`FitsApart`). With `by`
        a mapping from group to fit, with `differences()`, `penalties()` and `plot()`.

    Raises:
        InputError: If a column is missing or a row is refused, runs are of several conditions, or
            no run reaches a target.

    Source: derived here; E(S) is of Zhou et al. (arXiv 2601.05034).

    Examples:
        >>> points = [{"target_loss": 2.0, "batch": b, "steps": 900 / b + 9 * b**.2, "seq_len": 64}
        ...           for b in (4, 8, 16, 32)]
        >>> fit_es(pd.DataFrame(points), resamples=20).best_batch().status
        'at_boundary'
    """
    how: dict[str, Any] = {
        "peak_lr": peak_lr, "training_loss": training_loss, "warmup": warmup, "smooth": smooth,
        "seq_len": seq_len, "columns": columns, "keep": keep, "drop": drop,
    }  # fmt: skip
    given: dict[str, Any] = {**how, "law": law, "constraints": constraints, "level": level}
    given |= {"resamples": resamples, "seed": seed, "options": options}
    if by is not None:
        return _by_groups(fit_es, runs, by, {**given, "targets": targets})
    lengths = _lengths(runs) if columns is None and seq_len is None else []
    if len(lengths) > 1:
        parts = {n: runs.loc[pd.to_numeric(runs["seq_len"]) == n] for n in lengths}
        fits = {n: fit_es(part, targets, **given) for n, part in parts.items()}
        return FitsApart({n: fit for n, fit in fits.items() if isinstance(fit, laws.EsFit)})
    points, warnings = measure_points(runs, targets, **how)
    options = options or _options(resamples or 500, level, seed, DRAWS)
    source = "" if bool(points["eval_spacing"].notna().any()) else "points"
    if bool(points["seq_len"].isna().all()):
        source = IN_SEQUENCES
        sequences = points["steps"] * points["batch"]
        points = points.assign(seq_len=1, tokens_to_target=sequences)
        warnings = [*warnings, "no column seq_len: tokens are sequences; give --seq-len"]
    fit = laws.fit_es(points, law, constraints=constraints, options=options)
    return _warned(replace(fit, source=source), warnings)


def fit_critical(
    points: Any,
    *,
    overhead: float = 0.2,
    reference: float | str = 256,
    unit: str = "sequences",
    by: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    constraints: str = "",
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit critical batch sizes, and their law in model size and tokens.

    Args:
        points: Steps to a target loss: a table, a file or a directory, or a list of them. Columns
            model, params or params_m, tokens, target_loss, batch (sequences), steps.
        overhead: Tokens above linear scaling that are allowed, 0.2 for 20%.
        reference: A batch size that scales linearly: 256, "smallest" of each curve, or "10%" of
            each b/a.
        unit: Of batch sizes: "sequences", or "tokens" to compare context lengths.
        by: Columns, for a fit of each group of rows, as in `fit_es`.
        seq_len: As in `fit_es`; so are columns, keep, drop, level, seed and options.
        columns: See `fit_es`.
        keep: See `fit_es`.
        drop: See `fit_es`.
        constraints: None can be set: S = a + b/B has no further parameter.
        level: Coverage of the intervals.
        resamples: Refits to resampled steps, 2,000 by default.
        seed: Of the resampling.
        options: The same as one value.

    Raises:
        InputError: If a column is missing, a row is refused, or a setting is out of range.

    Source: Zhang et al. (arXiv 2410.21676); intervals are derived here.

    Examples:
        >>> points = [{"model": "a", "params": 1e8, "tokens": 1e9, "target_loss": 3.0, "batch": b,
        ...            "steps": 1000 * (1 + 64 / b)} for b in (8, 16, 32, 64, 128, 256)]
        >>> fit = fit_critical(pd.DataFrame(points), reference="smallest", resamples=50)
        >>> round(fit.fits[0].B_crit.value)
        64
    """
    chosen = options or _options(resamples or 2000, level, seed)
    given: dict[str, Any] = {"overhead": overhead, "reference": reference, "unit": unit}
    given |= {"constraints": constraints, "options": chosen}
    if by is not None:
        rows = {"keep": keep, "drop": drop, "columns": columns, "seq_len": seq_len}
        return _by_groups(fit_critical, points, by, given | rows)
    read, warnings = read_point_tables(sources_of(points, "points"), reading(columns, seq_len))
    if "run" in read:
        # Budgets of runs differ by the remainder of a step.
        cell = ["model", "params", "target_loss", "lr_phase", "weights", "seq_len"]
        largest = read.groupby(cell, dropna=False)["budget_tokens"].transform("max")
        read = read.assign(budget_tokens=largest)
    fit = laws.fit_critical(selected(read, _texts(keep), _texts(drop)), **given)
    return _warned(fit, warnings)


def fit_loss(
    losses: Any,
    *,
    forms: Sequence[str] | None = None,
    equal: str | None = None,
    by: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    constraints: str = "",
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit the law of final losses L(N, D, B) over models, budgets, batch sizes and LRs.

    Args:
        losses: One row per finished run: a table, a file or a directory, or a list of them.
            Columns params, tokens, loss (nats), batch and seq_len or batch_tokens; lr if it was
            varied. Of loss curves the last losses are taken.
        forms: Names of the forms to choose from, or `package.module:ATTRIBUTE`; by default all that
            apply.
        equal: A column of costs that groups of rows have equal, e.g. "seconds" of runs of 600 s.
            The best batch size at equal cost is fitted instead of the law.
        by: Columns, e.g. "optimizer,family" or a list: each group of rows has its own fit. A group
            with one batch size is left out.
        seq_len: As in `fit_es`; so are columns, keep, drop, constraints, level, seed and options.
        columns: See `fit_es`.
        keep: See `fit_es`.
        drop: See `fit_es`.
        constraints: Fixed or bounded parameters, e.g. "L_0=1.69".
        level: Coverage of the intervals.
        resamples: Draws, 300 by default.
        seed: Of the draws.
        options: The same as one value.

    Returns:
        A `LossFit`; with `equal` an `EqualFit`; with `by` a mapping from group to fit, with
        `differences()`, `penalties()` and `plot()`.

    Raises:
        InputError: If a column is missing, a row is refused, or there are too few batch sizes.

    Source: derived here.

    Examples:
        >>> fit_loss(pd.DataFrame({"params": [1e8], "tokens": [1e9], "batch": [8], "loss": [3.0]}))
        Traceback (most recent call last):
        bss.errors.InputError: table: no column seq_len; it has params, tokens, batch, loss; ...
    """
    how = reading(columns, seq_len)
    if equal is not None:
        if forms or constraints:
            raise InputError("equal: the best batch at equal cost has no form; leave forms out")
        chosen = options or _options(resamples or 500, level, seed)
        return _fit_equal(losses, equal, how, _texts(keep), _texts(drop), chosen, by)
    read, warnings = read_loss_tables(sources_of(losses, "losses"), how, laws.check_losses)
    kept = selected(read, _texts(keep), _texts(drop))
    hint = laws.equal_hint(kept)
    chosen = options or _options(resamples or 300, level, seed)

    def of(rows: pd.DataFrame) -> Fit:
        fit = laws.fit_loss(rows, forms=forms, constraints=constraints, options=chosen)
        return _warned(fit, [*warnings, *filter(None, (hint,))])

    try:
        return _whole_or_by(kept, by, of, batches=2)
    except InputError as error:
        raise InputError("; ".join(filter(None, (str(error), hint)))) from None


def _fit_equal(
    losses: Any,
    column: str,
    how: Reading,
    keep: Sequence[str],
    drop: Sequence[str],
    options: Options,
    by: str | Sequence[str] | None,
) -> Any:
    """Fit the best batch size of runs of equal cost."""

    def check(frame: pd.DataFrame, origin: Origin = TABLE) -> pd.DataFrame:
        return laws.check_equal(frame, column, origin)

    def last(runs: pd.DataFrame) -> pd.DataFrame:
        return check(laws.last_losses(runs))

    read, warnings = read_loss_tables(sources_of(losses, "losses"), how, check, last)

    def of(rows: pd.DataFrame) -> Fit:
        return _warned(laws.fit_equal(rows, column, options=options), warnings)

    return _whole_or_by(selected(read, keep, drop), by, of, batches=2)


def fit_lr(
    losses: Any,
    *,
    by: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    constraints: str = "",
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit the best peak LR of each model size, budget and batch size, and its law in them.

    Args:
        losses: One row per finished run: a table, a file or a directory, or a list of them.
            Columns lr (or peak_lr) and loss (nats); params, tokens, and batch or batch_tokens if
            they vary. One batch size is enough. Of loss curves the last losses are taken.
        by: Columns, e.g. "optimizer" or a list: each group of rows has its own fit.
        seq_len: As in `fit_es`; so are columns, keep, drop, level, seed and options.
        columns: See `fit_es`.
        keep: See `fit_es`.
        drop: See `fit_es`.
        constraints: None can be set: the law has no further parameter.
        level: Coverage of the intervals.
        resamples: Not used: losses are redrawn 500 times.
        seed: Of the redrawn losses.
        options: The same as one value.

    Returns:
        An `LrFit`; with `by` a mapping from group to `LrFit`, with `differences()` and `plot()`.

    Raises:
        InputError: If a column is missing, a row is refused, or no size has two LRs.

    Source: derived here.

    Examples:
        >>> rows = [{"lr": lr, "loss": 3 + math.log(lr / 0.003) ** 2 / 9}
        ...         for lr in (0.001, 0.002, 0.004, 0.008)]
        >>> round(fit_lr(pd.DataFrame(rows)).best_lr().value, 6)
        0.003
    """
    how = reading(columns, seq_len)
    read, warnings = read_loss_tables(sources_of(losses, "losses"), how, laws.check_rates)
    kept = selected(read, _texts(keep), _texts(drop))
    chosen = options or _options(resamples or 500, level, seed)

    def of(rows: pd.DataFrame) -> Fit:
        return _warned(laws.fit_lr(rows, constraints=constraints, options=chosen), warnings)

    return _whole_or_by(kept, by, of)


def fit_own(
    table: Any,
    law: Any,
    *,
    by: str | Sequence[str] | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    constraints: str = "",
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit a custom law: a formula of columns, its parameters and its unit of replication.

    Args:
        table: A table or a file (CSV, Parquet), or a list of them, with the columns of the law.
        law: A `bss.OwnLaw`, or its name as `package.module:ATTRIBUTE`.
        by: Columns, for a fit of each group of rows, as in `fit_es`.
        columns: The table's names of columns, by the names of the law.
        keep: See `fit_es`.
        drop: See `fit_es`.
        constraints: Fixed or bounded parameters, e.g. "L_0=1.69".
        level: Coverage of the intervals.
        resamples: Refits to resampled values, 200 by default.
        seed: Of the resampling.
        options: The same as one value.

    Raises:
        InputError: If a column is missing, two parameters collide, there are fewer rows than
            parameters, or a constant fits as well.

    Examples:
        >>> class Power(laws.OwnLaw):
        ...     formula, measured, columns = "y = A·N^a", "y", ("params",)
        ...     parameters = (laws.Parameter("A", 0.1, 10.0), laws.Parameter("a", 0.0, 2.0))
        ...     def value(self, p, x):
        ...         return p.A * x["params"] ** p.a
        >>> rows = pd.DataFrame({"params": [1.0, 2.0, 4.0, 8.0], "y": [3.0, 4.2, 6.1, 8.4]})
        >>> round(fit_own(rows, Power("power"), resamples=20).values["a"], 2)
        0.5
    """
    rows = read_own_tables(sources_of(table, "table"), columns)
    chosen = options or _options(resamples or DRAWS, level, seed)

    def of(group: pd.DataFrame) -> Fit:
        return laws.fit_own(group, law, constraints=constraints, options=chosen)

    return _whole_or_by(selected(rows, _texts(keep), _texts(drop)), by, of)


def fit_curve(
    runs: Any,
    *,
    clock: str | None = None,
    warmup: str | int = 0,
    since: str | int = 0,
    by: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    constraints: str = "",
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit the functional scaling law to loss curves under any batch and LR schedule.

    Args:
        runs: Loss curves of one model: a table, a file or a directory, or a list of them. Columns
            run, batch, lr, loss or eval_loss, step or tokens, seq_len or batch_tokens. Some runs
            must change their batch size or LR. Rows without a loss give the schedule only.
        clock: "sgd" or "adam": the time variable; by default the better one for left-out runs.
        warmup: Tokens of LR warm-up, whose losses are left out.
        since: Tokens before which losses are left out, or a percentage of the longest run.
        by: Columns, for a fit of each group of rows, as in `fit_es`.
        seq_len: As in `fit_es`; so are columns, keep, drop, constraints, level, seed and options.
        columns: See `fit_es`.
        keep: See `fit_es`.
        drop: See `fit_es`.
        constraints: Fixed or bounded parameters, e.g. "L_0=1.69, s=.2:1".
        level: Coverage of the intervals.
        resamples: Refits to resampled losses, 60 by default.
        seed: Of the resampling.
        options: The same as one value.

    Raises:
        InputError: If a column is missing, a row is refused, or too few runs are left.

    Source: Li et al. (arXiv 2509.19189); the exponents of batch size and LR are derived here.

    Examples:
        >>> fit_curve(pd.DataFrame({"run": ["a"], "batch": [8], "step": [1], "seq_len": [64]}))
        Traceback (most recent call last):
        bss.errors.InputError: ...
    """
    given: dict[str, Any] = {"clock": clock, "constraints": constraints}
    given["options"] = options or _options(resamples or 60, level, seed)
    if by is not None:
        rows = {"keep": keep, "drop": drop, "columns": columns, "seq_len": seq_len}
        return _by_groups(fit_curve, runs, by, {**given, **rows, "warmup": warmup, "since": since})
    read, warnings = read_run_table(sources_of(runs), reading(columns, seq_len), need_loss=False)
    found, units = in_nats(read)
    longest = max(int(n) for n in found["tokens"])
    fit = laws.fit_curve(
        selected(found, _texts(keep), _texts(drop)),
        warmup=parse_tokens(warmup, field="warmup"),
        since=parse_tokens(since, field="since", total=longest),
        **given,
    )
    return _warned(fit, [*warnings, *units])


def fit_branches(
    branches: Any,
    *,
    tolerance: float = 0.02,
    by: str | Sequence[str] | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
    level: float = 0.90,
    resamples: int | None = None,
    seed: int = 0,
    options: Options | None = None,
) -> Any:
    """Fit the penalty of larger batch sizes along a run, from branches at its checkpoints.

    Args:
        branches: Branches of one run: a table, a file or a directory, or a list of them. Columns
            fork (tokens at the checkpoint), batch, loss, tokens (at the end), seq_len, run. At each
            checkpoint one branch has the batch size of the run, and others a larger one, for the
            same tokens. The last losses of loss curves are taken.
        tolerance: Penalty that is allowed, in nats.
        by: Columns, for a fit of each group of rows, as in `fit_es`.
        seq_len: As in `fit_es`; so are columns, keep, drop, level and seed.
        columns: See `fit_es`.
        keep: See `fit_es`.
        drop: See `fit_es`.
        level: Coverage of the intervals.
        resamples: Draws of the penalty curve, 400 by default.
        seed: Of the draws.
        options: The same as one value.

    Returns:
        The fit: `answer`, `summary()`, `penalties()`, `best_batch(tokens)`, `plot()`,
        `schedule(tokens)`.

    Raises:
        InputError: If a column is missing, or no checkpoint has branches at two batch sizes.

    Source: Merrill et al. (arXiv 2505.23971); the last crossing is derived here.

    Examples:
        >>> rows = [{"fork": at * 10**8, "batch": b, "seq_len": 64, "tokens": at * 10**8 + 10**7,
        ...          "loss": 3 + (b - 8) * 0.01 / at} for at in range(1, 9) for b in (8, 16)]
        >>> fit = fit_branches(pd.DataFrame(rows))
        >>> fit.best_batch(3e8).value, fit.best_batch(5e8).value
        (8.0, 16.0)
    """
    read, origin, warnings = read_branches(
        sources_of(branches, "branches"), reading(columns, seq_len)
    )
    chosen = options or _options(resamples or 400, level, seed)

    def of(rows: pd.DataFrame) -> Fit:
        source = Origin(origin.source)
        fit = laws.fit_branches(rows, tolerance=tolerance, options=chosen, source=source)
        return _warned(fit, warnings)

    return _whole_or_by(selected(read, _texts(keep), _texts(drop)), by, of)


def measure_points(
    runs: Any,
    targets: Sequence[float] | float | None = None,
    *,
    peak_lr: float | None = None,
    training_loss: bool = False,
    warmup: str | int = 0,
    smooth: str | int | None = None,
    seq_len: int | None = None,
    columns: ColumnNames = None,
    keep: str | Sequence[str] = (),
    drop: str | Sequence[str] = (),
) -> tuple[pd.DataFrame, list[str]]:
    """Return steps and tokens to target losses, one row per run and target, and warnings.

    If a batch size has several peak LRs, only its best LR is kept.

    Args:
        runs: As `fit_es` takes them.
        targets: Losses in nats; by default five are chosen.
        peak_lr: Only runs with this peak LR; by default the best LR at each target.
        training_loss: Whether to use the training loss, also if there is a held-out loss.
        warmup: Tokens of LR warm-up, excluded from default targets.
        smooth: Window over a noisy training loss, in tokens.
        seq_len: Tokens per sequence, if no column has it.
        columns: The table's names of columns, by the names here.
        keep: Rows to keep, as "COLUMN=VALUE".
        drop: Rows to leave out, in the same form.

    Raises:
        InputError: As `fit_es`.

    Source: derived here.

    Examples:
        >>> runs = [{"run": f"b{b}", "batch": b, "seq_len": 64, "step": s, "loss": 2 + 9 / s**.5}
        ...         for b in (4, 8) for s in range(20, 420, 20)]
        >>> points, warnings = measure_points(pd.DataFrame(runs), [2.6])
        >>> points["batch"].tolist(), points["reached"].tolist()
        ([4, 8], [True, True])
    """
    window = None if smooth is None else parse_tokens(smooth, field="smooth")
    if peak_lr is not None:
        (peak_lr,) = as_positive("peak_lr", [peak_lr]).tolist()
    return measured_points(
        sources_of(runs),
        reading(columns, seq_len),
        targets=_losses(targets),
        warmup=parse_tokens(warmup, field="warmup"),
        smooth=window,
        training_loss=training_loss,
        peak_lr=peak_lr,
        keep=_texts(keep),
        drop=_texts(drop),
    )


def reading(columns: ColumnNames, seq_len: int | None) -> Reading:
    """Return how a table is read."""
    if seq_len is not None:
        seq_len = parse_tokens(seq_len, field="seq_len")
    if columns is None or isinstance(columns, str):
        return Reading.parse(columns, seq_len)
    if not isinstance(columns, Mapping):
        raise InputError(f"columns: {columns!r} given; write a dict, e.g. {{'batch': 'gbsz'}}")
    return Reading(columns, seq_len)


def _by_groups(
    fit: Callable[..., Any], data: Any, by: str | Sequence[str], given: dict[str, Any]
) -> laws.GroupFits:
    """Return the fit of each group of the rows of tables, by a function that reads its rows.

    Fits of E(S) without targets share those that are chosen for all rows.
    """
    how = reading(given.pop("columns"), given.pop("seq_len"))
    table, warnings = read_unchecked(sources_of(data), how)
    kept = selected(table, _texts(given.pop("keep")), _texts(given.pop("drop")))
    if "targets" in given and given["targets"] is None and "target_loss" not in kept:
        group = kept.groupby(laws.columns_of(by, kept)).ngroup().astype(str)
        every = check_runs(kept.assign(run=group + "/" + kept["run"].astype(str)))
        warmup = parse_tokens(given["warmup"], field="warmup")
        given["targets"] = default_targets(in_nats(every)[0], warmup_tokens=warmup)

    def of(rows: pd.DataFrame) -> Any:
        found = fit(rows, **given)
        if isinstance(found, FitsApart):
            lengths = ", ".join(map(str, found))
            raise InputError(f"sequence lengths {lengths} are mixed; add seq_len to by")
        return _warned(found, warnings)

    return laws.fit_groups(kept, by, of)


def _whole_or_by(
    table: pd.DataFrame,
    by: str | Sequence[str] | None,
    fit: Callable[[pd.DataFrame], Fit],
    batches: int = 1,
) -> Any:
    """Return the fit of a table, or of each group of its rows."""
    return fit(table) if by is None else laws.fit_groups(table, by, fit, batches=batches)


def _losses(targets: Any) -> list[float] | None:
    """Return target losses; None for none, whose default is chosen."""
    if targets is None:
        return None
    listed = targets if isinstance(targets, Iterable) else [targets]
    if isinstance(targets, str):
        listed = targets.split(",")
    return as_positive("targets", listed).tolist() or None


def _texts(rows: str | Sequence[str]) -> list[str]:
    several = [rows] if isinstance(rows, str) else rows
    if not isinstance(several, Sequence) or not all(isinstance(one, str) for one in several):
        raise InputError(f"keep, drop: {rows!r} given; write COLUMN=VALUE, e.g. 'run=web-*'")
    return [*several]


def _options(resamples: int, level: float, seed: int, draws: int = 0) -> Options:
    return Options(resamples, level, seed, draws)


def _warned(fit: AnyFit, warnings: Sequence[str]) -> AnyFit:
    """Return a fit with further warnings."""
    return replace(fit, warnings=(*fit.warnings, *warnings))
