"""What the theory's computations show of arXiv 2509.19189 and 2602.14208, from committed tables.

There is no chance in them. A risk is exact; a slope has the scatter about its line, which says how
straight the line is over these budgets, and a tolerance for the distance to the limit of infinite
data.
"""

from collections.abc import Iterator
from dataclasses import astuple
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd

from bss.points.claims import Claim, claim
from bss.points.contrasts import judge
from bss.points.effects import Line, apart, beyond, exact, less, slopes
from bss.theory.exponents import Powers
from experiments.hypotheses import Hypothesis, judged

TABLES = "results/optimal_schedule/"
TOLERANCE = 0.02  # of an exponent
GAP_TOLERANCE = 0.03
TIME_TOLERANCE = 0.05
LAW_TOLERANCE = 0.05  # of a risk
STRAIGHT = 2**16  # the least budget of the switch's line
QUANTITIES = {
    "loss": "risk",
    "growth fraction": "growth_fraction",
    "peak batch": "peak_batch",
}
OF_EXPONENT = "of the exponent, less the tolerance"
COMPUTED = "computed, no chance in it"
LINE = "the scatter is of a computed line, how straight it is"


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""

    def read(name: str) -> pd.DataFrame:
        return pd.read_csv(results / f"{name}.csv")

    return [
        *judged(law(results)),
        *judged(decays(read("decays"))),
        *optima(read("optima"), read("exponents")),
        *judged(switches(read("switches"))),
        *judged(gaps(read("catch_up"))),
        *judged(times(read("catch_up_times"))),
        *judged(early_and_late(read("early_and_late"))),
        *judged(family(read("family"))),
    ]


def law(results: Path) -> Iterator[Hypothesis]:
    """Whether the law follows the exact risk, at every point."""
    statement = f"The functional law is within {LAW_TOLERANCE:.0%} of the exact risk"
    unit = "of the exact risk, less the tolerance"
    note = f"{COMPUTED}; at a quarter of the largest rate; noise of second order is left out"
    for name, kind in (("law_under_rates", "learning-rate schedules"), ("law", "batch schedules")):
        table = f"{TABLES}{name}.csv"
        for powers, rows in _tasks(pd.read_csv(results / f"{name}.csv")).items():
            off = float(np.abs(rows["law"] / rows["exact"] - 1).max())
            condition = f"{powers}, {rows['schedule'].nunique()} {kind}, at worst {off:.1%}"
            effect = exact(off - LAW_TOLERANCE, len(rows))
            yield Hypothesis(statement, "paper", condition, effect, unit, table, note)


def decays(table: pd.DataFrame) -> Iterator[Hypothesis]:
    """What a decay buys, each schedule at its best peak rate."""
    same = f"The risk's exponent in the data is the law's, to {TOLERANCE:g}"
    lower = "A decayed rate ends lower than a constant one, each at its best peak"
    unit = "log of the risk over the constant rate's"
    beside = f"{LINE}; logarithms count, so beside the slope of the whole expression"
    asked = partial(Hypothesis, source="paper", table=f"{TABLES}decays.csv")
    curves = {
        (powers, str(rate)): some
        for powers, rows in _tasks(table).items()
        for rate, some in rows.groupby("rate", sort=False)
    }
    ours, theirs = (
        slopes({key: _line(some, y=y) for key, some in curves.items()}) for y in ("risk", "order")
    )
    for (powers, rate), one in ours.items():
        expected = theirs[powers, rate].estimate
        condition = f"{powers}, {rate}{_values(one.estimate, expected)}"
        effect = beyond(one, expected, TOLERANCE)
        yield asked(same, condition=condition, effect=effect, unit=OF_EXPONENT, note=beside)
    last = {key: float(some["risk"].iloc[-1]) for key, some in curves.items()}
    for powers, rate in (key for key in curves if key[1] != "constant"):
        gain = exact(float(np.log(last[powers, rate] / last[powers, "constant"])))
        condition, note = f"{powers}, {rate}", f"{COMPUTED}; largest budget"
        yield asked(lower, condition=condition, effect=gain, unit=unit, note=note)


