"""What the runs show of arXiv 2601.05034, from the committed tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question, judged, rises
from bss.contests.contest import ENDINGS, Contest
from bss.contests.contrasts import Effect
from bss.contests.scatter import Scatter
from bss.points.crossings import growth
from experiments.es_wsd import curves
from experiments.es_wsd.measure import read_laws
from experiments.tables import Tables

TABLE = "results/es_wsd/contenders.csv"
HORIZONS = "results/es_wsd/horizons.csv"
DEMO = "results/demo/"
FOLLOWS = Question.of_loss("Following B_opt ends lower than the best constant batch", "paper")
SWITCHES = Question.of_loss("A late switch ends lower than the best constant batch", "secondary")
STEPS = Question.of_loss("A growing batch ends lower than a constant of about as many steps")
KEPT = Question.of_loss(
    "Where the batch changes, keeping the rate ends lower than × sqrt", "secondary"
)
CHOICE = Question.of_loss(
    "After the decay the law's batch for a horizon ends above the best one measured", sign=1
)
COUPLED = ", LR × sqrt"
ALIKE = 0.1  # numbers of steps this near, as a part, are about the same
OUT_OF_REACH = {
    "B_opt and B_min rise alike at 122M to 1B parameters": "the largest model has 99k parameters",
    "2M → 4M → 5M → 6M tokens over 500B beat a fixed 4M": "batches here are 64 to 4,096 tokens",
    "The schedule serves Mixture-of-Experts models too": "no such model is here",
}


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment, and the demo's beside it."""
    tables, demo = Tables(results), Tables(results.parent / "demo")
    config, contest, points = tables.config, tables.contest(), tables.read("points.csv")
    laws = read_laws(results)
    return [
        *contenders(contest, curves.betas(config["setup"])),
        *equal_steps(contest),
        *coupling(contest),
        *curves.claims(points, laws, config),
        *curves.law(points, laws, config),
        *horizons(tables.read("horizons.csv"), len(config["seeds"]), config),
        *(one_seed(demo) if demo.folder.is_dir() else ()),
        *out_of_reach(),
    ]


def contenders(
    contest: Contest, note: str, where: str = "", source: str = TABLE
) -> Iterator[Claim]:
    """Whether a growing batch ends below the best constant of the same ending, at equal tokens.

    Args:
        contest: contenders.csv.
        note: how the second moment follows the batch.
        where: put before each condition.
        source: of the table.
    """
    for ending in contest.endings:
        best, effects = contest.against_best(ending)
        about, rows = f"less {best}, chosen by held-out loss; {note}", contest.of(ending)
        for name, effect in effects.items():
            question = FOLLOWS if rows[name]["role"] == "schedule" else SWITCHES
            condition = f"{where}{name}, {ENDINGS[ending].short}"
            runs = contest.runs(name, ending)
            yield question.claim(condition, effect, source, about, runs=runs)


def equal_steps(contest: Contest) -> Iterator[Claim]:
    """Every schedule that keeps its rate beside the constant of its average batch."""
    for ending in contest.endings:
        steps = {name: int(row["steps"]) for name, row in contest.of(ending).items()}
        pairs, short = _beside_average(contest, ending), ENDINGS[ending].short
        alike = [(a, b) for a, b in pairs if abs(np.log(steps[a] / steps[b])) < ALIKE]
        for (name, other), effect in contest.contrasts(ending, alike).items():
            note = _steps(steps, name, other)
            yield STEPS.claim(f"{name} less {other}, {short}", effect, TABLE, note)
        for name, other in [pair for pair in pairs if pair not in alike]:
            note = f"the constant nearest to its average batch is {_steps(steps, name, other)}"
            yield STEPS.untestable(f"{name}, {short}", TABLE, note)


def coupling(contest: Contest) -> Iterator[Claim]:
    """The same schedule with its rate kept, and multiplied by the root of the batch's growth."""
    note = "accounts of the paper conflict on which of the two it does"
    for ending in contest.endings:
        names = contest.losses(ending).index
        pairs = [(name, name + COUPLED) for name in names if name + COUPLED in names]
        for (name, _), effect in contest.contrasts(ending, pairs).items():
            yield KEPT.claim(f"{name}, {ENDINGS[ending].short}", effect, TABLE, note)


def horizons(table: pd.DataFrame, seeds: int, config: dict[str, Any]) -> Iterator[Claim]:
    """The law's choice of a batch for each horizon, where it is not the best one measured.

    The pooled scatter is the mean over the horizon's batches of that of their differences to the
    best one.
    """
    rates_of = curves.rates_told(config)
    for rates, some in table.groupby("rates", sort=False):
        family, note = [], f"the law agrees at {sum(some['law_best'] & some['best'])} others"
        for chosen in some.loc[some["law_best"] & ~some["best"]].to_dict("records"):
            end = chosen["horizon"]
            condition = f"horizon {end:,}, {rates_of[str(rates)]}, batch {chosen['batch']:g}"
            others = (some["horizon"] == end) & ~some["best"]
            errors = some.loc[others, "excess_error"].to_numpy(float)
            own = pooled = None
            if np.isfinite(errors).all():
                own = Scatter((float(chosen["excess_error"]) / 2) ** 2, seeds - 1)
                pooled = Scatter(float(np.mean((errors / 2) ** 2)), len(errors) * (seeds - 1))
            effect = Effect(float(chosen["excess"]), seeds, own, pooled)
            family.append(CHOICE.asked(condition, effect, HORIZONS, note))
        yield from judged(family)


def one_seed(demo: Tables) -> list[Claim]:
    """What the demo would say: one seed, another rule for beta2, more tokens, so no verdict."""
    note = f"one seed; {curves.betas(demo.config['setup'])}"
    table = demo.json("comparison.json")["table"]
    three = curves.left_out(table, "piecewise")
    others = [row for row in table if row["law"] != "piecewise"]
    best = min(others, key=lambda row: row["interior_loss"])
    errors = (
        f"it predicts left-out batches to {three:.4f} nats (rms) and the {best['law']} to "
        f"{best['interior_loss']:.4f}, {note}"
    )
    rise = {"demo": growth(demo.read("points.csv"))}
    return [
        *contenders(demo.contest(), note, "demo: ", DEMO + "contenders.csv"),
        *rises(rise, DEMO + "points.csv", note),
        curves.STAGES.untestable("demo", DEMO + "comparison.json", errors, 1),
    ]


def out_of_reach() -> list[Claim]:
    """Claims that no run here speaks of."""
    efficient = Question("The scheduler makes training more efficient", "paper")
    why = "runs end at equal tokens; what they would save in time is not measured"
    others = {Question(statement, "secondary"): note for statement, note in OUT_OF_REACH.items()}
    asked = {efficient: why, **others}
    return [one.untestable("es_wsd", TABLE, note) for one, note in asked.items()]


def _beside_average(contest: Contest, ending: str) -> list[tuple[str, str]]:
    """Schedules that keep their rate, with the constant of their average batch, where it ran."""
    rows, pairs = contest.of(ending), []
    for name, row in rows.items():
        other = f"constant {max(1, round(row['schedule'].mean_batch(int(row['tokens']))))}"
        grows = row["role"] in ("schedule", "late") and not name.endswith(COUPLED)
        if grows and other in rows:
            pairs.append((name, other))
    return pairs


def _steps(steps: dict[str, int], name: str, other: str) -> str:
    return f"{other}, of {steps[other]:,} steps against {steps[name]:,}"
