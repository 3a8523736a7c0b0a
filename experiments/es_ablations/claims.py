"""What changing one thing moves, of the ablations of arXiv 2601.05034, from the committed tables.

Every run has the shared rate, not tuned anew.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.files import read_json
from bss.laws.es.compare import compare
from bss.points.claims import Claim, claim, equal, untestable
from bss.points.contrasts import contrasts, over_seeds
from bss.points.crossings import growth
from bss.points.rises import rises
from bss.points.standings import NO_WORSE, compared_loss
from bss.schedules.batch import BatchSchedule
from experiments.es_wsd.curves import betas, left_out

TABLES = "results/es_ablations/"
HINT = "run the experiment first"
HELD = "constant 4"
GROWS = f"With one thing changed, growing the batch ends lower than {HELD}"
LITTLE = "Weight decay has little effect on dynamic batches"
LONGER = "Longer sequences are comparable to or better than a larger batch"
BUCKETS = "Larger micro-batches at the same batch change nothing but rounding"
SGD = "The plain surface misses left-out batches less under SGD than under Adam"
WEIGHTS = {"constant": "raw weights", "averaged": "averaged weights"}
Config = dict[str, Any]


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    names = "contenders", "points", "optima", "ladders"
    table, points, optima, ladders = (pd.read_csv(results / f"{name}.csv") for name in names)
    config = read_json(results / "experiment.json", HINT)["config"]
    points = varied(points, optima, table)
    return [
        *growing(table, config),
        *weight_decay(table, config),
        *longer_sequences(table, config),
        micro_batches(ladders, table, config),
        *sizes(points, config),
        *plain_surface(points, config),
    ]


def growing(table: pd.DataFrame, config: Config) -> list[Claim]:
    """Every schedule less the held constant, with the same change; a family for each ending."""
    note = (
        f"at rate {config['setup']['optimizer']['lr']:g}, not tuned anew; {betas(config['setup'])}"
    )
    made = []
    for ending, losses in by_ending(table, config).items():
        pairs = [
            (name, _of(change, HELD))
            for change, schedule, name in _growing(losses, config)
            if _of(change, HELD) in losses.index
        ]
        for (name, _), effect in contrasts(losses, pairs).items():
            made.append(
                claim(
                    GROWS,
                    "secondary",
                    _told(name, ending, config),
                    effect,
                    sign=-1,
                    unit="nats",
                    table=TABLES + "contenders.csv",
                    matters=NO_WORSE,
                    note=note,
                )
            )
    return made


def weight_decay(table: pd.DataFrame, config: Config) -> list[Claim]:
    """Dynamic batches with weight decay and without, of which the paper speaks."""
    first = config["variations"][0]["name"]
    decays = {v["name"] for v in config["variations"] if "optimizer.weight_decay" in v["changes"]}
    made = []
    for ending, losses in by_ending(table, config).items():
        pairs = [
            (name, _of(first, schedule))
            for change, schedule, name in _growing(losses, config)
            if change in decays and _of(first, schedule) in losses.index
        ]
        held = [pair for pair in ((_of(c, HELD), _of(first, HELD)) for c in decays)
                if set(pair) <= set(losses.index)]  # fmt: skip
        beside = {pair: contrasts(losses, [pair])[pair].estimate for pair in held}
        lost = "; ".join(f"{HELD} itself moves by {value:+.4f}" for value in beside.values())
        for (name, _), effect in contrasts(losses, pairs).items():
            told = _told(name, ending, config)
            note = f"decay acts per step, so more per token at a small batch: {lost}"
            named = {"unit": "nats", "table": TABLES + "contenders.csv", "matters": NO_WORSE}
            made.append(equal(LITTLE, "secondary", told, effect, note=note, **named))
    return made


def longer_sequences(table: pd.DataFrame, config: Config) -> list[Claim]:
    """Sequences that grow at the switch less a batch that does, both of as many tokens a step.

    They are judged on one length only, so that no verdict is given.
    """
    first, longer = config["variations"][0]["name"], _longer(config)
    made = []
    for ending, losses in by_ending(table, config, longer=True).items():
        found = {}
        for name in losses.index:
            change, schedule = name.split(" · ")
            twin = _twin(schedule, longer.get(change, 0), losses, first, config)
            if twin:
                found[str(name), twin] = longer[change]
        for (name, twin), effect in contrasts(losses, list(found)).items():
            short = config["setup"]["text"]["seq_len"]
            note = f"judged on sequences of {short} alone, not on those of {found[name, twin]}"
            told = f"{_told(name, ending, config)}, less {_told(twin, '', config)}"
            named = {"sign": -1, "unit": "nats", "table": TABLES + "contenders.csv"}
            one = claim(LONGER, "secondary", told, effect, note=note, **named)
            seen = "undecided" if one.effect.p is not None else one.verdict
            made.append(replace(one, verdict=seen))
    return made


def micro_batches(ladders: pd.DataFrame, table: pd.DataFrame, config: Config) -> Claim:
    """One run on several bucket ladders, beside what another seed does."""
    column, batch = compared_loss(table), ladders["batch"].iloc[0]
    first = config["variations"][0]["name"]
    seeds = table[(table["variation"] == first) & (table["rate"] == "constant")]
    scatter = seeds.loc[seeds["name"] == f"constant {batch}", column].std()
    apart = float(np.ptp(ladders[column].to_numpy(float)))
    note = f"one seed of batch {batch} on {len(ladders)} ladders ends within {apart:.4f} nats"
    if np.isfinite(scatter):
        note += f"; seeds scatter by {scatter:.4f}"
    return untestable(
        BUCKETS, "secondary", f"batch {batch}", table=TABLES + "ladders.csv", note=note, n=1
    )


def sizes(points: pd.DataFrame, config: Config) -> list[Claim]:
    """B_opt at each size and under SGD, on each kind of loss, which are one family."""
    growths = {
        f"{_model(str(name), rows)}, {kind} loss": growth(rows)
        for (kind, name), rows in points.groupby(["kind", "variation"], sort=False)  # type: ignore[misc]
    }
    note = betas(config["setup"])
    return rises(growths, source="secondary", table=TABLES + "points.csv", note=note)


def plain_surface(points: pd.DataFrame, config: Config) -> list[Claim]:
    """The surface of the theory under SGD less the same under Adam, each seed fitted alone."""
    sgd = [v["name"] for v in config["variations"] if v["changes"].get("optimizer.name") == "sgd"]
    first = config["variations"][0]["name"]
    differences = {
        f"{kind} loss": np.subtract(_misses(some, sgd[0]), _misses(some, first))
        for kind, some in points.groupby("kind", sort=False)
        if sgd and {sgd[0], first} <= set(some["variation"])
    }
    note = "rms error in log E of left-out interior batches; one rate for each optimizer"
    return [
        claim(
            SGD,
            "derived",
            told,
            effect,
            sign=-1,
            unit="in log E",
            table=TABLES + "points.csv",
            note=note,
        )
        for told, effect in over_seeds(differences).items()
    ]


def varied(points: pd.DataFrame, optima: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The points with the variation that each run is of, of those whose E(S) was measured."""
    measured = table["variation"].isin([*optima["variation"].unique()])
    runs = table.loc[measured, ["run", "variation"]].drop_duplicates()
    return points.merge(runs, on="run")


