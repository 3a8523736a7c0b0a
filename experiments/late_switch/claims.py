"""What the runs show of late switching (Wang et al., arXiv 2602.14208), from the committed tables.

The functional law: Li et al., arXiv 2509.19189.
"""

import itertools
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.files import read_json
from bss.points.claims import Claim, Source, claim, untestable
from bss.points.contrasts import Effect, contrasts, over_seeds
from bss.points.effects import slopes, weakest
from bss.points.equal_steps import gaps_at_equal_steps
from bss.points.scatter import Scatter
from bss.points.standings import ENDINGS, NO_WORSE, against_best, ends
from bss.schedules.batch import BatchSchedule
from experiments.es_wsd.curves import betas
from experiments.hypotheses import lower
from experiments.late_switch.law import LAW
from experiments.late_switch.predictions import GROUPS, predicts

TABLES = "results/late_switch/"
LATE = 0.7  # of the tokens: they call 70 to 90% late [secondary]
BEST = "lower than the best constant batch"
EARLIER = "A late switch ends lower than an earlier one"
BOTH = "A late switch ends lower than each of its two batches throughout"
STAGES = "Several stages end lower than one late switch"
JOINS = f"After a switch the loss joins the large batch's at equal steps, to {NO_WORSE:g} nats"
CLOSES = "After a switch the gap to the large batch at equal steps closes"
SHARE = f"The best single switch comes after {LATE:.0%} of the tokens"
SLOWER = "The tokens after the best switch grow more slowly than the budget (γ < 1)"
CONTENDERS, RUNS = f"{TABLES}contenders.csv", f"{TABLES}runs.parquet"
lower_point = partial(claim, sign=-1, table=f"{TABLES}switch_points.csv")
Config = dict[str, Any]


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    names = "every_rate", "contenders", "switch_points", "predictions", "candidates"
    every, tuned, points, predicted, tried = (pd.read_csv(results / f"{n}.csv") for n in names)
    config = read_json(results / "experiment.json", "run the experiment first")["config"]
    every_claim = [
        *one_rate(every, config),
        *against_constants(tuned),
        *across_endings(tuned),
        *catch_up(pd.read_parquet(results / "runs.parquet"), config),
        *switch_points(points, config),
        *predicts(predicted, tried, config),
    ]
    return [replace(one, note=f"{one.note}; {betas(config['setup'])}") for one in every_claim]


def one_rate(every: pd.DataFrame, config: Config) -> Iterator[Claim]:
    """Late, early and staged batches at one peak rate, beside the constants between them."""
    table = every.loc[np.isclose(every["peak_lr"], config["shared_rate"])]
    small, large = f"constant {config['small']}", f"constant {config['large']}"
    statements = {
        ("late", "early"): EARLIER,
        ("late", "middle"): EARLIER,
        ("late", small): BOTH,
        ("late", large): BOTH,
        ("stages", "late"): STAGES,
    }
    names = {name: _called(row) for name, row in _rows(table, None).items()}
    lower_here = partial(
        lower,
        table=f"{TABLES}every_rate.csv",
        note=f"every run at peak rate {config['shared_rate']:g}",
    )
    for ending, texts in ENDINGS.items():
        losses = ends(table, ending)
        pairs = [pair for pair in statements if set(pair) <= set(losses.index)]
        for pair, effect in contrasts(losses, pairs).items():
            condition = f"less {names[pair[1]]}, one rate, {texts.short}"
            yield lower_here(statements[pair], "secondary", condition, effect)


def against_constants(tuned: pd.DataFrame) -> Iterator[Claim]:
    """Everything whose batch changes, against the best constant of the same ending."""
    for ending, texts in ENDINGS.items():
        rows = _rows(tuned, ending)
        if not {"constant", "average"} & {row["role"] for row in rows.values()}:
            continue
        best, effects = against_best(tuned, ending)
        batches = [int(row["batch"]) for row in rows.values() if row["role"] == "constant"]
        edge = ", the smallest measured" if rows[best]["batch"] == str(min(batches)) else ""
        for name, effect in effects.items():
            row, flat = rows[name], rows[best]
            what, source = _kind(row, ending)
            condition = f"{_called(row)}, {texts.short}"
            note = f"less {best}, chosen by held-out loss{edge}; {row['trials']} against "
            note += f"{flat['trials']} rates; {row['steps'] / flat['steps']:.2f} of its steps"
            note += "; these runs are es_wsd's too" if name == "late" and ending != "cosine" else ""
            if what:
                what = f"{what} {BEST}"
                yield lower(what, source, condition, effect, table=CONTENDERS, note=note)


