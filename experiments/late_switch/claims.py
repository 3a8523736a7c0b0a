"""What the runs show of late switching (Wang et al., arXiv 2602.14208), from the committed tables.

The functional law: Li et al., arXiv 2509.19189.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question
from bss.contests.contest import CONSTANT_ROLES, ENDINGS, NO_WORSE, Contest
from bss.contests.contrasts import Effect, contrasts, over_seeds
from bss.contests.effects import slopes, weakest
from bss.contests.equal_steps import gaps_at_equal_steps
from bss.contests.scatter import Scatter
from experiments.es_wsd.claims import SWITCHES
from experiments.es_wsd.curves import betas
from experiments.late_switch.law import LAW
from experiments.late_switch.predictions import GROUPS, predicts
from experiments.tables import Tables

TABLES = "results/late_switch/"
LATE = 0.7  # of the tokens: they call 70 to 90% late [secondary]
BEST = "lower than the best constant batch"
EARLIER = Question.of_loss("A late switch ends lower than an earlier one", "secondary")
BOTH = Question.of_loss(
    "A late switch ends lower than each of its two batches throughout", "secondary"
)
STAGES = Question.of_loss("Several stages end lower than one late switch", "secondary")
STAGES_WIN = Question.of_loss(f"Several stages end {BEST}", "secondary")
LAW_WINS = Question.of_loss(f"The functional law's schedule ends {BEST}")
LAW_ACROSS = Question.of_loss(
    f"The functional law's schedule at constant rate ends {BEST} under another ending"
)
OF_ES = Question.of_loss(f"A schedule of E(S) ends {BEST}")
JOINS = Question(
    f"After a switch the loss joins the large batch's at equal steps, to {NO_WORSE:g} nats", "paper"
)
CLOSES = Question("After a switch the gap to the large batch at equal steps closes", "paper")
HARDER = Question("Harder tasks catch up faster", "paper")
IS_HARD = Question("The functional law finds the task of language models hard", "derived")
SHARE = Question(
    f"The best single switch comes after {LATE:.0%} of the tokens",
    "secondary",
    unit=f"log of the tokens after it over {1 - LATE:.0%} of the budget",
)
SLOWER = Question(
    "The tokens after the best switch grow more slowly than the budget (γ < 1)",
    "secondary",
    unit="of the exponent, less 1",
)
CONTENDERS, RUNS = f"{TABLES}contenders.csv", f"{TABLES}runs.parquet"
POINTS = f"{TABLES}switch_points.csv"
Config = dict[str, Any]


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    tables = Tables(results)
    config, tuned = tables.config, tables.contest()
    every_claim = [
        *one_rate(tables.contest("every_rate.csv"), config),
        *against_constants(tuned),
        *across_endings(tuned),
        *catch_up(tables.read("runs.parquet"), config),
        *switch_points(tables.read("switch_points.csv"), config),
        *predicts(tables.read("predictions.csv"), tables.read("candidates.csv"), config),
        *difficulty(tables, Tables(results.parent / "predictions")),
    ]
    return [replace(one, note=f"{one.note}; {betas(config['setup'])}") for one in every_claim]


def one_rate(every: Contest, config: Config) -> Iterator[Claim]:
    """Late, early and staged batches at one peak rate, beside the constants between them."""
    contest, place = every.at_rate(config["shared_rate"]), f"{TABLES}every_rate.csv"
    small, large = f"constant {config['small']}", f"constant {config['large']}"
    questions = {
        ("late", "early"): EARLIER,
        ("late", "middle"): EARLIER,
        ("late", small): BOTH,
        ("late", large): BOTH,
        ("stages", "late"): STAGES,
    }
    note = f"every run at peak rate {config['shared_rate']:g}"
    for ending in contest.endings:
        rows = contest.of(ending)
        pairs = [pair for pair in questions if set(pair) <= set(rows)]
        for pair, effect in contest.contrasts(ending, pairs).items():
            condition = f"less {_called(rows[pair[1]])}, one rate, {ENDINGS[ending].short}"
            yield questions[pair].claim(condition, effect, place, note)


def against_constants(tuned: Contest) -> Iterator[Claim]:
    """Everything whose batch changes, against the best constant of the same ending.

    The late switch under all endings but the cosine is es_wsd's too, and told there.
    """
    for ending in tuned.endings:
        rows = tuned.of(ending)
        if not {*CONSTANT_ROLES} & {row["role"] for row in rows.values()}:
            continue
        best, effects = tuned.against_best(ending)
        batches = [int(row["batch"]) for row in rows.values() if row["role"] == "constant"]
        edge = ", the smallest measured" if rows[best]["batch"] == str(min(batches)) else ""
        for name, effect in effects.items():
            row, flat, question = rows[name], rows[best], _question(rows[name], ending)
            note = f"less {best}, chosen by held-out loss{edge}; {row['trials']} against "
            note += f"{flat['trials']} rates; {row['steps'] / flat['steps']:.2f} of its steps"
            if question and (name != "late" or ending == "cosine"):
                condition, runs = (
                    f"{_called(row)}, {ENDINGS[ending].short}",
                    tuned.runs(name, ending),
                )
                yield question.claim(condition, effect, CONTENDERS, note, runs=runs)


def across_endings(tuned: Contest) -> Iterator[Claim]:
    """A constant rate with the law's schedule, against decays with the best constant batch."""
    tables = {ending: tuned.losses(ending) for ending in tuned.endings}
    if LAW["constant"] not in tables.get("constant", pd.DataFrame()).index:
        return
    named = [t.rename(index=lambda name, e=e: f"{name}, {e}") for e, t in tables.items()]
    best = {ending: tuned.best_constant(ending) for ending in tables if ending != "constant"}
    law = f"{LAW['constant']}, constant"
    pairs = [(law, f"{name}, {ending}") for ending, name in best.items()]
    ours = tuned.of("constant")[LAW["constant"]]["trials"]
    effects = contrasts(pd.concat(named), pairs).values()
    for (ending, name), effect in zip(best.items(), effects, strict=True):
        note = f"equal tokens; {ours} against {tuned.of(ending)[str(name)]['trials']} rates"
        condition = f"less {name}, {ENDINGS[ending].short}"
        yield LAW_ACROSS.claim(condition, effect, CONTENDERS, note)


