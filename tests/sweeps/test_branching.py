"""Branches: what two runs share, and where they part."""

from bss.schedules.batch import BatchSchedule
from bss.sweeps.branching import agreement, branch, branched, decay_branch, late_switch, shared
from bss.sweeps.grid import overlay
from bss.training.run_config import Parent


def test_schedules_agree_up_to_where_their_batches_part():
    first, late = (BatchSchedule.parse(text) for text in ("0:4 200:8 500:16", "0:4 200:8 700:16"))
    assert agreement(first, late) == 500
    assert agreement(late, first) == 500
    assert agreement(first, BatchSchedule.constant(8)) == 0
    assert agreement(first, first) == float("inf")


def test_a_branch_starts_at_the_first_step_boundary_after_its_fork(tiny_run):
    trunk = overlay(tiny_run, {"schedule.batch": "4"})  # steps of 64 tokens
    late = late_switch(trunk, 1000, 8)
    assert late.parent == Parent(trunk.id, 1024)
    assert str(late.schedule.batch) == "0:4 1K:8"
    decayed = decay_branch(trunk, 0.25)
    assert (decayed.schedule.decay, decayed.parent) == (2048, Parent(trunk.id, 6144))
    assert branch(trunk, trunk, 64).start == 64


def test_a_run_branches_from_the_last_checkpoint_it_shares_with_another(tiny_run):
    trunk, first, second = (
        overlay(tiny_run, {"schedule.batch": text})
        for text in ("4", "0:4 2048:8", "0:4 2048:8 4096:16")
    )
    one, two = shared([first, second], [trunk], (1024, 2048, 4096))
    assert one.parent == Parent(trunk.id, 2048)
    assert two.parent == Parent(one.id, 4096)
    assert branched(trunk, [trunk], ()) is trunk
    assert branched(overlay(first, {"seed": 9}), [trunk], (2048,)).parent is None
    assert branched(first, [trunk], (4096,)).parent is None


def test_a_decayed_run_branches_before_its_decay(tiny_run):
    trunk = overlay(tiny_run, {"schedule.batch": "4"})
    decayed = overlay(trunk, {"schedule.decay": 2048})
    assert branched(decayed, [trunk], (1024, 6144, 7168)).start == 6144
