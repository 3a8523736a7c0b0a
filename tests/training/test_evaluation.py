"""Held-out numbers: a direct computation, whatever the buckets and devices."""

import math
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.data.prepare import prepare
from bss.data.stream import held_out
from bss.errors import InputError
from bss.models import network
from bss.sweeps.grid import overlay
from bss.training.batches import open_source
from bss.training.evaluation import Evaluation, Evaluator, HeldOut
from bss.training.loop import train
from bss.training.run_config import EvaluationConfig, HeldOutSet
from bss.training.run_directory import read_curve, run_path
from bss.training.sharding import make_mesh, replicated
from bss.training.step import init_state
from bss.values import to_dict
from tests.models.bigram import Bigram

METRICS = ("accuracy", "tests.training.own_metrics:surprise")


@pytest.fixture(scope="module")
def tiny_run(tiny_transformer):
    """With a transformer."""
    return tiny_transformer


@pytest.fixture(scope="module")
def measured_run(tiny_run):
    """17 held-out sequences of 16 targets, measured in every way."""
    sizes = {"tokens": 17 * 16, "test_tokens": 3 * 16, "metrics": METRICS}
    return replace(tiny_run, evaluation=replace(tiny_run.evaluation, **sizes))


@pytest.fixture(scope="module")
def state(measured_run):
    return jax.jit(lambda: init_state(measured_run))()


@pytest.fixture(scope="module")
def directly(measured_run, state, tiny_shards):
    """Each target's log probabilities [n, T, V] and number [n, T, 1], in float64."""
    sequences = held_out(tiny_shards, "validation", 16, 17 * 16)
    assert sequences.shape == (17, 17)
    logits = jax.jit(lambda *given: network.logits(measured_run.model, *given))
    log = jax.nn.log_softmax(logits(state.params, sequences))
    return np.asarray(log, float), sequences[:, 1:, None]


def columns_of(run, state, shards, devices=1, bucket=64, fleet=False):
    mesh = make_mesh(devices)
    held = HeldOut.read(run, open_source(run, shards.directory, mesh), shards.directory)
    state = jax.device_put(state, replicated(mesh))
    shapes = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )
    evaluator = Evaluator(held, Evaluation(run, mesh, shapes, bucket, vmapped=fleet))
    return evaluator.evaluate(state) | evaluator.evaluate_test(state)


def of_sequences(values_nxT):
    """The mean over all targets, and its standard error over sequences."""
    means = values_nxT.mean(1)
    return pytest.approx(means.mean(), rel=1e-5), pytest.approx(
        means.std(ddof=1) / math.sqrt(len(means)), rel=1e-4
    )


@pytest.mark.parametrize(("devices", "bucket", "at_once"), [(2, 3, 1)])
def test_all_held_out_sequences_count_once(
    measured_run, state, directly, tiny_shards, devices, bucket, at_once, monkeypatch
):
    """Also where the last bucket's logits are too many to be held at once."""
    monkeypatch.setattr("bss.training.evaluation.LOGITS_AT_ONCE", at_once)
    columns = columns_of(measured_run, state, tiny_shards, devices, bucket)
    log, targets = directly
    losses = -np.take_along_axis(log, targets, axis=-1)[..., 0]
    hits = (log.argmax(-1) == targets[..., 0]).astype(float)
    per_byte = math.log(2) * tiny_shards.bytes_per_token("validation")
    expected = {
        "eval_loss": losses,
        "eval_accuracy": hits,
        "eval_surprise": losses**2,
    }
    for name, values in expected.items():
        assert (columns[name], columns[f"{name}_se"]) == of_sequences(values), name
    assert columns["bits_per_byte"] == pytest.approx(losses.mean() / per_byte, rel=1e-5)
    assert columns["bits_per_byte_se"] == pytest.approx(columns["eval_loss_se"] / per_byte)
    assert {"test_loss", "test_loss_se", "test_accuracy"} <= columns.keys()


@pytest.mark.slow
def test_of_a_fleet_each_run_has_its_own(measured_run, state, tiny_shards):
    sizes = {"test_tokens": 0, "metrics": ("tests.training.own_metrics:surprise",)}
    run = replace(measured_run, evaluation=replace(measured_run.evaluation, **sizes))
    other = jax.tree.map(lambda x: 0.9 * x, state)
    both = jax.tree.map(lambda *x: jnp.stack(x), state, other)
    together = columns_of(run, both, tiny_shards, fleet=True)
    alone = columns_of(run, other, tiny_shards)
    assert alone.keys() == together.keys()
    for name, value in alone.items():
        first, second = np.ravel(together[name]) if value is not None else (0, None)
        assert first != second == (value if value is None else pytest.approx(value, rel=1e-4)), name


