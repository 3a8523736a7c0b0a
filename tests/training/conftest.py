"""What tests compare of two runs: every array of the final state, every column but seconds."""

from pathlib import Path

import jax
import numpy as np
import pytest

from bss.training.checkpoint import open_checkpoints, restore_path
from bss.training.run_directory import read_curve
from bss.training.sharding import abstract
from bss.training.step import init_state


def _outcome(run, execution, since: int = 0):
    directory = Path(execution.runs) / run.id
    device = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    shapes = abstract(jax.eval_shape(lambda: init_state(run)), device)
    with open_checkpoints(directory) as checkpoints:
        tokens = checkpoints.tokens()[0]
        state, record = restore_path(checkpoints.path(tokens), shapes)
    rows = [{k: v for k, v in r.items() if k != "seconds"} for r in read_curve(directory)]
    for name in ("seconds", "curve"):  # they hold times
        del record[name]
    arrays = {jax.tree_util.keystr(p): np.asarray(x) for p, x in jax.tree.leaves_with_path(state)}
    return tokens, record, [row for row in rows if row["tokens"] > since], arrays


@pytest.fixture(scope="session")
def assert_same_outcome():
    """Final state, record and curve (past `since` tokens) of two trained runs are bit-identical."""

    def check(run, execution, other_run, other_execution, since=0):
        *ours, state = _outcome(run, execution, since)
        *theirs, other_state = _outcome(other_run, other_execution, since)
        assert ours == theirs
        assert ours[2]
        assert state.keys() == other_state.keys()
        for name, array in state.items():
            np.testing.assert_array_equal(array, other_state[name], err_msg=name)

    return check


class StopAfter:
    """A stop event that is set after it was asked so many times (once or twice a step)."""

    def __init__(self, asked: float):
        self.left = asked

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


@pytest.fixture(scope="session")
def stop_after():
    """Makes stop events that set themselves."""
    return StopAfter
