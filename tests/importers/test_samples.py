"""Small samples of every format, by name and as `auto` recognises them."""

import re
from pathlib import Path

import pytest

from bss.cli import main
from bss.importers import LogOptions
from bss.importers.batches import Batches
from bss.tables import read_runs
from tests.cli.called import printed
from tests.importers.imported import the_run

SAMPLES = Path(__file__).parents[1] / "samples"
GIVEN = ["--seq-len", "64", "--batch", "torchtitan=0:8 50K:16", "--batch", "chart-b16=16"]
GIVEN += [f"--batch={run}=8" for run in ("chart-b8", "seeds", "llmc", "nanotron")]

RUNS = {
    # format, path: the batches, where they are from, what is missing
    ("huggingface", "hf-70m"): ("8", "tokens per step", ()),
    ("levanter", "levanter-130m"): ("8", "logged", ()),
    ("levanter", "levanter-json.log"): ("8", "tokens per step", ()),
    ("llm.c", "llmc-stdout.log"): ("8", "logged", ()),
    ("llm.c", "llmc.log"): ("8", "--batch", ()),
    ("megatron", "megatron-new.log"): ("8 16", "logged", ()),
    ("megatron", "megatron-old.log"): ("8 16", "logged", ()),
    ("modded-nanogpt", "modded-nanogpt.txt"): ("8", "logged", ("loss", "lr")),
    ("modded-nanogpt", "modded-nanogpt-2025.txt"): ("8", "logged", ("loss", "lr")),
    ("nanotron", "nanotron.log"): ("8", "--batch", ("eval_loss",)),
    ("olmo", "olmo-core-190m.jsonl"): ("8", "tokens per step", ()),
    ("nemo", "nemo.log"): ("8", "logged", ("eval_loss",)),
    ("olmo", "olmo-core.log"): ("8", "tokens per step", ("eval_loss", "lr")),
    ("olmo", "olmo.log"): ("8", "tokens per step", ("lr",)),
    ("torchtitan", "torchtitan.log"): ("8 16", "--batch", ("lr",)),
    ("wandb", "wandb-grouped.csv"): ("8", "--batch", ("loss", "lr")),
}


def test_auto_recognises_every_sample(tmp_path, capsys):
    out = str(tmp_path / "runs.parquet")
    told = printed(capsys, "import", "auto", *map(str, SAMPLES.iterdir()), "-o", out, *GIVEN)
    runs = read_runs(out)
    assert set(runs["run"]) == {run["run"] for run in told["runs"]}
    assert len(told["runs"]) == len(RUNS) + 2
    assert len(runs) == sum(run["rows"] for run in told["runs"])


@pytest.mark.parametrize(("name", "path"), RUNS)
def test_each_format_reads_its_sample(name, path):
    batch, source, missing = RUNS[name, path]
    given = [("0:8 50K:16" if name == "torchtitan" else "8")] if source == "--batch" else []
    table, report = the_run([SAMPLES / path], LogOptions(Batches.parse(given), 64), name)
    assert (report.batch, report.batch_from, report.missing) == (batch, source, missing)
    assert (table["tokens"].iloc[-1], table["step"].iloc[-1]) == (report.tokens, report.steps)


def test_what_is_printed_is_a_short_table(tmp_path, capsys):
    out = str(tmp_path / "runs.csv")
    assert main(["import", "megatron", str(SAMPLES / "megatron-new.log"), "-o", out]) == 0
    text = capsys.readouterr().out
    assert "megatron-new" in text and re.search(r"8 16 +logged", text) and "1 run, 9 rows" in text
    assert len(read_runs(out)) == 9
