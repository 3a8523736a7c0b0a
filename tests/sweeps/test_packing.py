"""How many processes train a run."""

import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.sweeps.local import LocalEngine
from bss.sweeps.setup import EngineConfig, processes_per_run, runs_per_program


def test_larger_models_are_trained_by_more_processes(tiny_transformer):
    large = overlay(tiny_transformer, {"model.num_layers": 3})
    written = f"0:1 {large.model.counts().non_embedding}:2"
    assert [processes_per_run(written, run) for run in (tiny_transformer, large)] == [1, 2]
    assert processes_per_run(3, large) == 3


@pytest.mark.parametrize(
    "processes", ["", "0", "two", "1:2", "0:1 0:2", "0:1 5M:0", "0:1 9M:2 5M:4"]
)
def test_processes_that_cannot_be(processes):
    with pytest.raises(InputError, match=r"setup\.engine\.processes"):
        EngineConfig(processes=processes)


def test_runs_of_several_processes_share_no_program(tiny_transformer):
    config = EngineConfig(vmap_runs=8, processes=2)
    assert runs_per_program(tiny_transformer, config, accelerators=True) == 1


def test_runs_of_several_processes_need_a_cluster():
    with pytest.raises(InputError, match=r"setup\.engine\.processes: 2 given"):
        LocalEngine(EngineConfig(processes="2"))