def test_a_family_that_knows_the_sum_alone_tells_the_same_error(tiny_run, tiny_shards):
    """Its sequences are taken once more, one by one; what needs more is refused by name."""
    run = replace(tiny_run, model=Bigram(vocab_size=tiny_shards.vocab_size))
    state = jax.jit(lambda: init_state(run))()
    sequences = held_out(tiny_shards, "validation", 16, run.evaluation.tokens)
    each = [float(run.model.loss(state.params, one[None])[0]) / 16 for one in sequences]
    columns = columns_of(run, state, tiny_shards)
    mean, error = of_sequences(np.array(each)[:, None])
    assert (columns["eval_loss"], columns["eval_loss_se"]) == (mean, error)
    asked = replace(run, evaluation=replace(run.evaluation, metrics=("accuracy",)))
    with pytest.raises(InputError, match="accuracy cannot be measured: the model has no logits_fn"):
        columns_of(asked, state, tiny_shards)


def test_named_sets_stand_in_the_curve_and_the_status(tiny_run, tiny_shards, tiny_execution):
    """Of the run's corpus, and of another that lies beside it."""
    tiny_run = replace(tiny_run, model=Bigram(tiny_shards.vocab_size))
    (folder := tiny_shards.directory.parent / "others").mkdir()
    for i in range(120):
        (folder / f"{i}.py").write_text(f"hgf edc {i} " * 80)
    other = prepare(f"files:{folder}/*.py", root=tiny_shards.directory.parent)
    sets = HeldOutSet("more", tokens=640), HeldOutSet("other", other.content_hash, "test", 64)
    run = replace(tiny_run, evaluation=replace(tiny_run.evaluation, sets=sets))
    assert run.id != tiny_run.id
    status = train(run, tiny_execution)
    row = read_curve(run_path(tiny_execution.runs, run))[-1]
    assert row["other_loss"] > row["more_loss"] + 0.5
    assert abs(row["more_loss"] - row["eval_loss"]) < 4 * row["eval_loss_se"]
    told = to_dict(status)["losses"]
    for name in ("eval_loss", "more_loss", "other_loss_se", "bits_per_byte"):
        assert told[name] == row[name], name


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"metrics": ("accurate",)}, "did you mean 'accuracy'"),
        ({"metrics": ("loss",)}, "loss is called loss as another is"),
        ({"metrics": ("accuracy", "tests.training.own_metrics:accuracy")}, "called accuracy as an"),
        ({"metrics": ("tests.training.own_metrics:scalar",)}, r"returns \(\) of 2 sequences"),
        ({"metrics": ("tests.training.own_metrics:thirds",)}, r"returns \(2, 3\) of 2 sequences"),
        ({"metrics": ("tests.training.own_metrics:raises",)}, "cannot be measured: ZeroDivision"),
        ({"metrics": ("tests.training.own_metrics:LIST",)}, "is list; expected Callable"),
        ({"sets": (HeldOutSet("a", content="beef"),)}, "none next to .* has the content beef"),
        ({"sets": (HeldOutSet("a", split="tset"),)}, "no 'tset'"),
        (
            {"sets": (HeldOutSet("eval_loss"),), "metrics": ("tests.training.own_metrics:se",)},
            "are both the column",
        ),
    ],
)
def test_what_cannot_be_measured_is_one_line_before_anything_trains(
    tiny_run, tiny_shards, changes, expected
):
    run = replace(tiny_run, evaluation=replace(tiny_run.evaluation, **changes))
    mesh = make_mesh(1)
    source = open_source(run, tiny_shards.directory, mesh)
    with pytest.raises(InputError, match=expected) as raised:
        HeldOut.read(run, source, tiny_shards.directory)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("name", ["eval", "a b", "", "test", "mine"])
def test_a_set_has_a_name_of_its_own(name):
    with pytest.raises(InputError, match=f"{name!r} is not a new name; use letters"):
        EvaluationConfig(sets=(HeldOutSet("mine"), HeldOutSet(name)))


@pytest.mark.slow
def test_a_metric_that_is_not_finite_is_told_once_and_left_out(tiny_run, tiny_execution):
    metrics = ("tests.training.own_metrics:infinite",)
    short = {"schedule.tokens": 1024, "schedule.batch": "2", "evaluation.metrics": metrics}
    run = overlay(tiny_run, short)
    with pytest.warns(RuntimeWarning, match="eval_infinite, eval_infinite_se not finite") as said:
        status = train(run, tiny_execution)
    assert len([one for one in said if "not finite" in str(one.message)]) == 1
    assert status.finished
    rows = read_curve(run_path(tiny_execution.runs, run))
    assert {row["eval_infinite"] for row in rows} == {None}


def test_held_out_sequences_follow_neither_batch_nor_seeds(tiny_run, tiny_shards):
    one = held_out(tiny_shards, "validation", 16, 320)
    np.testing.assert_array_equal(one, held_out(tiny_shards, "validation", 16, 335))
    assert len(np.unique(one, axis=0)) == 20
