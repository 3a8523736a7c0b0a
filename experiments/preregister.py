"""Predictions recorded before their runs are trained, and scored after.

    python -m experiments.preregister register NAME PREDICTED.csv --fit FIT.json
    git commit results/predictions/NAME.json     # before the first of its runs starts
    python -m experiments.preregister score NAME OUTCOMES.csv
    python -m experiments.preregister state NAME QUESTIONS.toml

PREDICTED.csv has one row per run with the columns run, tokens, and loss, low, high in nats. Runs of
one schedule share a value of `schedule`. If there is a column `ending` (the LR phase), scores are
also computed per LR phase. Every other column is the loss that a baseline predicts. The runs record
the file's SHA-256 (`execution.registration`). Scoring requires a git history in which the commit of
the file is older than the commit of every run. Each schedule counts once in a score; intervals come
from resampled schedules. A schedule with a failed run has infinite error. `state` registers
statements without numbers; QUESTIONS.toml defines how each is decided.
"""

import argparse
import datetime
import hashlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import rankdata

from bss.errors import InputError
from bss.files import read_json, write_json
from bss.provenance import commit
from bss.tables.columns import need
from bss.tables.storage import read_table

FOLDER = Path("results/predictions")
COLUMNS = ("run", "tokens", "loss", "low", "high")
FEWEST, LEVEL, RESAMPLES = 3, 0.95, 2000  # schedules, and of the intervals of scores


def digest(file: Path) -> str:
    """Return the SHA-256 of a file, which the runs of a registration record."""
    return hashlib.sha256(file.read_bytes()).hexdigest()


def register(file: Path, table: pd.DataFrame, fit: Path, metric: str, level: float = 0.9) -> None:
    """Write predictions to a file; the first registration of a name counts.

    Raises:
        InputError: If the file exists, or a prediction is not a number in its interval.
    """
    bad = table.loc[~((table["low"] <= table["loss"]) & (table["loss"] <= table["high"]))]
    if len(bad) or table["run"].duplicated().any():
        raise InputError(
            f"predictions: {len(bad)} rows without low <= loss <= high, or a run twice"
        )
    baselines = [column for column in table if column not in ("schedule", "ending", *COLUMNS)]
    predictions = []
    for schedule, rows in table.groupby(table.get("schedule", table["run"]), sort=False):
        one = rows.iloc[0]
        loss = {"value": one["loss"], "low": one["low"], "high": one["high"], "level": level}
        entry = {"name": str(schedule), "runs": [*map(str, rows["run"])], "loss": loss}
        entry |= {"tokens": int(one["tokens"]), "ending": str(one.get("ending", ""))}
        predictions.append(entry | {"baselines": {str(key): float(one[key]) for key in baselines}})
    entry = {"metric": metric, "fit": {"file": str(fit), "sha256": digest(fit)}}
    _write(file, entry | {"predictions": predictions})


def state(file: Path, questions: Path) -> None:
    """Write the statements of a TOML file of questions; the first registration of a name counts.

    Raises:
        InputError: If the file exists, or a question lacks a statement or a number.
    """
    stated = tomllib.loads(questions.read_text(encoding="utf-8")).get("question", [])
    if not stated or any({"key", "statement", "number"} - one.keys() for one in stated):
        raise InputError(f"{questions}: expected [[question]] with key, statement and number")
    _write(file, {"questions": str(questions), "statements": stated})


def _write(file: Path, entry: dict[str, Any]) -> None:
    if file.exists():
        raise InputError(f"{file}: exists and the first registration counts; choose another name")
    file.parent.mkdir(parents=True, exist_ok=True)
    named = {"kind": "registration", "schema": 2, "name": file.stem, **entry}
    write_json(file, named | {"date": datetime.date.today().isoformat(), "commit": commit()})


