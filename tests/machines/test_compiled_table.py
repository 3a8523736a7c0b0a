"""results/compiled.json: every program has its row, and compiles to it again where that can be."""

import pytest

from benchmarks.compiled import CONFIGS, compiled, versions
from bss.files import read_json
from bss.machines.absent import machine
from bss.machines.targets import TARGETS
from bss.sweeps.programs import COMPILED, fits_line, jobs, keys, program_of, setup_of
from bss.sweeps.reading import read_config

NAMED = (
    ("10M", 256, 1, "train", 8),
    ("10M", 256, 1, "train", 64),
    ("10M", 256, 1, "evaluation", 32),
    ("151M", 2048, 1, "train", 8),
    ("nano", 128, 3, "train", 64),
    ("micro", 128, 3, "evaluation", 32),
)
TABLE = read_json(COMPILED, "python -m benchmarks.compiled makes it")


def name(row):
    return tuple(row[key] for key in ("model", "seq_len", "averages", "program", "bucket"))


def asked():
    for text in CONFIGS:
        config = read_config(text)
        on = setup_of(config).engine.machine
        yield from ((key, job) for job in jobs(config) for key in keys(job, on))


def test_the_table_holds_the_named_programs_and_says_what_fits(tmp_path, monkeypatch):
    assert set(NAMED) <= {name(row) for row in TABLE["programs"]}
    for row in TABLE["programs"]:
        of = next(one for one in TARGETS if one.name == row["machine"].partition(":")[0])
        assert row["fits"] is (row["peak_bytes"] <= of.pool(0.92))
        assert row["state_bytes"] < row["peak_bytes"]
        assert not row["uncounted"]
        # Model FLOPs count all pairs of attention, kernels make those of a causal mask.
        assert 0 < row["bound"]["mfu"] < 1.3
    config = read_config("configs/es_wsd.py:gpu")
    monkeypatch.chdir(tmp_path)  # the table is the checkout's, from anywhere
    assert fits_line(jobs(config), "h100:1").startswith("h100:1: fits, at most 2.9 GB of 78.2 (10M")
    assert "not compiled" in fits_line(jobs(config), "h200:1")


@pytest.mark.parametrize(
    "row",
    [
        pytest.param(
            row,
            id=" ".join(map(str, name(row))),
            marks=[] if name(row) in NAMED else pytest.mark.slow,
        )
        for row in TABLE["programs"]
    ],
)
def test_a_program_compiles_to_what_it_was(row):
    is_gpu = row["machine"].startswith("h")
    for module in ("jax_plugins.xla_cuda13", "nvidia.cudnn") if is_gpu else ("libtpu",):
        pytest.importorskip(module)
    if not versions().items() <= TABLE["versions"].items():
        pytest.skip(f"the table is of {TABLE['versions']}")
    key, job = next((key, job) for key, job in asked() if program_of([row], key))
    again = compiled(job, key, machine(row["machine"]))
    for field in ("state_bytes", "temp_bytes", "peak_bytes", "flops", "bytes"):
        assert again[field] == pytest.approx(row[field], rel=1e-3), (
            field,
            again[field],
            row[field],
        )
    assert again["attention"] == row["attention"]
