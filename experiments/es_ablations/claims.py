"""What changing one thing moves, of the ablations of arXiv 2601.05034, from the committed tables.

Every run has the shared rate, not tuned anew.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bss.contests.claims import Claim, Question, rises
from bss.contests.contest import NO_WORSE, Contest
from bss.contests.contrasts import contrasts, over_seeds
from bss.laws.es.compare import compare
from bss.points.crossings import growth, mean
from bss.schedules.batch import BatchSchedule
from experiments.es_wsd.curves import Config, betas, left_out
from experiments.es_wsd.measure import optimum_table
from experiments.tables import Tables

TABLES = "results/es_ablations/"
FINALS, POINTS = f"{TABLES}contenders.csv", f"{TABLES}points.csv"
HELD = "constant 4"
GROWS = Question.of_loss(
    f"With one thing changed, growing the batch ends lower than {HELD}", "secondary"
)
LITTLE = Question(
    "Weight decay has little effect on dynamic batches", "secondary", 0, matters=NO_WORSE
)
LONGER = Question("Longer sequences are comparable to or better than a larger batch", "secondary")
BUCKETS = Question(
    "Larger micro-batches at the same batch change nothing but rounding", "secondary"
)
SGD = Question(
    "The plain surface misses left-out batches less under SGD than under Adam",
    "derived",
    unit="in log E",
)
WEIGHTS = {"constant": "raw weights", "averaged": "averaged weights"}


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    tables = Tables(results)
    table, config = tables.read("contenders.csv"), tables.config
    points = varied(tables.read("points.csv"), tables.read("optima.csv"), table)
    return [
        *growing(table, config),
        *weight_decay(table, config),
        *longer_sequences(table, config),
        micro_batches(tables.read("ladders.csv"), table, config),
        *sizes(points, config),
        *plain_surface(points, config),
    ]


def growing(table: pd.DataFrame, config: Config) -> Iterator[Claim]:
    """Every schedule less the held constant, with the same change; a family for each ending."""
    rate = config["setup"]["optimizer"]["lr"]
    note = f"at rate {rate:g}, not tuned anew; {betas(config['setup'])}"
    for ending, losses in by_ending(table, config).items():
        pairs = [(one, (one[0], HELD)) for one in _growing(losses, config)]
        pairs = [(one, held) for one, held in pairs if held in losses.index]
        for (one, _), effect in contrasts(losses, pairs).items():
            yield GROWS.claim(_condition(one, ending, config), effect, FINALS, note)


def weight_decay(table: pd.DataFrame, config: Config) -> Iterator[Claim]:
    """Dynamic batches with weight decay and without, of which the paper speaks."""
    first = config["variations"][0]["name"]
    decays = {v["name"] for v in config["variations"] if "optimizer.weight_decay" in v["changes"]}
    for ending, losses in by_ending(table, config).items():
        pairs = [
            ((change, schedule), (first, schedule))
            for change, schedule in _growing(losses, config)
            if change in decays and (first, schedule) in losses.index
        ]
        held = [((change, HELD), (first, HELD)) for change in decays]
        held = [pair for pair in held if set(pair) <= set(losses.index)]
        beside = [contrasts(losses, [pair])[pair].estimate for pair in held]
        lost = "; ".join(f"{HELD} itself moves by {value:+.4f}" for value in beside)
        note = f"decay acts per step, so more per token at a small batch: {lost}"
        for (one, _), effect in contrasts(losses, pairs).items():
            yield LITTLE.claim(_condition(one, ending, config), effect, FINALS, note)


def longer_sequences(table: pd.DataFrame, config: Config) -> Iterator[Claim]:
    """Sequences that grow at the switch less a batch that does, both of as many tokens a step.

    They are judged on one length only, so that no verdict is given.
    """
    first, longer = config["variations"][0]["name"], _longer(config)
    short = config["setup"]["text"]["seq_len"]
    for ending, losses in by_ending(table, config, longer=True).items():
        others = [name for change, name in losses.index if change == first]
        pairs = [
            ((change, schedule), (first, twin))
            for change, schedule in losses.index
            if change in longer and (twin := _twin(schedule, longer[change], others, config))
        ]
        for (grown, twin), effect in contrasts(losses, pairs).items():
            note = f"judged on sequences of {short} alone, not on those of {longer[grown[0]]}"
            condition = _condition(grown, ending, config)
            condition += f", less {_condition(twin, '', config)}"
            one = LONGER.claim(condition, effect, FINALS, note)
            verdict = "undecided" if one.effect.p is not None else one.verdict
            yield replace(one, verdict=verdict)


def micro_batches(ladders: pd.DataFrame, table: pd.DataFrame, config: Config) -> Claim:
    """One run on several bucket ladders, beside what another seed does."""
    column, batch = Contest(table).compared, ladders["batch"].iloc[0]
    first = config["variations"][0]["name"]
    seeds = table[(table["variation"] == first) & (table["ending"] == "constant")]
    scatter = seeds.loc[seeds["name"] == f"constant {batch}", column].std()
    apart = float(np.ptp(ladders[column].to_numpy(float)))
    note = f"one seed of batch {batch} on {len(ladders)} ladders ends within {apart:.4f} nats"
    if np.isfinite(scatter):
        note += f"; seeds scatter by {scatter:.4f}"
    return BUCKETS.untestable(f"batch {batch}", f"{TABLES}ladders.csv", note, 1)


def sizes(points: pd.DataFrame, config: Config) -> list[Claim]:
    """B_opt at each size and under SGD, on each kind of loss, which are one family."""
    growths = {
        f"{_model(str(name), rows)}, {kind} loss": growth(rows)
        for (kind, name), rows in points.groupby(["kind", "variation"], sort=False)  # type: ignore[misc]
    }
    note = betas(config["setup"])
    return rises(growths, POINTS, note)


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
    effects = over_seeds(differences).items()
    return [SGD.claim(condition, effect, POINTS, note) for condition, effect in effects]


def gains(table: pd.DataFrame, config: Config) -> pd.DataFrame:
    """Every growing contender less the held constant under the same change, paired by seed.

    Returns:
        Columns change, contender (its batches, where the sequences grow too those of as many
        tokens a step), weights, difference (nats), error (2 standard errors).
    """
    total, short = config["setup"]["schedule"]["tokens"], config["setup"]["text"]["seq_len"]
    lengths = {v["name"]: v["after"].get("data.seq_len", short) for v in config["variations"]}
    rows = []
    for ending, losses in by_ending(table, config, longer=True).items():
        for change, name in losses.index:
            if name != HELD and (change, HELD) in losses.index:
                apart = losses.loc[(change, name)] - losses.loc[(change, HELD)]
                apart = mean(apart.dropna().tolist())
                *before, last = BatchSchedule.parse(name, total=total).batches
                batches = " → ".join(map(str, (*before, last * lengths[change] // short)))
                rows.append((change, f"batch {batches}", ending, apart.value, apart.error))
    columns = ["change", "contender", "weights", "difference", "error"]
    return pd.DataFrame(rows, columns=pd.Index(columns)).astype({"error": float})


def optima_of(points: pd.DataFrame, names: dict[str, str]) -> dict[str, dict[str, pd.DataFrame]]:
    """Measured optima by kind of loss and by what a variation is called.

    Args:
        points: of `varied`.
        names: what variations are called, those that are shown.
    """
    return {
        f"{kind} loss": {
            called: optimum_table(some.loc[some["variation"] == name])
            for name, called in names.items()
            if name in set(some["variation"])
        }
        for kind, some in points.groupby("kind", sort=False)
    }


def by_size(points: pd.DataFrame, config: Config) -> dict[str, str]:
    """Variations of the model alone, called by their parameters."""
    alone = [v["name"] for v in config["variations"] if not v["changes"] and not v["after"]]
    params = dict(zip(points["variation"], points["params"], strict=True))
    return {name: f"{params[name]:,} parameters" for name in alone if name in params}


def optimizers(config: Config) -> dict[str, str]:
    """The reference and the variation under SGD."""
    names = {config["variations"][0]["name"]: "Adam"}
    changed = [v for v in config["variations"] if v["changes"].get("optimizer.name") == "sgd"]
    return names | {v["name"]: "SGD" for v in changed}


def varied(points: pd.DataFrame, optima: pd.DataFrame, table: pd.DataFrame) -> pd.DataFrame:
    """The points with the variation that each run is of, of those whose E(S) was measured."""
    measured = table["variation"].isin([*optima["variation"].unique()])
    runs = table.loc[measured, ["run", "variation"]].drop_duplicates()
    return points.merge(runs, on="run")


def by_ending(
    table: pd.DataFrame, config: Config, *, longer: bool = False
) -> dict[str, pd.DataFrame]:
    """Losses by ending, [(change, contender), seed], of the variations in which a batch grows.

    Args:
        table: contenders.csv, where every run is told by the weights that it ends with.
        config: of the study.
        longer: whether to keep the variations in which the sequences grow too.
    """
    grown = set(table.loc[table["role"] != "constant", "variation"])
    rows = table.loc[table["variation"].isin([*grown])]
    contest = {HELD, *rows.loc[rows["role"] != "constant", "name"]}
    rows = rows.loc[rows["name"].isin([*contest])]
    if not longer:
        rows = rows[~rows["variation"].isin([*_longer(config)])]
    shapes = {v["name"]: v["changes"].get("schedule.rate") for v in config["variations"]}
    column, shape = Contest(table).compared, rows["variation"].map(shapes)
    told = rows["ending"].map(WEIGHTS).where(shape.isna(), shape)
    rows = rows.assign(told=told)[shape.isna() | (rows["ending"] == "constant")]
    contender = ["variation", "name"]
    return {
        str(ending): some.pivot_table(column, index=contender, columns="seed", sort=False)
        for ending, some in rows.groupby("told", sort=False)
    }


def _condition(contender: tuple[str, str], ending: str, config: Config) -> str:
    """A change, the batches of a contender and its ending, as text."""
    change, schedule = contender
    batches = BatchSchedule.parse(schedule, total=config["setup"]["schedule"]["tokens"]).batches
    parts = change, " → ".join(map(str, batches)), ending
    return ", ".join(dict.fromkeys(filter(None, parts)))


def _growing(losses: pd.DataFrame, config: Config) -> list[tuple[str, str]]:
    """Change and schedule of everything whose batch grows."""
    return [one for one in losses.index if one[1] != HELD and one[0] not in _longer(config)]


def _longer(config: Config) -> dict[str, int]:
    """Sequence lengths after the switch, by variation."""
    after = {v["name"]: v["after"] for v in config["variations"]}
    return {name: some["data.seq_len"] for name, some in after.items() if some}


def _twin(schedule: str, length: int, others: Iterable[str], config: Config) -> str:
    """Of others the schedule whose steps are of as many tokens; "" where there is none."""
    if schedule == HELD:
        return ""
    total, short = config["setup"]["schedule"]["tokens"], config["setup"]["text"]["seq_len"]
    parse = partial(BatchSchedule.parse, total=total)
    start, *_, last = parse(schedule).batches
    batches = (start, last * length // short)
    alike = (name for name in others if name != HELD and parse(name).batches == batches)
    return next(alike, "")


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
