"""The study of the second moment: what it trains, what it judges, what it claims."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from bss.errors import InputError
from bss.sweeps.price import price
from bss.sweeps.setup import planned_run
from bss.values import from_dict
from configs.second_moment import SIZES, STEP, TOKENS, get_config
from experiments.second_moment import __main__ as runs
from experiments.second_moment import claims, growing, power, slower, tables
from experiments.second_moment import losses as losses_of
from experiments.second_moment.figures import best_batch_figure
from experiments.second_moment.study import Study

RESULTS = Path(__file__).parents[2] / "results"
ENDINGS = ("constant", "averaged", "decay")
RATES = (1e-3, 2e-3, 4e-3)
KEYS = ["name", "peak_lr", "seed"]
MEANS = {STEP: [0.014, 0.0, 0.004, 0.03, 0.1, 0.2], TOKENS: [0.0, 0.004, 0.02, 0.05, 0.15, 0.3]}


def study(part="rules") -> Study:
    """A part as its config asks for it."""
    return from_dict(Study, json.loads(get_config(part).to_json()))


def planted(scatter=0.003, swap=None):
    """A part with the planted losses, two rules swapped where asked."""
    table = finals(scatter).replace({"rule": swap or {}})
    return losses_of.Part(table, pd.DataFrame(), config())


def config(part="rules"):
    """A part's config as its record has it."""
    return json.loads(get_config(part).to_json())


def finals(scatter=0.003, chosen=2e-3):
    """A planted contenders.csv: two seeds at every rate, ten at the best; loss 1.8 and MEANS."""
    rng, rows = np.random.default_rng(1), []
    for rule, means in MEANS.items():
        for batch, mean in zip((1, 2, 4, 8, 16, 32), means, strict=True):
            for seed, rate in [(s, r) for s in range(12) for r in RATES if s < 2 or r == chosen]:
                for ending in ENDINGS:
                    level = 1.8 + mean + 0.03 * (rate != chosen) + 0.02 * seed
                    losses = level + np.array([0.001, scatter]) * rng.normal(size=2)
                    row = {"name": f"{rule} · {batch}", "rule": rule, "role": "constant"}
                    row |= {"batch": str(batch), "ending": ending, "seed": seed, "peak_lr": rate}
                    rows.append(row | dict(zip(("eval_loss", "test_loss"), losses, strict=True)))
    return pd.DataFrame(rows)


@pytest.mark.parametrize("part", SIZES)
def test_every_part_can_be_planned_and_shares_trunks(part):
    asked = study(part)
    base = planned_run(asked.setup)
    found = runs.contenders(asked, base, {arm.name: arm.rates for arm in asked.arms}, asked.seeds)
    assert len(found) == len(asked.seeds) * sum(len(arm.rates) for arm in asked.arms)
    for contender in found:
        assert contender.run.plan().tokens > 0.99 * asked.tokens
        several = len(contender.run.schedule.batch.batches) > 1
        assert (contender.run.parent is not None) == several
    assert price([contender.run for contender in found]).runs == len(found)


def test_the_rules_keep_beta2_per_step_and_per_token():
    asked = study()
    base = planned_run(asked.setup)
    one = {arm.name: arm.rates[:1] for arm in asked.arms}
    beta2s = {
        c.name: c.run.plan().at(0).settings.beta2 for c in runs.contenders(asked, base, one, (0,))
    }
    assert {beta2s[f"{STEP} · {batch}"] for batch in (1, 2, 4, 8, 16, 32)} == {0.95}
    assert beta2s[f"{TOKENS} · 1"] == pytest.approx(0.99368, abs=1e-5)
    assert beta2s[f"{TOKENS} · 32"] == pytest.approx(0.8165, abs=1e-4)


def test_a_rate_at_an_end_is_followed_by_one_beyond_it_until_it_is_bracketed():
    table = finals()
    table = table.loc[table["seed"] < 2]
    asked = dict.fromkeys(table["name"], RATES)
    assert not any(runs.beyond(table, asked).values())
    lower = table.assign(eval_loss=table["eval_loss"] + table["peak_lr"])
    lower = lower.loc[lower["peak_lr"] >= 2e-3]
    found = runs.beyond(lower, asked)
    assert all(rates == [1e-3] for rates in found.values())
    settled = dict.fromkeys(asked, ())
    assert not any(runs.beyond(lower, settled).values())


def test_a_rate_at_which_a_seed_was_lost_is_not_chosen():
    table = finals()
    lost = table.loc[~((table["peak_lr"] == 2e-3) & (table["seed"] == 1))]
    rates = runs.chosen(runs.whole(lost, (0, 1)))
    assert 2e-3 not in {rate for known in rates.values() for rate in known.values()}


def test_the_seeds_that_choose_are_not_judged():
    kept = losses_of.judged(finals(), config())
    assert set(kept["seed"]) == set(range(2, 12))
    assert set(kept["peak_lr"]) == {2e-3} and set(kept["trials"]) == {3}


