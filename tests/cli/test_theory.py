import pytest

from bss.cli import main
from bss.schedules.batch import BatchSchedule
from tests.cli.called import printed

TASK = ["--source", ".3", "--capacity", "4", "--modes", "128", "--lr", ".1", "--noise", "1"]


def test_risk(capsys):
    command = ["theory", "risk", *TASK, "--data", "2^20", "--batch", "0:1 50%:8"]
    result = printed(capsys, *command)
    assert result["steps"] == 2**19 + 2**16
    assert result["data"] == 2**20
    assert result["risk"] == pytest.approx(0.0136975, rel=1e-5)
    assert result["stable_lr_bound"] == pytest.approx(0.660302, rel=1e-5)
    assert main(command) == 0
    assert "excess risk" in capsys.readouterr().out


def test_switch(capsys):
    command = ["theory", "switch", *TASK, "--min-batch", "1", "--max-batch", "8"]
    result = printed(capsys, *command, "--data", "2^12:2^24")
    assert [row["data"] for row in result["budgets"]] == [2**k for k in range(12, 25)]
    for row in result["budgets"]:
        assert row["fraction"] == pytest.approx(row["switch_data"] / row["data"])
    exponent = result["exponent"]
    assert exponent["low"] < exponent["value"] < exponent["high"]
    assert exponent["value"] == pytest.approx(result["theory"], abs=0.02)
    assert main([*command, "--data", "2^16:2^19"]) == 0
    assert "measured" in capsys.readouterr().out
    assert printed(capsys, *command, "--data", "2^12")["exponent"] is None


RISK = {
    "source": ".3",
    "capacity": "4",
    "modes": "128",
    "lr": ".1",
    "noise": "1",
    "data": "2^20",
    "batch": "0:1 50%:8",
}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"source": "0"}, "source"),
        ({"source": "nan"}, "source"),
        ({"capacity": "1"}, "capacity"),
        ({"modes": "0"}, "modes"),
        ({"modes": "many"}, "--modes"),
        ({"lr": "1"}, "below 0.660302"),
        ({"lr": "nan"}, "lr"),
        ({"noise": "-1"}, "noise"),
        ({"data": "some"}, "--data"),
        ({"data": "0"}, "0"),
        ({"batch": "0:1 2M:8"}, "--batch"),
        ({"batch": "0:1 50%:0"}, "batch"),
    ],
)
def test_bad_risks(changes, told, capsys):
    _refused("risk", {**RISK, **changes}, told, capsys)


SWITCH = {"source": ".3", "capacity": "4", "max-batch": "8", "data": "2^12:2^14"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"max-batch": "1"}, "batches"),
        ({"data": "2^14:2^12"}, "--data"),
        ({"data": "8"}, "data"),
        ({"data": "0"}, "--data"),
        ({"lr": "2"}, "lr"),
    ],
)
def test_bad_switches(changes, told, capsys):
    _refused("switch", {**SWITCH, **changes}, told, capsys)


def _refused(kind, options, told, capsys):
    try:
        status = main(["theory", kind, *(f"--{k}={v}" for k, v in options.items())])
    except SystemExit as ended:
        status = ended.code
    captured = capsys.readouterr()
    assert (status, captured.out, captured.err.count("\n")) == (2, "", 1), captured
    assert told in captured.err


OPTIMAL = {"source": ".3", "capacity": "4", "data": "2^20", "min-batch": "1", "max-batch": "8"}


def test_optimal(capsys):
    command = ["theory", "optimal", *(f"--{k}={v}" for k, v in OPTIMAL.items())]
    hard = printed(capsys, *command)
    assert hard["regime"] == "hard"
    found = BatchSchedule.parse(hard["batch"])
    assert (found.batches[0], found.batches[-1]) == (1, 8)
    stretches = zip([*found.starts[1:], hard["data"]], found.starts, found.batches, strict=True)
    steps = sum((end - start) // batch for end, start, batch in stretches)
    assert abs(hard["steps"] - steps) <= len(found.starts)  # a step may pass the end of its stage
    assert 0.9 < hard["switch_share"] < 1
    assert hard["continuous_risk"] < hard["risk"] < 1.01 * hard["continuous_risk"]
    same = ["risk", *(f"--{k}={OPTIMAL[k]}" for k in ("source", "capacity", "data"))]
    whole = printed(capsys, "theory", *same, "--modes=64", f"--batch={hard['batch']}")
    assert printed(capsys, *command, "--modes=64")["exact_risk"] == whole["risk"]

    easy = printed(capsys, *command, "--source=1", "--capacity=2")
    assert (easy["regime"], easy["batch"], easy["switch_share"]) == ("easy", "8", 0)
    assert main(command) == 0
    assert "optimal batch schedule" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"min-batch": "9"}, "batches"),
        ({"min-batch": "4", "data": "3"}, "data"),
        ({"noise": "0"}, "noise"),
        ({"lr": "inf"}, "lr"),
        ({"stages": "0"}, "--stages"),
        ({"capacity": "0.5"}, "capacity"),
        ({"source": "-1"}, "source"),
    ],
)
def test_bad_optima(changes, told, capsys):
    _refused("optimal", {**OPTIMAL, **changes}, told, capsys)
