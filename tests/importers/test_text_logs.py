"""Lines as trainers, their launchers and their forks print them, version by version."""

import gzip

import pytest

from bss.errors import InputError
from bss.importers import LogOptions
from bss.importers.batches import Batches
from tests.importers.imported import the_run

NONE = LogOptions()
LENGTH = LogOptions(seq_len=64)
BOTH = LogOptions(Batches.parse(["8"]), 64)


def read(tmp_path, text, options=NONE, name="run.log", encoding="utf-8"):
    (tmp_path / name).write_bytes(text.encode(encoding))
    return the_run([tmp_path / name], options, "auto")


def refused(tmp_path, text, says, options=NONE):
    with pytest.raises(InputError, match=says) as error:
        read(tmp_path, text, options)
    assert "\n" not in str(error.value)


def columns(table, *names):
    return [list(row) for row in table[list(names)].to_numpy().tolist()]


MEGATRON = (
    " iteration {i:8d}/     100 | consumed samples: {samples:12d} |{more} elapsed time per "
    "iteration (ms): 12.3 | learning rate: 1.0E-04 | global batch size:     8 | "
    "lm loss: {loss:.6E} | number of skipped iterations:   0 | number of nan iterations:   0 |\n"
)
LENGTH_64 = "  seq_length ...................... 64\n"


def megatron(i, loss, more="", line=MEGATRON):
    return line.format(i=i, samples=8 * i, loss=loss, more=more)


def test_megatron_reads_its_validation_set_twice_at_the_end(tmp_path):
    text = LENGTH_64 + megatron(10, 4.0) + megatron(20, 3.9)
    for at, where in ((3.5, ""), (3.6, " on validation set"), (3.7, " on test set")):
        text += (
            f" validation loss at iteration 20{where} | lm loss value: {at} | lm loss PPL: 9 |\n"
        )
    table, report = read(tmp_path, text)
    assert columns(table, "step", "loss", "eval_loss")[1] == [20, 3.9, 3.6]
    assert len(table) == 2 and report.restarts == 0
    table, _ = read(tmp_path, text.replace("iteration 20 | lm loss value: 3.5", "nothing"))
    assert columns(table, "eval_loss")[1] == [3.6]


@pytest.mark.parametrize("colon", ["", ":"])
def test_megatron_before_it_counted_samples(tmp_path, colon):
    text = LENGTH_64 + "".join(
        f" iteration {i}/ 900 | elapsed time per iteration (ms){colon or ':'} 617.9 | "
        f"learning rate{colon} 1.000E-04 | lm loss{colon} {4 - i / 1000} | loss scale{colon} 1 |\n"
        for i in (100, 200)
    )
    refused(tmp_path, text, "does not give its batch")
    table, _ = read(tmp_path, text, BOTH)
    assert columns(table, "step", "tokens", "lr", "loss")[1] == [200, 102400, 1e-4, 3.8]


def test_megatron_lines_that_are_mixed_up(tmp_path):
    whole = megatron(10, 4.0)
    for line in (whole[:60] + megatron(20, 3.9), whole[:150] + "\n"):
        refused(tmp_path, LENGTH_64 + whole + line + line + megatron(30, 3.8), "line 3: is not")
        refused(tmp_path, LENGTH_64 + whole + line + megatron(30, 3.8), "line 3: is not")
        table, report = read(tmp_path, LENGTH_64 + whole + line)
        assert report.notes == ("is cut off in line 3; the rows before it are read",)
        assert list(table["step"]) == [10] and set(table["status"]) == {"cut"} == {report.status}
    refused(
        tmp_path,
        LENGTH_64 + whole + LENGTH_64.replace("64", "128"),
        "does not give its sequence length",
    )


TITAN = "{rank}[titan] 2026-02-24 - root - INFO - step: {i:2}  loss: {loss:8.5f}  {end}\n"
SETTINGS = (
    "[rank0]:[titan] 2026-02-24 - root - INFO - Trainer is initialized with local batch size 2, "
    " global batch size 16, gradient accumulation steps 1, sequence length 64, total steps 90\n"
)
END = "memory: 14.91GiB(18.82%)  tps: 48,655  mfu: 13.87%"


def titan(rows, ranks=("",), end=END):
    return "".join(TITAN.format(rank=r, i=i, loss=x, end=end) for i, x in rows for r in ranks)


def test_torchtitan_says_its_batch_where_it_starts(tmp_path):
    text = SETTINGS + titan([(1, 9.0), (10, 8.0)], end=END.replace("tps", "wps"))
    table, report = read(tmp_path, text)
    assert columns(table, "step", "tokens", "batch") == [[1, 1024, 16], [10, 10240, 16]]
    assert report.batch_from == "logged"
    changed = SETTINGS.replace("size 16", "size 32") + text
    refused(tmp_path, changed, "does not give its batch", LENGTH)


def test_torchtitan_of_every_rank(tmp_path):
    attempts = [(10, 9.0), (20, 8.0), (30, 7.0), (20, 8.1), (30, 7.1)]
    table, report = read(tmp_path, titan(attempts, ("",) * 8), BOTH)
    assert columns(table, "step", "loss") == [[10, 9.0], [20, 8.1], [30, 7.1]]
    assert (report.restarts, report.superseded) == (1, 2)


