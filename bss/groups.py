"""Fits of groups of rows: one per optimizer, or per value of any other columns."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from bss.errors import InputError
from bss.laws import LossFit, LrFit

GroupFit = LossFit | LrFit


@dataclass(frozen=True, repr=False)
class GroupFits(Mapping[Any, GroupFit]):
    """One fit per group of rows: `fits["Lion"]`, or `fits["Lion", "low_wd"]` of two columns.

    Attributes:
        by: The columns that groups differ in.
        fits: By the values of these columns.
        left_out: A sentence per group that has no fit.
    """

    by: tuple[str, ...]
    fits: dict[tuple[Any, ...], GroupFit]
    left_out: tuple[str, ...]

    def __getitem__(self, group: Any) -> GroupFit:
        key = group if isinstance(group, tuple) else (group,)
        if key not in self.fits:
            known = "; ".join(_label(self.by, one) for one in self.fits)
            raise InputError(f"no fit of {_label(self.by, key)}; choose one of {known}")
        return self.fits[key]

    def __iter__(self) -> Iterator[Any]:
        return (key if len(self.by) > 1 else key[0] for key in self.fits)

    def __len__(self) -> int:
        return len(self.fits)

    @property
    def answer(self) -> str:
        """The answer of each fit, one line each."""
        return "\n".join(f"{_label(self.by, key)}: {fit.answer}" for key, fit in self.fits.items())

    @property
    def warnings(self) -> list[str]:
        """The groups without a fit, and the warnings of fits. A shared warning is there once."""
        groups: dict[str, list[str]] = {}
        for key, fit in self.fits.items():
            for text in (*fit.warnings, *(f"outlier: {one}" for one in fit.outliers)):
                groups.setdefault(text, []).append(_label(self.by, key))
        shared = [text for text, of in groups.items() if len(of) == len(self)]
        alone = [
            f"{one}: {text}" for text, of in groups.items() for one in of if text not in shared
        ]
        return [*self.left_out, *shared, *alone]

    def summary(self) -> pd.DataFrame:
        """Return the summaries of the fits, after the columns of the groups."""
        return self._joined(lambda fit: fit.summary())

    def penalties(self) -> pd.DataFrame:
        """Return what each batch size costs against the best of its group, in measured losses.

        Returns:
            The columns of the groups, params, tokens, batch_tokens, loss (nats, the lowest of this
            batch size) and penalty: loss minus the lowest of this group, params and tokens. Rows
            that a fit left out are not in it.

        Raises:
            InputError: If the fits are not of final losses.
        """
        return self._joined(_penalties)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: each group with the JSON form of its fit."""
        groups = [
            {"group": _named(self.by, key), "fit": f.to_dict()} for key, f in self.fits.items()
        ]
        return {"by": [*self.by], "groups": groups, "left_out": [*self.left_out]}

    def _joined(self, table: Callable[[GroupFit], pd.DataFrame]) -> pd.DataFrame:
        frames = []
        for key, fit in self.fits.items():
            frame = table(fit)
            for name, value in reversed(_named(self.by, key).items()):
                if name not in frame:  # params, e.g., is a column of summaries already
                    frame.insert(0, name, value)
            frames.append(frame)
        return pd.concat(frames, ignore_index=True)

    def __repr__(self) -> str:
        return "\n".join([self.answer, *self.warnings])


def fit_groups(
    table: pd.DataFrame,
    by: str | Sequence[str],
    fit: Callable[[pd.DataFrame], GroupFit],
    *,
    batches: int = 1,
) -> GroupFits:
    """Fit each group of the rows of a table.

    Args:
        table: What `fit` takes, with the columns of the groups.
        by: Columns, a list or joined by commas.
        fit: Fits the rows of a group.
        batches: Batch sizes that a group needs.

    Raises:
        InputError: If a column is missing, or no group can be fitted.
    """
    names = _columns(by, table)
    fits: dict[tuple[Any, ...], GroupFit] = {}
    left_out = []
    empty = int(table[names].isna().any(axis=1).sum())
    if empty:
        left_out.append(f"{empty} rows have no {' or no '.join(names)}: left out")
    for key, rows in table.groupby(names, sort=False):
        group = tuple(x.item() if hasattr(x, "item") else x for x in key)
        label = _label(names, group)
        if batches > 1 and rows["batch"].nunique() < batches:
            left_out.append(f"{label}: left out: it has one batch size; {batches} are needed")
            continue
        try:
            fits[group] = fit(rows.reset_index(drop=True))
        except InputError as error:
            left_out.append(f"{label}: left out: {error}")
    if not fits:
        raise InputError(f"by: no group can be fitted; {'; '.join(left_out)}")
    return GroupFits(tuple(names), fits, tuple(left_out))


def _columns(by: str | Sequence[str], table: pd.DataFrame) -> list[str]:
    listed = by.split(",") if isinstance(by, str) else [*by]
    names = list(dict.fromkeys(str(one).strip() for one in listed))
    unknown = [name for name in names if name not in table]
    if unknown or not names:
        known = ", ".join(map(str, table.columns))
        raise InputError(f"by: no column {', '.join(unknown)!r}; choose from {known}")
    return names


def _penalties(fit: GroupFit) -> pd.DataFrame:
    """Return the lowest loss of each batch size, and what it is above the lowest of all."""
    if not isinstance(fit, LossFit):
        raise InputError("penalties: only fits of final losses have them")
    points = fit.law.points
    cells = fit.summary()[["params", "tokens"]].iloc[points.cell]
    rows = cells.reset_index(drop=True).assign(batch_tokens=points.batch, loss=points.loss)
    cell = ["params", "tokens"]
    lowest = rows.groupby([*cell, "batch_tokens"], as_index=False)["loss"].min()
    return lowest.assign(penalty=lowest["loss"] - lowest.groupby(cell)["loss"].transform("min"))


def _named(by: Sequence[str], key: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(by, key, strict=False))


def _label(by: Sequence[str], key: Sequence[Any]) -> str:
    texts = [f"{value:.10g}" if isinstance(value, float) else str(value) for value in key]
    return ", ".join(f"{name}={text}" for name, text in _named(by, texts).items())
