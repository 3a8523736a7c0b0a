"""The registered predictions beside what was measured: right, wrong or undecided, as they say.

    python -m experiments.ladder.scores results/ladder

It writes scores.csv and losses.csv, of the runs that have ended.
"""

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.laws import TableFit, check_losses, fit_table
from bss.laws.fitting.estimate import Estimate, Options
from bss.predictions.registration import Registration, read_registration
from bss.predictions.score import score
from bss.tables import write_table
from experiments.tables import Tables

PARTS = ("rates", "es_99k", "es_380k", "es_790k", "width", "mixture")
RISE, COST, DEAR, SURE = 0.1, 0.01, 0.02, 0.01
DENSE, EXPERTS = (393_984, 2), (395_520, 2)
Verdict = Literal["right", "wrong", "undecided"]


def ended(results: Path) -> pd.DataFrame:
    """The decayed runs of every part that has tables, each once, with `part`."""
    file = results.parent / "predictions/ladder.json"
    tables = [
        Tables(results / part).registered("finals.csv", file).assign(part=part)
        for part in PARTS
        if "finals.csv" in Tables(results / part)
    ]
    if not tables:
        raise InputError(f"{results}: no part of the ladder has ended; run one")
    table = pd.concat(tables).astype({"batch": str})
    return table.loc[table["parent"].notna()]


def losses(registration: Registration, table: pd.DataFrame) -> pd.DataFrame:
    """Every predicted loss some of whose runs have ended: predicted, low, high and measured."""
    known = table.drop_duplicates("run").set_index("run")
    trained = [
        replace(one, runs=runs)
        for one in registration.predictions
        if (runs := tuple(run for run in one.runs if run in known.index))
    ]
    outcomes = known.reset_index().assign(status="finished")
    scored = score(replace(registration, predictions=tuple(trained)), outcomes).schedules
    rows = []
    for one, found in zip(trained, scored, strict=True):
        run = known.loc[one.runs[0]]
        row = {"rung": one.name.split(",")[0], "stop": run["stop"], "batch": int(str(run["batch"]))}
        row |= {"predicted": one.loss.value, "low": one.loss.low, "high": one.loss.high}
        rows.append(row | {"measured": found.measured, "seeds": found.runs, "in": found.covered})
    return pd.DataFrame(rows)


def measured_fit(table: pd.DataFrame) -> TableFit:
    """The law of final losses of the rungs, whose best batches are scored."""
    rungs = table.loc[table["part"].str.startswith("es_")]
    columns = ["params", "tokens", "batch", "seq_len"]
    named = rungs[columns].assign(tokens=rungs["stop"], loss=rungs["test_loss"])
    return fit_table(check_losses(named.astype({"batch": float})), options=Options(100))