def catch_up(runs: pd.DataFrame, config: Config) -> Iterator[Claim]:
    """Whether a switched run joins the large batch at equal steps, and what it saves till then."""
    rate = runs.loc[np.isclose(runs["peak_lr"], config["shared_rate"])]
    curves = {
        str(name): some for name, some in rate.loc[rate["ending"] == "constant"].groupby("name")
    }
    flat = f"constant {config['large']}"
    large = curves[f"{flat} continued"] if f"{flat} continued" in curves else curves[flat]
    gaps = {
        name: gaps_at_equal_steps(curves[name], large)
        for name in ("early", "middle", "late")
        if name in curves
    }
    gaps = {name: gap for name, gap in gaps.items() if len(gap) > 1}
    values = {(CLOSES, name): (g.iloc[-1] - g.iloc[0]).to_numpy() for name, g in gaps.items()}
    values |= {(JOINS, name): g.iloc[-1].to_numpy() - NO_WORSE for name, g in gaps.items()}
    for (question, name), effect in over_seeds(values).items():
        step = int(gaps[name].index[-1])
        first, last = gaps[name].iloc[0].mean(), gaps[name].iloc[-1].mean()
        begun, saved = _saved(curves[name], step, config)
        condition = f"{name}: {step - begun:,.0f} steps after a switch at {begun:,.0f}, "
        condition += f"{saved:.0%} fewer tokens, constant rate"
        note = f"held-out losses, one rate; {first:.3f} nats at the last evaluation before the "
        note += f"switch, {last / first:.0%} of them left; one switch of the batch, by a factor of "
        note += f"{config['large'] / config['small']:g}"
        yield question.claim(condition, effect, RUNS, note)
    followed = f"the large batch was followed for {int(large['step'].max()):,} steps"
    for name in sorted(curves.keys() & {"middle", "late"} - gaps.keys()):
        for question in (CLOSES, JOINS):
            note = f"{followed}, the switch is later"
            yield question.untestable(f"{name}, constant rate", RUNS, note)
    cosine = rate.loc[(rate["ending"] == "cosine") & (rate["name"] == flat)]
    if len(cosine):
        note = f"its large batch ends after {int(cosine['step'].max()):,} steps, before any switch"
        yield JOINS.untestable("cosine", RUNS, note)
    note = "one model on one corpus: nothing harder or easier to compare"
    yield HARDER.untestable("language models", RUNS, note)


def switch_points(points: pd.DataFrame, config: Config) -> list[Claim]:
    """Where the best switch lies, and how it moves with the budget."""
    inside = points.loc[(points["source"] == "measured") & points["interior"].astype(bool)]
    budgets, after, errors = (
        inside[name].to_numpy(float) for name in ("budget", "after", "after_error")
    )
    seeds, errors = len(config["seeds"]), (errors / 2) ** 2
    known = seeds > 1 and bool(np.isfinite(errors).all())
    if len(budgets) < 4 or not known:
        note = "fewer than four budgets have their best switch within those tried, or one seed"
        return [one.untestable("constant rate", RUNS, note) for one in (SHARE, SLOWER)]
    pooled = Scatter(float(errors.mean()), len(errors) * (seeds - 1))
    places = {
        budget: Effect(float(place), seeds, Scatter(float(error), seeds - 1), pooled)
        for budget, place, error in zip(
            budgets, np.log(after / budgets / (1 - LATE)), errors, strict=True
        )
    }
    shares = 1 - after / budgets
    condition = f"{len(budgets)} budgets of {budgets[0]:,.0f} to {budgets[-1]:,.0f}, the least sure"
    note = f"at {shares.min():.0%} to {shares.max():.0%} of the tokens; held-out losses, one rate; "
    note += "budgets share runs"
    share = SHARE.claim(condition, weakest(places), POINTS, note)
    return [share, _exponent(budgets, after, pooled, config)]


