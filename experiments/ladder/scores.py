"""The registered predictions beside what was measured: right, wrong or undecided, as they say.

    python -m experiments.ladder.scores results/ladder

It writes scores.csv and losses.csv, of the runs that have ended.
"""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.laws import TableFit, check_losses, fit_table
from bss.laws.base import Estimate, Options
from bss.tables import write_table
from experiments.preregister import schedules
from experiments.tables import Tables, folder_asked

SHORT = ("short_99k", "short_380k")
PARTS = ("rates", "es_99k", "es_380k", "es_790k", *SHORT, "width", "mixture")
NOTE = ", sequences of 64"
BESIDE = ("standard", "width_seeds", "standard_seeds")
"""Parts that were not registered."""
WIDTH = ("width", "width_seeds")
TRANSFERS = {
    "99k to .38M": (("rates",), ("rates",)),
    "width 64 to 128, mup": (WIDTH, WIDTH),
    "width 64 to 128, standard": (WIDTH, ("standard", "standard_seeds")),
}
"""Parts of the smaller and of the larger model; only the first was registered."""
FINALS = "finals.csv"
RISE, COST, DEAR, SURE = 0.1, 0.01, 0.02, 0.01
Verdict = Literal["right", "wrong", "undecided"]


def ended(results: Path) -> pd.DataFrame:
    """The decayed runs of every part that has tables, each once, with `part`."""
    file = results.parent / "predictions/ladder.json"
    parts = {part: Tables(results / part) for part in (*PARTS, *BESIDE)}
    tables = [
        decayed(at.read(FINALS) if part in BESIDE else at.registered(FINALS, file), part)
        for part, at in parts.items()
        if FINALS in at
    ]
    if not tables:
        raise InputError(f"{results}: no part of the ladder has ended; run one")
    return pd.concat(tables)


def decayed(finals: pd.DataFrame, part: str) -> pd.DataFrame:
    """Its rows that are decayed, batches as texts, with `part`."""
    return finals.loc[finals["schedule.decay"] > 0].astype({"batch": str}).assign(part=part)


def final_losses(some: pd.DataFrame) -> pd.DataFrame:
    """Decayed runs as `bss.laws.check_losses` takes them, at their own budgets."""
    columns = ["params", "stop", "batch", "seq_len", "peak_lr", "test_loss"]
    names = {"stop": "tokens", "peak_lr": "lr", "test_loss": "loss"}
    return some.loc[:, columns].rename(columns=names).astype({"batch": float})


def losses(registration: dict[str, Any], table: pd.DataFrame) -> pd.DataFrame:
    """Every predicted loss some of whose runs have ended: predicted, low, high and measured."""
    known = table.drop_duplicates("run").set_index("run")
    trained = [
        {**one, "runs": runs}
        for one in registration["predictions"]
        if (runs := [run for run in one["runs"] if run in known.index])
    ]
    outcomes = known.reset_index().assign(status="finished")
    scored = schedules({**registration, "predictions": trained}, outcomes)
    rows = []
    for one, found in zip(trained, scored, strict=True):
        run = known.loc[one["runs"][0]]
        row = {
            "rung": one["name"].split(",")[0],
            "stop": run["stop"],
            "batch": int(str(run["batch"])),
        }
        loss = one["loss"]
        row |= {"predicted": loss["value"], "low": loss["low"], "high": loss["high"]}
        row |= {"measured": found["measured"], "seeds": found["runs"]}
        rows.append(row | {"in": found["covered"]})
    return pd.DataFrame(rows)


def measured_fit(table: pd.DataFrame, family: str = "es") -> TableFit:
    """The law of final losses of the rungs, whose best batches are scored.

    Args:
        table: as `ended` gives it.
        family: "es", sequences of 256 at one rate a batch, or "short", of 64 at several.
    """
    rungs = table.loc[table["part"].str.startswith(f"{family}_")]
    named = final_losses(rungs) if family == "short" else final_losses(rungs).drop(columns="lr")
    return fit_table(check_losses(named), options=Options(100))


