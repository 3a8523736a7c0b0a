"""What slots a machine has, by what it is told and what it holds."""

import os

import pytest

from bss.errors import InputError
from bss.training import hardware
from bss.training.hardware import Slot, local_slots, tpu_chips


@pytest.fixture
def machine(monkeypatch, tmp_path):
    """Pretends that these GPUs or TPU chips are here, and that JAX can use them."""
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: True)

    def pretend(gpus=0, chips=0):
        smi = tmp_path / "nvidia-smi"
        listed = "".join(f"GPU {i}: NVIDIA H100 (UUID: GPU-{i})\n" for i in range(gpus))
        smi.write_text(f"#!/bin/sh\nprintf '{listed}'\n")
        smi.chmod(0o755)
        monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
        monkeypatch.setattr(hardware, "tpu_chips", lambda: [str(i) for i in range(chips)])

    return pretend


def environments(*arguments):
    return [dict(slot.environment) for slot in local_slots(*arguments)]


def test_gpus_are_listed_by_the_driver_and_narrowed_by_the_variable(machine, monkeypatch):
    machine(gpus=4, chips=8)
    assert environments() == [{"CUDA_VISIBLE_DEVICES": str(i)} for i in range(4)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-b, GPU-a,3")
    assert environments(0, 2) == [{"CUDA_VISIBLE_DEVICES": "GPU-b,GPU-a"}]
    assert {slot.core for slot in local_slots()} == {None}


def test_without_devices_the_workers_share_them_all(machine):
    machine(gpus=5)
    assert environments(2) == [{"CUDA_VISIBLE_DEVICES": gpus} for gpus in ("0,1", "2,3")]
    assert environments(1) == [{"CUDA_VISIBLE_DEVICES": "0,1,2,3,4"}]
    (slot,) = local_slots(least=4)
    assert slot.environment == {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}


def test_chips_of_a_tpu_have_bounds_and_ports_of_their_own(machine):
    machine(chips=4)
    one, _, _, last = environments()
    assert (one["TPU_VISIBLE_CHIPS"], last["TPU_VISIBLE_CHIPS"]) == ("0", "3")
    assert one["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,1,1"
    assert one["TPU_MESH_CONTROLLER_PORT"] != last["TPU_MESH_CONTROLLER_PORT"]
    first, second = environments(0, 2)
    assert (first["TPU_VISIBLE_CHIPS"], second["TPU_VISIBLE_CHIPS"]) == ("0,1", "2,3")
    assert first["TPU_CHIPS_PER_PROCESS_BOUNDS"] == "1,2,1"
    assert environments(0, 4) == [{}]
    with pytest.raises(InputError, match="devices is 3; of TPU chips choose 1, 2, 4, 8"):
        local_slots(devices=3)


def test_chips_are_counted_by_their_device_files(tmp_path, monkeypatch):
    monkeypatch.delenv("TPU_VISIBLE_CHIPS", raising=False)
    (tmp_path / "vfio").mkdir()
    for name in ("vfio/0", "vfio/1", "vfio/vfio"):
        (tmp_path / name).touch()
    assert tpu_chips(tmp_path) == ["0", "1"]
    monkeypatch.setenv("TPU_VISIBLE_CHIPS", "2,3")
    assert tpu_chips(tmp_path) == ["2", "3"]


def test_a_cpu_has_a_slot_for_every_core(machine, monkeypatch):
    machine(gpus=8)
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setattr(hardware, "cores", lambda: 3)
    assert local_slots() == [Slot(str(i), i) for i in range(3)]
    assert local_slots(2, pin=False) == [Slot("0"), Slot("1")]


@pytest.mark.parametrize(
    ("workers", "devices", "told"),
    [(0, 9, "devices is 9"), (3, 4, "3 workers with 4 devices each"), (9, 0, "9 workers with 1")],
)
def test_more_than_a_machine_has_is_refused(machine, workers, devices, told):
    machine(gpus=8)
    with pytest.raises(InputError, match=f"setup.engine: {told}.*; this machine has 8 GPUs"):
        local_slots(workers, devices)
