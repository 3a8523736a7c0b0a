"""What the theory's computations show of arXiv 2509.19189 and 2602.14208, from committed tables.

There is no chance in them. A risk is exact; a slope has the scatter about its line, which says how
straight the line is over these budgets, and a tolerance for the distance to the limit of infinite
data.
"""

from pathlib import Path

import numpy as np
import pandas as pd

from bss.points.claims import Claim, Source, claim
from bss.points.contrasts import Contrast, Measured, judge
from bss.points.effects import apart, beyond, exact, less, slopes
from bss.theory.exponents import Powers

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
COMPUTED = "computed, no chance in it"
LINE = "the scatter is of a computed line, how straight it is"


def claims(results: Path) -> list[Claim]:
    """Every claim, from a results directory of this experiment."""
    return [
        *law(results),
        *decays(pd.read_csv(results / "decays.csv")),
        *optima(pd.read_csv(results / "optima.csv"), pd.read_csv(results / "exponents.csv")),
        *switches(pd.read_csv(results / "switches.csv")),
        *catch_up(
            pd.read_csv(results / "catch_up.csv"), pd.read_csv(results / "catch_up_times.csv")
        ),
        *early_and_late(pd.read_csv(results / "early_and_late.csv")),
        *family(pd.read_csv(results / "family.csv")),
    ]


def law(results: Path) -> list[Claim]:
    """Whether the law follows the exact risk, at every point."""
    tables = {"law_under_rates": "learning-rate schedules", "law": "batch schedules"}
    measured, kinds = {}, {}
    for name, kind in tables.items():
        for powers, rows in _tasks(pd.read_csv(results / f"{name}.csv")).items():
            off = float(np.abs(rows["law"] / rows["exact"] - 1).max())
            key = name, f"{powers}, {rows['schedule'].nunique()} {kind}"
            measured[key], kinds[key] = exact(off - LAW_TOLERANCE, len(rows)), off
    statement = f"The functional law is within {LAW_TOLERANCE:.0%} of the exact risk"
    return [
        _below(
            statement,
            "paper",
            f"{condition}, at worst {kinds[name, condition]:.1%}",
            effect,
            (name, "of the exact risk, less the tolerance"),
            f"{COMPUTED}; at a quarter of the largest rate; noise of second order is left out",
        )
        for (name, condition), effect in judge(measured).items()
    ]


def decays(table: pd.DataFrame) -> list[Claim]:
    """What a decay buys, each schedule at its best peak rate."""
    ours, theirs, lower = {}, {}, {}
    for powers, rows in _tasks(table).items():
        of = {str(rate): some for rate, some in rows.groupby("rate", sort=False)}
        for rate, some in of.items():
            data = some["data"].to_numpy(float)
            ours[powers, rate] = data, some["risk"].to_numpy(float)
            theirs[powers, rate] = data, some["order"].to_numpy(float)
        ends = {rate: float(some["risk"].iloc[-1]) for rate, some in of.items()}
        flat = ends.pop("constant")
        lower |= {(powers, r): exact(float(np.log(risk / flat))) for r, risk in ends.items()}
    exponents, expected = slopes(ours), slopes(theirs)
    within = {key: beyond(one, expected[key].estimate, TOLERANCE) for key, one in exponents.items()}
    found = judge({("within", *k): v for k, v in within.items()} | lower)
    made = []
    for key, effect in found.items():
        *_, powers, rate = key
        condition = f"{powers}, {rate}"
        statement = "A decayed rate ends lower than a constant one, each at its best peak"
        unit, note = "log of the risk over the constant rate's", f"{COMPUTED}; largest budget"
        if key[0] == "within":
            statement = f"The risk's exponent in the data is the law's, to {TOLERANCE:g}"
            unit = "of the exponent, less the tolerance"
            condition += _told(exponents[powers, rate].estimate, expected[powers, rate].estimate)
            note = f"{LINE}; logarithms count, so beside the slope of the whole expression"
        made.append(_below(statement, "paper", condition, effect, ("decays", unit), note))
    return made