def optima(table: pd.DataFrame, theory: pd.DataFrame) -> list[Claim]:
    """The powers of optimal batch schedules."""
    in_theory = theory.set_index(["source", "capacity", "quantity"])["theory"].to_dict()
    tasks = _tasks(table.assign(ratio=table["risk"] / table["constant_risk"]))
    lines = {
        (powers, quantity): _line(rows, y=column)
        for powers, rows in tasks.items()
        for quantity, column in QUANTITIES.items()
    }
    measured = slopes(lines)
    expected = {key: in_theory[*astuple(key[0]), key[1]] for key in measured}
    within = {key: beyond(one, expected[key], TOLERANCE) for key, one in measured.items()}
    gains = slopes({powers: _line(rows, y="ratio") for powers, rows in tasks.items()})
    effects = judge({**within, **gains})
    lower = partial(claim, sign=-1, table=f"{TABLES}optima.csv", note=LINE)
    same = f"The optimal schedule's powers of the data are the theory's, to {TOLERANCE:g}"
    claimed = []
    for quantity in QUANTITIES:
        powers = max(tasks, key=lambda powers: within[powers, quantity].estimate)
        key = powers, quantity
        condition = f"{quantity}, the farthest of {len(tasks)} tasks, {powers}"
        condition += _values(measured[key].estimate, expected[key])
        claimed.append(lower(same, "secondary", condition, effects[key], unit=OF_EXPONENT))
    least = max(gains, key=lambda powers: gains[powers].estimate)
    unit = "of the exponent of the ratio of their risks"
    faster = "With more data the optimal schedule gains on the best constant batch"
    condition = f"the least of {len(gains)} tasks, {least}"
    return [*claimed, lower(faster, "secondary", condition, effects[least], unit=unit)]


def switches(table: pd.DataFrame) -> Iterator[Hypothesis]:
    """Where the best of two-stage schedules switches, against the data budget."""
    slower = "The data after the best switch grow more slowly than the budget (γ < 1)"
    same = f"The exponent of the data after the best switch is the theory's, to {TOLERANCE:g}"
    ahead = "A line through small budgets tells the best switch of 16 times as much data, to 5%"
    at_once = "Easy tasks want the large batch at once, to one sample"
    asked = partial(Hypothesis, source="secondary", table=f"{TABLES}switches.csv", note=LINE)
    for powers, rows in _tasks(table).items():
        data, before = _line(rows, y="switch_data")
        if powers.regime == "easy":
            late = data >= STRAIGHT / 4
            effect = exact(float(before[late].max()) - 1, int(late.sum()))
            condition = f"{powers}, budgets from {STRAIGHT // 4:,}"
            unit = "samples before it, less 1"
            yield asked(at_once, condition=condition, effect=effect, unit=unit)
            continue
        straight = data >= STRAIGHT
        if straight.sum() < 3:
            continue
        x, after = data[straight], (data - before)[straight]
        line, theirs = slopes({0: (x, after)})[0], powers.exponents.switch
        unit = "of the exponent, less 1"
        yield asked(slower, condition=str(powers), effect=less(line, 1), unit=unit)
        condition = f"{powers}{_values(line.estimate, theirs)}"
        effect = beyond(line, theirs, TOLERANCE)
        yield asked(same, condition=condition, effect=effect, unit=OF_EXPONENT)
        if straight.sum() >= 7:
            x, y = np.log(x), np.log(after)
            foretold = np.polyval(np.polyfit(x[:-4], y[:-4], 1), x[-1])
            miss = exact(float(np.abs(np.expm1(foretold - y[-1])) - 0.05))
            unit = "of the data after it, less the tolerance"
            yield asked(ahead, condition=str(powers), effect=miss, unit=unit)


def gaps(table: pd.DataFrame) -> Iterator[Hypothesis]:
    """How the gap to the large batch closes with the steps after the switch."""
    falls = f"The gap after a switch falls with the theory's power, to {GAP_TOLERANCE:g}"
    source = f"{TABLES}catch_up.csv"
    lines = {powers: _line(rows, "delay", "gap") for powers, rows in _tasks(table).items()}
    for powers, one in slopes(lines).items():
        theirs = powers.exponents.catch_up_gap
        condition = f"{powers}, 100 to 10,000 steps{_values(one.estimate, theirs)}"
        effect = beyond(one, theirs, GAP_TOLERANCE)
        yield Hypothesis(falls, "derived", condition, effect, OF_EXPONENT, source, LINE)