def by_ending(
    table: pd.DataFrame, config: Config, *, longer: bool = False
) -> dict[str, pd.DataFrame]:
    """Losses by ending, [change · contender, seed], of the variations in which a batch grows.

    Args:
        table: contenders.csv, where every run is told by the weights that it ends with.
        config: of the study.
        longer: whether to keep the variations in which the sequences grow too.
    """
    grown = set(table.loc[table["role"] != "constant", "variation"])
    kept = table.loc[table["variation"].isin([*grown])]
    contest = {HELD, *kept.loc[kept["role"] != "constant", "name"]}
    kept = kept.loc[kept["name"].isin([*contest])]
    if not longer:
        kept = kept[~kept["variation"].isin([*_longer(config)])]
    shapes = {v["name"]: v["changes"].get("schedule.rate") for v in config["variations"]}
    weights, column = kept["rate"].map(WEIGHTS), compared_loss(table)
    shape = kept["variation"].map(shapes)
    kept = kept.assign(
        ending=weights.where(shape.isna(), shape), label=_of(kept["variation"], kept["name"])
    )[shape.isna() | (kept["rate"] == "constant")]
    return {
        str(ending): rows.pivot_table(index="label", columns="seed", values=column, sort=False)
        for ending, rows in kept.groupby("ending", sort=False)
    }


def _of(change: Any, name: Any) -> Any:
    return change + " · " + name


def _told(label: str, ending: str, config: Config) -> str:
    """A change, the batches of a contender and its ending, as text."""
    change, schedule = label.split(" · ")
    batches = BatchSchedule.parse(schedule, total=config["setup"]["schedule"]["tokens"]).batches
    return ", ".join(
        dict.fromkeys((change, " → ".join(map(str, batches)), *filter(None, [ending])))
    )


def _growing(losses: pd.DataFrame, config: Config) -> list[tuple[str, str, str]]:
    """Change, schedule and label of everything whose batch grows."""
    split = [(*str(label).split(" · "), str(label)) for label in losses.index]
    return [found for found in split if found[1] != HELD and found[0] not in _longer(config)]  # type: ignore[misc]


def _longer(config: Config) -> dict[str, int]:
    """Sequence lengths after the switch, by variation."""
    after = {v["name"]: v["after"] for v in config["variations"]}
    return {name: some["data.seq_len"] for name, some in after.items() if some}


def _twin(schedule: str, length: int, losses: pd.DataFrame, first: str, config: Config) -> str:
    """The schedule without the change whose steps are of as many tokens; "" where there is none."""
    if not length or schedule == HELD:
        return ""
    total, short = config["setup"]["schedule"]["tokens"], config["setup"]["text"]["seq_len"]
    start, *_, last = BatchSchedule.parse(schedule, total=total).batches
    asked = (start, last * length // short)
    for label in losses.index:
        change, name = str(label).split(" · ")
        if change != first or name == HELD:
            continue
        if tuple(BatchSchedule.parse(name, total=total).batches) == asked:
            return str(label)
    return ""


def _model(variation: str, rows: pd.DataFrame) -> str:
    params = f"{int(rows['params'].iloc[0]):,} parameters"
    return params if "parameters" in variation or " as in" in f" {variation}" else variation


def _misses(points: pd.DataFrame, variation: str) -> list[float]:
    """The plain surface's error at left-out batches, of each seed fitted alone."""
    rows = points.loc[points["variation"] == variation]
    return [
        left_out(compare(alone, ("surface", "hyperbola")).table, "surface", "interior_log_E")
        for _, alone in rows.groupby("seed")
    ]
