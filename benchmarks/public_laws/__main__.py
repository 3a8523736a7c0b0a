"""Score a law of final losses, or of E(S), on public tables by frozen splits.

    python -m benchmarks.public_laws                       # the rows that are kept
    python -m benchmarks.public_laws --law package:LAW     # and a row of this law for each split
    python -m benchmarks.public_laws --again bss           # measure and keep the row of `bss` again

LAW is a function of a table of runs with columns params, tokens, batch, seq_len, batch_tokens, loss
and, if the table has it, lr. It returns an object with `predict(runs)`: a frame with `loss` in
nats and, for coverage, `loss_low` and `loss_high`. LAW may also be a `Form`, which `fit_loss` fits,
or a law of E(S), which `fit_es` fits. Tables without a licence are not in this repository:
`--tables DIR` has openeurollm.csv and nqs_lm1b.csv.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from benchmarks.public_laws.laws import KEPT, Asked, Choice, asked, es_law
from benchmarks.public_laws.splits import (
    POINTS,
    TABLES,
    Split,
    cell_of,
    losses_of,
    points_of_es,
    splits_of,
)
from benchmarks.record import table as markdown
from bss.errors import InputError

SCORES = Path(__file__).parents[1] / "baselines/public_laws.csv"
NEAR = 0.1  # nats above the lowest loss of the (N, D), up to which rows are near the best
TIED = 1e-9  # of a prediction: runs that a law does not distinguish
LAWS = {
    "bss": Asked(KEPT["bss"], es_law(None)),
    "hyperbola": Asked(KEPT["hyperbola"], es_law("hyperbola")),
}
LAWS |= {name: Asked(law, None) for name, law in KEPT.items() if name not in LAWS}


class Score(NamedTuple):
    """The scores of a law on the predicted rows of all splits of one kind.

    Attributes:
        table, kind, law: names.
        runs: rows scored.
        error: root mean square error near the best of each (N, D), in nats; of E(S) in log tokens.
        error_all: the same of all rows.
        R2: share of the variance of all rows of a split that is predicted.
        covered: share of the rows near the best in 90% intervals.
        regret: mean over (N, D) of the loss of the run that the law predicts to be the best, minus
            the lowest loss, in nats.
    """

    table: str
    kind: str
    law: str
    runs: int
    error: float
    error_all: float
    R2: float
    covered: float
    regret: float


class Row(NamedTuple):
    """The scores of a law on one split: arrays by scored row, and regrets by (N, D)."""

    missed: np.ndarray
    near: np.ndarray
    inside: np.ndarray
    explained: float
    regrets: list[float]


def scored(split: Split, table: pd.DataFrame, law: Any) -> Row:
    """Fit a law to the fitted rows of a split, and compare it with the scored ones."""
    fit = law(table.loc[split.fitted].reset_index(drop=True))
    runs = table.loc[split.scored]
    cell = cell_of(table)
    least = table["loss"].groupby(cell).transform("min")[split.scored]
    near = (runs["loss"] - least <= NEAR).to_numpy()
    losses = runs["loss"].to_numpy()
    whole = split.kind in ("next size", "next budget", "one cell")
    if isinstance(fit, Choice):
        away = fit.distance(runs)
        nothing = np.full(len(runs), np.nan)
        return Row(
            nothing, near, nothing, np.nan, _regrets(cell[split.scored], away, losses, whole)
        )
    said = fit.predict(runs)
    told = said["loss"].to_numpy(float)
    missed = told - losses
    inside = np.full(len(runs), np.nan)
    if "loss_low" in said:
        inside = ((said["loss_low"] <= losses) & (losses <= said["loss_high"])).to_numpy(float)
    explained = 1 - float(np.mean(missed**2) / np.var(losses))
    return Row(missed, near, inside, explained, _regrets(cell[split.scored], told, losses, whole))


def _regrets(cell: np.ndarray, told: np.ndarray, losses: np.ndarray, whole: bool) -> list[float]:
    """Of each (N, D) whose rows are all scored; the mean of runs that a law does not tell apart."""
    found = []
    for i in np.unique(cell) if whole else ():
        mine = told[cell == i]
        own = losses[cell == i]
        if len(own) > 1:
            chosen = mine <= mine.min() + TIED
            found.append(float(own[chosen].mean() - own.min()))
    return found


def score(table: str, kind: str, law: str, rows: list[Row]) -> Score:
    """Return the score of all splits of a kind."""
    missed = np.concatenate([row.missed for row in rows])
    near = np.concatenate([row.near for row in rows])
    inside = np.concatenate([row.inside for row in rows])
    # Rows far above the best are all there are at far batches.
    near = near if near.any() and kind != "far batch" else np.ones(len(near), bool)
    regrets = [x for row in rows for x in row.regrets]
    return Score(
        table,
        kind,
        law,
        len(missed),
        error=float(np.sqrt(np.mean(missed[near] ** 2))),
        error_all=float(np.sqrt(np.mean(missed**2))),
        R2=float(np.mean([row.explained for row in rows])),
        covered=float(np.mean(inside[near])),
        regret=float(np.mean(regrets)) if regrets else np.nan,
    )


def of_losses(law: str, fitted: Any, only: set[str], folder: Path | None) -> Iterator[Score]:
    """Yield the scores of a law of final losses on all tables that are there."""
    for name in TABLES:
        table = losses_of(name, folder) if not only or name in only else None
        if table is None:
            continue
        rows: dict[str, list[Row]] = {}
        for split in splits_of(name, table):
            rows.setdefault(split.kind, []).append(scored(split, table, fitted))
            print(law, name, split.kind, file=sys.stderr, flush=True)
        for kind, found in rows.items():
            one = score(name, kind, law, found)
            if not np.isnan([one.error, one.regret]).all():
                yield one


def of_points(law: str, fitted: Any, only: set[str]) -> Iterator[Score]:
    """Yield the score of a law of E(S): each model's largest batch size, from its others.

    Models that the law refuses do not count.
    """
    if only and POINTS not in only:
        return
    rows = []
    for _, points in points_of_es().groupby("model"):
        out = (points["batch"] == points["batch"].max()).to_numpy()
        try:
            fit = fitted(points.loc[~out])
            said = fit.predict(points.loc[out, ["target_loss", "batch"]])
        except InputError:  # too few batch sizes for the law, which says so
            continue
        steps = points.loc[out, "steps"].to_numpy()
        missed = np.log(said["steps"].to_numpy() / steps)
        inside = (said["steps_low"] <= steps) & (steps <= said["steps_high"])
        everywhere = np.ones(len(steps), bool)
        rows.append(Row(missed, everywhere, inside.to_numpy(float), np.nan, []))
    if rows:
        yield score(POINTS, "next batch", law, rows)


def measured(law: str, one: Asked, only: set[str], folder: Path | None) -> list[Score]:
    """Return all scores of a law."""
    found: list[Score] = []
    if one.losses is not None:
        found += of_losses(law, one.losses, only, folder)
    if one.points is not None:
        found += of_points(law, one.points, only)
    return found


def read(path: Path = SCORES) -> pd.DataFrame:
    """Return the scores that are kept."""
    return pd.read_csv(path) if path.is_file() else pd.DataFrame(columns=pd.Index(Score._fields))


def merged(kept: pd.DataFrame, new: list[Score]) -> pd.DataFrame:
    """Return kept scores, with scores of the same table, kind and law replaced by new ones."""
    kept = kept.dropna(how="all", subset=["error", "regret"])
    fresh = pd.DataFrame(new, columns=pd.Index(Score._fields))
    keys = ["table", "kind", "law"]
    both = pd.concat([kept, fresh], ignore_index=True).drop_duplicates(keys, keep="last")
    order = {name: i for i, name in enumerate([*TABLES, POINTS])}
    laws = {name: i for i, name in enumerate([*KEPT])}
    rank = both["law"].map(laws).fillna(len(laws))
    both = both.assign(_t=both["table"].map(order), _l=rank)
    return both.sort_values(["_t", "kind", "_l"]).drop(columns=["_t", "_l"]).reset_index(drop=True)


def text(scores: pd.DataFrame) -> str:
    """Return the scores as a Markdown table; errors in 1e-3 nats."""
    rows = []
    for one in scores.itertuples():
        numbers = [1e3 * one.error, 1e3 * one.error_all, one.R2, one.covered, 1e3 * one.regret]  # type: ignore[attr-defined]
        digits = (1, 1, 3, 2, 1)
        cells = ["" if np.isnan(x) else f"{x:.{n}f}" for x, n in zip(numbers, digits, strict=True)]
        rows.append([one.table, one.kind, one.law, str(one.runs), *cells])  # type: ignore[list-item]
    head = ("table", "split", "law", "runs", "error", "error, all rows", "R²", "in 90%", "regret")
    return markdown(head, rows)


def main(arguments: list[str] | None = None) -> int:
    """Score, keep if asked, and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.public_laws",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--law", default="", help="package.module:LAW")
    parser.add_argument("--again", default="", help="kept laws to measure again, with commas")
    parser.add_argument("--tables", type=Path, help="directory of tables without a licence")
    parser.add_argument("--only", default="", help="names of tables, with commas")
    options = parser.parse_args(arguments)
    only = {*filter(None, options.only.split(","))}
    try:
        if unknown := only - {*TABLES, POINTS}:
            known = ", ".join([*TABLES, POINTS])
            raise InputError(f"--only: no table {', '.join(sorted(unknown))}; choose of {known}")
        kept = read()
        for law in filter(None, options.again.split(",")):
            if law not in LAWS:
                raise InputError(f"--again: no law {law}; choose of {', '.join(LAWS)}")
            for name in only or (*TABLES, POINTS):
                kept = merged(kept, measured(law, LAWS[law], {name}, options.tables))
                kept.round(5).to_csv(SCORES, index=False, lineterminator="\n")
        if options.law:
            new = measured(options.law, asked(options.law), only, options.tables)
            kept = merged(kept, new)
            kept = kept.loc[kept["table"].isin([one.table for one in new])]
    except InputError as error:
        print(error, file=sys.stderr)
        return 2
    shown = kept["table"].isin(only) if only else np.ones(len(kept), bool)
    print(text(kept.loc[shown]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
