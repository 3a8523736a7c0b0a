"""Published ramps, in the numbers that their reports print."""

import pytest

from bss.errors import InputError
from bss.rules.ramps import RAMPS
from bss.schedules.batch import BatchSchedule


def test_deepseek_v3_from_3072_to_15360_sequences():
    schedule = RAMPS["deepseek-v3"].schedule(4096)
    assert (schedule(0), schedule(469 * 10**9 - 1), schedule(469 * 10**9)) == (3072, 14592, 15360)


def test_llama_3_doubles_twice_and_its_first_doubling_is_the_sequences():
    in_tokens = RAMPS["llama-3-405b"].batch_tokens
    assert in_tokens.starts == (0, 252_000_000, 2_870_000_000_000)
    assert in_tokens(0) == 1024 * 4096 and in_tokens(252_000_000) == 1024 * 8192
    assert in_tokens(2_870_000_000_000) == 64 * 32 * 8192


def test_minimax_01_as_its_report_writes_it():
    assert str(RAMPS["minimax-01"].schedule(8192)) == "0:2048 69B:4096 790B:8192 4.7T:16384"


def test_modded_nanogpt_takes_thirds_of_its_steps():
    ramp = RAMPS["modded-nanogpt"]
    schedule = ramp.schedule(2048)
    assert schedule.batches == (64, 128, 192)
    ends = (*schedule.starts[1:], ramp.tokens)
    steps = [
        (end - start) / (batch * 2048)
        for start, end, batch in zip(schedule.starts, ends, schedule.batches, strict=True)
    ]
    assert steps == [428, 429, 428 + 15]


@pytest.mark.parametrize("name", RAMPS)
def test_another_budget_keeps_shares_and_batches(name):
    ramp = RAMPS[name]
    own, smaller = ramp.schedule(1024), ramp.schedule(1024, ramp.tokens // 1000)
    assert smaller.batches == own.batches
    assert [1000 * start for start in smaller.starts] == pytest.approx(own.starts, abs=2000)
    assert BatchSchedule.parse(str(smaller)) == smaller
    assert ramp.schedule(10**9).batches == (1,)


def test_a_sequence_has_tokens():
    with pytest.raises(InputError, match="seq_len: 0 given; write 1 or more"):
        RAMPS["minimax-01"].schedule(0)
