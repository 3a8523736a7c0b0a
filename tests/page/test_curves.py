"""What the page measures of CSV files of runs is what bss.points measures of them, to 1e-9."""

import io

import numpy as np
import pandas as pd
import pytest

from bss.points.measuring import measure_points
from bss.tables import check_runs
from tests.page.optima import optima

BATCHES = [8, 16, 32, 64, 128]


def runs_of(seed):
    """A table of noisy curves whose best batch size grows as the loss falls."""
    generator = np.random.default_rng(seed)
    batches = BATCHES[: generator.integers(3, 6)]
    seeds, rows = int(generator.integers(1, 4)), []
    total = 2**22 * (1 + seed % 3)
    for batch in batches:
        for which in range(seeds):
            size = batch * 64
            steps = np.unique(np.geomspace(2, total // size, 40).astype(int))
            if batch == batches[-1] and seed % 4 == 0:
                steps = steps[: len(steps) * 2 // 3]  # misses the lowest targets
            tokens, best = steps * size, 16 * (steps * size / 2**18) ** 0.4
            waste = 1 + 0.2 * np.log(batch / best) ** 2
            loss = 1.5 + 40 * (tokens / waste) ** -0.25
            loss += generator.normal(0, 0.01, len(loss))
            name = f'"{batch}", seed {which}' if seed % 2 else f"{batch}-{which}"
            one = {"run": name, "batch": batch, "seq_len": 64, "step": steps, "loss": loss}
            rows.append(pd.DataFrame(one).assign(seed=which))
    table = pd.concat(rows, ignore_index=True)
    if seed % 5 == 1:  # held-out losses at every second row
        table["eval_loss"] = np.where(table.index % 2, table["loss"] + 0.02, np.nan)
    return table if seeds > 1 else table.drop(columns="seed")


@pytest.fixture(scope="module")
def texts():
    return [runs_of(seed).to_csv(index=False, lineterminator="\r\n") for seed in range(20)]


@pytest.fixture(scope="module")
def measured(evaluate, texts):
    return evaluate(tables=texts)["measured"]


@pytest.fixture(scope="module")
def expected(texts):
    found = []
    for text in texts:
        runs = check_runs(pd.read_csv(io.StringIO(text)))
        points, _ = measure_points(runs)
        found.append(points.assign(seed=points["seed"].fillna(0)))
    return found


pytestmark = pytest.mark.filterwarnings("ignore:points. .*fewer than 10 evaluations:UserWarning")


@pytest.mark.slow
def test_steps_and_tokens_to_targets(measured, expected):
    for found, points in zip(measured, expected, strict=True):
        table = pd.DataFrame(found["points"])
        assert [*table["run"]] == [*points["run"]]
        for name, ours in {"target": "target_loss", "tokens": "tokens_to_target"}.items():
            np.testing.assert_allclose(table[name], points[ours], rtol=1e-9)
        np.testing.assert_allclose(table["steps"], points["steps"], rtol=1e-9)
        assert [*table["reached"]] == [*points["reached"]]
    assert any(not points["reached"].all() for points in expected)


@pytest.mark.slow
def test_measured_minima(measured, expected):
    interior = 0
    for found, points in zip(measured, expected, strict=True):
        for page, ours in zip(found["optima"], optima(points), strict=True):
            assert (page["target"], page["batch"]) == (ours.target_loss, ours.batch)
            assert (page["interior"], page["bound"]) == (ours.interior, ours.bound)
            error = ours.log2_batch.error
            pair = [[page["log2Batch"], page["error"]], [ours.log2_batch.value, error]]
            np.testing.assert_allclose(*np.array(pair, float), rtol=1e-9)
            interior += ours.interior
    assert interior > 20


HEAD = "run,batch,seq_len,step,loss\n"
ROWS = "".join(f"a,8,64,{step},{3 - step / 100}\n" for step in range(1, 9))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "no column run, batch, seq_len, step, loss"),
        ("run,batch,step,loss\na,8,1,2.0\n", "no column seq_len"),
        (HEAD, "has no rows"),
        (HEAD + "a,8,64,1,nan\n", 'line 2: loss is "nan"'),
        (HEAD + "a,8,64,1,\n", 'line 2: loss is ""'),
        (HEAD + "a,8,64,1,1\na,eight,64,2,1\n", 'line 3: batch "eight" is not a count'),
        (HEAD + "a,0,64,1,1\n", "line 2: batch 0 is too small"),
        (HEAD + "a,8,64,5,1\na,8,64,3,1\n", "line 3: step 3 of run a follows 5"),
        (HEAD + ",8,64,1,1\n", "line 2: run is missing"),
        (HEAD + "a,8,64,1,1\na,8,64,2,1\n", "no run has one batch size and 3 losses"),
        (HEAD + ROWS + "b,8,64,1,9\nb,9,64,2,9\n", None),
        ("# a comment\n" + HEAD + ROWS.replace("a,", '"<img src=x>",'), None),
    ],
)
def test_tables_are_refused_in_one_line(evaluate, text, told):
    (found,) = evaluate(tables=[text])["measured"]
    if told is None:
        assert "refused" not in found
    else:
        assert told in found["refused"] and "\n" not in found["refused"]


@pytest.mark.slow
def test_a_hundred_thousand_rows(evaluate):
    steps = np.arange(1, 20_001)
    tables = [
        pd.DataFrame({"run": f"r{batch}", "batch": batch, "seq_len": 64, "step": steps}).assign(
            loss=2 + steps**-0.3 + 0.01 * np.log2(batch / 32) ** 2
        )
        for batch in BATCHES
    ]
    (found,) = evaluate(tables=[pd.concat(tables).to_csv(index=False)])["measured"]
    assert len(found["curves"]) == 5 and found["optima"]
