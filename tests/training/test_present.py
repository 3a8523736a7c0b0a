"""JAX looks for an accelerator only where there is one."""

import os

import pytest

from bss.training.hardware import look_for_present


@pytest.mark.parametrize(
    ("installed", "device", "asked", "found"),
    [
        (True, None, None, "cpu"),
        (True, "nvidia0", None, None),
        (True, "accel0", None, None),
        (False, None, None, None),
        (True, None, "cuda", "cuda"),
    ],
)
def test_a_compiler_without_its_device_leaves_jax_on_the_cpu(
    installed, device, asked, found, tmp_path, monkeypatch
):
    monkeypatch.setattr("importlib.util.find_spec", lambda _: installed or None)
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("JAX_PLATFORMS", asked or "")
    if device:
        (tmp_path / device).touch()
    look_for_present(tmp_path)
    assert os.environ["JAX_PLATFORMS"] == (found or "")