def optima(table: pd.DataFrame, theory: pd.DataFrame) -> list[Claim]:
    """The powers of optimal batch schedules."""
    told = {
        (row["source"], row["capacity"], row["quantity"]): row["theory"]
        for row in theory.to_dict("records")
    }
    lines, gains = {}, {}
    for powers, rows in _tasks(table).items():
        data = rows["data"].to_numpy(float)
        for quantity, column in QUANTITIES.items():
            lines[powers, quantity] = data, rows[column].to_numpy(float)
        gains[powers] = data, (rows["risk"] / rows["constant_risk"]).to_numpy(float)
    powers_of = slopes(lines)
    within: dict[tuple[Powers, str], Measured] = {
        (powers, quantity): beyond(one, told[powers.source, powers.capacity, quantity], TOLERANCE)
        for (powers, quantity), one in powers_of.items()
    }
    found = judge({**within, **slopes(gains)})
    same = f"The optimal schedule's powers of the data are the theory's, to {TOLERANCE:g}"
    made = []
    for quantity in QUANTITIES:
        mine = {key: found[key] for key in within if key[1] == quantity}
        powers, _ = key = max(mine, key=lambda key: mine[key].estimate)
        theirs = told[powers.source, powers.capacity, quantity]
        condition = f"{quantity}, the farthest of {len(mine)} tasks, {powers}"
        condition += _told(powers_of[key].estimate, theirs)
        where = "optima", "of the exponent, less the tolerance"
        made.append(_below(same, "secondary", condition, mine[key], where, LINE))
    least = max(gains, key=lambda powers: found[powers].estimate)
    where = "optima", "of the exponent of the ratio of their risks"
    faster = "With more data the optimal schedule gains on the best constant batch"
    condition = f"the least of {len(gains)} tasks, {least}"
    return [*made, _below(faster, "secondary", condition, found[least], where, LINE)]


def switches(table: pd.DataFrame) -> list[Claim]:
    """Where the best of two-stage schedules switches, against the data budget."""
    measured: dict[tuple[str, str], Measured] = {}
    slower = "The data after the best switch grow more slowly than the budget (γ < 1)"
    same = f"The exponent of the data after the best switch is the theory's, to {TOLERANCE:g}"
    ahead = "A line through small budgets tells the best switch of 16 times as much data, to 5%"
    at_once = "Easy tasks want the large batch at once, to one sample"
    for powers, rows in _tasks(table).items():
        data = rows["data"].to_numpy(float)
        after = data - rows["switch_data"].to_numpy(float)
        if powers.regime == "easy":
            late = data >= STRAIGHT / 4
            most = float(rows["switch_data"].to_numpy(float)[late].max())
            told = f"{powers}, budgets from {STRAIGHT // 4:,}"
            measured[at_once, told] = exact(most - 1, int(late.sum()))
            continue
        straight = data >= STRAIGHT
        if straight.sum() < 3:
            continue
        line = slopes({0: (data[straight], after[straight])})[0]
        measured[slower, str(powers)] = less(line, 1)
        theirs = powers.exponents.switch
        condition = f"{powers}{_told(line.estimate, theirs)}"
        measured[same, condition] = beyond(line, theirs, TOLERANCE)
        if straight.sum() >= 7:
            x, y = np.log(data[straight]), np.log(after[straight])
            foretold = np.polyval(np.polyfit(x[:-4], y[:-4], 1), x[-1])
            measured[ahead, str(powers)] = exact(float(np.abs(np.expm1(foretold - y[-1])) - 0.05))
    units = {
        slower: "of the exponent, less 1",
        same: "of the exponent, less the tolerance",
        ahead: "of the data after it, less the tolerance",
        at_once: "samples before it, less 1",
    }
    return [
        _below(what, "secondary", condition, effect, ("switches", units[what]), LINE)
        for (what, condition), effect in judge(measured).items()
    ]


def catch_up(gaps: pd.DataFrame, times: pd.DataFrame) -> list[Claim]:
    """How the gap to the large batch closes after a switch, and how long that takes."""
    falls = f"The gap after a switch falls with the theory's power, to {GAP_TOLERANCE:g}"
    lines = {
        powers: (rows["delay"].to_numpy(float), rows["gap"].to_numpy(float))
        for powers, rows in _tasks(gaps).items()
    }
    within = {}
    for powers, one in slopes(lines).items():
        theirs = powers.exponents.catch_up_gap
        condition = f"{powers}, 100 to 10,000 steps{_told(one.estimate, theirs)}"
        within[condition] = beyond(one, theirs, GAP_TOLERANCE)
    where = "catch_up", "of the exponent, less the tolerance"
    made = [
        _below(falls, "derived", condition, effect, where, LINE)
        for condition, effect in judge(within).items()
    ]
    return [*made, *_times(times)]