def scores(results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row a score, and the losses behind the first of them.

    Returns:
        question, of, said with low and high, measured with measured_low and measured_high (empty
        where there is none), verdict; and `losses`.
    """
    registration = read_registration(results.parent / "predictions/ladder.json")
    table = ended(results)
    found = losses(registration, table)
    rows = [*_covered(found), *_batches(registration, measured_fit(table)), *_rates(table)]
    return pd.DataFrame([*rows, *_bends(table)]), found


def _covered(found: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for rung, some in found.groupby("rung", sort=False):
        share = float(some["in"].to_numpy(float).mean())
        verdict = "right" if share >= 0.8 else "wrong" if share <= 0.5 else "undecided"
        row = {"question": "losses", "of": rung, "said": 0.9, "low": 0.8, "high": 1.0}
        yield row | {"measured": share, "verdict": verdict}


def _batches(registration: Registration, fit: TableFit) -> Iterator[dict[str, Any]]:
    for told in registration.fit["batches"]:
        said = Estimate(told["value"], told["low"], told["high"])
        for at in fit.optima:
            if (at.params, at.tokens) == (told["params"], told["tokens"]):
                name = f"{told['rung']}, {told['tokens']:,} tokens"
                yield _overlap("batches", name, said, at.batch)
    for symbol, told in registration.fit["exponents"].items():
        yield _overlap("exponents", symbol, Estimate(**told), fit.B_opt_exponents[symbol])


def _overlap(question: str, of: str, said: Estimate, found: Estimate) -> dict[str, Any]:
    """One interval beside another; of a bound that was measured, whether it holds all of the other.

    Of what is not measured at all nothing is decided.
    """
    low, high = found.low or -math.inf, found.high or math.inf
    assert said.low is not None and said.high is not None
    verdict: Verdict = "undecided"
    if said.high < low or high < said.low:
        verdict = "wrong"
    elif found.value is not None:
        verdict = "right" if said.low <= found.value <= said.high else "undecided"
    elif math.isfinite(low) != math.isfinite(high) and low <= said.low and said.high <= high:
        verdict = "right"
    row = {"question": question, "of": of, "said": said.value, "low": said.low, "high": said.high}
    ends = {"measured_low": found.low, "measured_high": found.high}
    return row | {"measured": found.value, **ends, "verdict": verdict}


def _rates(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """What the best rate of the smaller model costs the larger one, at each batch."""
    rows = table.loc[table["part"] == "rates"]
    for batch, some in rows.groupby("batch"):
        small, large = (one for _, one in some.groupby("params"))
        rate = small.loc[small["test_loss"].idxmin(), "peak_lr"]
        kept = large.loc[np.isclose(large["peak_lr"], rate), "test_loss"]
        cost = kept.to_numpy(float).min() - large["test_loss"].to_numpy(float).min()
        verdict = "right" if cost <= COST else "wrong" if cost > DEAR else "undecided"
        row = {"question": "rates", "of": f"batch {batch}", "said": 0.0, "low": 0.0, "high": COST}
        yield row | {"measured": cost, "verdict": verdict}


def bend(some: pd.DataFrame) -> float:
    """The batch whose loss is RISE above the least, each at its best rate; linear in log batch."""
    best = some.loc[some["batch"].str.isdigit()].astype({"batch": int}).groupby("batch")
    least = best["test_loss"].min().sort_index()
    rise = least.loc[least.idxmin() :] - least.min()
    if rise.iloc[-1] < RISE:
        return math.nan
    return float(np.exp(np.interp(RISE, rise, np.log(rise.index.to_numpy(float)))))


def _bends(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Growth with the width, the mixture beside the dense model, and its late switch."""
    of = {part: some for part, some in table.groupby("part")}
    if "width" in of:
        narrow, wide = (bend(some) for _, some in of["width"].groupby("params"))
        yield _ratio("width", "64 to 128", wide / narrow, (1.0, 0.8, 1.5), (0.67, 1.8))
    if "mixture" in of and "width" in of:
        rates = of["mixture"]["peak_lr"].unique()
        dense = of["width"].loc[of["width"]["params"] == of["width"]["params"].max()]
        ratio = bend(of["mixture"]) / bend(dense.loc[dense["peak_lr"].isin(rates)])
        yield _ratio("mixture", "beside 2 x 128", ratio, (1.0, 0.67, 1.5), (0.5, 2.0))
    if "mixture" in of:
        some = of["mixture"]
        switched, constant = (some.loc[some["batch"].str.isdigit() == one] for one in (False, True))
        apart = float(switched["test_loss"].min() - constant["test_loss"].min())
        verdict = "right" if apart >= SURE else "wrong" if apart <= -SURE else "undecided"
        row = {"question": "switch", "of": "4 to 32 at 70%", "low": SURE, "measured": apart}
        yield row | {"verdict": verdict}


def _ratio(
    question: str, of: str, found: float, said: tuple[float, ...], beyond: tuple[float, float]
) -> dict[str, Any]:
    value, low, high = said
    verdict = "undecided"
    if found < beyond[0] or found > beyond[1]:
        verdict = "wrong"
    elif low <= found <= high:
        verdict = "right"
    row = {"question": question, "of": of, "said": value, "low": low, "high": high}
    return row | {"measured": found, "verdict": verdict}


if __name__ == "__main__":
    told, found = scores(Path(sys.argv[1]))
    write_table(told, Path(sys.argv[1]) / "scores.csv")
    write_table(found, Path(sys.argv[1]) / "losses.csv")
    print(told.to_string(index=False))