def check_committed(file: Path) -> str:
    """Return the commit that added a registration, which is in a git repository.

    Raises:
        InputError: If the file is not committed or has changed.
    """
    added = _git(file, "log", "--full-history", "--diff-filter=A", "--format=%H", "--", file.name)
    if not added:
        raise InputError(f"{file}: is not committed; commit it before its runs are trained")
    first = added.decode().split()[-1]
    content = _git(file, "show", f"{first}:./{file.name}") or b""
    if hashlib.sha256(content).hexdigest() != digest(file):
        raise InputError(f"{file}: has changed since commit {first[:12]} added it; restore it")
    return first


def check_first(file: Path, outcomes: pd.DataFrame) -> str:
    """Return the commit that added a file, if no run was trained at a commit before it.

    Args:
        file: A registration, in a git repository.
        outcomes: run, status, commit (of each start) and registration.

    Raises:
        InputError: As `check_committed`, or if a run came before the file.
    """
    first, ours = check_committed(file), digest(file)
    started = outcomes.loc[outcomes["status"] != "missing"]
    for run, theirs in zip(started["run"], started["registration"], strict=True):
        if theirs != ours:
            raise InputError(f"run {run}: registration is {str(theirs)[:12]}, expected {ours[:12]}")
    for trained in {text for texts in started["commit"] for text in str(texts).split()}:
        if _git(file, "merge-base", "--is-ancestor", first, trained.removesuffix("+")) is None:
            raise InputError(f"{file}: added by {first[:12]}, after a run trained at {trained}")
    return first


def _git(file: Path, *arguments: str) -> bytes | None:
    """Return what git prints in the folder of a file; None if it fails."""
    done = subprocess.run(["git", *arguments], cwd=file.parent, capture_output=True, check=False)
    return done.stdout if done.returncode == 0 else None


def schedules(registration: dict[str, Any], outcomes: pd.DataFrame) -> list[dict[str, Any]]:
    """Return one entry per schedule, with predicted and measured loss (None if a run failed)."""
    metric, found = registration["metric"], []
    table = outcomes.drop_duplicates("run").set_index("run")
    for one in registration["predictions"]:
        rows = table.reindex(one["runs"])
        ended = (rows["status"] == "finished") & (rows["tokens"] == one["tokens"])
        measured = float(np.mean(rows[metric].to_numpy(float))) if ended.all() else None
        law, baselines = one["loss"], one["baselines"]
        means = {f"mean of law and {k}": (law["value"] + v) / 2 for k, v in baselines.items()}
        row = {"name": one["name"], "ending": one.get("ending", ""), "runs": len(one["runs"])}
        row |= {"measured": measured, "predicted": {"law": law["value"], **baselines, **means}}
        covered = measured is not None and law["low"] <= measured <= law["high"]
        found.append(row | {"covered": covered})
    return found


def score(registration: dict[str, Any], outcomes: pd.DataFrame) -> dict[str, Any]:
    """Return scores per LR phase and over "all"; the embedded fit of a registration is not read.

    Returns:
        `schedules`, one entry each. `judged` has four scores per predictor: the median |error| (%
        of the measured loss), Spearman's rank correlation, the RMS error of differences over their
        RMS spread, and the coverage of the interval. `compared` is the mean |error| minus the mean
        |error| of a baseline.
    """
    found = schedules(registration, outcomes)
    groups = [*dict.fromkeys(one["ending"] for one in found if one["ending"]), "all"]
    of = {name: [one for one in found if name in (one["ending"], "all")] for name in groups}
    baselines = [*registration["predictions"][0]["baselines"]]
    return {
        "name": registration["name"],
        "metric": registration["metric"],
        "schedules": found,
        "judged": {name: _judged(some) for name, some in of.items()},
        "compared": {name: _compared(some, baselines) for name, some in of.items()},
    }