def _times(times: pd.DataFrame) -> list[Claim]:
    """The steps to catch up against the steps before the switch."""
    slower = "The steps to catch up grow more slowly than the steps before the switch"
    limit = f"{slower[:21]} have the exponent of late switches in theory, to {TIME_TOLERANCE:g}"
    harder = "Harder tasks catch up faster"
    lines = {
        powers: (rows["steps_before"].to_numpy(float), rows["wait"].to_numpy(float))
        for powers, rows in _tasks(times).items()
    }
    spans = {powers: f"{powers}, {x[0]:,.0f} to {x[-1]:,.0f}" for powers, (x, _) in lines.items()}
    measured = {}
    for powers, one in slopes(lines).items():
        measured[slower, spans[powers]] = less(one, 1)
        theirs = powers.exponents.catch_up_time
        condition = f"{spans[powers]}{_told(one.estimate, theirs)}"
        measured[limit, condition] = beyond(one, theirs, TIME_TOLERANCE)
    hard, easy = slopes(lines).values()
    measured[harder, "kernel regression"] = apart(hard, easy)
    sources: dict[str, Source] = {slower: "derived", limit: "derived", harder: "paper"}
    units = {
        slower: "of the exponent, less 1",
        limit: "of the exponent, less the tolerance",
        harder: "of the exponent of the steps to catch up, hard less easy",
    }
    return [
        _below(what, sources[what], condition, effect, ("catch_up_times", units[what]), LINE)
        for (what, condition), effect in judge(measured).items()
    ]


def early_and_late(table: pd.DataFrame) -> list[Claim]:
    """Late switches, early ones, constants and stages at equal data."""
    statements = {
        "A late switch ends lower than an earlier one": [
            ("switch at 70%", "switch at 30%"),
            ("switch at 90%", "switch at 10%"),
        ],
        "A late switch ends lower than each of its two batches throughout": [
            ("switch at 90%", "constants"),
            ("switch at 70%", "constants"),
        ],
        "Several stages end lower than one late switch": [
            ("stages of equal data", "best switch"),
            ("the law's optimum", "best switch"),
        ],
    }
    measured = {}
    for powers, rows in _tasks(table).items():
        risks = {str(row["schedule"]): float(row["risk"]) for row in rows.to_dict("records")}
        risks["constants"] = min(r for name, r in risks.items() if name.startswith("constant"))
        risks["stages of equal data"] = next(r for name, r in risks.items() if "stages" in name)
        for what, pairs in statements.items():
            for one, other in pairs:
                if risks[one] == risks[other]:
                    continue  # an easy task's best switch is the large batch, and so is its optimum
                told = f"{one} less {other.replace('constants', 'the better constant')}, {powers}"
                measured[what, told] = exact(float(np.log(risks[one] / risks[other])))
    where = "early_and_late", "log of the ratio of risks"
    data = int(table["data"].iloc[0])
    return [
        _below(what, "secondary", condition, effect, where, f"{COMPUTED}; {data:,} samples")
        for (what, condition), effect in judge(measured).items()
    ]


def family(table: pd.DataFrame) -> list[Claim]:
    """Whether schedules of one ratio of batch to rate end alike."""
    risks = table["exact_risk"].to_numpy(float)
    spread = float(risks.max() / risks.min()) - 1
    found = judge({"all": exact(spread - 0.01, len(table))})["all"]
    steps = f"{table['steps'].min():,.0f} to {table['steps'].max():,.0f} steps"
    return [
        _below(
            "Lowering the rate and raising the batch in one ratio end alike, to 1% of the risk",
            "derived",
            f"{len(table)} schedules, {steps}, {_tasks(table).popitem()[0]}",
            found,
            ("family", "of the risk, less the tolerance"),
            f"{COMPUTED}; after arXiv 2609.40148",
        )
    ]


def _told(value: float, theory: float) -> str:
    """An exponent beside the theory's."""
    return f": {value:.3f}, theory {theory:.3f}".replace("-", "−")


def _tasks(table: pd.DataFrame) -> dict[Powers, pd.DataFrame]:
    """The rows of each task, hard ones first."""
    pairs = table[["source", "capacity"]].drop_duplicates().itertuples(index=False, name=None)
    tasks = sorted((Powers(float(s), float(b)) for s, b in pairs), key=lambda p: p.regime == "easy")
    columns = table["source"], table["capacity"]
    return {p: table.loc[(columns[0] == p.source) & (columns[1] == p.capacity)] for p in tasks}


def _below(
    statement: str,
    source: Source,
    condition: str,
    effect: Contrast,
    where: tuple[str, str],
    note: str,
) -> Claim:
    """A claim that an effect is below 0; where: its table and its unit."""
    name, unit = where
    table = f"{TABLES}{name}.csv"
    return claim(statement, source, condition, effect, sign=-1, unit=unit, table=table, note=note)