def _exponent(budgets: np.ndarray, after: np.ndarray, seeds: Scatter, config: Config) -> Claim:
    """Whether D − P* grows more slowly than D, under every origin and smallest budget.

    The choice of which least can be said is told. The own error is of the scatter about the line,
    the pooled one of the seeds at all budgets.
    """
    warmup = config["setup"]["schedule"]["warmup"]
    origins = [zero for zero in (0, warmup, 2 * warmup) if zero < budgets[0]]
    choices = itertools.product(origins, range(len(budgets) - 3))
    lines = {(zero, i): (budgets[i:] - zero, after[i:]) for zero, i in choices}
    measured = {}
    for key, effect in slopes(lines).items():
        spread = len(lines[key][0]) * float(np.var(np.log(lines[key][0])))
        pooled = Scatter(seeds.variance / spread, seeds.freedom)
        measured[key] = Effect(effect.estimate - 1, effect.n, effect.own, pooled)
    values = [effect.estimate + 1 for effect in measured.values()]
    condition = f"exponent {min(values):.2f} to {max(values):.2f} by the choice of origin and "
    condition += "smallest budget, the least sure"
    straight = np.corrcoef(np.log(budgets), np.log(after))[0, 1] ** 2
    note = f"{values[0]:.2f} through all {len(budgets)} budgets from origin 0, R² {straight:.3f}; "
    note += "budgets share runs, so every interval is too narrow; origins "
    note += f"{', '.join(f'{zero:,}' for zero in origins)} tokens, smallest budgets "
    note += f"{budgets[0]:,.0f} to {budgets[-4]:,.0f}; the optima by the fitted law are no test, "
    note += "they lie mostly beyond the data"
    return SLOWER.claim(condition, weakest(measured), POINTS, note)


def _saved(run: pd.DataFrame, step: int, config: Config) -> tuple[float, float]:
    """Steps before the switch, and the part of the large batch's tokens that is saved at a step."""
    tokens = float(run.loc[run["step"] == step, "tokens"].iloc[0])
    length = config["setup"]["text"]["seq_len"]
    large = config["large"] * length * step
    return (large - tokens) / (config["large"] - config["small"]) / length, 1 - tokens / large


def difficulty(here: Tables, registered: Tables) -> Iterator[Claim]:
    """On which side of s = q − 1 the two committed fits of the law put the task."""
    fits = {"fit.json": here.json("fit.json")} if "fit.json" in here else {}
    if "schedules.json" in registered:
        fits["the registered fit"] = registered.json("schedules.json")["fit"]
    sides = [
        f"{name}: s less q − 1 {at['value']:+.2f} ({at['low']:+.2f} to {at['high']:+.2f} at "
        f"{at['level']:.0%})".replace("-", "−")
        for name, fit in fits.items()
        if (at := fit["easy_by"]) and None not in (at["value"], at["low"], at["high"])
    ]
    if sides:
        note = f"{'; '.join(sides)}; below 0 is hard; other pilots and another start of the law"
        yield IS_HARD.untestable("language models, two committed fits", f"{TABLES}fit.json", note)


def _question(row: dict[Any, Any], ending: str) -> Question | None:
    """What a contender speaks to; None where es_wsd speaks of it."""
    name = row["name"]
    if name in LAW.values():
        return LAW_WINS
    if name in ("stages", "ramp"):
        return STAGES_WIN
    if row["role"] == "late" or name == "late, from twice":
        return SWITCHES if row["schedule"].starts[-1] >= LATE * row["tokens"] else None
    return OF_ES if ending == "cosine" else None


def _called(row: dict[Any, Any]) -> str:
    """A contender as a condition names it: a switch by its batches."""
    name, schedule = row["name"], row["schedule"]
    for ending, lawful in LAW.items():
        if name == lawful:
            return f"asked for {GROUPS[ending]}"
    if len(schedule.batches) != 2:
        return name
    small, large = schedule.batches
    return f"{small} → {large} at {schedule.starts[1] / row['tokens']:.0%}"
