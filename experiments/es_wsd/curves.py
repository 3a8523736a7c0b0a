"""What the runs show of E(S) itself: curves that cross, B_opt, B_min, stages, the law."""

import math
from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from bss.contests.claims import Claim, Question, rises
from bss.contests.contrasts import Contrast, Effect, judge, measured_pairs, over_seeds
from bss.laws.es.compare import compare
from bss.points.censored import by_target
from bss.points.crossings import growth, optima
from experiments.es_wsd.measure import Laws

POINTS = "results/es_wsd/points.csv"
FITS = "results/es_wsd/fits.json"
LOG_TOKENS = "in log tokens"
CROSS = Question("The loss curves of two batch sizes cross", "secondary", 1, LOG_TOKENS)
ABOVE = Question("B_opt lies above the smallest batch measured", "secondary", 1, LOG_TOKENS)
B_MIN = Question("B_min rises as the loss falls", "secondary")
STAGES = Question("E(S) has three stages", "secondary")
LAW = Question("The hyperbola predicts left-out batches better than the best surface", "derived")
Pair = tuple[str, str]
Config = dict[str, Any]


def betas(setup: Config) -> str:
    """How the second moment follows the batch, which a comparison over batches must name.

    Args:
        setup: of a study: model, data, optimizer.
    """
    half_life, length = setup["optimizer"]["beta2_half_life"], setup["text"]["seq_len"]
    if not half_life:
        return f"beta2 is {setup['optimizer']['beta2']:g} per step at every batch"
    beta2s = ", ".join(f"{2 ** (-b * length / half_life):.3f} at batch {b}" for b in (1, 32, 64))
    return f"beta2 keeps a half-life of {half_life:,} tokens: {beta2s}"


def condition(kind: str, rates: str, config: Config) -> str:
    """A kind of loss and how its rates were chosen, as text."""
    return f"{kind} loss, {rates_told(config)[rates]}"


def rates_told(config: Config) -> dict[str, str]:
    """How rates were chosen, as text."""
    return {"shared": f"rate {config['shared_rate']:g} for all", "envelope": "rate tuned per batch"}


def conditions(points: pd.DataFrame) -> dict[tuple[str, str], pd.DataFrame]:
    """The points by kind of loss and rates, in the table's order."""
    return {
        (str(kind), str(rates)): rows
        for (kind, rates), rows in points.groupby(["kind", "rates"], sort=False)  # type: ignore[misc]
    }


def claims(points: pd.DataFrame, laws: dict[str, Laws], config: Config) -> list[Claim]:
    """Every claim on E(S) but the law's.

    Args:
        points: points.csv.
        laws: of fits.json.
        config: of the study.
    """
    tables, note = conditions(points), betas(config["setup"])
    every = [
        one(table, condition(kind, rates, config), note)
        for one in (crossing, above_smallest)
        for (kind, rates), table in tables.items()
    ]
    for rates in dict.fromkeys(rates for _, rates in tables):
        growths = {
            condition(kind, which, config): growth(table)
            for (kind, which), table in tables.items()
            if which == rates
        }
        every += rises(growths, POINTS, note)
    return [*every, lower_end(tables["stable", "shared"]), stages(laws)]


def crossing(points: pd.DataFrame, when: str, note: str) -> Claim:
    """Whether some pair crosses; the pairs are one family, and the surest pair is told."""
    sides = crossing_pairs_of(points)
    if not sides:
        why = "fewer than two batches reach the same two targets in every seed"
        return CROSS.untestable(when, POINTS, why)
    weaker = {pair: side.effect for pair, side in sides.items()}
    pair = max(weaker, key=lambda pair: surety(weaker[pair]))
    nearest, where = sides[pair].told(len(sides)), f"{when}, batch {pair[0]} against {pair[1]}"
    return at_least(CROSS, where, judge(weaker)[pair], f"{nearest}; {note}", sides[pair].least)


@dataclass(frozen=True)
class Crossing:
    """A pair of batches at two targets.

    Attributes:
        pair: the smaller batch, cheaper at the highest target and dearer at the lowest.
        high, low: log tokens of the smaller over the larger at each.
        least: whether a run missed a target, so that the effect is at least so much.
    """

    pair: Pair
    high: Effect
    low: Effect
    least: bool

    @property
    def effect(self) -> Effect:
        """The less sure of its two sides: a crossing is there only where both are."""
        turned = replace(self.high, estimate=-self.high.estimate)
        return min(turned, self.low, key=surety)

    def told(self, pairs: int) -> str:
        """It and its sides, as the nearest of so many pairs."""
        (a, b), high, low = self.pair, self.high.estimate, self.low.estimate
        nearest = (
            f"of {pairs} pairs batch {a} against {b} comes nearest: log tokens of the first over "
            f"the second {high:+.3f} at the highest target and {low:+.3f} at the lowest"
        )
        return nearest.replace("-", "−")


