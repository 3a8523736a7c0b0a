"""Steps that are skipped inside the compiled step: not finite, or with an outlying gradient."""

import dataclasses
from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bss.errors import InputError
from bss.sweeps.grid import overlay
from bss.training.loop import Interrupted, train, train_vmapped
from bss.training.run_config import Parent
from bss.training.run_directory import read_curve, run_path
from bss.training.spikes import MOST_SKIPPED, UNJUDGED, judge, no_steps
from bss.training.step_log import read_steps
from tests.models.bigram import Bigram

UNFINITE = 1e38
"""A factor with which the gradient of a summed loss leaves float32."""


@dataclass(frozen=True)
class Spiky(Bigram):
    """Its gradient is multiplied where the first token of a micro-batch is in a list."""

    tokens: tuple[int, ...] = ()
    factor: float = 0.0

    def loss(self, params, sequences_BxT1):
        total, terms = super().loss(params, sequences_BxT1)
        hit = jnp.isin(sequences_BxT1[0, 0], jnp.array(self.tokens, jnp.int32))
        return total, terms | {"spike": jnp.where(hit, self.factor, 0.0) * total}


def spiky(run, tokens, factor, **changes):
    model = Spiky(run.model.vocab_size, tokens=tokens, factor=factor)
    changed = dataclasses.replace(run, model=model)
    return overlay(changed, {"spike_policy": "skip", **changes})


def usual_tokens(run, execution) -> tuple[int, ...]:
    """Two tokens with which some, but not all, sequences begin."""
    from bss.training.batches import open_source
    from bss.training.sharding import make_mesh

    source = open_source(run, execution.data, make_mesh(1))
    first = np.asarray(source.batch(0, 400, 400, 1))[:, 0, 0]
    found, counts = np.unique(first, return_counts=True)
    return tuple(int(x) for x in found[np.argsort(counts)[:4]])


compiled_judge = jax.jit(judge)


def feed(norms, scatters=6.0):
    stats = no_steps()
    told = []
    for norm in norms:
        finite = jnp.isfinite(norm)
        skipped, stats = compiled_judge(stats, jnp.float32(norm), finite, scatters)
        told.append(bool(skipped))
    return told


def test_an_outlying_norm_is_skipped_and_smaller_ones_never_are():
    draw = np.random.default_rng(0)
    norms = np.exp(0.1 * draw.standard_normal(300))
    assert not any(feed(norms))
    norms[[100, 250]] = 10.0
    norms[150] = 0.01
    assert np.flatnonzero(feed(norms)).tolist() == [100, 250]
    assert not any(feed(norms, scatters=100.0))


def test_the_first_steps_are_judged_only_by_being_finite():
    norms = [1.0, 50.0, float("nan"), 1.0, float("inf"), *[1.0] * UNJUDGED]
    assert np.flatnonzero(feed(norms)).tolist() == [2, 4]


def test_a_lasting_change_of_the_norm_is_accepted():
    told = feed([*[1.0] * 100, *[3.0] * MOST_SKIPPED])
    assert told[100]
    assert not any(told[-20:])


def test_steps_that_are_not_finite_change_nothing_and_are_counted(tiny_run, tiny_execution):
    tokens = usual_tokens(tiny_run, tiny_execution)
    run = spiky(tiny_run, tokens, UNFINITE, **{"schedule.tokens": 2048, "averages": ("4%",)})
    execution = dataclasses.replace(tiny_execution, log_every=1)
    status = train(run, execution)
    path = run_path(execution.runs, run)
    rows = read_steps(path)
    unfinite = sum(not np.isfinite(row["grad_norm"]) for row in rows)
    assert status.finished
    assert 0 < status.skipped < len(rows)
    assert status.skipped == rows[-1]["skipped"] == read_curve(path)[-1]["skipped"] >= unfinite > 0
    assert all(np.isfinite(row["eval_loss"]) for row in read_curve(path))
    stopped = overlay(run, {"spike_policy": "stop"})
    assert train(stopped, execution).status == "diverged"