def across_endings(tuned: pd.DataFrame) -> Iterator[Claim]:
    """A constant rate with the law's schedule, against decays with the best constant batch."""
    tables = {ending: ends(tuned, ending) for ending in ENDINGS if ending in set(tuned["rate"])}
    if LAW["constant"] not in tables.get("constant", pd.DataFrame()).index:
        return
    named = [t.rename(index=lambda name, e=e: f"{name}, {e}") for e, t in tables.items()]
    best = {ending: against_best(tuned, ending)[0] for ending in tables if ending != "constant"}
    law = f"{LAW['constant']}, constant"
    pairs = [(law, f"{name}, {ending}") for ending, name in best.items()]
    ours = _rows(tuned, "constant")[LAW["constant"]]["trials"]
    statement = f"The functional law's schedule at constant rate ends {BEST} under another ending"
    effects = contrasts(pd.concat(named), pairs).values()
    for (ending, name), effect in zip(best.items(), effects, strict=True):
        note = f"equal tokens; {ours} against {_rows(tuned, ending)[name]['trials']} rates"
        condition = f"less {name}, {ENDINGS[ending].short}"
        yield lower(statement, "derived", condition, effect, table=CONTENDERS, note=note)


def catch_up(runs: pd.DataFrame, config: Config) -> Iterator[Claim]:
    """Whether a switched run joins the large batch at equal steps, and what it saves till then."""
    rate = runs.loc[np.isclose(runs["peak_lr"], config["shared_rate"])]
    curves = {
        str(name): some for name, some in rate.loc[rate["rate"] == "constant"].groupby("name")
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
    joins = partial(lower, table=RUNS, matters=0.0)
    for (statement, name), effect in over_seeds(values).items():
        step = int(gaps[name].index[-1])
        first, last = gaps[name].iloc[0].mean(), gaps[name].iloc[-1].mean()
        begun, saved = _saved(curves[name], step, config)
        condition = f"{name}: {step - begun:,.0f} steps after a switch at {begun:,.0f}, "
        condition += f"{saved:.0%} fewer tokens, constant rate"
        note = f"held-out losses, one rate; {first:.3f} nats at the last evaluation before the "
        note += f"switch, {last / first:.0%} of them left"
        yield joins(statement, "paper", condition, effect, note=note)
    untested = partial(untestable, source="paper", table=RUNS)
    followed = f"the large batch was followed for {int(large['step'].max()):,} steps"
    for name in sorted(curves.keys() & {"middle", "late"} - gaps.keys()):
        note = f"{followed}, the switch is later"
        for statement in (CLOSES, JOINS):
            yield untested(statement, condition=f"{name}, constant rate", note=note)
    cosine = rate.loc[(rate["rate"] == "cosine") & (rate["name"] == flat)]
    if len(cosine):
        note = f"its large batch ends after {int(cosine['step'].max()):,} steps, before any switch"
        yield untested(JOINS, condition="cosine", note=note)
    note = "one model on one corpus: nothing harder or easier to compare"
    yield untested("Harder tasks catch up faster", condition="language models", note=note)


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
        return [
            untestable(statement, "secondary", "constant rate", table=RUNS, note=note)
            for statement in (SHARE, SLOWER)
        ]
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
    unit = f"log of the tokens after it over {1 - LATE:.0%} of the budget"
    share = lower_point(SHARE, "secondary", condition, weakest(places), unit=unit, note=note)
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
    unit = "of the exponent, less 1"
    return lower_point(SLOWER, "secondary", condition, weakest(measured), unit=unit, note=note)


def _saved(run: pd.DataFrame, step: int, config: Config) -> tuple[float, float]:
    """Steps before the switch, and the part of the large batch's tokens that is saved at a step."""
    tokens = float(run.loc[run["step"] == step, "tokens"].iloc[0])
    length = config["setup"]["text"]["seq_len"]
    large = config["large"] * length * step
    return (large - tokens) / (config["large"] - config["small"]) / length, 1 - tokens / large


def _rows(table: pd.DataFrame, ending: str | None) -> dict[str, dict[Any, Any]]:
    """One row of each contender, of an ending or of any."""
    some = table if ending is None else table.loc[table["rate"] == ending]
    return {row["name"]: row for row in some.to_dict("records")}


def _kind(row: dict[Any, Any], ending: str) -> tuple[str, Source]:
    """What a contender speaks to, and whose claim that is; "" where es_wsd speaks of it."""
    name = row["name"]
    if name in LAW.values():
        return "The functional law's schedule ends", "derived"
    if name in ("stages", "ramp"):
        return "Several stages end", "secondary"
    if row["role"] == "late" or name == "late, from twice":
        late = BatchSchedule.parse(str(row["batch"])).starts[-1] >= LATE * row["tokens"]
        return "A late switch ends" if late else "", "secondary"
    return "A schedule of E(S) ends" if ending == "cosine" else "", "derived"


def _called(row: dict[Any, Any]) -> str:
    """A contender as a condition names it: a switch by its batches."""
    schedule, name = BatchSchedule.parse(str(row["batch"])), row["name"]
    for ending, lawful in LAW.items():
        if name == lawful:
            return f"asked for {GROUPS[ending]}"
    if len(schedule.batches) != 2:
        return name
    small, large = schedule.batches
    return f"{small} → {large} at {schedule.starts[1] / row['tokens']:.0%}"
