"""Every program of a run, compiled here for devices of which the roofline is known."""

import jax
import pytest

from bss.machines.absent import Machine
from bss.machines.targets import Reached, Target
from bss.training.aot.compiled import examine
from bss.training.step import init_state


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


@pytest.fixture(scope="module")
def programs(tiny_run, execution_in, tmp_path_factory):
    """The programs of a run on one device of 1e12 FLOP/s and 1e9 bytes/s."""
    reached = Reached(1e9, 5e8, 5e11, 1e-3, 2e-3)
    target = Target("planted", (), 1e9, 1e9, 1e12, reached)
    machine = Machine("planted", target, jax.local_devices()[:1], 1e9)
    execution = execution_in(tmp_path_factory.mktemp("examined"))
    return [*examine(tiny_run, {2: 1, 4: 2}, execution, machine)]


def test_each_bucket_and_the_evaluation_have_a_program(programs):
    # 20 sequences are evaluated, at most 8 at once
    told = [(one.program, one.bucket) for one in programs]
    assert told == [("train", 2), ("train", 4), ("evaluation", 8)]
    assert all(one.memory.fits and one.compile_seconds > 0 for one in programs)


def test_bounds_count_the_tokens_and_the_models_own_flops(programs, tiny_run):
    per_token = [tiny_run.model.training_flops_per_token(16)] * 2
    per_token.append(tiny_run.model.forward_flops_per_token(16))
    for one, tokens, flops in zip(programs, (2 * 16, 4 * 16, 20 * 16), per_token, strict=True):
        assert one.bound.tokens_per_second * one.bound.seconds == pytest.approx(tokens)
        assert one.bound.mfu * one.bound.seconds * 1e12 == pytest.approx(tokens * flops)
        work = one.reading.flops / 5e11 + one.reading.bytes / 5e8
        assert one.expected.seconds == pytest.approx(3e-3 + work)
        assert one.tokens_per_second == pytest.approx(tokens / one.expected.seconds)


def test_the_state_stays_beside_an_evaluation(programs, tiny_run):
    state = jax.eval_shape(lambda: init_state(tiny_run))
    whole = sum(x.size * x.dtype.itemsize for x in jax.tree.leaves(state))
    for one in programs:
        assert one.memory.state_bytes == whole
        assert one.memory.peak_bytes > whole
    entry = programs[-1].entry()
    assert (entry["program"], entry["bucket"], entry["fits"]) == ("evaluation", 8, True)
    assert entry["compile_seconds"] == round(programs[-1].compile_seconds, 2)
    assert entry["bound"]["by"] in ("compute", "memory")
