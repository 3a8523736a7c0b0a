"""The page and the examples of a batch schedule in other people's loops."""

import importlib
import re
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest

import bss
from examples.data import PLAN, SEQ_LEN

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "examples"
NAMES = [path.stem for path in sorted(FOLDER.glob("*.py")) if path.stem != "data"]


class Rows:
    """Rows of any steps, and an end after a number of them."""

    def __init__(self, steps):
        self.steps = steps

    def take(self, count):
        if not self.steps:
            raise EOFError
        self.steps -= 1
        return np.arange(count * 1025, dtype=np.int32).reshape(count, 1025) % 16


def test_the_loop_of_the_page_compiles_once_for_the_whole_ramp():
    page = (ROOT / "docs/loop.md").read_text()
    lines = re.findall(r"^    (?:>>>|\.\.\.) ?(.*)$", page.partition("## Resume")[0], re.MULTILINE)
    setup, _, loop = "\n".join(lines).partition("import bss, jax, optax\n")
    loop, _, rest = loop.partition("loader, params =")
    steps = rest[rest.index("for step in plan:") : rest.index("step.step, ")]
    names = {}
    exec(f"import bss, jax, optax\n{setup}\n{loop}", names)
    plan, params = names["plan"], jnp.zeros((16, 16))
    assert [segment.batch for segment in plan.segments] == [64, 128, 256]
    names |= {"params": params, "opt_state": names["tx"].init(params)}
    for segment in plan.segments:
        names["loader"] = Rows(2)
        near = map(plan.at, range(segment.start_step, segment.start_step + 2))
        names["plan"] = Followed(plan, near)
        exec(steps, names)
        assert int(names["count"]) == segment.batch // 32 and np.isfinite(names["loss"])
    assert names["train_step"]._cache_size() == 1


class Followed:
    """A plan of some of its steps."""

    def __init__(self, plan, steps):
        self.pack = plan.pack
        self.steps = steps

    def __iter__(self):
        return self.steps


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.py")), ids=lambda path: path.name)
def test_an_example_is_short(path):
    assert len(path.read_text().splitlines()) <= 40


def train(name, plan, micro_batch=8):
    if name == "pytorch":
        pytest.importorskip("torch")
    return importlib.import_module(f"examples.{name}").train(plan, micro_batch)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_batch_64_has_one_curve_with_every_micro_batch(name):
    plan = bss.plan(64, tokens=20 * 64 * SEQ_LEN, seq_len=SEQ_LEN, lr=0.02)
    curves = [train(name, plan, micro_batch) for micro_batch in (32, 8, 1)]
    assert len(curves[0]) == 20 and curves[0][-1] < 0.95 * curves[0][0]
    np.testing.assert_allclose(curves[1], curves[0], rtol=1e-5)
    np.testing.assert_allclose(curves[2], curves[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_an_example_follows_the_ramp(name, capsys):
    losses = train(name, PLAN)
    assert len(losses) == PLAN.steps and losses[-1] < 0.3 * losses[0]
    if name == "functions":
        last = capsys.readouterr().out.splitlines()[-1]
        assert 30 < float(last.split()[-2]) < 3000  # it was 216
