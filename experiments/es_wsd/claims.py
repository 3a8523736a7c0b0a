"""What the runs show of arXiv 2601.05034, from the committed tables."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.files import read_json
from bss.points.claims import Claim, Source, rises, untestable
from bss.points.contrasts import Effect, contrasts
from bss.points.crossings import growth
from bss.points.scatter import Scatter
from bss.points.standings import ENDINGS, NO_WORSE, against_best, ends
from bss.schedules.batch import BatchSchedule
from experiments.es_wsd import curves
from experiments.es_wsd.measure import read_laws
from experiments.hypotheses import Hypothesis, judged, lower

TABLE = "results/es_wsd/contenders.csv"
HORIZONS = "results/es_wsd/horizons.csv"
DEMO = "results/demo/"
HINT = "run the experiment first"
FOLLOWS = "Following B_opt ends lower than the best constant batch"
SWITCHES = "A late switch ends lower than the best constant batch"
STEPS = "A growing batch ends lower than a constant of about as many steps"
KEPT = "Where the batch changes, keeping the rate ends lower than × sqrt"
CHOICE = "After the decay the law's batch for a horizon ends above the best one measured"
COUPLED = ", LR × sqrt"
ALIKE = 0.1  # numbers of steps this near, as a part, are about the same
OUT_OF_REACH = {
    "B_opt and B_min rise alike at 122M to 1B parameters": "the largest model has 99k parameters",
    "2M → 4M → 5M → 6M tokens over 500B beat a fixed 4M": "batches here are 64 to 4,096 tokens",
    "The schedule serves Mixture-of-Experts models too": "no such model is here",
}


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment, and the demo's beside it."""
    config = read_json(results / "experiment.json", HINT)["config"]
    table, points = (pd.read_csv(results / f"{name}.csv") for name in ("contenders", "points"))
    laws = read_laws(results / "fits.json")
    demo = results.parent / "demo"
    return [
        *contenders(table, curves.betas(config["setup"])),
        *equal_steps(table),
        *coupling(table),
        *curves.claims(points, laws, config),
        *curves.law(points, laws, config),
        *horizons(pd.read_csv(results / "horizons.csv"), len(config["seeds"]), config),
        *(one_seed(demo) if demo.is_dir() else ()),
        *out_of_reach(),
    ]


def contenders(
    table: pd.DataFrame, note: str, where: str = "", source: str = TABLE
) -> Iterator[Claim]:
    """Whether a growing batch ends below the best constant of the same ending, at equal tokens.

    Args:
        table: contenders.csv.
        note: how the second moment follows the batch.
        where: put before each condition.
        source: of the table.
    """
    roles = dict(zip(table["name"], table["role"], strict=True))
    sources: dict[str, Source] = {FOLLOWS: "paper", SWITCHES: "secondary"}
    for ending in _endings(table):
        best, effects = against_best(table, ending)
        about = f"less {best}, chosen by held-out loss; {note}"
        for name, effect in effects.items():
            statement = FOLLOWS if roles[name] == "schedule" else SWITCHES
            condition = f"{where}{name}, {ENDINGS[ending].short}"
            whose = sources[statement]
            yield lower(statement, whose, condition, effect, table=source, note=about)


def equal_steps(table: pd.DataFrame) -> Iterator[Claim]:
    """Every schedule that keeps its rate beside the constant of its average batch."""
    steps = {str(row["name"]): int(row["steps"]) for row in table.to_dict("records")}
    for ending in _endings(table):
        pairs = _beside_average(table.loc[table["rate"] == ending])
        alike = [(a, b) for a, b in pairs if abs(np.log(steps[a] / steps[b])) < ALIKE]
        short = ENDINGS[ending].short
        for (name, other), effect in contrasts(ends(table, ending), alike).items():
            condition, note = f"{name} less {other}, {short}", _steps(steps, name, other)
            yield lower(STEPS, "derived", condition, effect, table=TABLE, note=note)
        for name, other in [pair for pair in pairs if pair not in alike]:
            note = f"the constant nearest to its average batch is {_steps(steps, name, other)}"
            yield untestable(STEPS, "derived", f"{name}, {short}", table=TABLE, note=note)