def times(table: pd.DataFrame) -> Iterator[Hypothesis]:
    """The steps to catch up against the steps before the switch."""
    slower = "The steps to catch up grow more slowly than the steps before the switch"
    limit = f"{slower[:21]} have the exponent of late switches in theory, to {TIME_TOLERANCE:g}"
    source = f"{TABLES}catch_up_times.csv"
    lines = {powers: _line(rows, "steps_before", "wait") for powers, rows in _tasks(table).items()}
    measured = slopes(lines)
    for powers, one in measured.items():
        x, theirs = lines[powers][0], powers.exponents.catch_up_time
        span = f"{powers}, {x[0]:,.0f} to {x[-1]:,.0f}"
        unit = "of the exponent, less 1"
        yield Hypothesis(slower, "derived", span, less(one, 1), unit, source, LINE)
        condition = f"{span}{_values(one.estimate, theirs)}"
        effect = beyond(one, theirs, TIME_TOLERANCE)
        yield Hypothesis(limit, "derived", condition, effect, OF_EXPONENT, source, LINE)
    harder, task = "Harder tasks catch up faster", "kernel regression"
    unit = "of the exponent of the steps to catch up, hard less easy"
    yield Hypothesis(harder, "paper", task, apart(*measured.values()), unit, source, LINE)


def early_and_late(table: pd.DataFrame) -> Iterator[Hypothesis]:
    """Late switches, early ones, constants and stages at equal data."""
    earlier = "A late switch ends lower than an earlier one"
    throughout = "A late switch ends lower than each of its two batches throughout"
    several = "Several stages end lower than one late switch"
    pairs = (
        (earlier, "switch at 70%", "switch at 30%"),
        (earlier, "switch at 90%", "switch at 10%"),
        (throughout, "switch at 90%", "constants"),
        (throughout, "switch at 70%", "constants"),
        (several, "stages of equal data", "best switch"),
        (several, "the law's optimum", "best switch"),
    )
    unit, source = "log of the ratio of risks", f"{TABLES}early_and_late.csv"
    note = f"{COMPUTED}; {int(table['data'].iloc[0]):,} samples"
    for powers, rows in _tasks(table).items():
        risks = {str(name): float(risk) for name, risk in rows[["schedule", "risk"]].to_numpy()}
        risks["constants"] = min(r for name, r in risks.items() if name.startswith("constant"))
        risks["stages of equal data"] = next(r for name, r in risks.items() if "stages" in name)
        for what, one, other in pairs:
            if risks[one] == risks[other]:
                continue  # an easy task's best switch is the large batch, and so is its optimum
            better = other.replace("constants", "the better constant")
            condition = f"{one} less {better}, {powers}"
            effect = exact(float(np.log(risks[one] / risks[other])))
            yield Hypothesis(what, "secondary", condition, effect, unit, source, note)


def family(table: pd.DataFrame) -> Iterator[Hypothesis]:
    """Whether schedules of one ratio of batch to rate end alike."""
    statement = "Lowering the rate and raising the batch in one ratio end alike, to 1% of the risk"
    risks = table["exact_risk"].to_numpy(float)
    steps = f"{table['steps'].min():,.0f} to {table['steps'].max():,.0f} steps"
    condition = f"{len(table)} schedules, {steps}, {_tasks(table).popitem()[0]}"
    effect = exact(float(risks.max() / risks.min()) - 1 - 0.01, len(table))
    unit, source = "of the risk, less the tolerance", f"{TABLES}family.csv"
    note = f"{COMPUTED}; after arXiv 2609.40148"
    yield Hypothesis(statement, "derived", condition, effect, unit, source, note)


def _values(value: float, theory: float) -> str:
    """An exponent beside the theory's."""
    return f": {value:.3f}, theory {theory:.3f}".replace("-", "−")


def _line(rows: pd.DataFrame, x: str = "data", y: str = "risk") -> Line:
    return rows[x].to_numpy(float), rows[y].to_numpy(float)


def _tasks(table: pd.DataFrame) -> dict[Powers, pd.DataFrame]:
    """The rows of each task, hard ones first."""
    pairs = table[["source", "capacity"]].drop_duplicates().itertuples(index=False, name=None)
    tasks = sorted((Powers(float(s), float(b)) for s, b in pairs), key=lambda p: p.regime == "easy")
    columns = table["source"], table["capacity"]
    return {p: table.loc[(columns[0] == p.source) & (columns[1] == p.capacity)] for p in tasks}
