"""What is left of forty lines that JAX prints as it ends a process."""

from bss.training.devices.native_log import END, readable

NOISE = "W1122 12:00:00.1 10 coordination_service.cc:1] a task is gone"


def test_an_entry_goes_with_the_lines_that_belong_to_it():
    lines = ["a", NOISE, "of it", "E1122 12:00:00.1 10 cuda.cc:1] out of memory", "of that"]
    assert [*readable(lines, "died", "missing")] == ["a", lines[3], "of that"]
    assert [*readable(["F1122 12:00:00 distributed"], "", "")] == ["F1122 12:00:00 distributed"]


def test_the_end_is_one_line():
    assert [*readable(["a", f"F {END} x", "b", "c"], "died", "missing")] == ["a", "died"]
    assert [*readable([f"F {END} x", "b", "RegisterTask"], "died", "missing")] == ["missing"]
    assert [*readable(["[Gloo] Rank 1", "Gloo"], "died", "missing")] == ["Gloo"]