def _judged(some: list[dict[str, Any]]) -> dict[str, Any]:
    ended = [one for one in some if one["measured"] is not None]
    measured, judged = np.array([one["measured"] for one in ended], float), {}
    for name in some[0]["predicted"]:
        predicted = np.array([one["predicted"][name] for one in ended])
        judged[name] = {
            "error": _estimate(partial(np.median, axis=-1), _errors(some, name)),
            "rank": _estimate(_rank_correlation, predicted, measured),
            "differences": _estimate(_differences, predicted, measured),
            "coverage": None,
        }
    covered = np.array([one["covered"] for one in some], float)
    judged["law"]["coverage"] = _estimate(partial(np.mean, axis=-1), covered)
    return judged


def _compared(some: list[dict[str, Any]], baselines: list[str]) -> dict[str, Any]:
    ended = [one for one in some if one["measured"] is not None]
    pairs = [(name, b) for b in baselines for name in ("law", f"mean of law and {b}")]
    apart = {f"{a} - {b}": _errors(ended, a) - _errors(ended, b) for a, b in pairs}
    return {name: _estimate(partial(np.mean, axis=-1), values) for name, values in apart.items()}


def _errors(some: list[dict[str, Any]], name: str) -> np.ndarray:
    """Return |error| in % of the measured loss; infinite if a run failed."""
    measured = np.array([one["measured"] for one in some], float)
    error = np.abs(np.array([one["predicted"][name] for one in some]) / measured - 1) * 100
    return np.where(np.isnan(measured), np.inf, error)


def _estimate(statistic: Callable[..., np.ndarray], *values: np.ndarray) -> dict[str, Any]:
    """Return value, low and high of a statistic over schedules, None for fewer than FEWEST."""
    n = len(values[0])
    if n < FEWEST:
        return {"value": None, "low": None, "high": None, "level": LEVEL}
    rows = np.random.default_rng(0).integers(n, size=(RESAMPLES, n))
    with np.errstate(invalid="ignore", divide="ignore"):
        value, draws = float(statistic(*values)), statistic(*(array[rows] for array in values))
    low, high = np.nanquantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), method="nearest")
    ends = (value, min(low, value), max(high, value))
    value, low, high = (float(x) if np.isfinite(x) else None for x in ends)
    return {"value": value, "low": low, "high": high, "level": LEVEL}


def _differences(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    spread = np.std(measured, axis=-1)
    ratio = np.std(predicted - measured, axis=-1) / spread
    return np.where(spread > 1e-12 * np.mean(measured, axis=-1), ratio, np.nan)


def _rank_correlation(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    ranks = [rankdata(values, axis=-1) for values in (predicted, measured)]
    a, b = (rank - rank.mean(axis=-1, keepdims=True) for rank in ranks)
    return (a * b).sum(axis=-1) / np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))


def main(arguments: list[str] | None = None) -> int:
    """Register or score from the command line; status 2 and one line for bad input."""
    parser = argparse.ArgumentParser(prog="experiments.preregister")
    parser.add_argument("command", choices=("register", "score", "state"))
    parser.add_argument("name", help="name of the registration in results/predictions")
    parser.add_argument("table", type=Path, help="PREDICTED.csv, OUTCOMES.csv or .toml")
    parser.add_argument("--fit", type=Path, help="the fit that predicts; its hash is kept")
    parser.add_argument("--metric", default="eval_loss", help="final loss that is predicted")
    options = parser.parse_args(arguments)
    file = FOLDER / f"{options.name}.json"
    try:
        if options.command == "score":
            registration = read_json(file, "write one with `register`")
            table, origin = read_table(options.table)
            need(table, origin, "run", "status", "tokens", "commit", "registration")
            entry = {"commit": check_first(file, table), **score(registration, table)}
            print(json.dumps(entry, indent=1))
            return 0
        if options.command == "state":
            state(file, options.table)
        else:
            table, origin = read_table(options.table)
            need(table, origin, *COLUMNS)
            if options.fit is None:
                raise InputError("--fit: missing; name the fit that predicts")
            register(file, table, options.fit, options.metric)
        print(f"{file}: commit it, then train with execution.registration {digest(file)}")
    except (InputError, OSError) as error:
        print(f"preregister: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
