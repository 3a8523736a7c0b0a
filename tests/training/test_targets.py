"""What JAX gives programs of a device, and the machines that are asked for by number of GPUs."""

import pytest

from bss.errors import InputError
from bss.training.hardware import memory_environment, memory_fraction, target_of

NAMES = ("XLA_CLIENT_MEM_FRACTION", "XLA_PYTHON_CLIENT_MEM_FRACTION")


@pytest.fixture(autouse=True)
def nothing_said(monkeypatch):
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


def test_a_part_of_a_gpu_is_given_to_programs_and_all_of_a_tpu(monkeypatch):
    h100, tpu = target_of("NVIDIA H100 80GB HBM3"), target_of("TPU v5e")
    assert h100 and tpu
    assert h100.pool(memory_fraction()) == pytest.approx(78.217478144e9, rel=1e-4)  # as JAX told
    assert tpu.pool(memory_fraction()) == tpu.memory
    assert memory_environment() == {"XLA_CLIENT_MEM_FRACTION": "0.92"}
    monkeypatch.setenv(NAMES[1], ".75")
    assert h100.pool(memory_fraction()) == pytest.approx(63.8e9, rel=1e-3)
    assert memory_environment() == {}


@pytest.mark.parametrize("text", ["much", "0", "1.5", "nan"])
def test_what_is_no_part_of_1_is_refused(text, monkeypatch):
    monkeypatch.setenv(NAMES[0], text)
    with pytest.raises(InputError, match=f"XLA_CLIENT_MEM_FRACTION is '{text}'; expected a part"):
        memory_fraction()
