"""From a table of points to the arrays that laws E(S) are fitted to."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.es import LAWS
from bss.laws.es.design import design


def table(batches=(4, 8, 16, 32), targets=(2.0, 1.9, 1.7), seeds=2, **columns):
    """Tokens that fall with the loss and have a valley over batches; two runs miss the last."""
    rows = []
    for batch in batches:
        for seed in range(seeds):
            for target in targets:
                tokens = 64 * 1000 * (target - 1.2) ** -2 * (2 + batch / 12 + 12 / batch)
                tokens *= 1 + 0.02 * np.cos(batch + 3 * seed)
                steps = tokens / batch / 64
                reached = not (target == min(targets) and batch == 4)
                rows.append((batch, seed, target, steps, tokens, reached))
    names = ["batch", "seed", "target_loss", "steps", "tokens_to_target", "reached"]
    return pd.DataFrame(rows, columns=names).assign(**{"seq_len": 64, "model": "m"} | columns)


def changing(batches):
    """A table with one more run whose batch changes."""
    rows = table(batches, seeds=1).assign(run=lambda own: own["batch"].astype(str))
    more = rows.iloc[:3].assign(run="more", batch=[16.0, 17.0, 18.0], reached=True)
    return pd.concat([rows, more], ignore_index=True)


def test_runs_that_change_their_batch_are_left_out_where_three_constant_ones_remain():
    rows = design(changing((4, 8, 16)))
    assert len(rows.batch) == 9
    assert rows.warnings == ("1 runs change their batch and are left out of the fit",)
    rows = design(changing((4, 8)))
    assert len(rows.batch) == 9 and rows.warnings[0].startswith("1 runs change their batch; their")
    hardly = table()
    hardly["batch"] = hardly["batch"] * (1 + 1e-8 * np.arange(24))
    assert design(hardly).warnings == ()


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"model": ["a", "b"] * 12}, "points: model takes 2 values (a, b); E(S) belongs to one"),
        ({"params": [*range(5), *[0] * 19]}, "params takes 5 values (0, 1, 2, 3); E(S)"),
        ({"seq_len": [64] * 23 + [32]}, "seq_len takes 2 values (64, 32)"),
        ({"kind": ["x"] * 23 + ["y"]}, "kind takes 2 values (x, y)"),
        ({"reached": False}, "points: reached is false in every row; choose targets that runs re"),
        ({"steps": [1.0] * 5 + [0.0] * 19}, "points: row 6 has a target_loss, batch, steps or"),
        ({"tokens_to_target": [1.0] * 2 + [np.inf] * 22}, "points: row 3 has a target_loss, bat"),
        ({"seed": 0}, "points: row 4 repeats a run's target_loss; give each run its own name"),
        (
            {"batch": [4] * 12 + [8] * 12, "seed": np.arange(24) // 3},
            "2 batch sizes reach a target",
        ),
    ],
)
def test_tables_that_no_law_is_of_are_refused(change, says):
    with pytest.raises(InputError) as error:
        design(table(**change))
    assert says in str(error.value)


def test_an_empty_table_is_refused():
    with pytest.raises(InputError, match="points: the table has no rows; give runs that reach"):
        design(table().iloc[:0])


def test_a_surface_needs_two_targets():
    rows = design(table(targets=(2.0,)).assign(reached=True))
    with pytest.raises(InputError, match="points: one target is reached; the surface needs at le"):
        LAWS["surface"].problem(rows, rows.targets)
