"""Preregistered predictions of the size series and what was measured; critical batch sizes.

    python -m experiments.ladder.analysis results/ladder

It writes losses.csv, scores.csv (decided as the registration states), stepwise.csv (each rung
predicted from all below it, not preregistered), critical.csv and laws.csv.
Notebook: notebooks/ladder.ipynb.
"""

import math
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.errors import InputError
from bss.files import read_json
from bss.laws import CriticalFit, LossFit, check_losses, fit_critical, fit_loss
from bss.laws.base import Estimate, Options
from bss.laws.minimum import FEWEST
from bss.points.curve import points, smooth_curve
from experiments.preregister import schedules
from experiments.shared import critical_table, laws_table
from experiments.tables import Tables, analyze

SHORT = ("short_99k", "short_380k")
RUNGS = ("es_99k", "es_380k", "es_790k")
PARTS = ("rates", *RUNGS, *SHORT, "width", "mixture")
NOTE = ", sequences of 64"
BESIDE = ("standard", "width_seeds", "standard_seeds")  # parts that were not preregistered
PILOTS = ("pilot_rates", "pilots")
WIDTH = ("width", "width_seeds")
TRANSFERS = {
    "99k to .38M": (("rates",), ("rates",)),
    "width 64 to 128, mup": (WIDTH, WIDTH),
    "width 64 to 128, standard": (WIDTH, ("standard", "standard_seeds")),
}
"""Parts of the smaller and of the larger model; only the first was preregistered."""
CURVES_OF = (("es_99k",), ("es_380k",), ("es_790k", "more_790k"))
"""Parts of each rung; the last has learning rates that were lowered afterwards."""
BUDGETS = (1 / 8, 1 / 4, 1 / 2)  # of the tokens of a rung
FINALS = "finals.csv"
CURVES = "curves.parquet"
RISE = 0.1  # nats above the minimum, where `bend` reads the batch size
COST = 0.01  # nats: an LR that costs no more is transferred
DEAR = 0.02  # nats: an LR that costs more is not transferred
SURE = 0.01  # nats between a switch and a fixed batch size that decide


def write(results: Path) -> None:
    """Write every table of the runs that have finished."""
    fits = {"ladder": fit(results)}
    found = losses(results)
    scored = scores(results)
    tables = {"losses": found, "scores": scored, "stepwise": stepwise(results)}
    tables |= {"critical": critical_table(fits), "laws": laws_table(fits)}
    for name, table in tables.items():
        Tables(results).write(f"{name}.csv", table)
    print(scored.to_string(index=False))


# Final losses


def finished(results: Path) -> pd.DataFrame:
    """Return the decayed runs of every part that has tables, with `part`."""
    file = results.parent / "predictions/ladder.json"
    parts = {part: Tables(results / part) for part in (*PARTS, *BESIDE)}
    tables = [
        decayed(at.read(FINALS) if part in BESIDE else at.registered(FINALS, file), part)
        for part, at in parts.items()
        if FINALS in at
    ]
    if not tables:
        raise InputError(f"{results}: no part of the series has {FINALS}; run one")
    return pd.concat(tables)


def decayed(finals: pd.DataFrame, part: str) -> pd.DataFrame:
    """Return the rows of decayed runs, batch schedules as texts, with `part`."""
    return finals.loc[finals["schedule.decay"] > 0].astype({"batch": str}).assign(part=part)


def final_losses(some: pd.DataFrame) -> pd.DataFrame:
    """Return decayed runs as `bss.laws.check_losses` takes them, at their budgets."""
    columns = ["params", "token_budget", "batch", "seq_len", "peak_lr", "test_loss"]
    names = {"token_budget": "tokens", "peak_lr": "lr", "test_loss": "loss"}
    return some.loc[:, columns].rename(columns=names).astype({"batch": float})


def registration_of(results: Path) -> dict[str, Any]:
    """Return the preregistration."""
    return read_json(results.parent / "predictions/ladder.json", "restore it")


def losses(results: Path) -> pd.DataFrame:
    """Return every predicted loss some of whose runs have finished, and what was measured."""
    registration = registration_of(results)
    table = finished(results)
    known = table.drop_duplicates("run").set_index("run")
    trained: list[dict[str, Any]] = [
        {**one, "runs": runs}
        for one in registration["predictions"]
        if (runs := [run for run in one["runs"] if run in known.index])
    ]
    outcomes = known.reset_index().assign(status="finished")
    scored = schedules({**registration, "predictions": trained}, outcomes)
    rows = []
    for one, found in zip(trained, scored, strict=True):
        run = known.loc[one["runs"][0]]
        loss = one["loss"]
        row = {"rung": one["name"].split(",")[0], "token_budget": run["token_budget"]}
        row |= {"batch": int(run["batch"])}
        row |= {"predicted": loss["value"], "low": loss["low"], "high": loss["high"]}
        row |= {"measured": found["measured"], "seeds": found["runs"]}
        rows.append(row | {"in": found["covered"]})
    return pd.DataFrame(rows)