def scores(results: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """A row a score, and the losses behind the first of them.

    Returns:
        question, of, said with low and high, measured with measured_low and measured_high (empty
        where there is none), verdict; and `losses`.
    """
    registration = read_json(results.parent / "predictions/ladder.json", "restore it")
    table = ended(results)
    found = losses(registration, table)
    rows = [*_covered(found), *_batches(registration, measured_fit(table))]
    if {*SHORT} & {*table["part"]}:
        rows += _batches(registration, measured_fit(table, "short"), NOTE)
    return pd.DataFrame([*rows, *_rates(table), *_bends(table)]), found


def _covered(found: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for rung, some in found.groupby("rung", sort=False):
        share = float(some["in"].to_numpy(float).mean())
        verdict = "right" if share >= 0.8 else "wrong" if share <= 0.5 else "undecided"
        row = {"question": "losses", "of": rung, "said": 0.9, "low": 0.8, "high": 1.0}
        yield row | {"measured": share, "verdict": verdict}


def _batches(
    registration: dict[str, Any], fit: TableFit, note: str = ""
) -> Iterator[dict[str, Any]]:
    for told in registration["fit"]["batches"]:
        said = Estimate(told["value"], told["low"], told["high"])
        for at in fit.optima:
            if (at.params, at.tokens) == (told["params"], told["tokens"]):
                name = f"{told['rung']}, {told['tokens']:,} tokens"
                yield _overlap("batches" + note, name, said, at.batch)
    for symbol, told in registration["fit"]["exponents"].items():
        yield _overlap("exponents" + note, symbol, Estimate(**told), fit.B_opt_exponents[symbol])


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


def transfers(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """Of each pair of TRANSFERS that has ended: name, batch, rows of the smaller and the larger."""
    for name, (below, above) in TRANSFERS.items():
        smaller, larger = (table.loc[table["part"].isin(parts)] for parts in (below, above))
        smaller = smaller.loc[smaller["params"] == smaller["params"].min()]
        larger = larger.loc[larger["params"] == larger["params"].max()]
        for batch in sorted({*smaller["batch"]} & {*larger["batch"]}, key=int):
            yield name, batch, *(some.loc[some["batch"] == batch] for some in (smaller, larger))


def by_rate(some: pd.DataFrame) -> pd.Series:
    """The loss at each rate, mean over seeds."""
    rates = some.groupby("peak_lr")["test_loss"]
    return pd.Series({rate: own.mean() for rate, own in rates})


def cost(smaller: pd.DataFrame, larger: pd.DataFrame) -> float:
    """What the smaller model's best rate costs the larger one, in nats."""
    losses = by_rate(larger)
    return float(losses[by_rate(smaller).idxmin()] - losses.min())


def _rates(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """The registered transfer, at each batch."""
    for name, batch, *pair in transfers(table):
        if name == "99k to .38M":
            found = cost(*pair)
            verdict = "right" if found <= COST else "wrong" if found > DEAR else "undecided"
            row = {"question": "rates", "of": f"batch {batch}", "said": 0.0, "low": 0.0}
            yield row | {"high": COST, "measured": found, "verdict": verdict}


def least(some: pd.DataFrame) -> pd.Series:
    """The loss of each constant batch at its best rate, from the smallest batch on."""
    best = some.loc[some["batch"].str.isdigit()].astype({"batch": int}).groupby("batch")
    return best["test_loss"].min().sort_index()


def bend(some: pd.DataFrame) -> float:
    """The batch whose loss is RISE above the least, linear in log batch; NaN where none is."""
    losses = least(some)
    rise = losses.loc[losses.idxmin() :] - losses.min()
    if rise.iloc[-1] < RISE:
        return math.nan
    return float(np.exp(np.interp(RISE, rise, np.log(rise.index.to_numpy(float)))))


def dense_beside(table: pd.DataFrame) -> pd.DataFrame:
    """The dense model of as many active parameters as the mixture, at the rates of its batches."""
    width = table.loc[table["part"] == "width"]
    rates = table.loc[table["part"] == "mixture", ["batch", "peak_lr"]].drop_duplicates()
    return width.loc[width["params"] == width["params"].max()].merge(rates)


def _bends(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Growth with the width, the mixture beside the dense model, and its late switch."""
    of = {part: some for part, some in table.groupby("part")}
    if "width" in of:
        narrow, wide = (bend(some) for _, some in of["width"].groupby("params"))
        yield _ratio("width", "64 to 128", wide / narrow, (1.0, 0.8, 1.5), (0.67, 1.8))
    if "mixture" in of and "width" in of:
        ratio = bend(of["mixture"]) / bend(dense_beside(table))
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
    folder = folder_asked(__doc__)
    told, found = scores(folder)
    write_table(told, folder / "scores.csv")
    write_table(found, folder / "losses.csv")
    print(told.to_string(index=False))