def test_torchtitan_stages_without_a_loss(tmp_path):
    rows = [(10, 9.0), (20, 8.0)]
    first = [titan([(i, -1.0)], ("[rank0]:",)) + titan([(i, x)], ("[rank7]:",)) for i, x in rows]
    table, _ = read(tmp_path, "".join(first), BOTH)
    assert columns(table, "step", "loss") == [[10, 9.0], [20, 8.0]]
    refused(tmp_path, titan([(10, -1.0), (20, -1.0)]), "give the log of the rank that prints it")


@pytest.mark.parametrize("prefix", ["", "[rank0]: ", "2024-08-06T09:59:26.181Z "])
def test_olmo_behind_a_launcher(tmp_path, prefix):
    text = "h:0 olmo.train INFO    System/Peak GPU Memory (MB)=6,784\n"
    for i in (1, 2):
        text += f"h:0 olmo.train:908 INFO    [step={i}/739328,epoch=0]\n"
        text += "    train/CrossEntropyLoss=9.5\n    train/Perplexity=13,360\n"
        text += f"    throughput/total_tokens={i * 1024:,d}\n"
    text += "    eval/c4/CrossEntropyLoss=9.7\n    eval/c4/Perplexity=16,318\n"
    text = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    table, _ = read(tmp_path, text, LENGTH)
    assert columns(table, "step", "tokens", "batch", "loss")[1] == [2, 2048, 16, 9.5]
    assert list(table["eval_loss"])[1] == 9.7


RULE = "=" * 100 + "\n"
PROGRAM = """import torch
class Hyperparameters:
    batch_size : int = 2*4 # batch size, in sequences, across all devices
    sequence_length : int = 64 # sequence length, in tokens
"""


def test_the_oldest_modded_nanogpt_logs_begin_with_a_rule(tmp_path):
    lines = [
        "step:0/9 val_loss:11.0 train_time:235ms step_avg:nanms",
        "step:1/9 train_loss:10.9 train_time:412ms step_avg:nanms",
        "step:9/9 val_loss:9.5 train_time:0.5s step_avg:49.31ms final_eval",
    ]
    text = RULE + PROGRAM + RULE + "Running pytorch\n" + RULE + "\n".join(lines) + "\n"
    table, _ = read(tmp_path, text, name="run.txt")
    assert columns(table, "step", "tokens", "batch") == [[0, 0, 8], [1, 512, 8], [9, 4608, 8]]
    assert list(table["eval_loss"])[::2] == [11.0, 9.5] and list(table["loss"])[1] == 10.9
    table, _ = read(tmp_path, "\n".join(lines) + "\n", BOTH, "slurm-7.out")
    assert list(table["run"]) == ["slurm-7"] * 3


@pytest.mark.parametrize("prefix", ["", " 0: ", "trainer-1  | ", "2026-02-24T10:00:00.1Z "])
@pytest.mark.parametrize("loss", ["loss {} (+nanz)", "train loss {}"])
def test_llmc_behind_a_launcher(tmp_path, prefix, loss):
    text = "| sequence length T     | 64    |\n| total batch size      | 512   |\nval loss 11.0\n"
    for i in (1, 2):
        told = loss.format(12 - i)
        text += f"step {i:4d}/19560 | {told} | norm 15.1 (+nanz)| lr 8.57e-07 | 46.2 ms\n"
    text = "".join(f"{prefix}{line}\n" for line in text.splitlines())
    table, _ = read(tmp_path, text)
    assert columns(table, "step", "tokens", "batch") == [[0, 0, 8], [1, 512, 8], [2, 1024, 8]]
    assert list(table["loss"])[1:] == [11.0, 10.0] and list(table["eval_loss"])[:1] == [11.0]


MAIN_LOG = "s:0 tel:11.0\ns:0 trl:10.9\ns:1 trl:10.5\n"


@pytest.mark.parametrize(
    ("text", "encoding"),
    [
        (MAIN_LOG.replace("\n", "\r\n"), "utf-8"),
        (MAIN_LOG, "utf-8-sig"),
        (MAIN_LOG.replace("\n", "\r\n"), "utf-16"),
        (MAIN_LOG.replace("s:1", "\0\0\0s:1"), "utf-8"),
        (MAIN_LOG.replace("s:1", " 50%|##  |\r100%|####|\rs:1"), "utf-8"),
        (MAIN_LOG.replace("s:1", "\x1b[K\x1b[1;32ms:1"), "utf-8"),
        ("x" * 10**6 + "\n" + MAIN_LOG, "utf-8"),
    ],
)
def test_files_as_systems_write_them(tmp_path, text, encoding):
    table, _ = read(tmp_path, text, BOTH, encoding=encoding)
    assert columns(table, "step") == [[0], [1], [2]]


def test_compressed_logs_are_to_be_unpacked(tmp_path):
    (tmp_path / "run.log.gz").write_bytes(gzip.compress(MAIN_LOG.encode()))
    with pytest.raises(InputError, match="is compressed; unpack it with gunzip first"):
        the_run([tmp_path / "run.log.gz"], BOTH, "auto")


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-16"])
def test_utf_16_is_read_with_and_without_its_mark(encoding, tmp_path):
    text = "".join(f"s:{i} trl:{9 - i / 10} lr:1e-3 norm:1\n" for i in range(20))
    table, report = read(tmp_path, text, BOTH, "main.log", encoding)
    assert (report.status, report.read, len(table)) == ("finished", 20, 20)
