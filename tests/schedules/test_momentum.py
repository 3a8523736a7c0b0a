"""beta1 by the steps of a run: a part of them."""

import pytest

from bss.errors import InputError
from bss.exports import export
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling
from bss.schedules.momentum import beta1_by
from bss.schedules.plan import resolve


def betas(rule: str, text: str = "0:4 250K:32", beta1: float | None = None) -> list[float]:
    """beta1 of each batch of a plan of 512,000 tokens in sequences of 64."""
    coupling = Coupling(beta1=beta1, beta1_rule=rule)
    plan = resolve(BatchSchedule.parse(text), 512_000, 64, coupling=coupling)
    return [plan.at(segment.start_step).settings.beta1 for segment in plan.segments]


def test_a_part_of_the_steps_is_a_half_life_and_beta1_is_the_most():
    assert betas("1%") == pytest.approx([0.9, 2 ** (-1 / 2.5)])  # of 2000 and 250 steps
    assert betas("1%", beta1=0.99) == pytest.approx([2 ** (-1 / 20), 2 ** (-1 / 2.5)])
    assert beta1_by("50%", 0.9, 2.0) == 0.5


@pytest.mark.parametrize(
    ("rule", "says"),
    [
        (".01%", r"0\.01% of 2,000 steps, 0\.2 of one, given; write 0\.05% or more"),
        ("100%", "100% given; write a percentage between 0 and 100"),
        ("1,5%", "coupling beta1: '1,5%'"),
        ("nnoe", "coupling beta1: nnoe given; write none, or a percentage"),
    ],
)
def test_what_is_no_rule_is_refused(rule, says):
    with pytest.raises(InputError, match=says):
        betas(rule)


def test_it_needs_the_length_of_the_run_and_no_half_life_beside_it():
    with pytest.raises(InputError, match="tokens: missing; beta1_rule '1%' goes by the length"):
        Coupling(beta1_rule="1%").settings(1e-3, 8, 64)
    with pytest.raises(InputError, match="beta1_half_life: given with the rule 1%; leave one"):
        Coupling(beta1_rule="1%", beta1_half_life=4096)
    assert Coupling(beta1_rule="1%").given == ("beta1",) and not Coupling().given


@pytest.mark.parametrize("trainer", ["levanter", "torchtitan"])
def test_a_trainer_is_told_the_rule_and_refused_what_it_cannot_change(trainer):
    coupling, steady = Coupling(beta1_rule="1%"), BatchSchedule.constant(32)
    text = export(resolve(steady, 512_000, 64, coupling=coupling), trainer)
    assert "# beta1 by 1%: a half-life of 1% of the run's steps" in text and "0.757" in text
    growing = resolve(BatchSchedule.parse("0:4 250K:32"), 512_000, 64, coupling=coupling)
    says = (
        r"cannot change beta1 with the batch: it stays 0\.9, not 0\.9, 0\.757858; .*--approximate"
    )
    with pytest.raises(InputError, match=says):
        export(growing, trainer)
    assert "it stays 0.9, not 0.9" in export(growing, trainer, approximate=True)
