"""What the runs show of arXiv 2601.05034, from the committed tables."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.files import read_json
from bss.points.claims import Claim, claim, untestable
from bss.points.contrasts import Contrast, Measured, contrasts, judge
from bss.points.crossings import growth
from bss.points.rises import rises
from bss.points.scatter import Scatter
from bss.points.standings import ENDINGS, NO_WORSE, against_best, ends
from bss.schedules.batch import BatchSchedule
from experiments.es_wsd import curves

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
    fits = read_json(results / "fits.json", HINT)
    demo = results.parent / "demo"
    return [
        *contenders(table, curves.betas(config["setup"])),
        *equal_steps(table),
        *coupling(table),
        *curves.claims(points, fits, config),
        *curves.law(points, fits, config),
        *horizons(pd.read_csv(results / "horizons.csv"), len(config["seeds"]), config),
        *(one_seed(demo) if demo.is_dir() else ()),
        *out_of_reach(),
    ]


def contenders(table: pd.DataFrame, note: str, where: str = "", source: str = TABLE) -> list[Claim]:
    """Whether a growing batch ends below the best constant of the same ending, at equal tokens.

    Args:
        table: contenders.csv.
        note: how the second moment follows the batch.
        where: put before each condition.
        source: of the table.
    """
    roles = dict(zip(table["name"], table["role"], strict=True))
    made = []
    for ending in _endings(table):
        best, found = against_best(table, ending)
        for name, effect in found.items():
            follows = roles[name] == "schedule"
            made.append(
                claim(
                    FOLLOWS if follows else SWITCHES,
                    "paper" if follows else "secondary",
                    f"{where}{name}, {ENDINGS[ending].short}",
                    effect,
                    sign=-1,
                    unit="nats",
                    table=source,
                    matters=NO_WORSE,
                    note=f"less {best}, chosen by held-out loss; {note}",
                )
            )
    return made


def equal_steps(table: pd.DataFrame) -> list[Claim]:
    """Every schedule that keeps its rate beside the constant of its average batch."""
    steps = {str(row["name"]): int(row["steps"]) for row in table.to_dict("records")}
    made = []
    for ending in _endings(table):
        pairs = _beside_average(table.loc[table["rate"] == ending])
        alike = [(a, b) for a, b in pairs if abs(np.log(steps[a] / steps[b])) < ALIKE]
        for (name, other), effect in contrasts(ends(table, ending), alike).items():
            told = f"{name} less {other}, {ENDINGS[ending].short}"
            made.append(_lower(STEPS, "derived", told, effect, _steps(steps, name, other)))
        made += [
            untestable(
                STEPS,
                "derived",
                f"{name}, {ENDINGS[ending].short}",
                table=TABLE,
                note=f"the constant nearest to its average batch is {_steps(steps, name, other)}",
            )
            for name, other in pairs
            if (name, other) not in alike
        ]
    return made


def coupling(table: pd.DataFrame) -> list[Claim]:
    """The same schedule with its rate kept, and multiplied by the root of the batch's growth."""
    made = []
    for ending in _endings(table):
        losses = ends(table, ending)
        pairs = [(name, name + COUPLED) for name in losses.index if name + COUPLED in losses.index]
        for (name, _), effect in contrasts(losses, pairs).items():
            told = f"{name}, {ENDINGS[ending].short}"
            note = "accounts of the paper conflict on which of the two it does"
            made.append(_lower(KEPT, "secondary", told, effect, note))
    return made


def horizons(table: pd.DataFrame, seeds: int, config: dict[str, Any]) -> list[Claim]:
    """The law's choice of a batch for each horizon, where it is not the best one measured.

    The pooled scatter is the mean over the horizon's batches of that of their differences to the
    best one.
    """
    told = curves.rates_told(config)
    made = []
    for rates, some in table.groupby("rates", sort=False):
        measured = {}
        for end, rows in some.groupby("horizon"):
            chosen, others = rows.loc[rows["law_best"]].iloc[0], rows[~rows["best"]]
            if chosen["best"]:
                continue
            key = f"horizon {end:,}, {told[str(rates)]}, batch {chosen['batch']:g}"
            errors = np.asarray(others["excess_error"], float)
            own = pooled = None
            if np.isfinite(errors).all():
                own = Scatter((float(chosen["excess_error"]) / 2) ** 2, seeds - 1)
                pooled = Scatter(float(np.mean((errors / 2) ** 2)), len(errors) * (seeds - 1))
            measured[key] = Measured(float(chosen["excess"]), seeds, own, pooled)
        for key, effect in judge(measured).items():
            note = f"the law agrees at {len(some['horizon'].unique()) - len(measured)} others"
            named = {"sign": 1, "unit": "nats", "table": HORIZONS, "matters": NO_WORSE}
            made.append(claim(CHOICE, "derived", key, effect, note=note, **named))
    return made


def one_seed(demo: Path) -> list[Claim]:
    """What the demo would say: one seed, another rule for beta2, more tokens, so no verdict."""
    setup = read_json(demo / "experiment.json", HINT)["config"]["setup"]
    note = f"one seed; {curves.betas(setup)}"
    points = pd.read_csv(demo / "points.csv")
    table = read_json(demo / "comparison.json", HINT)["table"]
    three = curves.left_out(table, "piecewise")
    best = min(
        (row for row in table if row["law"] != "piecewise"), key=lambda r: r["interior_loss"]
    )
    said = (
        f"it predicts left-out batches to {three:.4f} nats (rms) and the {best['law']} to "
        f"{best['interior_loss']:.4f}, {note}"
    )
    follows = contenders(
        pd.read_csv(demo / "contenders.csv"), note, "demo: ", DEMO + "contenders.csv"
    )
    return [
        *follows,
        *rises({"demo": growth(points)}, source="secondary", table=DEMO + "points.csv", note=note),
        untestable(
            curves.STAGES, "secondary", "demo", table=DEMO + "comparison.json", note=said, n=1
        ),
    ]


def out_of_reach() -> list[Claim]:
    """Claims that no run here speaks of."""
    efficient = "runs end at equal tokens; what they would save in time is not measured"
    return [
        untestable("The scheduler makes training more efficient", "paper", "es_wsd",
                   table=TABLE, note=efficient),
        *(
            untestable(statement, "secondary", "es_wsd", table=TABLE, note=why)
            for statement, why in OUT_OF_REACH.items()
        ),
    ]  # fmt: skip


def _endings(table: pd.DataFrame) -> list[str]:
    return [ending for ending in ENDINGS if ending in set(table["rate"])]


def _beside_average(rows: pd.DataFrame) -> list[tuple[str, str]]:
    """Schedules that keep their rate, with the constant of their average batch, where it ran."""
    made = rows.drop_duplicates("name").to_dict("records")
    names, pairs = {row["name"] for row in made}, []
    for row in made:
        tokens = int(row["tokens"])
        mean_batch = BatchSchedule.parse(str(row["batch"]), total=tokens).mean_batch(tokens)
        other = f"constant {max(1, round(mean_batch))}"
        grows = row["role"] in ("schedule", "late") and not row["name"].endswith(COUPLED)
        if grows and other in names:
            pairs.append((row["name"], other))
    return pairs


def _steps(steps: dict[str, int], name: str, other: str) -> str:
    return f"{other}, of {steps[other]:,} steps against {steps[name]:,}"


def _lower(statement: str, source: Any, when: str, effect: Contrast, note: str) -> Claim:
    return claim(
        statement, source, when, effect,
        sign=-1, unit="nats", table=TABLE, matters=NO_WORSE, note=note,
    )  # fmt: skip
