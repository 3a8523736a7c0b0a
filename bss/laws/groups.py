"""Fits of groups of rows: one per optimizer, or per value of any other columns."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from bss.cells import Table, lines_html
from bss.errors import InputError
from bss.files import finite, write_json
from bss.installation import from_above
from bss.laws.base import Fit
from bss.laws.differences import differences, penalties

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes


@dataclass(frozen=True, repr=False)
class GroupFits(Mapping[Any, Fit]):
    """One fit per group of rows: `fits["Lion"]`, or `fits["Lion", "low_wd"]` of two columns.

    Attributes:
        by: The columns that groups differ in.
        fits: By the values of these columns.
        left_out: A sentence per group that has no fit.
    """

    by: tuple[str, ...]
    fits: dict[tuple[Any, ...], Fit]
    left_out: tuple[str, ...]

    def __getitem__(self, group: Any) -> Fit:
        key = group if isinstance(group, tuple) else (group,)
        if key not in self.fits:
            raise InputError(f"no fit of {_label(self.by, key)}; choose one of {self._known}")
        return self.fits[key]

    def __iter__(self) -> Iterator[Any]:
        return (key if len(self.by) > 1 else key[0] for key in self.fits)

    def __len__(self) -> int:
        return len(self.fits)

    @property
    def kind(self) -> str:
        """The kind of the fits, e.g. "loss"."""
        return next(iter(self.fits.values())).KIND

    @property
    def labels(self) -> list[str]:
        """The groups as texts, e.g. "optimizer=Lion, family=low_wd"."""
        return [_label(self.by, key) for key in self.fits]

    @property
    def _known(self) -> str:
        return "; ".join(self.labels)

    def chosen(self, group: str) -> tuple[str, Fit]:
        """Return the label and the fit of one group.

        Args:
            group: Its columns and values, e.g. "optimizer=Lion,family=low_wd". A column that
                all groups have in common can be left out. A single column needs only its value.

        Raises:
            InputError: If no group has them, or several do.
        """
        given = [part.strip() for part in group.split(",")]
        if len(self.by) == 1 and "=" not in group:
            given = [f"{self.by[0]}={group.strip()}"]
        found = [
            (label, fit)
            for label, fit in zip(self.labels, self.fits.values(), strict=True)
            if {*given} <= {*label.split(", ")}
        ]
        if len(found) != 1:
            several = "is several groups" if found else "is no group"
            raise InputError(f"group: {group!r} {several}; choose one of {self._known}")
        return found[0]

    @property
    def answer(self) -> str:
        """The answer of each fit, one line each."""
        pairs = zip(self.labels, self.fits.values(), strict=True)
        return "\n".join(f"{label}: {fit.answer}" for label, fit in pairs)

    @property
    def warnings(self) -> list[str]:
        """The groups without a fit, and the warnings of fits. A shared warning is there once."""
        groups: dict[str, list[str]] = {}
        for label, fit in zip(self.labels, self.fits.values(), strict=True):
            outliers = getattr(fit, "outliers", ())
            for text in (*fit.warnings, *(f"outlier: {one}" for one in outliers)):
                groups.setdefault(text, []).append(label)
        shared = [text for text, of in groups.items() if len(of) == len(self)]
        alone = [
            f"{one}: {text}" for text, of in groups.items() for one in of if text not in shared
        ]
        return [*self.left_out, *shared, *alone]

    def summary(self) -> "pd.DataFrame":
        """Return the summaries of the fits, after the columns of the groups."""
        return self._joined(lambda fit: fit.summary())

    def penalties(self) -> "pd.DataFrame":
        """Return what each batch size costs against the best of its group, as it was measured.

        Returns:
            The columns of the groups, of the place (params and tokens, a target loss, or the cost)
            and of the batch size, then penalty with its interval. A penalty is in nats above the
            lowest loss of the group. With E(S) it is the share of tokens above the fewest. The
            interval is from the noise of a measurement. Rows that a fit left out are missing.

        Raises:
            InputError: If the fits are not of E(S), of final losses or of runs of equal cost.
        """
        return self._joined(penalties)

    def differences(self, against: Any = None) -> "pd.DataFrame":
        """Return the differences between the estimates of each group and of one group.

        Args:
            against: A group, as `self[group]` takes it; by default the first.

        Returns:
            The columns of the groups, and the columns of `bss.laws.differences.differences`. Groups
            are independent, so that errors add up in quadrature.

        Raises:
            InputError: If the group has no fit.
        """
        import pandas as pd

        from bss.tables.joining import stacked

        first = next(iter(self)) if against is None else against
        base = self[first]
        name = _label(self.by, first if isinstance(first, tuple) else (first,))
        frames = [
            self._labelled(key, differences(fit, base)).assign(against=name)
            for key, fit in self.fits.items()
            if fit is not base
        ]
        known = [frame for frame in frames if len(frame)]
        return stacked(known) if known else pd.DataFrame()

    def tables(self) -> dict[str, "pd.DataFrame"]:
        """Return the summary, the differences that have a value, and the penalties, by title."""
        level = next(iter(self.fits.values())).level
        found = {"Groups": self.summary()}
        apart = self.differences()
        known = apart.loc[apart["value"].notna()] if len(apart) else apart
        if len(known):
            title = f"Against {apart['against'].iloc[0]}, {level:.0%} intervals (in quadrature)"
            found[title] = known.drop(columns=["against", "note"])
        if self._priced:
            found["Above the best batch size of the group"] = self.penalties()
        return found

    @property
    def _priced(self) -> bool:
        """Whether the fits have penalties."""
        return self.kind in ("es", "loss", "equal")

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Plot the groups on the given axes, or on new ones of pyplot."""
        return from_above("plots.groups:plot_groups")(self, ax)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form: the JSON form of each fit, and what compares the groups."""
        pairs = self.fits.items()
        groups = [{"group": _named(self.by, key), "fit": fit.to_dict()} for key, fit in pairs]
        entry = {"kind": "groups", "by": [*self.by], "groups": groups, "left_out": [*self.left_out]}
        apart = self.differences()
        entry["differences"] = finite(apart.to_dict("records"))
        if self._priced:
            entry["penalties"] = finite(self.penalties().to_dict("records"))
        return entry

    @classmethod
    def from_dict(cls, entry: Mapping[str, Any], read: Callable[[Any], Fit]) -> Self:
        """Read `to_dict` back.

        Args:
            entry: The JSON form.
            read: Returns a fit from its JSON, as `bss.laws.fit_from_dict` does.

        Raises:
            InputError: If the JSON is damaged.
        """
        try:
            by = tuple(str(name) for name in entry["by"])
            fits = {
                tuple(one["group"][name] for name in by): read(one["fit"])
                for one in entry["groups"]
            }
            left_out = tuple(str(text) for text in entry["left_out"])
        except (LookupError, TypeError, AttributeError) as error:
            raise InputError(
                f"fit: damaged, {type(error).__name__} at {error}; write it again with `bss fit`"
            ) from None
        if not by or not fits:
            raise InputError("fit: damaged, it has no groups; write it again with `bss fit`")
        return cls(by, fits, left_out)

    def save(self, path: str | Path) -> None:
        """Write the fits as JSON, which `bss.read_fit` reads, and commands with --group.

        Raises:
            InputError: If the directory does not exist.
        """
        file = Path(path)
        if file.is_dir() or not file.parent.is_dir():
            raise InputError(f"path: {file}; expected a file name in a directory that exists")
        write_json(file, finite(self.to_dict()))

    def _joined(self, table: Callable[[Fit], "pd.DataFrame"]) -> "pd.DataFrame":
        from bss.tables.joining import stacked

        return stacked([self._labelled(key, table(fit)) for key, fit in self.fits.items()])

    def _labelled(self, key: tuple[Any, ...], frame: "pd.DataFrame") -> "pd.DataFrame":
        """Return a table of one group with the columns of the groups in front."""
        for name, value in reversed(_named(self.by, key).items()):
            if name not in frame:  # params, e.g., is a column of summaries already
                frame.insert(0, name, value)
        return frame

    def __repr__(self) -> str:
        return "\n".join([self.answer, *self.warnings])

    def _repr_html_(self) -> str:
        """Return the answers, the tables and the warnings, as a notebook shows them."""
        tables = [Table.of_frame(*one) for one in self.tables().items()]
        return lines_html(self.answer, self.warnings, tables)


def fit_groups(
    table: "pd.DataFrame",
    by: str | Sequence[str],
    fit: Callable[["pd.DataFrame"], Fit],
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
    names = columns_of(by, table)
    fits: dict[tuple[Any, ...], Fit] = {}
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


def one_fit(found: Any, group: str | None, field: str, kinds: Collection[str]) -> tuple[str, Any]:
    """Return the fit that a command reads, and the label of its group; "" for a single fit.

    Args:
        found: What `bss.laws.read_fit` returned.
        group: The group that a person named, or None.
        field: The option that named the file.
        kinds: Kinds of fits that the command takes.

    Raises:
        InputError: If the file has several fits and no group is given, or the other way around.
    """
    if not isinstance(found, GroupFits):
        if group is not None:
            raise InputError(f"--group {group}: {field} names one fit; leave --group out")
        return "", found
    if group is None:
        first = found.labels[0].replace(", ", ",")
        raise InputError(
            f"{field}: it has {len(found)} fits by {', '.join(found.by)}; predict, schedule and "
            f"next take one with --group '{first}', or fit one alone with --keep '{first}'"
        )
    if found.kind not in kinds:
        raise InputError(
            f"{field}: fits of kind {found.kind!r}; give a fit of kind {' or '.join(sorted(kinds))}"
        )
    return found.chosen(group)


def columns_of(by: str | Sequence[str], table: "pd.DataFrame") -> list[str]:
    """Return the columns that groups differ in.

    Raises:
        InputError: If none is named, or the table lacks one.
    """
    listed = by.split(",") if isinstance(by, str) else [*by]
    names = list(dict.fromkeys(str(one).strip() for one in listed))
    unknown = [name for name in names if name not in table]
    if unknown or not names:
        known = ", ".join(map(str, table.columns))
        raise InputError(f"by: no column {', '.join(unknown)!r}; choose from {known}")
    return names


def _named(by: Sequence[str], key: Sequence[Any]) -> dict[str, Any]:
    return dict(zip(by, key, strict=False))


def value_text(value: Any) -> str:
    """Return the value of a column as text."""
    return f"{value:.10g}" if isinstance(value, float) else str(value)


def _label(by: Sequence[str], key: Sequence[Any]) -> str:
    texts = [value_text(value) for value in key]
    return ", ".join(f"{name}={text}" for name, text in _named(by, texts).items())
