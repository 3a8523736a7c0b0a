"""The envelope: the best rate of each batch and seed, with its trials and its bracket."""

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.points.measuring import best_rates, envelope, measure_points
from bss.tables import check_runs


def point(batch, lr, tokens, *, reached=True, seed=0, target=2.0):
    return {
        "run": f"{batch}-{lr}-{seed}",
        "model": "m",
        "lr_phase": "constant",
        "weights": "last",
        "target_loss": target,
        "batch": batch,
        "seed": seed,
        "data_seed": seed,
        "peak_lr": lr,
        "tokens_to_target": tokens,
        "steps": tokens / batch,
        "reached": reached,
    }


POINTS = pd.DataFrame(
    [
        point(2, 1e-3, 900),
        point(2, 2e-3, 700),
        point(2, 4e-3, 800),
        point(8, 1e-3, 2000, reached=False),
        point(8, 2e-3, 1500),
        point(8, 4e-3, 1200),
        point(32, 1e-3, 2000, reached=False),
        point(32, 4e-3, 2100, reached=False),
        point(2, 1e-3, 650, seed=1),
    ]
)


def test_the_fewest_tokens_win_and_their_trials_are_counted():
    best = envelope(POINTS).to_dict("records")
    chosen = [(r["batch"], r["seed"], r["peak_lr"], r["trials"], r["bracketed"]) for r in best]
    assert chosen == [
        (2, 0, 2e-3, 3, True),
        (8, 0, 4e-3, 3, False),
        (32, 0, 4e-3, 2, False),
        (2, 1, 1e-3, 1, False),
    ]


def test_one_rate_is_best_at_a_batch_if_each_run_has_a_seed_of_its_own():
    tokens = {1e-3: (900, 950, 1000), 2e-3: (700, 1300), 4e-3: (890, 700)}
    runs = [(lr, each) for lr, some in tokens.items() for each in some]
    points = pd.DataFrame([point(2, *run, seed=seed) for seed, run in enumerate(runs)])
    for table in (points, points.drop(columns="run")):
        best = envelope(table)
        assert best["tokens_to_target"].tolist() == [890, 700]
        assert set(best["peak_lr"]) == {4e-3} and set(best["trials"]) == {3}
        assert not best["bracketed"].to_numpy(bool).any()


def test_an_unreached_target_keeps_its_bound():
    row = envelope(POINTS).query("batch == 32").to_dict("records")[0]
    assert not row["reached"]
    assert row["tokens_to_target"] == 2100


def test_order_of_rows_does_not_matter():
    def chosen(points):
        return {(r["batch"], r["seed"]): r["run"] for r in envelope(points).to_dict("records")}

    assert chosen(POINTS.sample(frac=1, random_state=3)) == chosen(POINTS)


def test_points_without_a_rate_are_refused():
    with pytest.raises(InputError, match="peak_lr is missing"):
        envelope(POINTS.assign(peak_lr=float("nan")))


def test_runs_of_one_rate_and_seed_are_repeats_and_their_rate_is_of_their_mean():
    rows = [point(2, lr, tokens) for lr, tokens in ((1e-3, 800), (1e-3, 820), (2e-3, 600))]
    rows += [point(2, 2e-3, 1300), point(8, 2e-3, 900), point(8, np.nan, 500)]
    points = pd.DataFrame(rows).assign(run=list("abcdef"), seed=np.nan, data_seed=np.nan)
    best, told = best_rates(points)
    assert best["run"].tolist() == ["a", "b", "e", "f"]  # 600 was luck
    assert best["trials"].tolist() == [2, 2, 1, 1]
    assert "--peak-lr" in told[0] and "at batch size 2;" in told[1]
    assert told[2].startswith("2 runs repeat")


def test_rates_within_a_hundredth_are_one():
    points = pd.DataFrame([point(2, 1e-3, 800), point(8, 9.99e-4, 700)])
    assert best_rates(points) == (points, [])
    near = pd.DataFrame([point(2, 1e-3, 800), point(2, 9.99e-4, 700, seed=1), point(2, 2e-3, 600)])
    assert best_rates(near)[0]["trials"].tolist() == [2, 1]


def test_a_rate_that_diverged_is_tried_and_brackets_only_from_above():
    points = pd.DataFrame([point(2, lr, tokens) for lr, tokens in ((1e-3, 900), (2e-3, 700))])
    points = pd.concat([points, points.assign(batch=8)], ignore_index=True)
    above = pd.DataFrame({"model": "m", "batch": [2, 2], "peak_lr": [4e-3, 4.001e-3]})
    below = pd.DataFrame({"model": "m", "batch": [8], "peak_lr": [1e-4]})
    best, told = best_rates(points, pd.concat([above, below]))
    assert best["tokens_to_target"].tolist() == [700, 700]
    assert best["peak_lr"].tolist() == [2e-3, 2e-3]
    assert best["trials"].tolist() == [3, 3]
    assert best["bracketed"].tolist() == [True, False]
    assert any("at batch size 8; try LRs" in line for line in told)


@pytest.mark.parametrize("marked", [True, False])
def test_the_highest_rate_that_trained_is_bracketed_by_one_that_diverged(marked):
    part = np.linspace(0.02, 1, 40)
    frames = []
    for batch in (2, 4, 8):
        for lr, speed in ((1e-3, 1.0), (2e-3, 1.3), (4e-3, np.nan)):
            falls = 3 - part * speed
            loss = np.where(part < 0.5, 3 - part, np.nan if marked else 9.0)
            loss = falls if np.isfinite(speed) else loss
            frames.append(pd.DataFrame({"step": np.rint(1000 * part).astype(int), "loss": loss}))
            frames[-1] = frames[-1].assign(run=f"b{batch}-{lr}", batch=batch, seq_len=8, lr=lr)
            if marked:
                frames[-1]["status"] = "finished" if np.isfinite(speed) else "diverged"
    runs = check_runs(pd.concat(frames, ignore_index=True))
    best, told = measure_points(runs, [2.4])
    assert set(best["peak_lr"]) == {2e-3} and set(best["trials"]) == {3}
    assert best["bracketed"].all() and not any("lowest or the highest" in line for line in told)
    dropped, told = measure_points(runs.loc[runs["lr"] < 4e-3], [2.4])
    assert not dropped["bracketed"].any() and any("lowest or the highest" in x for x in told)
    values = ["run", "batch", "tokens_to_target", "steps"]
    pd.testing.assert_frame_equal(dropped[values], best[values])