def stepwise(results: Path) -> pd.DataFrame:
    """Return decayed losses that `bss fit loss` predicts for each rung from all below it.

    Returns:
        part, token_budget, batch, predicted, low, high (90%) and measured, mean over seeds.
    """
    pilots = [decayed(Tables(results / name).read(FINALS), name) for name in PILOTS]
    columns = ["params", "tokens", "batch", "seq_len", "lr", "loss"]
    known = check_losses(final_losses(pd.concat(pilots))).loc[:, columns]
    table = finished(results)
    rows = []
    for part in (part for part in RUNGS if part in {*table["part"]}):
        rung = table.loc[table["part"] == part].astype({"batch": float})
        law = fit_loss(check_losses(known), options=Options(100))
        for (budget, batch), some in rung.groupby(["token_budget", "batch"]):  # type: ignore[misc]
            params = float(some["params"].iloc[0])
            seq_len = float(some["seq_len"].iloc[0])
            loss = law.prediction(params, budget, batch * seq_len, extrapolate=True).loss
            row = {"part": part, "token_budget": budget, "batch": batch, "predicted": loss.value}
            ends = {"low": loss.low, "high": loss.high}
            rows.append(row | ends | {"measured": some["test_loss"].mean()})
        known = pd.concat([known, final_losses(rung)])
    return pd.DataFrame(rows)


# Scores, as the registration states


def scores(results: Path) -> pd.DataFrame:
    """Return one row per score.

    Returns:
        Columns `question`, `of` (its subject), `said` (the prediction) with `low` and `high`,
        `measured` with `measured_low` and `measured_high` (empty if unknown), and `verdict`: right,
        wrong or undecided.
    """
    registration = registration_of(results)
    table = finished(results)
    rows = [*_covered(losses(results)), *_batches(registration, measured_fit(table))]
    if {*SHORT} & {*table["part"]}:
        rows += _batches(registration, measured_fit(table, "short"), NOTE)
    return pd.DataFrame([*rows, *_rates(table), *_bends(table)])


def measured_fit(table: pd.DataFrame, family: str = "es") -> LossFit:
    """Return the law of final losses of the rungs.

    Args:
        table: Table of `finished`.
        family: "es", sequences of 256 at one LR per batch size, or "short", of 64 at several.
    """
    rungs = table.loc[table["part"].str.startswith(f"{family}_")]
    named = final_losses(rungs) if family == "short" else final_losses(rungs).drop(columns="lr")
    return fit_loss(check_losses(named), options=Options(100))


def _row(question: str, of: str, said: tuple, measured: Any, verdict: str, **ends: Any) -> dict:
    row = {"question": question, "of": of, **dict(zip(("said", "low", "high"), said, strict=True))}
    return row | {"measured": measured, **ends, "verdict": verdict}


def _verdict(right: bool, wrong: bool) -> str:
    if right:
        return "right"
    return "wrong" if wrong else "undecided"