def test_a_spike_of_the_gradient_is_skipped_and_its_loss_is_in_no_mean(tiny_run, tiny_execution):
    tokens = usual_tokens(tiny_run, tiny_execution)[:1]
    run = spiky(tiny_run, tokens, 1e6, **{"schedule.batch": "4", "schedule.tokens": 8192})
    status = train(run, tiny_execution)
    assert status.skipped > 0
    assert status.losses["eval_loss"] < 6.0
    judged = [row["loss"] for row in read_curve(run_path(tiny_execution.runs, run))][-1]
    assert judged < 6.0


def test_a_stopped_run_that_skips_is_bit_identical_to_the_whole_one(
    tiny_run, tiny_execution, stop_after, assert_same_outcome
):
    run = spiky(tiny_run, usual_tokens(tiny_run, tiny_execution), UNFINITE)
    whole = dataclasses.replace(tiny_execution, runs=tiny_execution.runs + "-whole")
    train(run, dataclasses.replace(whole, steps_per_dispatch=0))
    with pytest.raises(Interrupted):
        train(run, tiny_execution, stop=stop_after(30))
    train(run, tiny_execution)
    assert_same_outcome(run, tiny_execution, run, whole)


def test_without_a_spike_the_losses_are_those_of_the_default(tiny_run, tiny_execution):
    guarded = overlay(tiny_run, {"spike_policy": "skip", "schedule.tokens": 2048})
    train(guarded, tiny_execution)
    plain = overlay(tiny_run, {"schedule.tokens": 2048})
    train(plain, tiny_execution)
    rows, others = (read_curve(run_path(tiny_execution.runs, r)) for r in (guarded, plain))
    assert [row["eval_loss"] for row in rows] == [row["eval_loss"] for row in others]
    assert {row["skipped"] for row in rows} == {0}
    assert "skipped" not in others[0]


def test_runs_of_one_program_skip_each_its_own(tiny_run, tiny_execution):
    run = spiky(tiny_run, usual_tokens(tiny_run, tiny_execution), UNFINITE)
    runs = [overlay(run, {"schedule.tokens": 1024, "data.seed": seed}) for seed in (0, 1)]
    found = train_vmapped(runs, tiny_execution)
    assert all(status.finished for status in found.values())
    assert len({status.skipped for status in found.values()}) == 2


def test_a_run_that_only_skips_has_diverged(tiny_run, tiny_execution):
    run = spiky(tiny_run, tuple(range(256)), UNFINITE, **{"schedule.batch": "4"})
    status = train(run, tiny_execution)
    assert status.status == "diverged"
    assert status.tokens == MOST_SKIPPED * 4 * 16


def test_the_policy_is_part_of_the_id_and_scatters_only_with_it(tiny_run):
    skipping = overlay(tiny_run, {"spike_policy": "skip"})
    assert skipping.id != tiny_run.id
    assert overlay(skipping, {"spike_scatters": 4.0}).id != skipping.id
    assert overlay(tiny_run, {"spike_scatters": 4.0}).id == tiny_run.id


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"spike_scatters": 0.5}, "run.spike_scatters is 0.5; expected 1 or more"),
        ({"spike_scatters": float("nan")}, "spike_scatters"),
        ({"spike_policy": "ignore"}, "spike_policy"),
    ],
)
def test_bad_settings_are_one_line(tiny_run, changes, expected):
    with pytest.raises(InputError, match=expected):
        overlay(tiny_run, changes)


def test_a_branch_has_its_parents_policy(tiny_run, tiny_execution):
    execution = dataclasses.replace(tiny_execution, forks=(1024,))
    train(overlay(tiny_run, {"schedule.tokens": 1024}), execution)
    branch = dataclasses.replace(tiny_run, parent=Parent(tiny_run.id, 1024), spike_policy="skip")
    with pytest.raises(InputError, match="spike_policy differs from the parent run"):
        train(branch, execution)
