"""A program with too little memory is refused in one line, and nothing that was saved is lost."""

import contextlib
from concurrent.futures import Future

import pytest
from jax.errors import JaxRuntimeError

from bss.errors import InputError
from bss.training import evaluation, out_of_memory
from bss.training.loop import Devices, train
from bss.training.run_directory import read_curve, read_status, run_path

EXHAUSTED = JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 21 bytes.\nBuffers: ...")


def no_memory(*_):
    raise EXHAUSTED


class Step:
    """A batch of which only the program matters."""

    program = 32


@pytest.fixture
def devices():
    with contextlib.closing(Devices(0.0, lambda: 0)) as devices:
        yield devices


def test_a_step_without_memory_names_its_micro_batch(devices):
    expected = r"^execution\.buckets: .* for 32 sequences at once; name a smaller size \(.*21 bytes"
    with pytest.raises(InputError, match=expected) as told:
        devices.step(Step, no_memory, ())
    assert "\n" not in str(told.value)


def test_a_compiler_that_refuses_names_the_micro_batch(devices):
    refused = Future()
    refused.set_exception(EXHAUSTED)
    with pytest.raises(InputError, match=r"^execution\.buckets: .* 32 sequences"):
        devices.await_program({32: refused}, 32)


def test_other_errors_of_a_program_stay_as_they_are(devices):
    def fails(*_):
        raise JaxRuntimeError("INTERNAL: a kernel failed")

    with pytest.raises(JaxRuntimeError, match="INTERNAL"):
        devices.step(Step, fails, ())


def test_a_machine_with_less_memory_is_told_before_the_first_step(
    tiny_run, tiny_execution, monkeypatch
):
    monkeypatch.setattr(out_of_memory, "machine_memory", lambda: 1e3)
    with pytest.raises(InputError, match=r"buckets: .* needs .* GB, this machine has 1e-06; name"):
        train(tiny_run, tiny_execution)
    directory = run_path(tiny_execution.runs, tiny_run)
    assert read_status(directory).status == "failed"
    assert read_curve(directory) == []


def test_an_evaluation_without_memory_names_its_own_size_and_keeps_the_run(
    tiny_run, tiny_execution, monkeypatch
):
    compiled = evaluation.compile_cached

    def refusing(key, *arguments, **options):
        return no_memory if key[0] == "sums" else compiled(key, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(evaluation, "compile_cached", refusing)
        with pytest.raises(
            InputError, match=r"^execution\.evaluation_bucket: .* sequences at once"
        ):
            train(tiny_run, tiny_execution)
    assert train(tiny_run, tiny_execution).status == "finished"
