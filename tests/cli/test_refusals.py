"""What a stranger may do wrong, by command: one line, a status, and no file the worse for it."""

import errno
import gzip
import os
import re
import shlex
import signal
import subprocess
import sys

import pytest

from bss.cli import COMMANDS, main

HEAD = "run,batch,seq_len,step,loss\n"
ROWS = [f"a,4,64,{10 * i},{3 + 10 / i:.3f}" for i in range(1, 9)]
GOOD = HEAD + "\n".join(ROWS) + "\n"

TABLES = {
    "missing.csv": (None, "no such"),
    "empty.csv": (b"", "no rows"),
    "header.csv": (HEAD.encode(), "no rows|no column"),
    "cut.csv": (GOOD[:-9].encode(), r"line 9: [34] values for 5 columns"),
    "picture.csv": (b"\x89PNG\r\n\x1a\n\xff\xfe", "not UTF-8 text"),
    "zipped.csv": (gzip.compress(GOOD.encode()), "unpack it with gunzip"),
    "parquet.csv": (b"PAR1PAR1", "name it .parquet"),
    "text.parquet": (GOOD.encode(), "cannot be read as CSV or Parquet"),
    "utf16.csv": (GOOD.encode("utf-16"), "save it in UTF-8"),
    "semicolons.csv": (GOOD.replace(".", ",").replace(",", ";").encode(), "write commas"),
    "commas.csv": (GOOD.replace(".", ",").encode(), "write points"),
}
RUNS = {
    "comma.csv": (GOOD.replace("13.000", '"13,000"').encode(), "write it with a decimal point"),
    "units.csv": (GOOD.replace("13.000", "13nats").encode(), "loss is 13nats; write a finite"),
    "nan.csv": (GOOD.replace("13.000", "NaN").encode(), "after divergence"),
    "again.csv": ((GOOD + ROWS[2] + "\n").encode(), "given in line 4; drop one"),
    "back.csv": ((HEAD + "\n".join(ROWS[::-1]) + "\n").encode(), "sort the rows"),
    "huge.csv": (GOOD.replace(",10,", ",1e30,").encode(), "step is 1e.30; .* below 2.63"),
    "no_run.csv": (GOOD.replace("run,", "name,").encode(), "no column run"),
}
FITS = {
    "missing.json": (None, "no such file"),
    "empty.json": (b"", "is not JSON"),
    "cut.json": (b'{"kind": "es", "la', "is not JSON"),
    "list.json": (b"[1]", "no JSON object"),
    "binary.json": (b"\xff\xfe\x00", "cannot be read"),
    "zipped.json": (gzip.compress(b"{}"), "cannot be read"),
    "other.json": (b'{"kind": "power"}', "no fit"),
    "damaged.json": (b'{"kind": "curve"}', "damaged|lacks|a fit of kind"),
    "target.json": (
        b'{"kind": "es", "law": "surface", "seq_len": 64, "fits": [{}]}',
        "target_loss",
    ),
}
CONFIGS = {
    "missing.json": (None, "no such file"),
    "cut.json": (b'{"run": {"mod', "is not JSON"),
    "list.json": (b"[1]", "no JSON object"),
    "binary.json": (b"\xff\xfe\x00", "cannot be read"),
    "unknown.json": (b'{"model": {}}', 'expected {"run"|model is not a field|known keys|did you'),
    "key.json": (b'{"run": {"modle": {}}}', "did you mean|run is not a field|known keys|expected"),
    "value.json": (b'{"run": 3}', "run is (3|not a field)|known keys|expected"),
}
OF_TABLES = {
    "points": "points {}",
    "fit es": "fit es {} --resamples 10",
    "fit curve": "fit curve {} --resamples 10",
    "report": "report {} -o page.html",
}
OF_OTHER_TABLES = {"fit critical": "fit critical {}", "fit loss": "fit loss {}"}
OF_FITS = {
    "predict": "predict --from {} --loss 2",
    "next": "next {}",
    "schedule": "schedule --from {} --tokens 1M",
    "advise": "advise --params 85M --tokens 2.5B --seq-len 1024 --from {}",
}
OF_CONFIGS = {
    "train": "train {}",
    "sweep": "sweep {} --dry-run",
    "compile": "compile {} --on cpu:1",
}

