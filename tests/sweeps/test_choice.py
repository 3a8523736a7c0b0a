"""How a sweep's runs are trained, by measurement: what is tried, kept and told."""

import dataclasses

import pytest

from bss.errors import InputError
from bss.sweeps import choice
from bss.sweeps.choice import FILE, Chooser, Machine, read_choices, write_choices
from bss.sweeps.engines import LocalEngine
from bss.sweeps.grid import overlay
from bss.sweeps.setup import EngineConfig
from bss.training.record.directory import read_curve

CPU = Machine("a core", "cpu", 1, 1e11, 2, 2)
GPU = Machine("a card", "gpu", 1, 1e15, 16, 1)
ALONE, WHOLE = "2 workers, a run each", "1 worker on 2 cores"
EIGHT, SIXTEEN = (f"2 workers, {n} runs side by side in each" for n in (8, 16))


@pytest.fixture
def runs(tiny_run):
    """Forty of one shape and three of another."""
    small = overlay(tiny_run, {"schedule.batch": "2"})
    seeds = [dataclasses.replace(tiny_run, seed=seed) for seed in range(40)]
    return seeds + [dataclasses.replace(small, seed=seed) for seed in range(3)]


@pytest.fixture
def measured(monkeypatch):
    """Measures by a table, and says what was asked."""
    monkeypatch.setattr(choice, "PAYS", 0.0)

    def by(speeds):
        def measure(runs, way):
            asked.append((way.way, len(runs)))
            return speeds.get(way.way, 0.0)

        asked = []
        return measure, asked

    return by


def chosen(chooser, machine, measure, kept=()):
    first, *_ = chooser.choices(machine, dict(kept), measure).values()
    return first


@pytest.mark.parametrize(
    ("speeds", "fleet", "asked"),
    [
        ({ALONE: 100.0, EIGHT: 150.0, SIXTEEN: 200.0}, 16, [1, 8, 16]),
        ({ALONE: 100.0, EIGHT: 150.0, SIXTEEN: 160.0}, 8, [1, 8, 16]),  # within what it errs
        ({ALONE: 100.0, EIGHT: 105.0, SIXTEEN: 900.0}, 1, [1, 8]),
        ({ALONE: 100.0}, 1, [1, 8]),  # the memory holds no eight
    ],
)
def test_the_fastest_by_more_than_it_errs_is_taken(
    runs, tiny_execution, measured, speeds, fleet, asked
):
    measure, calls = measured(speeds)
    of = chosen(Chooser(runs[:40], tiny_execution, 2), CPU, measure)
    assert of.fleet == fleet
    assert [number for _, number in calls] == asked
    assert str(of).startswith(f"engine: {of.shape}: {of.way}: ")
    assert ("does not fit" in str(of)) == (EIGHT not in speeds)


def test_a_shape_of_few_runs_is_trained_alone(runs, tiny_execution, measured):
    measure, calls = measured({ALONE: 100.0, EIGHT: 150.0, SIXTEEN: 200.0})
    chooser = Chooser(runs, tiny_execution, 2)
    one, other = chooser.by_shape
    by = chooser.choices(CPU, {}, measure)
    fleets = {len(chooser.by_shape[shape]): by[shape].fleet for shape in (one, other)}
    assert fleets == {40: 16, 3: 1}
    assert [number for _, number in calls] == [1, 8, 16]


def test_one_run_may_have_all_cores(runs, tiny_execution, measured):
    measure, calls = measured({ALONE: 100.0, WHOLE: 130.0})
    chooser = Chooser(runs[:1], tiny_execution, 2, whole=True, few=True)
    assert chooser.is_open()
    of = chosen(chooser, CPU, measure)
    assert of.whole and of.way == WHOLE
    assert [way for way, _ in calls] == [ALONE, WHOLE]


def test_few_tokens_are_not_measured_for(runs, tiny_execution):
    def measure(runs, way):
        raise AssertionError("measured")

    of = chosen(Chooser(runs, tiny_execution, 2), CPU, measure)
    assert of.fleet == 1 and "not measured" in str(of)
    of = chosen(Chooser(runs[:40], tiny_execution, 1), GPU, measure)
    assert of.fleet == 40 and "not measured" in str(of)


def test_what_was_kept_holds_on_that_machine_alone(runs, tiny_execution, measured, tmp_path):
    measure, calls = measured({ALONE: 100.0, EIGHT: 150.0})
    first = chosen(Chooser(runs[:40], tiny_execution, 2), CPU, measure)
    write_choices(str(tmp_path), {first.shape: first})
    kept = read_choices(str(tmp_path))
    assert kept == {first.shape: first}
    calls.clear()
    assert chosen(Chooser(runs[:40], tiny_execution, 2), CPU, measure, kept) == first
    assert not calls
    other = dataclasses.replace(CPU, name="another core")
    again = chosen(Chooser(runs[:40], tiny_execution, 2), other, measure, kept)
    assert "as it was on a core with 2 cores before" in again.why and calls


def test_a_damaged_file_is_one_line(tmp_path):
    (tmp_path / FILE).write_text('{"shape": ')
    with pytest.raises(InputError, match=r"engine\.json.*delete it, and it is measured again"):
        read_choices(str(tmp_path))


@pytest.mark.slow
def test_a_sweep_that_measures_trains_what_one_that_does_not(
    tiny_run, execution_in, tmp_path, monkeypatch, capsys
):
    """Whatever is chosen: the losses are the same but for rounding, and what was chosen is kept."""
    monkeypatch.setattr(choice, "PAYS", 0.0)
    runs = [dataclasses.replace(tiny_run, seed=seed) for seed in range(8)]
    curves = []
    for fleet in (0, 1):
        execution = execution_in(tmp_path / str(fleet))
        with LocalEngine(EngineConfig(workers=2, fleet=fleet)) as engine:
            statuses = engine.train(runs, execution)
        assert {status.status for status in statuses.values()} == {"finished"}
        curves.append([read_curve(tmp_path / str(fleet) / run.id) for run in runs])
    for ours, theirs in zip(*curves, strict=True):
        for one, other in zip(ours, theirs, strict=True):
            assert one["eval_loss"] == pytest.approx(other["eval_loss"], abs=2e-5)
    (kept,) = read_choices(str(tmp_path / "0")).values()
    assert str(kept) in capsys.readouterr().err
    assert kept.measured[ALONE] > 0 and len(kept.measured) == 2  # four for each worker
    assert not (tmp_path / "1" / FILE).exists()

    def refused(*_, **__):
        raise AssertionError("measured again")

    monkeypatch.setattr(Chooser, "_chosen", refused)
    others = [dataclasses.replace(tiny_run, seed=seed) for seed in range(8, 16)]
    with LocalEngine(EngineConfig(workers=2)) as engine:  # goes on as it began
        statuses = engine.train(others, execution_in(tmp_path / "0"))
    assert {status.status for status in statuses.values()} == {"finished"}
    assert str(kept) in capsys.readouterr().err
