"""What the theory's computations show of arXiv 2509.19189 and 2602.14208, from committed tables.

There is no chance in them. A risk is exact; a slope has the scatter about its line, which says how
straight the line is over these budgets, and a tolerance for the distance to the limit of infinite
data.
"""

from collections.abc import Iterator
from dataclasses import astuple, replace
from pathlib import Path

import numpy as np
import pandas as pd

from bss.contests.claims import Asked, Claim, Question, judged
from bss.contests.contrasts import judge
from bss.contests.effects import Line, apart, beyond, exact, less, slopes
from bss.theory.exponents import Powers
from experiments.late_switch.claims import BOTH, EARLIER, HARDER, STAGES
from experiments.tables import Tables

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
    tables = Tables(results)

    def read(name: str) -> pd.DataFrame:
        return tables.read(f"{name}.csv")

    return [
        *judged(law(read("law_under_rates"), read("law"))),
        *judged(decays(read("decays"))),
        *optima(read("optima"), read("exponents")),
        *judged(switches(read("switches"))),
        *judged(gaps(read("catch_up"))),
        *judged(times(read("catch_up_times"))),
        *judged(early_and_late(read("early_and_late"))),
        *judged(family(read("family"))),
    ]


def law(under_rates: pd.DataFrame, under_batches: pd.DataFrame) -> Iterator[Asked]:
    """Whether the law follows the exact risk, at every point."""
    follows = Question(
        f"The functional law is within {LAW_TOLERANCE:.0%} of the exact risk",
        "paper",
        unit="of the exact risk, less the tolerance",
    )
    note = f"{COMPUTED}; at a quarter of the largest rate; noise of second order is left out"
    for name, kind, table in (
        ("law_under_rates", "learning-rate schedules", under_rates),
        ("law", "batch schedules", under_batches),
    ):
        for powers, rows in _tasks(table).items():
            off = float(np.abs(rows["law"] / rows["exact"] - 1).max())
            condition = f"{powers}, {rows['schedule'].nunique()} {kind}, at worst {off:.1%}"
            effect = exact(off - LAW_TOLERANCE, len(rows))
            yield follows.asked(condition, effect, f"{TABLES}{name}.csv", note)


def decays(table: pd.DataFrame) -> Iterator[Asked]:
    """What a decay buys, each schedule at its best peak rate."""
    same = Question(
        f"The risk's exponent in the data is the law's, to {TOLERANCE:g}", "paper", unit=OF_EXPONENT
    )
    lower = Question(
        "A decayed rate ends lower than a constant one, each at its best peak",
        "paper",
        unit="log of the risk over the constant rate's",
    )
    beside = f"{LINE}; logarithms count, so beside the slope of the whole expression"
    source = f"{TABLES}decays.csv"
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
        yield same.asked(condition, effect, source, beside)
    last = {key: float(some["risk"].iloc[-1]) for key, some in curves.items()}
    for powers, rate in (key for key in curves if key[1] != "constant"):
        gain = exact(float(np.log(last[powers, rate] / last[powers, "constant"])))
        yield lower.asked(f"{powers}, {rate}", gain, source, f"{COMPUTED}; largest budget")


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
    same = Question(
        f"The optimal schedule's powers of the data are the theory's, to {TOLERANCE:g}",
        "secondary",
        unit=OF_EXPONENT,
    )
    faster = Question(
        "With more data the optimal schedule gains on the best constant batch",
        "secondary",
        unit="of the exponent of the ratio of their risks",
    )
    claimed, source = [], f"{TABLES}optima.csv"
    for quantity in QUANTITIES:
        powers = max(tasks, key=lambda powers: within[powers, quantity].estimate)
        key = powers, quantity
        condition = f"{quantity}, the farthest of {len(tasks)} tasks, {powers}"
        condition += _values(measured[key].estimate, expected[key])
        claimed.append(same.claim(condition, effects[key], source, LINE))
    least = max(gains, key=lambda powers: gains[powers].estimate)
    condition = f"the least of {len(gains)} tasks, {least}"
    return [*claimed, faster.claim(condition, effects[least], source, LINE)]