PLAN = "plan --tokens 10M --seq-len 128 --batch 0:8 --lr 4e-3"
TWO = PLAN.replace("0:8", "'0:8 1M:16'")
RULES = "rules --params 85M --tokens 2.5B --seq-len 1024"
ADVISE = "advise --params 85M --tokens 2.5B --seq-len 1024"
RISK = "theory risk --source .3 --capacity 4 --data 2^10 --batch 2"
LINES = [
    (PLAN.replace("10M", "10 M"), "unrecognized"),
    (PLAN.replace("10M", "10MB"), "--tokens: '10MB'"),
    (PLAN.replace("10M", "1,5M"), "--tokens: '1,5M'"),
    (PLAN.replace("10M", "nan"), "--tokens"),
    (PLAN.replace("10M", "1e60"), "--tokens"),
    (PLAN.replace("10M", "''"), "--tokens"),
    (PLAN.replace("128", "2X"), "--seq-len"),
    (PLAN.replace("0:8", "0:8;2M:16"), "batch"),
    (PLAN.replace("0:8", "'0:8 2M:16 2M:32'"), "increasing"),
    (PLAN.replace("0:8", "8.5"), "batch"),
    (PLAN.replace("0:8", "99999999999999999999"), "batch"),
    (PLAN.replace("4e-3", "4e-3,"), "--lr"),
    (PLAN.replace("4e-3", "0,004"), "--lr"),
    (PLAN + " --buckets 8,x", "--buckets"),
    (PLAN.replace("0:8", "12") + " --buckets 8", "nearest that work: 8 and 16"),
    (PLAN.replace("0:8", "''"), "batch"),
    (PLAN.replace("4e-3", "inf"), "--lr inf"),
    (PLAN.replace("4e-3", "0"), "--lr 0"),
    (PLAN + " --warmup 20M --lr-schedule constant", "--warmup"),
    (PLAN + " --warmup 6M --decay 50%", "longer"),
    (PLAN + " --decay 120%", "--decay"),
    (PLAN + " --decay 10% --lr-schedule cosine", "--decay"),
    (PLAN + " --floor .5 --lr-schedule linear", "--floor"),
    (PLAN + " --floor 2", "floor"),
    (PLAN + " --lr-coupling os:system", "fails .TypeError"),
    (PLAN + " --lr-coupling os:getpid", "fails .TypeError"),
    (PLAN + " --lr-coupling math:tau", "float; expected Callable"),
    (PLAN + " --lr-coupling builtins:exit", "fails .SystemExit"),
    (PLAN + " --lr-coupling operator:neg", "gives -1.0 at 1"),
    (PLAN + " --lr-schedule os:system", "expected LearningRate"),
    (PLAN + " --lr-schedule nowhere:x", "cannot be imported"),
    (PLAN + " --lr-schedule wdd", "did you mean 'wsd'"),
    (PLAN + " --export os:system", "expected Export"),
    (PLAN + " --export maxtex", "did you mean 'maxtext'"),
    (PLAN + " --approximate", "needs --export"),
    (PLAN + " --beta2 1.5", "beta2"),
    (PLAN + " --beta2 nan", "beta2"),
    (PLAN + " --beta1 1", r"beta1: 1.0 given; write 0 <= beta1 < 1"),
    (PLAN + " --beta1 .9 --beta1-half-life 1M", "leave one of them out"),
    (PLAN + " --beta1-half-life 1023", "beta1_half_life: 1023 given; write a step's 1,024 tokens"),
    (TWO + " --beta1-half-life .1% --export megatron", "change beta1 .* it stays 0.93"),
    (PLAN + " --beta1-half-life 1M --beta1-coupling 1%", "leave one of them out"),
    (TWO + " --beta1-coupling .1% --export megatron", "change beta1 .* it stays 0.9, not 0.9, 0.8"),
    (PLAN + " --beta2 .9 --beta2-half-life 1M", "leave one of them out"),
    (PLAN + " --weight-decay -1", "weight_decay"),
    (PLAN + " --weight-decay 10%", "--weight-decay"),
    (PLAN + " --plot plan.gif", ".png, .svg"),
    (PLAN + " --plot nowhere/plan.png", "nowhere/plan.png"),
    (RULES + " --rule os:system", "expected Rule"),
    (RULES + " --rule kaplam", "did you mean 'kaplan'"),
    (RULES + " --ramp llama", "llama"),
    (RULES + " --to 512K", "--batch-tokens"),
    (RULES + " --batch-tokens 1K --beta1 1 --to 2K", "beta1: 1.0 given; write 0 <= beta1 < 1"),
    (RULES.replace("85M", "85m parameters"), "unrecognized"),
    (RULES.replace("85M", "-5"), "--params"),
    (RULES.replace("2.5B", "2,5B"), "--tokens"),
    (ADVISE + " --rule os:path", "expected Rule"),
    (ADVISE.replace("--params 85M", ""), "--params"),
    ("models --seq-len many", "--seq-len"),
    ("models --vocab-size -1", "vocab"),
    (RISK.replace("2^10", "2^99"), "--data"),
    (RISK.replace("2^10", "1,000"), "--data"),
    (RISK.replace(".3", "nan"), "source"),
    (RISK.replace("--capacity 4", "--capacity .5"), "capacity"),
    (RISK.replace("--batch 2", "--batch 0"), "batch"),
    ("theory wrong", "Unknown command"),
    ("fit wrong", "Unknown command"),
    ("fit power RUNS.csv", "power"),
    ("fit es good.csv --law os:system", "expected Law"),
    ("fit es good.csv --targets 1,9;1,8", "targets"),
    ("fit es good.csv --resamples 3", "--resamples: .*10"),
    ("points good.csv --targets low", "targets"),
    ("points good.csv --smooth 10ms", "--smooth"),
    ("points good.csv --columns loss=nll", "nll"),
    ("points", "RUNS: missing"),
    ("import os:system good.csv -o out.csv", "expected Importer"),
    ("import auto good.csv -o good.csv", "one of the logs|not recognised"),
    ("import auto nowhere -o out.csv", "nowhere"),
    ("import auto zipped.csv -o out.csv", "compressed"),
    ("import auto empty.csv -o out.csv", "empty.csv"),
    ("import wandb picture.csv -o out.csv", "picture.csv"),
    ("import auto good.csv -o out.xlsx", "not recognised|.csv or .parquet|.parquet or .csv"),
    ("import auto good.csv", "--out"),
    ("import auto good.csv -o out.csv --batch four", "batch|not recognised"),
    ("runs nowhere", "nowhere"),
    ("runs good.csv", "good.csv"),
    ("runs", "DIRECTORY: missing"),
    ("report nowhere", "nowhere"),
    ("schedule --from damaged.json", "--tokens"),
    ("schedule --from missing.json --tokens 1M --policy os:system", "no such file"),
    ("sweep nowhere.py", "config not found"),
    ("sweep os:system", "config not found"),
    ("compile --config nowhere.py:gpu --on h100:1", "no such file"),
    ("compile good.csv --on h100:1 --config a.py", "one of them"),
    ("train", "CONFIG: missing"),
    ("train missing.json --processes many", "--processes"),
    ("plant", "Unknown command"),
]