def test_a_planted_interior_and_a_planted_edge_are_scored_as_guessed():
    guess = json.loads((RESULTS / "predictions/second_moment.json").read_text())["guess"]
    scored = losses_of.score(losses_of.where_best(planted()), guess)
    assert scored["right"].tolist() == 6 * [True]
    swapped = planted(swap={STEP: TOKENS, TOKENS: STEP})
    scored = losses_of.score(losses_of.where_best(swapped), guess)
    assert scored["right"].tolist() == 6 * [False]


def test_claims_find_what_was_planted_and_leave_ties_undecided():
    made = claims.rules(planted())
    verdicts = {(one.question, one.condition): one.verdict for one in made}
    assert verdicts[claims.INSIDE, f"{STEP}, batch 1, decayed"] == "shown"
    assert verdicts[claims.INSIDE, f"{TOKENS}, batch 1, decayed"] != "shown"
    assert verdicts[claims.LARGER, "batch 1, decayed"] == "shown"
    assert verdicts[claims.LARGER, "batch 32, decayed"] == "shown"
    assert verdicts[claims.MOVES, "batch 1 less 2, constant rate"] == "shown"
    noisy = claims.rules(planted(scatter=0.05))
    small = [one for one in noisy if one.question == claims.MOVES]
    assert {one.verdict for one in small} == {"undecided"}


def test_the_figure_has_a_line_for_each_rule_and_marks_bounds():
    figure = best_batch_figure(planted().judged, seq_len=64)
    panels = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert len(panels) == 3
    large = [line for line in panels[0].lines if line.get_markersize() == 9]
    best = sorted((float(np.asarray(line.get_xdata())[0]), line) for line in large)
    assert [x for x, _ in best] == pytest.approx([64, 128], rel=0.06)  # side by side
    assert [line.get_markerfacecolor() == "white" for _, line in best] == [True, False]


def test_a_best_batch_is_filled_only_where_the_score_calls_it_interior():
    part = planted()
    placed = losses_of.where_best(part)
    figure = best_batch_figure(part.judged, 64, placed)
    panel = next(ax for ax in figure.axes if ax.get_title(loc="left") == "decayed")
    marks = [line for line in panel.lines if line.get_markersize() == 9]
    filled = sum(line.get_markerfacecolor() != "white" for line in marks)
    inside = [at.verdict == "interior" for (_, ending), at in placed.items() if ending == "decay"]
    assert (filled, len(marks)) == (sum(inside), 2)
    none = best_batch_figure(part.judged, 64, {})
    faces = [line for ax in none.axes for line in ax.lines if line.get_markersize() == 9]
    assert all(line.get_markerfacecolor() == "white" for line in faces)


def test_contenders_named_by_their_batches_have_one_rule_and_rate_and_all_seeds():
    table = finals()
    table["run"] = [f"{name}, {rate:g}, {seed}" for name, rate, seed in table[KEYS].to_numpy()]
    lost = (table["seed"] == 5) & (table["batch"] == "4")
    curves = table.loc[~lost & (table["ending"] == "constant")]
    shown = tables.named(losses_of.Part(table.loc[~lost], curves, config()))
    assert not shown.duplicated(["name", "ending", "seed"]).any()
    assert set(shown["rule"]) == {STEP} and set(shown["peak_lr"]) == {2e-3}
    assert set(shown["name"]) == {"1", "2", "4", "8", "16", "32"}
    assert set(shown["seed"]) == set(range(12)) - {5}


def test_power_rises_with_seeds_and_falls_with_scatter():
    few, many = (power.power(np.full(6, 0.004), seeds, tables=60).mean() for seeds in (4, 12))
    assert few < many
    assert power.power(np.full(6, 0.02), 12, tables=60).mean() < many


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"choosing": 12}, "choosing is 12 of 12 seeds"),
        ({"rules": ()}, r"rules are \[\]"),
        ({"arms": ()}, r"arms are \[\]"),
        ({"decay": 0.0}, "decay is 0"),
    ],
)
def test_what_cannot_be_run_is_refused(change, told):
    with pytest.raises(InputError, match=told):
        replace(study(), **change)


def test_an_arm_is_refused_that_has_no_rule_or_changes_in_the_decay():
    asked = study()
    for arm, told in (
        (replace(asked.arms[0], rule="none"), "rule 'none'; expected one of 0.95 per step"),
        (replace(asked.arms[0], rates=(2e-3, 1e-3)), "expected rising ones"),
        (replace(asked.arms[0], batch="0:1 90%:8"), "changes its batch in the decay"),
    ):
        with pytest.raises(InputError, match=told):
            replace(asked, arms=(arm,))


def crossed(loss, seeds=5, scatter=0.001):
    """Losses [batch, seed] by rule, planted as loss(batch, half-life in tokens)."""
    rng, found = np.random.default_rng(2), {}
    batches = [1, 2, 4, 8, 16, 32]
    for rule in both_rules()["rules"]:
        lives = [slower.half_life_of(rule["changes"], 64 * batch) for batch in batches]
        means = np.array([loss(batch, life) for batch, life in zip(batches, lives, strict=True)])
        noise = scatter * rng.normal(size=(len(batches), seeds))
        found[rule["name"]] = pd.DataFrame(means[:, None] + noise, batches, range(seeds))
    return found


