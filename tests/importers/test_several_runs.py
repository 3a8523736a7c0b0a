"""Logs with several attempts or runs: each finished run is one, an abandoned attempt is none."""

import json

import pytest

from bss.errors import InputError
from bss.importers import ANY, LogOptions, import_runs, read_logs
from bss.importers.batches import Batches


def read(paths, batch="", **given):
    options = LogOptions(Batches.parse([batch] if batch else []), given.pop("seq_len", 64), **given)
    logs, _ = read_logs([*paths], ANY, options)
    return [report for _, report in import_runs(logs, options)], logs


def finals(paths, batch="", **given):
    """Name and last loss of every run."""
    options = LogOptions(Batches.parse([batch] if batch else []), given.pop("seq_len", 64), **given)
    logs, _ = read_logs([*paths], ANY, options)
    return {
        report.run: table.filter(["loss", "eval_loss"]).iloc[-1, 0]
        for table, report in import_runs(logs, options)
    }


def loss_at(step, offset=0.0):
    return 2.4 + 8.6 * (step + 1) ** -0.35 + offset


def speedrun(offset, steps, every=125):
    return "".join(
        f"step:{i}/{steps} val_loss:{loss_at(i, offset):.5f} train_time:1.0s step_avg:4.00ms\n"
        for i in range(0, steps + 1, every)
    )


def megatron(batch, steps, until=None, begin=10, offset=0.0, lr=1e-4):
    return "".join(
        f" [2026-11-01 10:00:00] iteration {i:8d}/{steps:8d} | consumed samples: {i * batch:12d} | "
        f"elapsed time per iteration (ms): 100.0 | learning rate: {lr:.6E} | global batch size: "
        f"{batch:5d} | lm loss: {loss_at(i, offset):.6E} | grad norm: 1.0 |\n"
        for i in range(begin, (until or steps) + 1, 10)
    )


def nanogpt(batch, steps, offset=0.0):
    header = f"tokens per iteration will be: {batch * 64:,}\nnumber of parameters: 10.65M\n"
    return header + "".join(
        f"step {i}: train loss {loss_at(i, offset):.4f}, val loss {loss_at(i, offset + 0.01):.4f}\n"
        f"iter {i}: loss {loss_at(i, offset):.4f}, time 120.00ms, mfu 30.00%\n"
        for i in range(0, steps + 1, 50)
    )


def rows(*counts, offset=0.0, **more):
    return "".join(
        json.dumps({"step": i, "loss": loss_at(i, offset), **more}) + "\n" for i in counts
    )


def test_ten_finished_runs_in_one_file(tmp_path):
    log = tmp_path / "ten.txt"
    log.write_text("".join(speedrun(0.01 * k, 3125) for k in range(10)))
    names = ["ten", *(f"ten#{k}" for k in range(2, 11))]
    ends = finals([log], "512")
    assert ends == {
        name: pytest.approx(loss_at(3125, 0.01 * k), abs=1e-5) for k, name in enumerate(names)
    }