def pairs():
    """Every command line, and what its line says."""
    for files, commands in ((TABLES, {**OF_TABLES, **OF_OTHER_TABLES}), (RUNS, OF_TABLES)):
        for line in commands.values():
            yield from ((line.format(file), says) for file, (_, says) in files.items())
    for files, commands in ((FITS, OF_FITS), (CONFIGS, OF_CONFIGS)):
        for line in commands.values():
            yield from ((line.format(file), says) for file, (_, says) in files.items())
    yield from LINES


PAIRS = [pair for pair in pairs() if pair[0] != "fit curve nan.csv --resamples 10"]  # it is taken


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("wrong")
    for name, (text, _) in {**TABLES, **RUNS, **FITS, **CONFIGS}.items():
        if text is not None:
            (folder / name).write_bytes(text)
    (folder / "good.csv").write_text(GOOD)
    return folder


@pytest.fixture(autouse=True)
def _quiet(monkeypatch):
    """Leaves the signals of the test process alone."""
    monkeypatch.setattr("signal.signal", lambda *_: None)


def state(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def one_line(line, capsys) -> str:
    try:
        status = main(shlex.split(line))
    except SystemExit as left:  # how argparse leaves
        status = left.code
    out, error = capsys.readouterr()
    assert (status, out) == (2, ""), (line, out, error)
    assert error.startswith("bss") and error.endswith("\n")
    assert error.count("\n") == 1 and len(error) < 700, error
    return error


def test_there_are_at_least_150_of_them():
    assert len({line for line, _ in PAIRS}) >= 150


@pytest.mark.parametrize(("line", "says"), PAIRS)
def test_bad_input_is_one_line_and_harms_no_file(line, says, folder, capsys, monkeypatch):
    monkeypatch.chdir(folder)
    before = state(folder)
    error = one_line(line, capsys)
    assert re.search(says, error), error
    assert state(folder) == before


class Full:
    """Output on a disk that is full."""

    def write(self, _):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    flush = isatty = lambda self: None


@pytest.mark.parametrize(
    "line", [PLAN, RULES, ADVISE, RISK, "models --json", PLAN + " --export csv"]
)
def test_a_full_disk_is_one_line(line, capsys, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Full())
    assert main(shlex.split(line)) == 2
    command = "theory risk" if line.startswith("theory") else line.split()[0]
    error = capsys.readouterr().err
    assert error.startswith(f"bss {command}: No space left on device; ")
    assert error.count("\n") == 1


def test_what_the_system_refuses_is_one_line(capsys, monkeypatch):
    def fail(*_, **__):
        raise PermissionError(13, "No", "x")

    monkeypatch.setattr("bss.models.sizes.table", fail)
    assert "x: No" in one_line("models", capsys)


def test_a_mistake_of_ours_is_raised(monkeypatch):
    def fail(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr("bss.models.sizes.table", fail)
    with pytest.raises(ZeroDivisionError):
        main(["models"])


def test_an_interrupt_is_one_line_in_every_command(capsys, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupted)
    for command in COMMANDS:
        assert main([command]) == 130
        error = capsys.readouterr().err
        assert error == f"bss {command}: interrupted; no file is half-written: run it again\n"


WAITING = """
import runpy, signal, sys, time

# Whoever started the tests may ignore interrupts, and a process inherits that.
signal.signal(signal.SIGINT, signal.default_int_handler)

def wait(event, arguments):
    if event == "open" and str(arguments[0]).endswith("fit.json"):
        print("opens", flush=True)
        time.sleep(60)

sys.addaudithook(wait)
runpy.run_module("bss", run_name="__main__")
"""


def test_a_process_that_is_interrupted_leaves_with_130(tmp_path):
    """It waits where it opens a fit, so that it is known where it is."""
    (tmp_path / "fit.json").write_text("{}")
    command = [sys.executable, "-c", WAITING, *shlex.split(ADVISE), f"--from={tmp_path}/fit.json"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, text=True, **pipes) as process:
        assert process.stdout.readline() == "opens\n"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=60)
    assert process.returncode == 130
    assert error == "bss advise: interrupted; no file is half-written: run it again\n"