def crossing_pairs_of(points: pd.DataFrame) -> dict[Pair, Crossing]:
    """The pairs whose cheaper batch of each side reached the target in every seed.

    Where the dearer one missed it, it counts with what it consumed.
    """
    ends = [log_tokens(points, target) for target in end_targets(points)]
    (first_logs, early), (last_logs, late) = ends[0], ends[-1]
    shared = [batch for batch in first_logs.index if batch in last_logs.index]
    pairs = [(a, b) for i, a in enumerate(shared) for b in shared[i + 1 :] if early[a] and late[b]]
    if not pairs or len(ends) < 2:
        return {}
    used = {batch for pair in pairs for batch in pair}
    reached = [table.loc[[b for b in table.index if met[b] or b in used]] for table, met in ends]
    high, low = (measured_pairs(reached[end], pairs) for end in (0, -1))
    return {
        pair: Crossing(pair, high[pair], low[pair], not (early[pair[1]] and late[pair[0]]))
        for pair in pairs
    }


def above_smallest(points: pd.DataFrame, when: str, note: str) -> Claim:
    """Whether some larger batch needs fewer tokens to the lowest target than the smallest one."""
    measured, missed = larger_batches(points)
    if not measured:
        why = "one batch alone reaches the lowest target in every seed"
        return ABOVE.untestable(when, POINTS, why)
    pair = max(measured, key=lambda pair: measured[pair].estimate)
    smallest, length = pair[0], int(points["seq_len"].iloc[0])
    edge = f"B_opt is at most {smallest} sequence ({float(smallest) * length:g} tokens) here; "
    bound = edge if optima(points)[-1].batch == points["batch"].min() else ""
    about = f"{bound}of {len(measured)} larger batches {pair[1]} is the best; {note}"
    where = f"{when}, batch {pair[0]} less {pair[1]}"
    return at_least(ABOVE, where, judge(measured)[pair], about, missed)


def larger_batches(points: pd.DataFrame) -> tuple[dict[Pair, Effect], bool]:
    """Log tokens of the smallest batch over each larger one that reached the lowest target.

    And whether the smallest missed it, so that they are at least so much.
    """
    logs, met = log_tokens(points, end_targets(points)[-1])
    smallest, *larger = logs.index
    pairs = [(smallest, other) for other in larger if met[other]]
    kept = logs.loc[[smallest, *(other for _, other in pairs)]]
    return (measured_pairs(kept, pairs) if pairs else {}), not met[smallest]


def lower_end(points: pd.DataFrame) -> Claim:
    """B_min is below the smallest batch where that batch reaches every target."""
    smallest = points.loc[points["batch"] == points["batch"].min()]
    met, cases = int(smallest["reached"].sum()), len(smallest)
    batch, length = int(smallest["batch"].iloc[0]), int(smallest["seq_len"].iloc[0])
    bound = f"so B_min is below {batch} sequence ({batch * length} tokens)"
    note = f"batch {batch} reaches the targets in {met} of {cases} cases"
    note += f", {bound}" if met == cases else ""
    return B_MIN.untestable("stable loss", POINTS, note)


def stages(laws: dict[str, Laws]) -> Claim:
    """The three-stage law has six parameters a target, which this sweep does not identify."""
    targets = laws["stable, shared"].fits["piecewise"].fits
    known = sum(fit.status == "converged" for fit in targets)
    why = f"the law, which needs 8 batches, is identified at {known} of {len(targets)} targets"
    return STAGES.untestable("es_wsd", FITS, why)


def law(points: pd.DataFrame, laws: dict[str, Laws], config: Config) -> list[Claim]:
    """Whether the hyperbola, which knows no crossing, predicts better than the best surface.

    Both are fitted to each seed alone, so that there are as many differences as seeds.
    """
    differences, notes = {}, {}
    for (kind, rates), table in conditions(points).items():
        surface = laws[f"{kind}, {rates}"].surface
        key, pair = condition(kind, rates, config), ("hyperbola", surface)
        notes[key] = "rms error at left-out interior batches, each seed fitted alone; the surface "
        notes[key] += f"is {surface}"
        alone = [compare(seed, pair).table for _, seed in table.groupby("seed")]
        differences[key] = [left_out(each, pair[0]) - left_out(each, surface) for each in alone]
    return [
        LAW.claim(key, effect, POINTS, notes[key])
        for key, effect in over_seeds(differences).items()
    ]


def left_out(table: Any, name: str, column: str = "interior_loss") -> float:
    """The error of a law at left-out batches, from a comparison's table."""
    return float(next(row[column] for row in table if row["law"] == name))


def end_targets(points: pd.DataFrame) -> tuple[float, ...]:
    """The highest and the lowest target that some batch reached in every seed."""
    targets = [optimum.target_loss for optimum in optima(points)]
    return tuple(dict.fromkeys((targets[0], targets[-1])))


def log_tokens(points: pd.DataFrame, target: float) -> tuple[pd.DataFrame, dict[str, bool]]:
    """Log tokens to a target, [batch as text, seed], and whether a batch reached it in every seed.

    A run that missed it has the tokens that it consumed, a lower bound.
    """
    logs = by_target(points)[target]
    table = logs.tokens.T.dropna().rename(index=lambda batch: f"{batch:g}")
    return table, {f"{batch:g}": bool(met) for batch, met in logs.met.all().items()}


def surety(one: Effect) -> float:
    """A mean over its own standard error; over nothing with one seed."""
    return one.estimate / math.sqrt(one.own.variance) if one.own else one.estimate


def at_least(question: Question, when: str, effect: Contrast, note: str, least: bool) -> Claim:
    """A claim on log tokens; least: where the effect is only at least so much."""
    where, bound = (f"{when}, at least", "at least") if least else (when, "")
    return question.claim(where, effect, POINTS, note, bound=bound)
