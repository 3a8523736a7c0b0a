"""What the parts long, switch and rules_h100 show of the papers' statements, asked after the runs.

The family of `long` was written down before a p of it was read: three statements of Zhou et al.
(arXiv 2601.05034), each on stable losses and on averaged weights, from the highest automatic target
to TARGET, the runs that missed it censored (bss.points.censored). The targets beside it are told
and not judged.
"""

import math
import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from bss.contests.claims import RISES, Asked, Claim, Question, judged
from bss.contests.contest import ENDINGS, Contest
from bss.contests.contrasts import Effect, measured_seeds, over_seeds
from bss.laws.es.compare import compare
from bss.points.censored import Bound, best_batches, by_target
from bss.points.crossings import growth
from bss.points.curve import points
from experiments.es_wsd import curves
from experiments.second_moment.growing import LOSSES, RULE, named
from experiments.second_moment.losses import STEP, TOKENS, Part, place
from experiments.second_moment.tables import e_of_s, targets_of

TARGET, BESIDE = 1.63, (1.65, 1.70)
KINDS = {"stable": LOSSES["constant"], "averaged": LOSSES["averaged"]}
AFTER = "asked after the runs"
POINTS = "results/second_moment/long/runs.parquet"
PUBLISHED = {"arXiv 2503.04715": 0.64, "arXiv 2410.21676": 0.47}
THREE = Question("Three stages predict left-out batches better than the hyperbola", "secondary")
ELASTIC = Question(
    "B_opt grows with the tokens to the loss", "derived", 1, "in the exponent of the tokens"
)
FRONTIER = Question.of_loss(
    "A growing batch ends lower than the constants do at its own number of steps"
)
SMALL_NOISE = Question.of_loss(
    "Batch 1 is worse beside batch 2 at constant rate than at another ending", sign=1
)
CROSS = curves.CROSS
TUNED = (2.25, 1.90)


def claims(parts: Mapping[str, Part]) -> Iterator[Claim]:
    """Of the parts long, switch and rules_h100, as far as they were run."""
    if "long" in parts:
        yield from curves_of(parts["long"])
    if "switch" in parts:
        yield from frontier(Contest(parts["switch"].contenders))
    if "rules_h100" in parts:
        yield from across_endings(parts["rules_h100"])
        yield tuned_crossing(parts["rules_h100"])


def curves_of(part: Part) -> Iterator[Claim]:
    """The family of six; then the stages, and how B_opt grows with the tokens."""
    family: list[Asked] = []
    slopes: dict[str, np.ndarray] = {}
    for kind, column in KINDS.items():
        runs, targets = targets_of(part, column)
        lows = (TARGET, *BESIDE, targets[-1])
        tables = {low: points(runs, (targets[0], low), column=column, kind=kind) for low in lows}
        where = f"{kind} loss {targets[0]:g} to {TARGET:g}, {RULE}, 2M tokens"
        family += _statements(where, tables)
        slopes[where] = log_slopes(tables[TARGET])
    yield from judged(family)
    yield from stages(part.left_out) if part.left_out is not None else ()
    for where, effect in over_seeds(slopes).items():
        own = f"{effect.low:.2f} to {effect.high:.2f}"
        sides = ", ".join(
            f"{value:g} ({source}) {'inside' if effect.low <= value <= effect.high else 'outside'}"
            for source, value in PUBLISHED.items()
            if effect.low is not None and effect.high is not None
        )
        note = f"{own}: {sides}; at the highest target at most, so the rise is at least; {AFTER}"
        yield ELASTIC.claim(f"{where}, at least", effect, POINTS, note, bound="at least")


def left_out(part: Part) -> pd.DataFrame:
    """Errors in nats of three stages and of the hyperbola at left-out interior batches.

    Returns:
        Columns kind, seed, piecewise, hyperbola; each seed is fitted alone.
    """
    rows, laws = [], ("piecewise", "hyperbola")
    for kind, column in KINDS.items():
        for seed, alone in e_of_s(part, column, kind).groupby("seed"):
            table = compare(alone, laws).table
            rows.append((kind, seed, *(curves.left_out(table, law) for law in laws)))
    return pd.DataFrame(rows, columns=pd.Index(["kind", "seed", *laws]))


def stages(table: pd.DataFrame) -> Iterator[Claim]:
    """Whether three stages predict better than the hyperbola, of a table of `left_out`."""
    apart = (table["piecewise"] - table["hyperbola"]).groupby(table["kind"], sort=False)
    values = {f"{kind} loss, {RULE}, 2M tokens": rows.to_numpy(float) for kind, rows in apart}
    for where, effect in over_seeds(values).items():
        note = f"rms error at left-out interior batches, each seed fitted alone; {AFTER}"
        yield THREE.claim(where, effect, "results/second_moment/long/left_out.csv", note)


def _statements(where: str, tables: Mapping[float, pd.DataFrame]) -> list[Asked]:
    """The three statements at TARGET; the effects at the other targets are in their notes."""
    found = {low: _effects(table) for low, table in tables.items()}
    family = []
    for question, (told, effect, bound, among) in found[TARGET].items():
        beside = [
            " ".join(filter(None, (f"{low:g} {effects[question][1].estimate:+.3f}", also)))
            for low, effects in found.items()
            if low != TARGET and question in effects
            for also in [effects[question][2]]
        ]
        note = f"at {', '.join(beside)}, the last automatic: not judged; {AFTER}"
        condition = ", ".join(filter(None, (where, told, bound)))
        note = note.replace("-", "−")
        family.append(Asked(question, condition, effect, POINTS, note, bound, among))
    return family


