"""Columns that name the arms of an experiment: size, group and arm.

In memory a table also has the unique label of its arms as `name`, e.g. "12k | base | constant 8".
Tables of earlier versions have the label alone.
"""

import pandas as pd

PARTS = ("size", "group", "arm")
SEPARATOR = " | "


def split_label(label: str) -> tuple[str, str, str]:
    """Return size, group and arm of a label; a label without a separator is an arm.

    Examples:
        >>> split_label("12k | constant 8"), split_label("12k | base | constant 8")
        (('12k', '', 'constant 8'), ('12k', 'base', 'constant 8'))
    """
    *before, arm = str(label).split(SEPARATOR)
    size, group = [*before, "", ""][:2]
    return size, group, arm


def with_arms(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table that was read, with labels and with the columns of their parts."""
    if "name" in table:
        return _split(table)
    parts = [part for part in PARTS if part in table]
    if not parts:
        return table
    rows = table[parts].fillna("").astype(str).itertuples(index=False)
    return table.assign(name=[SEPARATOR.join(filter(None, row)) for row in rows])


def without_labels(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table as it is written, with size, group and arm and without labels.

    Examples:
        >>> without_labels(pd.DataFrame({"name": ["12k | late"], "best": ["12k | constant 8"]}))
          size   arm        best
        0  12k  late  constant 8
    """
    if not _has_labels(table):
        return table
    split = _split(table).drop(columns="name")
    if "best" in split:
        split["best"] = [split_label(label)[2] for label in split["best"]]
    return split


def _has_labels(table: pd.DataFrame) -> bool:
    return "name" in table and any(SEPARATOR in str(name) for name in table["name"].unique())


def _split(table: pd.DataFrame) -> pd.DataFrame:
    """Return a table with the columns of the parts of its labels before the labels.

    An arm that is the sequence length, which has a column, has no column.
    """
    if not _has_labels(table):
        return table
    table = table.drop(columns=[part for part in PARTS if part in table])
    place = list(table).index("name")
    split = {label: split_label(label) for label in table["name"].unique()}
    for i, part in reversed([*enumerate(PARTS)]):
        values = table["name"].map({label: parts[i] for label, parts in split.items()})
        length = "seq_len" in table and (values == table["seq_len"].astype(str)).all()
        if values.any() and not length:
            table.insert(place, part, values)
    return table