def both_rules():
    """The two parts' rules as one study would have them."""
    return config() | {"rules": config()["rules"] + config("slower")["rules"][:2]}


def test_the_half_life_is_told_from_the_batch():
    by_life = slower.cells(
        crossed(lambda batch, life: 1.8 + 0.01 * np.log(life / 7000) ** 2), both_rules()
    )
    assert len(by_life) == 24
    found = slower.compared(by_life)
    assert found["half-life in tokens"].sign == -1
    assert found["half-life in tokens"].estimate < 5 * found["half-life in steps"].estimate
    by_batch = slower.cells(
        crossed(lambda batch, life: 1.8 + 0.01 * np.log(batch / 2) ** 2), both_rules()
    )
    assert slower.compared(by_batch)["half-life in tokens"].sign == 1


def test_left_out_errors_are_those_of_fits_without_the_cell():
    table = slower.cells(crossed(lambda b, h: 1.8 + 0.01 * np.log(h)), both_rules())
    x, y = np.log(table["batch"].to_numpy(float)), table[0].to_numpy(float)
    errors = []
    for i in range(len(table)):
        kept = np.arange(len(table)) != i
        errors.append(y[i] - np.polyval(np.polyfit(x[kept], y[kept], 2), x[i]))
    expected = np.sqrt(np.mean(np.square(errors)))
    assert slower.left_out(table, "batch alone")[0] == pytest.approx(expected, rel=1e-9)


def test_the_envelope_has_each_batch_at_the_rule_chosen_on_other_seeds():
    index = [1, 2]
    chose = {"a": pd.DataFrame([[1.0], [2.0]], index), "b": pd.DataFrame([[2.0], [1.0]], index)}
    judged_losses = {
        "a": pd.DataFrame([[5.0], [6.0]], index),
        "b": pd.DataFrame([[7.0], [8.0]], index),
    }
    losses, best = slower.envelope(judged_losses, chose)
    assert best == {1: "a", 2: "b"}
    assert losses[0].tolist() == [5.0, 8.0]


def planted_run(losses, batch=8, seed=0):
    """A curve of six evaluations, 100 steps apart."""
    rows = [
        {"seed": seed, "arm": str(batch), "batch": batch, "step": 100 * k, "tokens": 800 * k}
        | {"eval_loss": loss, "eval_loss_avg_4%": loss - 0.1}
        for k, loss in enumerate(losses, 1)
    ]
    return pd.DataFrame(rows)


def test_tokens_saved_are_those_in_which_the_larger_batch_alone_comes_so_low():
    alone = pd.concat([planted_run([3, 2.8, 2.6, 2.4, 2.2, 2.0], seed=s) for s in (0, 1)])
    grows = pd.concat([planted_run([3, 2.6], seed=0), planted_run([3, 1.5], seed=1)])
    saved = growing.tokens_saved(grows, alone, "eval_loss")
    np.testing.assert_allclose(saved, [np.log(1600 / 2400)])  # seed 1 is never so low


def test_a_control_is_compared_with_its_rule_at_its_own_batch():
    seeds = range(2, 7)
    rule = pd.DataFrame({s: [2.0, 1.9 + 0.001 * s] for s in seeds}, index=[1, 32])
    other = pd.DataFrame({s: [1.6 + 0.002 * s] for s in seeds}, index=[32])
    ended = {(TOKENS, "decay"): rule, ("half-life 7K, beta1 .43", "decay"): other}
    rules = [{"name": name, "changes": {"optimizer.beta1": 0.43}} for name, _ in ended][1:]
    (found,) = slower.controlled(ended, "decay", {"rules": rules})
    assert found.condition == "half-life 7K, beta1 .43, batch 32, decayed"
    assert found.effect.estimate == pytest.approx(-0.3 + 0.001 * 4)
    assert found.verdict == "shown"


def test_the_journal_says_of_the_guess_what_the_tables_say():
    """Six rows: what was guessed, found at 10 and at 20 seeds, and batch 1 less batch 2."""
    text = (RESULTS / "LOG.md").read_text()
    entry = text[text.index("what decides the best batch: the second moment") :]
    lines = [line.strip("|").split("|") for line in entry.splitlines() if line.count("|") == 7]
    written = {tuple(cell.strip() for cell in line[:2]): line[2:] for line in lines[2:8]}
    guess = json.loads((RESULTS / "predictions/second_moment.json").read_text())["guess"]
    names = {"constant": "constant rate", "averaged": "averaged", "decay": "decayed"}
    parts = [
        losses_of.read_part(RESULTS / "second_moment" / name) for name in ("rules", "rules_h100")
    ]
    found = [losses_of.where_best(part) for part in parts]
    for (rule, ending), at in found[0].items():
        cells = [cell.strip() for cell in written[rule.removeprefix("0"), names[ending]]]
        again = found[1][rule, ending]
        assert cells[:3] == [guess[rule][ending], at.verdict, again.verdict]
        assert (
            cells[3].replace("−", "-").startswith(f"{again.smallest_above:+.3f}".replace("0.", "."))
        )
        assert at.n == 10 and again.n == 20