def _effects(table: pd.DataFrame) -> dict[Question, tuple[str, Effect, Bound, int]]:
    """By statement: the pair it is of, its effect, its bound, and of how many it is the surest."""
    sides, (larger, missed) = curves.crossing_pairs_of(table), curves.larger_batches(table)
    rise = growth(table)
    found: dict[Question, tuple[str, Effect, Bound, int]] = {}
    if rise.bound != "unknown":
        found[RISES] = "", measured_seeds({0: rise.doublings})[0], rise.bound, 1
    if sides:
        pair = max(sides, key=lambda pair: curves.surety(sides[pair].effect))
        about = f"batch {pair[0]} against {pair[1]}, the surest of {len(sides)}"
        bound = "at least" if sides[pair].least else ""
        found[CROSS] = about, sides[pair].effect, bound, len(sides)
    if larger:
        pair = max(larger, key=lambda pair: curves.surety(larger[pair]))
        about = f"batch {pair[0]} less {pair[1]}, the surest of {len(larger)}"
        found[curves.ABOVE] = about, larger[pair], "at least" if missed else "", len(larger)
    return found


def log_slopes(table: pd.DataFrame) -> np.ndarray:
    """By seed: the rise of log B_opt from the first target to the last, over that of log tokens."""
    logs = [one.telling() for one in by_target(table).values()]
    batches = [np.log(2) * best_batches(one).value for one in (logs[0], logs[-1])]
    tokens = [one.tokens.min(axis=1).to_numpy(float) for one in (logs[0], logs[-1])]
    return (batches[1] - batches[0]) / (tokens[1] - tokens[0])


def frontier(contest: Contest) -> Iterator[Claim]:
    """Every schedule less the constants at its own number of steps, a family for each ending.

    The constants' loss is the parabola in log steps through the three nearest, in each seed.
    """
    for ending in contest.endings:
        rows, losses = contest.of(ending), contest.losses(ending)
        flat = [name for name, row in rows.items() if row["role"] == "constant"]
        steps = np.log([rows[name]["steps"] for name in flat])
        apart, notes = {}, {}
        for name in (name for name in rows if name not in flat):
            at = np.log(rows[name]["steps"])
            near = np.argsort(abs(steps - at))[:3]
            seeds = losses.iloc[[losses.index.get_loc(flat[i]) for i in near]].to_numpy(float)
            fits = np.polyfit(steps[near] - at, seeds, 2)
            apart[name] = losses.loc[name].to_numpy(float) - fits[-1]
            batches = ", ".join(named(flat[i]) for i in sorted(near))
            notes[name] = f"{rows[name]['steps']:,} steps; batches {batches}; {AFTER}"
        for name, effect in over_seeds(apart).items():
            condition = f"{named(name)}, {RULE}, {ENDINGS[ending].short}"
            yield FRONTIER.claim(condition, effect, place("switch"), notes[name])


def across_endings(part: Part) -> Iterator[Claim]:
    """Batch 1 less 2, constant rate less each other ending, under either rule: one family."""
    values = {}
    for rule in (STEP, TOKENS):
        apart = {
            ending: some.loc[1] - some.loc[2]
            for (own, ending), some in part.judged.items()
            if own == rule
        }
        for ending in (ending for ending in apart if ending != "constant"):
            difference = (apart["constant"] - apart[ending]).dropna()
            values[f"{rule}, less {ENDINGS[ending].short}"] = difference.to_numpy(float)
    for condition, effect in over_seeds(values).items():
        note = f"a difference of differences, every loss at its own rate; {AFTER}"
        yield SMALL_NOISE.claim(condition, effect, place("rules_h100"), note)


def tuned_crossing(part: Part) -> Claim:
    """Whether batches 1 and 2 cross at .95 per step, each at its best rate for each target.

    Of the rates that every judged seed has, by the tokens of the seeds that choose.
    """
    first = part.config["seeds"][: part.config["choosing"]]
    own = part.runs.loc[part.runs["rule"] == STEP]
    logs = {}
    for batch in (1, 2):
        some = own.loc[own["schedule.batch"].astype(str) == str(batch)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # they were evaluated rarely
            table = points(some, TUNED)
        for target, rows in table.groupby("target_loss"):
            wide = rows.pivot_table(index="seed", columns="peak_lr", values="tokens_to_target")
            wide = wide.dropna(axis=1).map(math.log)
            best = wide.loc[wide.index.isin(first)].mean().idxmin()
            logs[batch, target] = wide.loc[~wide.index.isin(first), best]
    high, low = (logs[1, target] - logs[2, target] for target in TUNED)
    side = min((-high, low), key=lambda side: side.mean() / side.sem())
    effect = over_seeds({0: side.to_numpy(float)})[0]
    told = f"{high.mean():+.3f} at {TUNED[0]:g}, {low.mean():+.3f} at {TUNED[1]:g}"
    note = f"log tokens of 1 over 2 {told.replace('-', '−')}; the less sure side is judged; {AFTER}"
    condition = f"batch 1 against 2, rate tuned for each target, {RULE}, 0.5M tokens"
    table = "results/second_moment/rules_h100/runs.parquet"
    return CROSS.claim(condition, effect, table, note)