def switches(table: pd.DataFrame) -> Iterator[Asked]:
    """Where the best of two-stage schedules switches, against the data budget."""
    slower, same, ahead, at_once = (
        Question(statement, "secondary", unit=unit)
        for statement, unit in (
            (
                "The data after the best switch grow more slowly than the budget (γ < 1)",
                "of the exponent, less 1",
            ),
            (
                f"The exponent of the data after the best switch is the theory's, to {TOLERANCE:g}",
                OF_EXPONENT,
            ),
            (
                "A line through small budgets tells the best switch of 16 times as much data, to "
                "5%",
                "of the data after it, less the tolerance",
            ),
            (
                "Easy tasks want the large batch at once, to one sample",
                "samples before it, less 1",
            ),
        )
    )
    source = f"{TABLES}switches.csv"
    for powers, rows in _tasks(table).items():
        data, before = _line(rows, y="switch_data")
        if powers.regime == "easy":
            late = data >= STRAIGHT / 4
            effect = exact(float(before[late].max()) - 1, int(late.sum()))
            condition = f"{powers}, budgets from {STRAIGHT // 4:,}"
            yield at_once.asked(condition, effect, source, LINE)
            continue
        straight = data >= STRAIGHT
        if straight.sum() < 3:
            continue
        x, after = data[straight], (data - before)[straight]
        line, theirs = slopes({0: (x, after)})[0], powers.exponents.switch
        yield slower.asked(str(powers), less(line, 1), source, LINE)
        condition = f"{powers}{_values(line.estimate, theirs)}"
        effect = beyond(line, theirs, TOLERANCE)
        yield same.asked(condition, effect, source, LINE)
        if straight.sum() >= 7:
            x, y = np.log(x), np.log(after)
            foretold = np.polyval(np.polyfit(x[:-4], y[:-4], 1), x[-1])
            miss = exact(float(np.abs(np.expm1(foretold - y[-1])) - 0.05))
            yield ahead.asked(str(powers), miss, source, LINE)


def gaps(table: pd.DataFrame) -> Iterator[Asked]:
    """How the gap to the large batch closes with the steps after the switch."""
    falls = Question(
        f"The gap after a switch falls with the theory's power, to {GAP_TOLERANCE:g}",
        "derived",
        unit=OF_EXPONENT,
    )
    lines = {powers: _line(rows, "delay", "gap") for powers, rows in _tasks(table).items()}
    for powers, one in slopes(lines).items():
        theirs = powers.exponents.catch_up_gap
        condition = f"{powers}, 100 to 10,000 steps{_values(one.estimate, theirs)}"
        effect = beyond(one, theirs, GAP_TOLERANCE)
        yield falls.asked(condition, effect, f"{TABLES}catch_up.csv", LINE)


def times(table: pd.DataFrame) -> Iterator[Asked]:
    """The steps to catch up against the steps before the switch."""
    slower = Question(
        "The steps to catch up grow more slowly than the steps before the switch",
        "derived",
        unit="of the exponent, less 1",
    )
    limit = Question(
        "The steps to catch up have the exponent of late switches in theory, to "
        f"{TIME_TOLERANCE:g}",
        "derived",
        unit=OF_EXPONENT,
    )
    harder = replace(HARDER, unit="of the exponent of the steps to catch up, hard less easy")
    source = f"{TABLES}catch_up_times.csv"
    lines = {powers: _line(rows, "steps_before", "wait") for powers, rows in _tasks(table).items()}
    measured = slopes(lines)
    for powers, one in measured.items():
        x, theirs = lines[powers][0], powers.exponents.catch_up_time
        span = f"{powers}, {x[0]:,.0f} to {x[-1]:,.0f}"
        yield slower.asked(span, less(one, 1), source, LINE)
        condition = f"{span}{_values(one.estimate, theirs)}"
        effect = beyond(one, theirs, TIME_TOLERANCE)
        yield limit.asked(condition, effect, source, LINE)
    yield harder.asked("kernel regression", apart(*measured.values()), source, LINE)


def early_and_late(table: pd.DataFrame) -> Iterator[Asked]:
    """Late switches, early ones, constants and stages at equal data."""
    earlier, throughout, several = (
        replace(asked, unit="log of the ratio of risks", matters=0.0)
        for asked in (EARLIER, BOTH, STAGES)
    )
    pairs = (
        (earlier, "switch at 70%", "switch at 30%"),
        (earlier, "switch at 90%", "switch at 10%"),
        (throughout, "switch at 90%", "constants"),
        (throughout, "switch at 70%", "constants"),
        (several, "stages of equal data", "best switch"),
        (several, "the law's optimum", "best switch"),
    )
    source = f"{TABLES}early_and_late.csv"
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
            yield what.asked(condition, effect, source, note)


def family(table: pd.DataFrame) -> Iterator[Asked]:
    """Whether schedules of one ratio of batch to rate end alike."""
    alike = Question(
        "Lowering the rate and raising the batch in one ratio end alike, to 1% of the risk",
        "derived",
        unit="of the risk, less the tolerance",
    )
    risks = table["exact_risk"].to_numpy(float)
    steps = f"{table['steps'].min():,.0f} to {table['steps'].max():,.0f} steps"
    condition = f"{len(table)} schedules, {steps}, {_tasks(table).popitem()[0]}"
    effect = exact(float(risks.max() / risks.min()) - 1 - 0.01, len(table))
    note = f"{COMPUTED}; after arXiv 2609.40148"
    yield alike.asked(condition, effect, f"{TABLES}family.csv", note)


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
