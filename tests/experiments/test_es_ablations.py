"""Variations without training: which runs they are, what is refused."""

import dataclasses
import json

import pytest

from bss.errors import InputError
from bss.models.sizes import named
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.es_ablations import get_config
from experiments.es_ablations.__main__ import contenders, experiment, sized, switches
from experiments.es_ablations.study import Study, Variation

STUDY = from_dict(Study, json.loads(get_config("gpu").to_json()))  # needs no corpus
LATE = Variation("late", ("8", "0:8 70%:64", "0:8 25%:16 60%:32"))


def asked(variation):
    return list(contenders(STUDY, variation, planned_run(sized(STUDY, variation))))


def test_a_two_stage_schedule_branches_from_the_constant_of_its_first_batch():
    found = asked(LATE)
    assert [c.role for c in found] == ["constant", "late", "schedule"]
    constant, late, growing = (c.run for c in found)
    assert late.parent is not None
    assert late.parent.run == constant.id
    assert growing.parent is None
    assert switches(found) == (late.parent.tokens,)
    assert LATE.constants == ["8"]


def test_under_cosine_nothing_branches():
    cosine = dataclasses.replace(LATE, changes={"schedule.rate": "cosine"})
    assert {c.run.parent for c in asked(cosine)} == {None}


def test_changes_after_the_switch_leave_the_trunk_alone():
    after = {"data.seq_len": 1024, "evaluation.seq_len": 256}
    longer = dataclasses.replace(LATE, batches=LATE.batches[:2], after=after)
    plain, changed = asked(LATE), asked(longer)
    with pytest.raises(InputError, match="is no branch of a constant of its own"):
        asked(dataclasses.replace(LATE, after=after))
    assert plain[0].run == changed[0].run
    assert changed[1].run.data.seq_len == 1024
    assert changed[1].run.parent == plain[1].run.parent


def test_a_variation_may_have_another_model_and_other_fields():
    changed = Variation("other", ("8",), {"optimizer.weight_decay": 0.1}, model="25M")
    (found,) = asked(changed)
    assert found.run.model == named("25M")
    assert found.run.optimizer.weight_decay == 0.1
    unknown = Variation("unknown", ("8",), {"optimizer.wd": 0.1})
    with pytest.raises(InputError, match="wd is not a field"):
        asked(unknown)


def test_a_dry_run_prints_the_price_of_every_variation(capsys):
    experiment(dataclasses.replace(STUDY, dry_run=True))
    out = capsys.readouterr().out
    costs = [float(line.split(" FLOPs")[0].split()[-1]) for line in out.splitlines()]
    assert len(costs) == len(STUDY.variations) + 1
    assert costs[-1] == pytest.approx(sum(costs[:-1]), rel=0.01)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"variations": ()}, "expected at least one"),
        ({"variations": (LATE, LATE)}, "each name once"),
        ({"ladders": ((5, 7),)}, "none of \\[5, 7\\] divides ladder_batch 32"),
        ({"seeds": (1, 1)}, "expected different ones, at least one"),
    ],
)
def test_a_study_that_cannot_be_run_is_refused(changes, told):
    with pytest.raises(InputError, match=told):
        dataclasses.replace(STUDY, **changes)