def _covered(found: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for rung, some in found.groupby("rung", sort=False):
        share = float(some["in"].to_numpy(float).mean())
        verdict = _verdict(right=share >= 0.8, wrong=share <= 0.5)
        yield _row("losses", str(rung), (0.9, 0.8, 1.0), share, verdict)


def _batches(
    registration: dict[str, Any], law: LossFit, note: str = ""
) -> Iterator[dict[str, Any]]:
    for one in registration["fit"]["batches"]:
        said = Estimate(one["value"], one["low"], one["high"])
        for at in law.optima:
            if (at.params, at.tokens) == (one["params"], one["tokens"]):
                name = f"{one['rung']}, {one['tokens']:,} tokens"
                yield overlap("batches" + note, name, said, at.batch)
    for symbol, one in registration["fit"]["exponents"].items():
        yield overlap("exponents" + note, symbol, Estimate(**one), law.B_opt_exponents[symbol])


def overlap(question: str, of: str, said: Estimate, found: Estimate) -> dict[str, Any]:
    """Return the row that compares a predicted and a measured interval.

    Disjoint intervals are wrong. A measured value is right if the predicted interval contains it. A
    measured bound is right if it allows the whole predicted interval.
    """
    low = found.low or -math.inf
    high = found.high or math.inf
    assert said.low is not None and said.high is not None
    verdict = "undecided"
    if said.high < low or high < said.low:
        verdict = "wrong"
    elif found.value is not None:
        verdict = "right" if said.low <= found.value <= said.high else "undecided"
    elif math.isfinite(low) != math.isfinite(high) and low <= said.low and said.high <= high:
        verdict = "right"
    ends = {"measured_low": found.low, "measured_high": found.high}
    return _row(question, of, (said.value, said.low, said.high), found.value, verdict, **ends)


def transfers(table: pd.DataFrame) -> Iterator[tuple[str, str, pd.DataFrame, pd.DataFrame]]:
    """Return name, batch, rows of the smaller and of the larger model of each of TRANSFERS."""
    for name, (below, above) in TRANSFERS.items():
        smaller = table.loc[table["part"].isin(below)]
        larger = table.loc[table["part"].isin(above)]
        smaller = smaller.loc[smaller["params"] == smaller["params"].min()]
        larger = larger.loc[larger["params"] == larger["params"].max()]
        for batch in sorted({*smaller["batch"]} & {*larger["batch"]}, key=int):
            yield name, batch, *(some.loc[some["batch"] == batch] for some in (smaller, larger))


def by_rate(some: pd.DataFrame) -> pd.Series:
    """Return the loss at each LR, mean over seeds."""
    return pd.Series({rate: own.mean() for rate, own in some.groupby("peak_lr")["test_loss"]})


def cost(smaller: pd.DataFrame, larger: pd.DataFrame) -> float:
    """Return the excess loss of the larger model at the smaller one's best LR, in nats."""
    at = by_rate(larger)
    return float(at[by_rate(smaller).idxmin()] - at.min())


def _rates(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    for name, batch, *pair in transfers(table):
        if name == "99k to .38M":
            found = cost(*pair)
            verdict = _verdict(right=found <= COST, wrong=found > DEAR)
            yield _row("rates", f"batch {batch}", (0.0, 0.0, COST), found, verdict)


def least(some: pd.DataFrame) -> pd.Series:
    """Return the loss of each fixed batch size at its best LR, smallest batch size first."""
    best = some.loc[some["batch"].str.isdigit()].astype({"batch": int}).groupby("batch")
    return best["test_loss"].min().sort_index()


def bend(some: pd.DataFrame) -> float:
    """Return the batch size whose loss is RISE above the minimum, or NaN."""
    at = least(some)
    rise = at.loc[at.idxmin() :] - at.min()
    if rise.iloc[-1] < RISE:
        return math.nan
    return float(np.exp(np.interp(RISE, rise, np.log(rise.index.to_numpy(float)))))


def dense_of_mixture(table: pd.DataFrame) -> pd.DataFrame:
    """Return the runs of the dense model with the mixture's number of active parameters and LRs."""
    width = table.loc[table["part"] == "width"]
    rates = table.loc[table["part"] == "mixture", ["batch", "peak_lr"]].drop_duplicates()
    return width.loc[width["params"] == width["params"].max()].merge(rates)


def _bends(table: pd.DataFrame) -> Iterator[dict[str, Any]]:
    of = {part: some for part, some in table.groupby("part")}
    if "width" in of:
        (_, narrow), (_, wide) = of["width"].groupby("params")
        yield _ratio("width", "64 to 128", bend(wide) / bend(narrow), (1.0, 0.8, 1.5), (0.67, 1.8))
    if "mixture" in of and "width" in of:
        ratio = bend(of["mixture"]) / bend(dense_of_mixture(table))
        yield _ratio("mixture", "beside 2 x 128", ratio, (1.0, 0.67, 1.5), (0.5, 2.0))
    if "mixture" in of:
        some = of["mixture"]
        fixed = some["batch"].str.isdigit()
        switched = some.loc[~fixed, "test_loss"].min()
        constant = some.loc[fixed, "test_loss"].min()
        apart = float(switched - constant)
        verdict = _verdict(right=apart >= SURE, wrong=apart <= -SURE)
        yield _row("switch", "4 to 32 at 70%", (None, SURE, None), apart, verdict)


def _ratio(
    question: str, of: str, found: float, said: tuple[float, ...], beyond: tuple[float, float]
) -> dict[str, Any]:
    outside = found < beyond[0] or found > beyond[1]
    within = said[1] <= found <= said[2]
    verdict = _verdict(right=within and not outside, wrong=outside)
    return _row(question, of, said, found, verdict)


# Critical batch sizes


def fit(results: Path) -> CriticalFit:
    """Return the critical batch sizes in multiples of one sequence, and their law in N and D.

    The target of a D is the loss of the smallest batch size there, at constant LR.
    """
    rungs = []
    for parts in CURVES_OF:
        known = [at for part in parts if CURVES in (at := Tables(results / part))]
        rungs += [steps(pd.concat([at.read(CURVES) for at in known]))] if known else []
    if not rungs:
        raise InputError(f"{results}: no part of the series has {CURVES}; run one")
    return fit_critical(pd.concat(rungs), reference=1, options=Options(400))


def steps(curves: pd.DataFrame) -> pd.DataFrame:
    """Return points of one model's runs with fixed batch sizes, one row per run and D.

    Targets that fewer than three batch sizes reach are left out.
    """
    smallest = curves.loc[curves["batch"] == curves["batch"].min()]
    paths = [smooth_curve(run, "eval_loss") for _, run in smallest.groupby("run")]
    targets = {}
    for part in BUDGETS:
        budget = round(part * float(smallest["tokens"].max()))
        at = [np.interp(math.log(budget), path.log_tokens, path.loss) for path in paths]
        targets[float(np.mean(at))] = budget
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "points: .* fewer than")  # large batches have few steps
        met = points(curves, list(targets))
    met = met.assign(budget_tokens=met["target_loss"].map(targets.get))
    batches = met.loc[met["reached"]].groupby("target_loss")["batch"].nunique()
    return met.loc[met["target_loss"].isin(batches.index[batches >= FEWEST])]


if __name__ == "__main__":
    analyze(__doc__, write)
