"""What holds of every registered policy, and the policies that read no law."""

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bss.errors import InputError
from bss.laws import check_losses, fit_branches, fit_es, fit_loss
from bss.laws.base import Options
from bss.policies import POLICIES, policy_named
from bss.policies.follow_optimum import follow_measured
from bss.policies.policy import Basis, Limits, Policy
from bss.policies.unfitted import LateSwitch, Theory
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import wsd
from bss.theory.optimal import Budget, batch_schedule, optimum

TOKENS = 2_000_000


@pytest.fixture(scope="module")
def basis_of(planted, planted_curves):
    points = planted.points(planted.laws["surface"], offset=0, noise=0)
    es = Basis(planted.SEQ_LEN, fit_es(points, "surface", options=Options(1)))
    curve = Basis(planted_curves.fit.seq_len, planted_curves.fit)
    known = {
        "functional-best": curve,
        "fewest-steps": Basis(
            planted_curves.fit.seq_len, planted_curves.fit, wsd(1e-3, TOKENS, 0, TOKENS // 5)
        ),
        "best-batch": Basis(32, fit_loss(final_losses(), options=Options(2))),
        "last-crossing": Basis(64, fit_branches(branches())),
    }
    return lambda name: known.get(name, es)


def final_losses():
    """Three budgets of one model, whose best batch grows as their square root."""
    tokens, batch = np.meshgrid([1e6, 2e6, 4e6], 2.0 ** np.arange(1, 8))
    loss = 2 + 4 * (tokens / (32 * batch)) ** -0.5 + 0.2 * batch**-0.5
    table = {"params": 1e5, "tokens": tokens.ravel(), "batch": batch.ravel(), "seq_len": 32}
    return check_losses(pd.DataFrame(table | {"loss": loss.ravel()}))


def branches():
    """Penalties of twice and four times the batch that fall as the tokens grow."""
    rows = [
        {"fork": i * 10**5, "batch": batch, "tokens": i * 10**5 + 10**4, "seq_len": 64}
        | {"loss": 3 + (batch - 4) * 0.01 / i}
        for i in range(1, 13)
        for batch in (4, 8, 16)
    ]
    return pd.DataFrame(rows)


def named(name: str) -> Policy:
    settings = {"theory": ["source=0.4", "capacity=2"], "best-batch": ["params=100K"]}
    settings["soonest"] = ["step_time=0.02 + 0.001*B"]
    return policy_named(name, settings.get(name, []))


def check(schedule: BatchSchedule, limits: Limits, least: float, most: float):
    assert schedule.starts[-1] < TOKENS
    assert len(schedule.batches) <= limits.stages
    assert all(least <= batch <= most for batch in schedule.batches)
    if limits.allowed:
        assert set(schedule.batches) <= set(limits.allowed)
    else:
        assert not any(batch % limits.multiple_of for batch in schedule.batches)


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize(
    "limits",
    [
        Limits(stages=3, min_batch=5, max_batch=11),
        Limits(stages=2, allowed=(3, 5, 13)),
    ],
)
def test_every_policy_keeps_the_limits(basis_of, name, limits):
    basis = basis_of(name)
    measured = limits.allowed or basis.measured
    least = min(measured) if limits.min_batch is None else limits.min_batch
    most = max(measured) if limits.max_batch is None else limits.max_batch
    check(named(name)(basis, TOKENS, limits), limits, least, most)


@settings(max_examples=12, deadline=None)
@given(
    st.sampled_from([name for name in POLICIES if name not in ("functional-best", "fewest-steps")]),
    st.integers(2, 6),
    st.integers(1, 12),
    st.integers(1, 60),
    st.integers(0, 90),
)
def test_limits_are_kept_or_refused(basis_of, name, stages, multiple, low, more):
    limits = Limits(stages, multiple, min_batch=low, max_batch=low + more)
    if low + more < multiple * -(-low // multiple):
        with pytest.raises(InputError, match=f"no multiple of {multiple} lies within"):
            named(name)(basis_of(name), TOKENS, limits)
    else:
        check(named(name)(basis_of(name), TOKENS, limits), limits, low, low + more)


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        (Limits(multiple_of=0), "in multiples of 0; write a multiple of 1"),
        (Limits(min_batch=0), "0 to 128 in multiples of 1"),
        (Limits(min_batch=8, max_batch=4), "the smaller first"),
        (Limits(allowed=(1, 2), min_batch=3), "3 to 2 in multiples"),
        (Limits(allowed=(1, 8), min_batch=3, max_batch=4), "none of 1, 8 lies within"),
    ],
)
def test_limits_that_leave_nothing_are_refused(limits, told):
    with pytest.raises(InputError, match=told):
        limits.within((2, 128))


def test_without_measurements_or_bounds_there_is_no_ladder():
    assert Limits(min_batch=2, max_batch=8).within(()).ladder() == (2, 3, 4, 5, 6, 7, 8)
    with pytest.raises(InputError, match="max_batch: missing"):
        Limits().within(()).ladder()


def test_the_late_switch_grows_the_smallest_batch_unless_told(planted):
    basis = Basis(planted.SEQ_LEN)
    assert str(LateSwitch()(basis, TOKENS, Limits())) == "0:1 1.4M:8"
    assert str(LateSwitch(0.5, 3, 6)(basis, TOKENS, Limits())) == "0:6 1M:18"
    assert str(LateSwitch(0.5, 3, 6)(basis, TOKENS, Limits(max_batch=6))) == "6"
    with pytest.raises(InputError, match=r"factor: 0\.5 given; write 1 or more"):
        LateSwitch(factor=0.5)


def test_the_best_measured_batches_are_followed_where_no_law_is_assumed(planted):
    points = planted.points(planted.laws["surface"], offset=0, noise=0)
    schedule = follow_measured(points, 200_000_000, Limits())
    least = points.loc[points.groupby("target_loss")["tokens_to_target"].idxmin()]
    for row in least.to_dict("records"):
        count = min(round(row["tokens_to_target"]), 199_999_999)
        assert abs(np.log(schedule(count) / row["batch"])) <= np.log(2)
    best = least["batch"].iloc[-1]
    failed = points.loc[points["batch"] == best].assign(reached=False)
    failed = failed.assign(tokens_to_target=100 * failed["tokens_to_target"])
    schedule = follow_measured(pd.concat([points, failed]), 200_000_000, Limits())
    assert best not in schedule.batches  # what a run that missed it consumed is a bound
    with pytest.raises(InputError, match="no target was reached"):
        follow_measured(points.assign(reached=False), 1_000_000, Limits())


def test_the_theory_counts_a_sequence_as_a_sample():
    policy, limits = Theory(0.4, 2.0), Limits(stages=8, max_batch=64)
    schedule = policy(Basis(128), 128 * 2**16, limits)
    in_samples = batch_schedule(optimum(Budget(0.4, 2.0, 2**16, max_batch=64)), 8)
    assert schedule.batches == in_samples.batches
    assert schedule.starts == tuple(128 * start for start in in_samples.starts)
    assert len(schedule.batches) > 2