def test_a_sweep_in_one_file_keeps_every_batch(tmp_path):
    log = tmp_path / "sweep.log"
    batches = (16, 32, 64, 128)
    texts = [f"=== batch {b}\n" + megatron(b, 32_000 // b, offset=2 / b) for b in batches]
    log.write_text("".join(texts))
    reports, _ = read([log])
    assert [(r.batch, r.steps, r.rows) for r in reports] == [
        (str(b), 32_000 // b, 3_200 // b) for b in batches
    ]
    ends = [*finals([log]).values()]
    assert ends == pytest.approx([loss_at(32_000 // b, 2 / b) for b in batches], abs=1e-5)


def torchtitan(batch, steps, until, offset=0.0):
    """Lines without the planned end, which is printed before them."""
    header = f"global batch size {batch}, gradient accumulation steps 1, sequence length 64"
    return f"[titan] - INFO - {header}, total steps {steps} (warmup 2)\n" + "".join(
        f"[titan] - INFO - step: {i:2d}  loss: {loss_at(i, offset):7.4f}  memory:  5.00GiB\n"
        for i in range(10, until + 1, 10)
    )


@pytest.mark.parametrize(("until", "runs"), [(100, [10, 20]), (60, [20])])
def test_a_planned_end_among_the_settings_shows_what_was_finished(tmp_path, until, runs):
    log = tmp_path / "a.log"
    log.write_text(torchtitan(8, 100, until) + torchtitan(8, 200, 200, 0.1))
    reports, _ = read([log])
    assert [r.rows for r in reports] == runs and not any(
        "its log ends" in n for n in reports[0].notes
    )
    log.write_text(torchtitan(8, 100, 60))
    assert "its log ends at step 60 of 100" in read([log])[0][0].notes


@pytest.mark.parametrize("column", ["experiment", "exp_name", "trial"])
@pytest.mark.parametrize("mixed", [True, False])
def test_names_of_experiments_distinguish_runs(tmp_path, column, mixed):
    lines = [(i, f"{i},{k},{loss_at(i, k / 10)}\n") for k in (1, 2) for i in range(1, 5 + k)]
    ordered = sorted(lines, key=lambda line: line[0]) if mixed else lines
    log = tmp_path / "a.csv"
    log.write_text(f"step,{column},loss\n" + "".join(line for _, line in ordered))
    assert [(r.run, r.rows) for r in read([log], "8")[0]] == [("1", 5), ("2", 6)]
    log.write_text(f"step,{column},loss\n" + "".join(line for _, line in lines[:5]))
    assert [r.run for r in read([log], "8")[0]] == ["a"]


def test_settings_above_each_run_are_its_own(tmp_path):
    log = tmp_path / "sweep.log"
    log.write_text("".join(nanogpt(b, 16_000 // b, 2 / b) for b in (16, 32, 64)))
    reports, _ = read([log])
    assert [(r.run, r.batch, r.batch_from) for r in reports] == [
        ("sweep", "16", "logged"),
        ("sweep#2", "32", "logged"),
        ("sweep#3", "64", "logged"),
    ]


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        # finished, then again from the start, whatever comes of it
        (megatron(16, 100) + megatron(16, 100, offset=0.01), [("a", 10, 0), ("a#2", 10, 0)]),
        (megatron(16, 100) + megatron(16, 100, 40, offset=0.01), [("a", 10, 0), ("a#2", 4, 0)]),
        (megatron(16, 100) + megatron(16, 200), [("a", 10, 0), ("a#2", 20, 0)]),
        # extended from its checkpoint: one run
        (megatron(16, 100) + megatron(16, 200, begin=90), [("a", 20, 1)]),
        # killed, and from the start again
        (megatron(16, 100, 60) + megatron(16, 100, offset=0.01), [("a", 10, 1)]),
        # killed, but of another batch or peak learning rate
        (megatron(16, 100, 60) + megatron(32, 100), [("a", 6, 0), ("a#2", 10, 0)]),
        (megatron(16, 100, 60) + megatron(16, 100, lr=2e-4), [("a", 6, 0), ("a#2", 10, 0)]),
        # every hundredth step of a hundred and five
        (megatron(16, 105) + megatron(16, 205), [("a", 10, 0), ("a#2", 20, 0)]),
    ],
)
def test_what_precedes_a_new_beginning(tmp_path, text, runs):
    log = tmp_path / "a.log"
    log.write_text(text)
    reports, _ = read([log])
    assert [(r.run, r.rows, r.restarts) for r in reports] == runs
    assert sum(r.read for r in reports) == text.count("\n")


@pytest.mark.parametrize(
    ("text", "runs"),
    [
        (rows(20) + rows(20, 40) + rows(20, 40, 60), [("a", 3, 2, 3)]),
        (
            rows(20) + rows(20, 40, offset=0.1) + rows(20, 40, 60, offset=0.2),
            [("a", 3, 2, 3)],
        ),
        (rows(10, 20, 30) + rows(10, 20, 30, offset=0.1), [("a", 3, 0, 0), ("a#2", 3, 0, 0)]),
        (rows(10, 20, 30) + rows(10, 20, 30), [("a", 3, 0, 0), ("a#2", 3, 0, 0)]),
        (rows(10, 20, 30) + rows(20, 30, 40, offset=0.1), [("a", 4, 1, 2)]),
        (
            rows(10, 20, batch=8) + rows(10, 20, 30, batch=16),
            [("a", 2, 0, 0), ("a#2", 3, 0, 0)],
        ),
        (
            rows(10, 20, 30, 40) + rows(15, 30, 45, 60, offset=0.1) + rows(10, 20, 30, 40, 50),
            [("a", 4, 1, 4), ("a#2", 5, 0, 0)],
        ),
        # rows out of order are one run
        (rows(30, 40, 50, 10, 20), [("a", 5, 0, 0)]),
        # a loss that two ranks log is one
        ("".join(2 * rows(i) for i in (10, 20, 30)), [("a", 3, 0, 0)]),
    ],
)
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
def test_tables_without_a_planned_end(tmp_path, text, runs, suffix):
    log = tmp_path / f"a.{suffix}"
    if suffix == "csv":
        values = [json.loads(line) for line in text.splitlines()]
        lines = [",".join(values[0]), *(",".join(map(str, row.values())) for row in values)]
        text = "\n".join(lines) + "\n"
    log.write_text(text)
    reports, _ = read([log], "" if "batch" in text else "8")
    assert [(r.run, r.rows, r.restarts, r.superseded) for r in reports] == runs


def test_a_second_run_in_the_directory_of_a_finished_one(tmp_path):
    """Parts of a W&B history are attempts of one run; a part that is complete is a run."""
    place = tmp_path / "history"
    place.mkdir()
    for part, offset in enumerate((0.0, 0.1)):
        lines = [
            json.dumps({"_step": i, "train/loss": loss_at(i, offset), "val/loss": 4.0, "iter": i})
            for i in (100, 200, 300)
        ]
        (place / f"{part:04d}.jsonl").write_text("\n".join(lines) + "\n")
    assert [*finals([place], "8")] == ["history", "history#2"]


def test_a_pattern_of_batch_sees_the_numbers_of_runs(tmp_path):
    log = tmp_path / "a.txt"
    log.write_text(speedrun(0, 500) + speedrun(0.1, 500))
    options = LogOptions(Batches.parse(["a=8", "a#2=16"]), 64)
    logs, _ = read_logs([log], ANY, options)
    assert [report.batch for _, report in import_runs(logs, options)] == ["8", "16"]
    with pytest.raises(InputError, match="matches no run; there are a, a#2"):
        read([log], "b=8")


def test_files_of_one_name_are_named_by_their_paths(tmp_path):
    for rate in ("lr1e-3", "lr2e-3"):
        for seed in (1, 2):
            path = tmp_path / "sweep" / rate / f"seed{seed}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(speedrun(seed / 100 + (rate == "lr2e-3") / 10, 500))
    (tmp_path / "sweep" / "lr2e-3" / "seed3.txt").write_text(speedrun(0.2, 500))
    options = LogOptions(Batches.parse(["8"]), 64, r"lr(?P<lr>[\d.e-]+)/seed(?P<seed>\d+)")
    logs, _ = read_logs([tmp_path / "sweep"], ANY, options)
    tables = {
        r.run: (t["peak_lr"].iloc[0], t["seed"].iloc[0]) for t, r in import_runs(logs, options)
    }
    assert tables == {
        "lr1e-3/seed1": (0.001, 1),
        "lr1e-3/seed2": (0.001, 2),
        "lr2e-3/seed1": (0.002, 1),
        "lr2e-3/seed2": (0.002, 2),
        "lr2e-3/seed3": (0.002, 3),
    }


def test_as_much_of_the_path_as_is_needed(tmp_path):
    for system in ("sysA", "sysB"):
        path = tmp_path / system / "bench" / "result_0.txt"
        path.parent.mkdir(parents=True)
        path.write_text(speedrun(0.1 * (system == "sysB"), 500))
    assert [*finals([tmp_path], "8")] == ["sysA/bench/result_0", "sysB/bench/result_0"]


@pytest.mark.parametrize("tracker", ["", "_step"], ids=["plain", "history"])
@pytest.mark.parametrize("suffix", ["jsonl", "csv"])
@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"max_steps": 20}, {"max_steps": 30}),
        ({"gbs": 8}, {"gbs": 16}),
        ({"seed": 1}, {"seed": 2}),
        ({"lr": 1e-3}, {"lr": 2e-3}),
        ({"train_batch_size": 8}, {"train_batch_size": 16}),
    ],
)
def test_settings_under_other_names_part_a_log(tmp_path, first, second, suffix, tracker):
    values = [{"step": i, "train_loss": 5 - i / 90, **first} for i in (10, 20)]
    values += [{"step": i, "train_loss": 4 - i / 90, **second} for i in (10, 20, 30)]
    values = [{tracker: i, **row} if tracker else row for i, row in enumerate(values)]
    lines = [",".join(values[0]), *(",".join(map(str, row.values())) for row in values)]
    text = "\n".join(lines) if suffix == "csv" else "\n".join(map(json.dumps, values))
    (tmp_path / f"a.{suffix}").write_text(text + "\n")
    logged = "gbs" in first and not tracker
    reports, _ = read([tmp_path / f"a.{suffix}"], "" if logged else "8")
    assert [(r.run, r.rows, r.restarts) for r in reports] == [("a", 2, 0), ("a#2", 3, 0)]
    told = [line for r in reports for line in r.warnings]
    assert any("correct --batch" in line for line in told) == bool(
        {"train_batch_size", "gbs"} & {*first} and not logged
    )
