"""What is read is data: a name of code in a file is neither imported nor called."""

import importlib.abc
import json
import shutil
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import pandas as pd
import pytest

from bss.cli import main
from bss.errors import InputError
from bss.laws import fit_from_dict, read_fit
from bss.laws.es import LAWS
from bss.models.transformer import TransformerConfig
from bss.registry import Registry, UntrustedError, load, reading_data, trusting
from bss.sweeps.table import list_runs, origins, trained_table
from bss.training.run_config import EvaluationConfig, RunConfig
from bss.training.run_directory import (
    RunStatus,
    open_run,
    read_config,
    with_checksum,
)
from bss.values import from_dict, to_dict
from tests.cli.called import refused
from tests.fits import changed, fit_entry, places

KINDS = ("es", "critical", "loss", "curve")
NAMES = ("evil_file:THING", "evil_known:THING")


class Trap(ModuleType):
    """A module that is imported already, and notes who takes something of it."""

    def __getattr__(self, name):
        if not name.startswith("__"):
            TOUCHED.append(name)
        return lambda *_, **__: TOUCHED.append(f"{name} called")


class Finder(importlib.abc.MetaPathFinder):
    """Notes every import of a module with such a name."""

    def find_spec(self, name, path=None, target=None):
        if name.startswith("evil_"):
            TOUCHED.append(f"{name} imported")


TOUCHED: list[str] = []


@pytest.fixture(autouse=True)
def untouched(monkeypatch, tmp_path):
    """Plants both modules, and fails the test if one of them was touched."""
    TOUCHED.clear()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "meta_path", [Finder(), *sys.meta_path])
    monkeypatch.setitem(sys.modules, "evil_known", Trap("evil_known"))
    yield
    assert TOUCHED == []


def texts(entry):
    return [place for place, value in places(entry) if isinstance(value, str)]


@pytest.mark.parametrize("kind", KINDS)
def test_a_fit_names_no_code_in_any_field(kind):
    entry = whole = fit_entry(kind)
    for place in texts(entry):
        with suppress(InputError):
            fit_from_dict(changed(entry, place, NAMES[0]))
            fit_from_dict(changed(entry, place, NAMES[1]))
            whole = changed(whole, place, NAMES[1])
    Path("fit.json").write_text(json.dumps(whole))
    main(["predict", "--from", "fit.json", "--extrapolate", *QUESTIONS[kind].split()])
    if kind == "es":
        main(["schedule", "--from", "fit.json", "--tokens", "10M"])
        main(["advise", "--from", "fit.json", *SETTING])
    if kind in ("es", "critical"):
        main(["next", "fit.json"])


SETTING = ("--params", "10M", "--tokens", "1B", "--seq-len", "64")
QUESTIONS = {
    "es": "--loss 2.0 --batch 8",
    "critical": "--params 100M --tokens 1B",
    "loss": "--params 100M --tokens 10B --batch 64 --seq-len 2048",
    "curve": "--batch 8 --tokens 1M",
}


@pytest.mark.parametrize("name", NAMES)
def test_the_fields_that_name_a_law_say_what_to_do(name, capsys):
    Path("fit.json").write_text(json.dumps(fit_entry("es") | {"law": name}))
    for command in ("predict --loss 2 --from", "schedule --tokens 1M --from", "next"):
        line = refused(capsys, *command.split(), "fit.json")
        assert f"fit.json: law: {name} is code that the file names" in line
        assert "--trust" in line
    entry = changed(fit_entry("loss"), ("law", "form"), name)
    with pytest.raises(UntrustedError, match="form: evil"):
        fit_from_dict(entry)


def test_a_law_is_read_once_the_user_has_passed_it(monkeypatch, tmp_path, capsys):
    source = "from bss.laws.es import LAWS\nLAW = LAWS['asymmetric']\n"
    Path("my_own_law.py").write_text(source)
    monkeypatch.setattr(LAWS, "loaded", {})
    Path("fit.json").write_text(json.dumps(fit_entry("es") | {"law": "my_own_law:LAW"}))
    question = ("predict", "--from", "fit.json", "--loss", "2.0", "--extrapolate")
    assert "my_own_law:LAW is code" in refused(capsys, *question)
    assert "my_own_law" not in sys.modules
    assert main([*question, "--trust"]) == 0
    assert main(question) == 0  # the same value, which the user has trusted in this process
    LAWS.loaded.clear()
    assert "is code" in refused(capsys, *question)  # not because the module is imported
    law = sys.modules["my_own_law"].LAW
    monkeypatch.setattr(sys.modules["my_own_law"], "LAW", law)
    LAWS.load("my_own_law:LAW")
    assert read_fit("fit.json").law == law
    sys.modules.pop("my_own_law")


def test_trusting_a_value_trusts_no_other(monkeypatch):
    fractions: Registry[type] = Registry("number", {}, of=type)
    known = load("fractions:Fraction", "number")
    with trusting(known), reading_data():
        assert fractions.load("fractions:Fraction") is known
        for name in ("decimal:Decimal", *NAMES):
            with pytest.raises(UntrustedError):
                fractions.load(name)
    with trusting(), reading_data():
        assert fractions.load("decimal:Decimal").__name__ == "Decimal"
    with pytest.raises(InputError, match=r"was not loaded"):
        fractions["collections:Counter"]


def test_a_module_that_a_user_names_may_name_others():
    """Reading ends where the user's own module begins."""
    Path("my_rates.py").write_text(
        "from bss.schedules.coupling import Coupling\n"
        "RATE = Coupling('math:sqrt', 8).settings(1e-3, 32, 8).lr\n"
    )
    with reading_data(), trusting():
        assert load("my_rates:RATE", "rate") == 2e-3
    sys.modules.pop("my_rates")