def coupling(table: pd.DataFrame) -> Iterator[Claim]:
    """The same schedule with its rate kept, and multiplied by the root of the batch's growth."""
    note = "accounts of the paper conflict on which of the two it does"
    for ending in _endings(table):
        losses = ends(table, ending)
        pairs = [(name, name + COUPLED) for name in losses.index if name + COUPLED in losses.index]
        for (name, _), effect in contrasts(losses, pairs).items():
            condition = f"{name}, {ENDINGS[ending].short}"
            yield lower(KEPT, "secondary", condition, effect, table=TABLE, note=note)


def horizons(table: pd.DataFrame, seeds: int, config: dict[str, Any]) -> Iterator[Claim]:
    """The law's choice of a batch for each horizon, where it is not the best one measured.

    The pooled scatter is the mean over the horizon's batches of that of their differences to the
    best one.
    """
    rates_of = curves.rates_told(config)
    for rates, some in table.groupby("rates", sort=False):
        family, agreed = [], sum(some["law_best"] & some["best"])
        about = {"note": f"the law agrees at {agreed} others", "sign": 1, "matters": NO_WORSE}
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
            one = Hypothesis(CHOICE, "derived", condition, effect, "nats", HORIZONS, **about)
            family.append(one)
        yield from judged(family)


def one_seed(demo: Path) -> list[Claim]:
    """What the demo would say: one seed, another rule for beta2, more tokens, so no verdict."""
    setup = read_json(demo / "experiment.json", HINT)["config"]["setup"]
    note = f"one seed; {curves.betas(setup)}"
    points = pd.read_csv(demo / "points.csv")
    table = read_json(demo / "comparison.json", HINT)["table"]
    three = curves.left_out(table, "piecewise")
    others = [row for row in table if row["law"] != "piecewise"]
    best = min(others, key=lambda row: row["interior_loss"])
    errors = (
        f"it predicts left-out batches to {three:.4f} nats (rms) and the {best['law']} to "
        f"{best['interior_loss']:.4f}, {note}"
    )
    finals, place = pd.read_csv(demo / "contenders.csv"), DEMO + "comparison.json"
    return [
        *contenders(finals, note, "demo: ", DEMO + "contenders.csv"),
        *rises({"demo": growth(points)}, source="secondary", table=DEMO + "points.csv", note=note),
        untestable(curves.STAGES, "secondary", "demo", table=place, note=errors, n=1),
    ]


def out_of_reach() -> list[Claim]:
    """Claims that no run here speaks of."""
    of = partial(untestable, condition="es_wsd", table=TABLE)
    efficient = "runs end at equal tokens; what they would save in time is not measured"
    return [
        of("The scheduler makes training more efficient", "paper", note=efficient),
        *(of(statement, "secondary", note=why) for statement, why in OUT_OF_REACH.items()),
    ]


def _endings(table: pd.DataFrame) -> list[str]:
    return [ending for ending in ENDINGS if ending in set(table["rate"])]


def _beside_average(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Schedules that keep their rate, with the constant of their average batch, where it ran."""
    contenders = rows.drop_duplicates("name").to_dict("records")
    names, pairs = {row["name"] for row in contenders}, []
    for row in contenders:
        tokens = int(row["tokens"])
        mean_batch = BatchSchedule.parse(str(row["batch"]), total=tokens).mean_batch(tokens)
        other = f"constant {max(1, round(mean_batch))}"
        grows = row["role"] in ("schedule", "late") and not row["name"].endswith(COUPLED)
        if grows and other in names:
            pairs.append((row["name"], other))
    return pairs


def _steps(steps: dict[str, int], name: str, other: str) -> str:
    return f"{other}, of {steps[other]:,} steps against {steps[name]:,}"
