"""From a table of points to the arrays that laws E(S) are fitted to."""

import jax
import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.laws.es import LAWS
from bss.laws.es.design import design
from bss.laws.es.vertices import best_at, outliers, valley_at
from bss.laws.fitting.solve import linearize
from tests.laws.golden import assert_golden, numbers


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


def test_designs_keep_their_numbers():
    named = table().assign(
        run=lambda rows: [f"r{b}-{s}" for b, s in zip(rows.batch, rows.seed, strict=True)]
    )
    alone = table(seeds=1).drop(columns="seed")
    rising = table(seeds=1)
    rising.loc[0, "tokens_to_target"] *= 9
    results = {
        "seeds": design(table()),
        "names": design(named),
        "data seeds": design(table(data_seed=np.arange(24) % 2 * 3)),
        "no seeds": design(alone),
        "a seed is missing": design(table().assign(data_seed=np.nan)),
        "rising": design(rising),
        "one target": design(table(targets=(2.0,)).assign(reached=True)),
    }
    assert_golden("es-designs", numbers(results), rel=1e-6)
    rows = results["seeds"]
    assert rows.targets.tolist() == [2.0, 1.9, 1.7] and rows.batches.tolist() == [4, 8, 16, 32]
    assert rows.reaching(1.7).tolist() == [8, 16, 32]
    inside = {
        (b, t) for b, t in zip(rows.batch[rows.interior], rows.target[rows.interior], strict=True)
    }
    assert inside == {(8, 2.0), (16, 2.0), (8, 1.9), (16, 1.9), (16, 1.7)}


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


@pytest.mark.parametrize("name", [*LAWS])
def test_problems_of_laws_keep_their_numbers(name):
    law, rows = LAWS[name], design(table((2, 4, 8, 16, 32, 64, 128, 256, 512), seeds=1))
    problem = law.problem(rows, rows.targets[:2])
    theta = (0.7 * problem.starts[0, 0] + 0.3 * problem.starts[0, -1])[None] * np.ones((2, 1))
    p = law.decoded(theta, problem, 0)
    tokens = law.in_tokens(law.parameters(*(np.ravel(x)[0] for x in p)), rows.seq_len)
    again = law.from_tokens(tokens, rows.seq_len)
    batch = np.array([3.0, 20.0, 900.0])
    each = law.parameters(*map(np.asarray, again))
    with jax.enable_x64(True):
        sequences = jax.jit(law.sequences)(each, batch, 1.9)
    results = {
        "problem": {n: getattr(problem, n) for n in ("starts", "lower", "upper", "rows", "units")},
        "data": problem.data,
        "residual": linearize(problem.residual, theta[0], problem.one(0)),
        "parameters": p,
        "tokens": tokens,
        "sequences": np.asarray(sequences),
        "stages": law.stages(each, 1.9),
        "clock": law.clock(each, 24.0),
        "sizes": [law.free, law.least, law.least_judged, law.joint, law.batches, law.family],
    }
    for x, y in zip(again, p, strict=True):
        np.testing.assert_allclose(x, np.ravel(y)[0], rtol=1e-12)
    results["quantities"] = law.numbers(each, 1.9)
    assert_golden(f"es-law-{[*LAWS].index(name)}", numbers(results), rel=1e-6)
    assert str(law) == name and law.parse(name) is law is law.parse(law)


def test_a_surface_needs_two_targets():
    rows = design(table(targets=(2.0,)).assign(reached=True))
    with pytest.raises(InputError, match="points: one target is reached; the surface needs at le"):
        LAWS["surface"].problem(rows, rows.targets)


def test_vertices_and_runs_that_fit_none_keep_their_numbers():
    points = table(seeds=3, targets=(2.0, 1.9))
    points.loc[8, "tokens_to_target"] *= 1.6  # batch 8, in one seed, at the second target
    rows = design(points)
    results = {}
    for target in rows.targets:
        valley = valley_at(rows, target, 0.8)
        results[f"{target:g}"] = (
            best_at(rows, target, valley, 0.8),
            outliers(rows, target, valley, 0.8),
        )
    assert_golden("es-vertices", numbers(results), rel=1e-5)
    none = best_at(rows, 1.9, None, 0.8)
    assert (none.status, none.level, none.evidence.vertices) == ("too few", 0.8, 0)
    assert none.note == "unidentified: 3 batches reach this loss, a vertex needs 3"
    assert outliers(rows, 1.9, None, 0.8) == []
    assert valley_at(rows, 1.9, 0.8, np.isin(rows.batch, [4, 8])) is None
    assert valley_at(rows, 1.9, 0.8, rows.batch == 4) is not None
