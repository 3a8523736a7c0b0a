"""Arms: columns in tables, labels in registrations, and tables of earlier versions."""

import pandas as pd
import pytest

from bss.sweeps.contenders import Contender, arm_columns
from experiments.arms import with_arms, without_labels

LABELS = {
    "12k | base | constant 8": {"size": "12k", "group": "base", "arm": "constant 8"},
    "12k | constant 8": {"size": "12k", "arm": "constant 8"},
    "12k | 32": {"size": "12k"},
}


@pytest.mark.parametrize("label", LABELS)
def test_a_label_is_columns_in_a_table_and_comes_back(label):
    table = pd.DataFrame({"name": [label], "seq_len": [32], "loss": [2.0]})
    written = without_labels(table)
    assert written.drop(columns=["seq_len", "loss"]).to_dict("records") == [LABELS[label]]
    read = with_arms(written)
    assert read["name"].tolist() == [label if "32" not in label else "12k"]
    assert without_labels(with_arms(table)).equals(written)


def test_names_without_a_size_stay():
    table = pd.DataFrame({"name": ["x 4 at 70%", "constant 8"]})
    assert with_arms(table) is table and without_labels(table) is table


def test_runs_are_named_by_columns_and_registered_by_their_label():
    arms = [Contender("late", "late", "constant", None, "12k", group) for group in ("", "base")]
    assert [one.label for one in arms] == ["12k | late", "12k | base | late"]
    assert arm_columns(arms) == {"size": ["12k"] * 2, "group": ["", "base"], "arm": ["late"] * 2}
    assert arm_columns([Contender("late", "late", "constant", None)]) == {"name": ["late"]}
