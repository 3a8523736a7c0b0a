"""Numbers of the questions in conditions.toml: what beta2, more tokens and the ramp's start decide.

`analysis.py` calls `measure` and `PARTS`. A run that misses a loss has the tokens it consumed as a
bound. In the parts beta2 and beta2_large the LR is chosen on PILOTS; the other seeds decide.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bss.points.curve import points
from bss.stats import LR_PHASES, Comparison, Effect, Numbers, effect_of, half_interval, mean_of
from experiments.conditions import conditions_of
from experiments.es_wsd.measuring import PHASES
from experiments.findings import Measured, measurements
from experiments.tables import Tables, shown_warnings

QUESTIONS = Path(__file__).parent / "conditions.toml"

PILOTS = (110, 111)  # seeds on which the LR and the batch size with the fewest tokens are chosen
PER_STEP = "0.95 per step"
SHORT = "half-life 7K"
SLOW = "half-life 20K"
ONE_LR = 8e-3
LAST = "last"
AVERAGED = "averaged"
COLUMNS = {LAST: PHASES["constant"], AVERAGED: PHASES["averaged"]}
"""Columns of the held-out loss, by weights."""
TARGETS = {"beta2": (2.40, 2.20, 2.15, 2.10), "beta2_large": (2.40, 2.20, 2.10, 2.00)}
LOWEST = 2.02  # the loss that batch 1 may never reach
LATE_TOKENS = (4_000_000, 8_000_000)  # between which two batch sizes are compared
PHASES_OF_FINALS = {"constant": "constant", "averaged": "averaged", "decayed": "decayed"}
RAMP = "B_opt ramp"
TO_12 = "switch to 12"
TO_32 = "switch to 32"


# Rules for beta2 and LRs


def measure_rules(tables: Tables, targets: Sequence[float]) -> None:
    """Write points.csv (tokens to losses), rates.csv (best LRs) and relative.csv."""
    runs = tables.read("runs.parquet")
    found = pd.concat([points_of_rules(runs, targets, weights) for weights in COLUMNS])
    rates = chosen_rates(found)
    tables.write("points.csv", found)
    tables.write("rates.csv", rates)
    tables.write("relative.csv", relative_tokens(found, rates))


def points_of_rules(runs: pd.DataFrame, targets: Sequence[float], weights: str) -> pd.DataFrame:
    """Return tokens to each loss that some run reaches, one row per run and loss.

    Returns:
        Columns rule, weights, batch, peak_lr, seed, target_loss, tokens_to_target, reached.
    """
    table = runs.assign(eval_loss=runs[COLUMNS[weights]]).dropna(subset="eval_loss")
    reachable = [target for target in targets if target > table["eval_loss"].min()]
    with shown_warnings("points"):
        found = points(table, reachable)
    rule = runs.drop_duplicates("run").set_index("run")["group"]
    kept = ["batch", "peak_lr", "seed", "target_loss", "tokens_to_target", "reached"]
    found = found.assign(rule=found["run"].map(rule), weights=weights)
    return found[["rule", "weights", *kept]]


def chosen_rates(found: pd.DataFrame) -> pd.DataFrame:
    """Return the LR with the fewest tokens on PILOTS, for each rule, weights, loss and batch size.

    A run that missed the loss counts with its bound.

    Returns:
        Columns rule, weights, target_loss, batch, peak_lr, log_tokens (mean over PILOTS), bracketed
        (whether it is neither the lowest nor the highest LR tried).
    """
    pilots = found.loc[found["seed"].isin(PILOTS)]
    pilots = pilots.assign(log_tokens=np.log(pilots["tokens_to_target"]))
    cell = ["rule", "weights", "target_loss", "batch"]
    rows = []
    for key, some in pilots.groupby(cell, sort=False):
        mean = some.groupby("peak_lr")["log_tokens"].mean()
        best = mean.idxmin()
        row = dict(zip(cell, key, strict=True))
        row |= {"peak_lr": best, "log_tokens": mean[best]}
        rows.append(row | {"bracketed": mean.index.min() < best < mean.index.max()})
    return pd.DataFrame(rows)


@dataclass(frozen=True)
class Cell:
    """The source of a number: a rule for beta2, a loss, and weights."""

    rule: str
    target: float = 2.20
    weights: str = LAST


class Tokens:
    """Log tokens to a loss on the seeds that decide, at the tuned LR or at one LR.

    Attributes:
        found: As `points_of_rules` returns it.
        rates: As `chosen_rates` returns it.
    """

    def __init__(self, found: pd.DataFrame, rates: pd.DataFrame) -> None:
        self.found = found.loc[~found["seed"].isin(PILOTS)]
        self.rates = rates

    def tuned(self, cell: Cell) -> dict[int, Numbers]:
        """Return one number per seed, by batch size, at the LR that PILOTS chose."""
        best = self.chosen(cell).set_index("batch")["peak_lr"]
        return self._numbers(cell, {int(batch): float(best[batch]) for batch in best.index})

    def at_one_rate(self, cell: Cell) -> dict[int, Numbers]:
        """Return one number per seed, by batch size, at ONE_LR where it was tried."""
        rows = self._rows(self.found, cell)
        tried = rows.loc[np.isclose(rows["peak_lr"], ONE_LR), "batch"].unique()
        return self._numbers(cell, {int(batch): ONE_LR for batch in tried})

    def chosen(self, cell: Cell) -> pd.DataFrame:
        """Return the rows of `rates` of a cell."""
        return self._rows(self.rates, cell)

    def _rows(self, table: pd.DataFrame, cell: Cell) -> pd.DataFrame:
        here = (table["rule"] == cell.rule) & (table["weights"] == cell.weights)
        return table.loc[here & np.isclose(table["target_loss"], cell.target)]

    def _numbers(self, cell: Cell, rates: Mapping[int, float]) -> dict[int, Numbers]:
        rows = self._rows(self.found, cell)
        numbers = {}
        for batch, rate in rates.items():
            own = rows.loc[(rows["batch"] == batch) & np.isclose(rows["peak_lr"], rate)]
            own = own.sort_values("seed")
            numbers[batch] = Numbers.to_target(np.log(own["tokens_to_target"]), own["reached"])
        return numbers


def excess(tokens: Mapping[int, Numbers], others: Sequence[int]) -> Numbers:
    """Return log tokens of batch 1 minus the mean of other batch sizes."""
    return tokens[1] - mean_of(*(tokens[batch] for batch in others))


def relative_tokens(found: pd.DataFrame, rates: pd.DataFrame) -> pd.DataFrame:
    """Return mean log tokens of every batch size minus the minimum over rules and LRs.

    Returns:
        Columns rule, rate ("tuned" or "one"), batch, log_ratio, half_interval_95, at_least (whether
        a run missed the loss, so that the ratio is a bound), bracketed, weights, target_loss.
    """
    tokens = Tokens(found, rates)
    tables = []
    for (weights, target), some in rates.groupby(["weights", "target_loss"], sort=False):
        rules_here = dict.fromkeys(some["rule"])
        own = pd.concat([_log_means(tokens, Cell(rule, target, weights)) for rule in rules_here])
        least = own.loc[~own["at_least"], "log_ratio"].min()
        own = own.assign(log_ratio=own["log_ratio"] - least)
        tables.append(own.assign(weights=weights, target_loss=target))
    return pd.concat(tables, ignore_index=True)


def _log_means(tokens: Tokens, cell: Cell) -> pd.DataFrame:
    """Return the mean log tokens of each batch size of a cell, in the column log_ratio."""
    bracketed = tokens.chosen(cell).set_index("batch")["bracketed"]
    numbers = {"tuned": tokens.tuned(cell), "one": tokens.at_one_rate(cell)}
    rows = [
        {
            "rule": cell.rule,
            "rate": rate,
            "batch": batch,
            "log_ratio": float(one.low.mean()),
            "half_interval_95": float(half_interval(one.low)),
            "at_least": bool(one.censored.any()),
            "bracketed": bool(bracketed[batch]) if rate == "tuned" else None,
        }
        for rate, by_batch in numbers.items()
        for batch, one in by_batch.items()
        if len(one.low) > 1
    ]
    return pd.DataFrame(rows)


def rules(tables: Tables) -> dict[str, Measured]:
    """Return the numbers of the questions on beta2 at 12k parameters."""
    tokens = Tokens(tables.read("points.csv"), tables.read("rates.csv"))
    near = (2, 4)
    per_step = Cell(PER_STEP)
    slow = Cell(SLOW)
    short = Cell(SHORT)
    averaged = Cell(PER_STEP, 2.10, AVERAGED)
    slow_averaged = Cell(SLOW, 2.10, AVERAGED)
    low = Cell(SLOW, 2.15)
    high = Cell(SLOW, 2.40)

    def of(cell: Cell) -> Numbers:
        return excess(tokens.tuned(cell), near)

    one_rate = excess(tokens.at_one_rate(per_step), near)
    rise = larger_gain(tokens.tuned(low)) - larger_gain(tokens.tuned(high))
    numbers = {
        "excess_per_step": (of(per_step), (per_step,)),
        "excess_slow": (of(slow), (slow,)),
        "beta2_excess": (of(per_step) - of(slow), (per_step, slow)),
        "beta2_excess_averaged": (of(averaged) - of(slow_averaged), (averaged, slow_averaged)),
        "beta2_excess_short": (of(per_step) - of(short), (per_step, short)),
        "lr_excess": (one_rate - of(per_step), (per_step,)),
        "slow_saves": (fewest(tokens, slow) - fewest(tokens, per_step), (per_step, slow)),
        "optimum_rises_slow": (rise, (low, high)),
    }
    return _measured(tables, tokens, numbers, (1, *near))


def larger_gain(tokens: Mapping[int, Numbers]) -> Numbers:
    """Return log tokens of batch 1 minus those of batch 4."""
    return excess(tokens, (4,))


def fewest(tokens: Tokens, cell: Cell) -> Numbers:
    """Return the log tokens of the batch size that needs the fewest on PILOTS."""
    rates = tokens.chosen(cell)
    best = rates.loc[rates["log_tokens"].idxmin(), "batch"]
    return tokens.tuned(cell)[int(best)]


def large_rules(tables: Tables) -> dict[str, Measured]:
    """Return the number of the question on beta2 at 99k parameters."""
    tokens = Tokens(tables.read("points.csv"), tables.read("rates.csv"))
    per_step = Cell(PER_STEP, 2.10)
    slow = Cell(SLOW, 2.10)
    apart = larger_gain(tokens.tuned(per_step)) - larger_gain(tokens.tuned(slow))
    numbers = {"beta2_excess_99k": (apart, (per_step, slow))}
    return _measured(tables, tokens, numbers, (1, 4), more="muP")


def _measured(
    tables: Tables,
    tokens: Tokens,
    numbers: Mapping[str, tuple[Numbers, Sequence[Cell]]],
    batches: Sequence[int],
    more: str = "",
) -> dict[str, Measured]:
    """Return numbers with the conditions of the runs that they are read from.

    Args:
        tables: Of the part.
        tokens: Its tokens to losses.
        numbers: By question, and the cells that each is read from.
        batches: Batch sizes of these cells.
        more: See `conditions_of`.
    """
    runs = tables.read("runs.parquet")
    runs = runs.loc[~runs["seed"].isin(PILOTS)]
    found = {}
    for key, (values, cells) in numbers.items():
        mine = runs.loc[runs["group"].isin({cell.rule for cell in cells})]
        phase = "averaged" if cells[0].weights == AVERAGED else "constant"
        notes = "; ".join(filter(None, (more, *map(partial(_at_end, tokens, batches), cells))))
        known = conditions_of(mine, tables.config, phase, notes)
        found[key] = Measured(effect_of(values), known, f"{tables.folder.name}/points.csv")
    return found


def _at_end(tokens: Tokens, batches: Sequence[int], cell: Cell) -> str:
    """Return which batch sizes have their best LR at an end of those tried, or an empty text."""
    rates = tokens.chosen(cell)
    open_ended = rates.loc[~rates["bracketed"].astype(bool) & rates["batch"].isin(batches)]
    if open_ended.empty:
        return ""
    named = ", ".join(f"{batch:g}" for batch in open_ended["batch"])
    return f"{cell.rule}: the best LR at batch {named} is the lowest or highest tried"


# Small batch sizes over more tokens


def measure_longer(tables: Tables) -> None:
    """Write points.csv: whether and when each run reaches LOWEST."""
    runs = tables.read("runs.parquet")
    with shown_warnings("points"):
        lowest = runs.groupby("run")["eval_loss"].min().min()
        found = points(runs, [target for target in (2.10, 2.05, LOWEST) if target > lowest])
    tables.write("points.csv", found)
    tables.write("late_losses.csv", late_losses(runs))


def late_losses(runs: pd.DataFrame) -> pd.DataFrame:
    """Return the mean held-out loss between LATE_TOKENS, with columns batch, seed, eval_loss."""
    low, high = LATE_TOKENS
    late = runs.loc[runs["tokens"].between(low, high)]
    return late.groupby(["batch", "seed"], as_index=False)["eval_loss"].mean()


def longer(tables: Tables) -> dict[str, Measured]:
    """Return the numbers of the questions on batches 1 and 2 over more tokens."""
    runs = tables.read("runs.parquet")
    known = conditions_of(runs, tables.config)
    found = tables.read("points.csv")
    late = tables.read("late_losses.csv").pivot(index="seed", columns="batch", values="eval_loss")
    minimum = Measured(minimum_effect(found), known, "longer/points.csv")
    apart = (late[1] - late[2]).to_numpy()
    return {"minimum_longer": minimum} | measurements(
        {"floor_longer": apart}, known, "longer/late_losses.csv"
    )


def minimum_effect(found: pd.DataFrame) -> Effect:
    """Return whether batch 1 misses LOWEST and batch 2 reaches it, as a share of seeds.

    As registered, only seeds that all agree decide: 1 for all, or -1 if batch 1 reaches it in
    every seed. Else the share has no test.
    """
    at = found.loc[np.isclose(found["target_loss"], LOWEST)]
    reached = at.pivot(index="seed", columns="batch", values="reached").astype(bool)
    above = ~reached[1] & reached[2]
    test = "the same in every seed"
    freedom = len(reached) - 1
    if above.all() or reached[1].all():
        value = 1.0 if above.all() else -1.0
        return Effect(value=value, error=0.0, freedom=freedom, seeds=len(reached), test=test)
    value = float(above.mean())
    return Effect(value=value, error=np.nan, freedom=freedom, seeds=len(reached), test=test)


# The ramp's start and its last switch


def measure_start(tables: Tables) -> None:
    """Write differences.csv: each run minus the switch to 12, per LR phase."""
    compared = Comparison(tables.read("finals.csv"))
    rows = []
    for phase in PHASES_OF_FINALS:
        losses = compared.losses(phase)
        apart = losses.sub(_named(losses, TO_12), axis=1)
        half = half_interval(apart.to_numpy().T)
        rows += [
            LR_PHASES[phase].columns | {"name": name, "difference": mean, "half_interval_95": reach}
            for name, mean, reach in zip(apart.index, apart.mean(axis=1), half, strict=True)
        ]
    tables.write("differences.csv", pd.DataFrame(rows))


def start(tables: Tables) -> dict[str, Measured]:
    """Return the numbers of the questions on the ramp's start and its last switch."""
    compared = Comparison(tables.read("finals.csv"))
    runs = tables.read("runs.parquet")
    losses = {phase: compared.losses(phase) for phase in PHASES_OF_FINALS}
    larger = {phase: _named(own, TO_32) - _named(own, TO_12) for phase, own in losses.items()}
    constant = losses["constant"]
    best = constant.loc[compared.best("constant")]
    gain = abs(float(larger["constant"].mean()))  # what an equality after a decay qualifies
    numbers = {
        "start_constant": (_named(constant, RAMP) - _named(constant, TO_12), "constant", np.inf),
        "switch_constant": (_named(constant, TO_12) - best, "constant", np.inf),
        "larger_constant": (larger["constant"], "constant", np.inf),
        "larger_averaged": (larger["averaged"], "averaged", np.inf),
        "larger_decayed": (larger["decayed"], "decayed", gain),
    }
    return {
        key: Measured(
            effect_of(values.to_numpy(), qualifies),
            conditions_of(runs, tables.config, phase),
            "start/finals.csv",
        )
        for key, (values, phase, qualifies) in numbers.items()
    }


def _named(losses: pd.DataFrame, part: str) -> pd.Series:
    return losses.loc[next(name for name in losses.index if part in str(name))]


MEASURES: dict[str, Callable[[Tables], None]] = {
    "beta2": partial(measure_rules, targets=TARGETS["beta2"]),
    "beta2_large": partial(measure_rules, targets=TARGETS["beta2_large"]),
    "longer": measure_longer,
    "start": measure_start,
}
PARTS: dict[str, Callable[[Tables], dict[str, Measured]]] = {
    "beta2": rules,
    "beta2_large": large_rules,
    "longer": longer,
    "start": start,
}