@pytest.fixture
def run_directory(tmp_path):
    """The directory of one finished run, as training leaves it."""
    model = TransformerConfig(256, num_layers=1, d_model=16, num_heads=2, d_ff=32)
    run = RunConfig(model, evaluation=EvaluationConfig(metrics=("accuracy",)), averages=("4%",))
    rows = [
        {"step": 8 * i, "tokens": 8192 * i, "batch": 8, "lr": 1e-3, "loss": 4 - 0.1 * i,
         "eval_loss": 4 - 0.1 * i, "seconds": 0.1 * i}
        for i in range(1, 9)
    ]  # fmt: skip
    with open_run(tmp_path / "runs" / run.id) as directory:
        directory.check_config(run)
        for row in rows:
            directory.add_row(row)
        directory.add_execution({"commit": "abc", "started": "2026", "registration": ""})
        directory.write_status(RunStatus("finished", 65536, 64, {"eval_loss": 3.2}, message="m"))
    return directory.path


@pytest.mark.parametrize("hashed", [True, False])
@pytest.mark.filterwarnings("ignore::RuntimeWarning")
def test_a_run_directory_names_no_code_in_any_field(run_directory, hashed):
    runs, refusals = run_directory.parent, set()
    for file in ("config.json", "status.json", "execution.json"):
        whole = json.loads((run_directory / file).read_text())
        for place in texts(whole):
            for name in NAMES:
                planted = changed(whole, place, name)
                if file != "execution.json" and place != ("hash",):
                    planted.pop("hash", None)
                    planted = with_checksum(planted) if hashed else planted
                (run_directory / file).write_text(json.dumps(planted))
                for read in (list_runs, trained_table, lambda x: origins(x, [run_directory.name])):
                    try:
                        read(runs)
                    except UntrustedError:
                        refusals.add(place)
                    except InputError:
                        continue
        (run_directory / file).write_text(json.dumps(whole))
    wanted = {"rate", "lr_coupling", "weight_decay_coupling", "name"}
    assert {place[-1] for place in refusals} == wanted


@pytest.mark.parametrize("command", ["runs", "points", "report", "fit es", "fit loss", "fit curve"])
def test_every_reader_of_runs_refuses_in_one_line(run_directory, command, capsys):
    file = run_directory / "config.json"
    entry = json.loads(file.read_text())
    entry.pop("hash")
    entry["model"]["family"] = NAMES[0]
    file.write_text(json.dumps(with_checksum(entry)))
    line = refused(capsys, *command.split(), str(run_directory.parent))
    assert "config.json: model.family: evil_file:THING is code" in line
    assert "--trust" in line


@pytest.mark.filterwarnings("default:.*has no hash:RuntimeWarning")
def test_a_config_without_its_hash_is_read_with_a_note_and_not_resumed(run_directory, capsys):
    file = run_directory / "config.json"
    entry = json.loads(file.read_text())
    file.write_text(json.dumps({key: x for key, x in entry.items() if key != "hash"}))
    assert main(["runs", str(run_directory.parent)]) == 0
    assert "config.json: has no hash" in capsys.readouterr().err
    with pytest.warns(RuntimeWarning, match="has no hash"):
        run = read_config(run_directory)
    before = file.read_bytes()
    with open_run(run_directory) as directory, pytest.raises(InputError, match="not resumed"):
        directory.check_config(run)
    assert file.read_bytes() == before


def test_a_config_that_names_code_is_not_resumed(run_directory):
    file = run_directory / "config.json"
    run = read_config(run_directory)
    entry = json.loads(file.read_text())
    entry.pop("hash")
    entry["schedule"]["rate"] = NAMES[1]
    file.write_text(json.dumps(with_checksum(entry)))
    with open_run(run_directory) as directory, pytest.raises(UntrustedError, match=r"rate: evil_"):
        directory.check_config(run)


def test_a_user_reads_back_the_custom_values_that_were_passed_as_objects(tiny_run, tmp_path):
    """In Python the value itself is passed, and its name in a file is known from then on."""
    with open_run(tmp_path / "own" / tiny_run.id) as directory:
        directory.check_config(tiny_run)
    assert read_config(directory.path) == tiny_run
    with reading_data():
        assert from_dict(RunConfig, to_dict(tiny_run)) == tiny_run


def test_a_table_names_no_code_in_any_column(capsys):
    runs = pd.DataFrame({
        "run": ["a"] * 6 + ["b"] * 6, "step": [*range(1, 7)] * 2, "batch": [8] * 6 + [16] * 6,
        "loss": [4.0, 3.5, 3.2, 3.0, 2.9, 2.8] * 2, "seq_len": 64, "model": "m",
    })  # fmt: skip
    for column in runs:
        runs.assign(**{column: NAMES[1]}).to_csv("runs.csv", index=False)
        for command in ("points", "fit es", "fit loss"):
            main([*command.split(), "runs.csv"])
    capsys.readouterr()


def test_the_results_of_an_experiment_name_no_code(capsys):
    shutil.copytree(Path(__file__).parent.parent / "results/demo", "results")
    fits = json.loads(Path("results/fits.json").read_text())
    name = next(iter(fits))
    Path("results/fits.json").write_text(json.dumps(fits | {name: fits[name] | {"law": NAMES[0]}}))
    assert "law: evil_file:THING is code" in refused(capsys, "report", "results")
