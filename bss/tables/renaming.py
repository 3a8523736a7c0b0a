"""Tables with column names of earlier versions, read under the names that replace them."""

import pandas as pd

from bss.renamed import COLUMNS, PHASE_COLUMNS, PHASES


def with_new_names(table: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """Return a table under the names of `bss.renamed`, and a line for each column that had another.

    A column of LR phases becomes the two columns lr_phase and weights. A column that a table has
    under both names, or whose values are no LR phases, stays as it is.

    Examples:
        >>> with_new_names(pd.DataFrame({"batch": [8], "kind": ["averaged"]}))
        (   batch  lr_phase   weights
        0      8  constant  averaged, ['column kind is read as lr_phase and weights'])
    """
    lines = []
    names = {old: new for old, new in COLUMNS.items() if old in table and new not in table}
    for old, new in names.items():
        lines.append(f"column {old} is read as {new}")
    renamed = table.rename(columns=names)
    for column in [name for name in PHASE_COLUMNS if name in renamed]:
        if "lr_phase" in renamed or not set(renamed[column]) <= {*PHASES}:
            continue
        place = list(renamed).index(column)
        phases = [PHASES[value] for value in renamed[column]]
        renamed = renamed.drop(columns=column)
        renamed.insert(place, "lr_phase", [lr_phase for lr_phase, _ in phases])
        renamed.insert(place + 1, "weights", [weights for _, weights in phases])
        lines.append(f"column {column} is read as lr_phase and weights")
    return renamed, lines
