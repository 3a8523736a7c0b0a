"""Predictions recorded before their runs are trained, and scored after.

    python -m experiments.preregister register NAME PREDICTED.csv --fit FIT.json
    git commit results/predictions/NAME.json     # before the first of its runs starts
    python -m experiments.preregister score NAME OUTCOMES.csv
    python -m experiments.preregister state NAME QUESTIONS.toml --config configs/es_wsd.py:beta2
    python -m experiments.preregister check         # every registration against committed tables

PREDICTED.csv has one row per run with the columns run, tokens, and loss, low, high in nats. Runs of
one schedule share a value of `schedule`. If there are columns `lr_phase` and `weights`, scores are
also computed per LR phase. Every other column is the loss that a baseline predicts. The runs record
the file's SHA-256 (`execution.registration`). Scoring requires a git history in which the commit of
the file is older than the commit of every run. Each schedule counts once in a score; intervals come
from resampled schedules. A schedule with a failed run has infinite error. `state` registers
statements without numbers; QUESTIONS.toml defines how each is decided, and names the columns that
are read. With it stand the ids of all runs of the parts that `--config` names, and the code's
commit. `check` fails if a run was trained at a commit before its registration's. It lists the rows
of tables that were trained from a changed tree or without a commit.
"""

import argparse
import datetime
import hashlib
import importlib
import json
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

from bss.errors import InputError
from bss.files import read_json, write_json
from bss.provenance import commit
from bss.renamed import PHASES, new_columns
from bss.sweeps.table import NOT_RECORDED
from bss.tables.columns import need
from bss.tables.renaming import with_new_names
from bss.tables.storage import read_table
from bss.values import from_dict

RESULTS = Path("results")
FOLDER = RESULTS / "predictions"
COLUMNS = ("run", "tokens", "loss", "low", "high")
PHASE = ("lr_phase", "weights")
UNREGISTERED = ("none", NOT_RECORDED)  # of parts that decide nothing
FEWEST = 3  # schedules that a score needs
LEVEL = 0.95  # of the intervals of scores
RESAMPLES = 2000


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
    table, _ = with_new_names(table)
    baselines = [column for column in table if column not in ("schedule", *PHASE, *COLUMNS)]
    predictions = []
    for schedule, rows in table.groupby(table.get("schedule", table["run"]), sort=False):
        one = rows.iloc[0]
        loss = {"value": one["loss"], "low": one["low"], "high": one["high"], "level": level}
        entry = {"name": str(schedule), "runs": [*map(str, rows["run"])], "loss": loss}
        entry |= {"tokens": int(one["tokens"])} | {name: str(one.get(name, "")) for name in PHASE}
        predictions.append(entry | {"baselines": {str(key): float(one[key]) for key in baselines}})
    entry = {"metric": metric, "fit": {"file": str(fit), "sha256": digest(fit)}}
    _write(file, entry | {"predictions": predictions})


def state(file: Path, questions: Path, configs: Sequence[str]) -> None:
    """Write the statements of a TOML file of questions; the first registration of a name counts.

    Args:
        file: The registration.
        questions: Statements, and the columns of the tables that decide them.
        configs: Parts whose runs decide them, as FILE:PART. The data must be prepared.

    Raises:
        InputError: If the file exists, a question lacks a statement or a number, or no column or
            no part is named.
    """
    entries = tomllib.loads(questions.read_text(encoding="utf-8"))
    stated = entries.get("question", [])
    if not stated or any({"key", "statement", "number"} - one.keys() for one in stated):
        raise InputError(f"{questions}: expected [[question]] with key, statement and number")
    columns = entries.get("columns", [])
    if not columns:
        raise InputError(f'{questions}: columns is missing; write columns = ["eval_loss", ...]')
    if not configs:
        raise InputError("--config: missing; name the parts that decide, e.g. configs/x.py:part")
    runs = {config: planned_runs(config) for config in configs}
    _write(
        file,
        {"questions": str(questions), "statements": stated, "columns": columns, "runs": runs},
    )


def planned_runs(config: str) -> dict[str, list[str]]:
    """Return the ids of the runs that a part of an experiment will train, by name of the arm.

    Args:
        config: FILE:PART, e.g. configs/es_wsd.py:beta2; the experiment has the file's name, and its
            run.py has `Study`, `arms` and, if it decays the LR of known runs, `decayed`.
    """
    from bss.sweeps.sweep import prepared_run  # loads the trainer

    path, _, part = config.partition(":")
    module = importlib.import_module(path.removesuffix(".py").replace("/", "."))
    experiment = importlib.import_module(f"experiments.{Path(path).stem}.run")
    study = from_dict(experiment.Study, json.loads(module.get_config(part).to_json_best_effort()))
    base, _ = prepared_run(study.setup)
    runs = experiment.arms(study, base)
    if hasattr(experiment, "decayed"):
        runs += experiment.decayed(study, runs)
    ids: dict[str, list[str]] = {}
    for one in runs:
        name = one.label if one.lr_phase == "constant" else f"{one.label} | {one.lr_phase}"
        ids.setdefault(name, []).append(one.run.id)
    return ids


def check(results: Path = RESULTS) -> Iterator[str]:
    """Yield one line per problem of the registrations and of the tables that name them.

    A table names registrations in its column `registration`, by SHA-256; a run that a registration
    lists is checked in any table, whatever its rows name. Lines that begin with "note: " are about
    rows whose code cannot be found again. They were trained from a changed tree (a commit that ends
    in "+"), or without a commit.
    """
    registrations = {digest(file): file for file in sorted((results / FOLDER.name).glob("*.json"))}
    for file in registrations.values():
        try:
            check_committed(file)
        except InputError as error:
            yield str(error)
    listed = {sha: _registered_runs(file) for sha, file in registrations.items()}
    for path in sorted(results.glob("**/finals.csv")):
        table = pd.read_csv(path, dtype=str)
        if "commit" not in table:
            yield f"note: {path}: has no column commit, {len(table)} rows"
            continue
        commits = table["commit"].fillna("")
        for reason, rows in {
            "without a commit": commits == "",
            "from a changed tree": commits.str.contains(r"\+"),
        }.items():
            if rows.any():
                yield f"note: {path}: {rows.sum()} of {len(table)} rows are {reason}"
        named = table.get("registration", pd.Series(index=table.index, dtype=str)).fillna("")
        starts = named.str.split()  # a run that was started again has a registration per start
        for sha in dict.fromkeys(starts.explode().dropna()):
            if sha not in (*UNREGISTERED, *registrations):
                yield f"{path}: no file in {results / FOLDER.name} has SHA-256 {sha[:12]}"
        for sha, file in registrations.items():
            names_it = pd.Series([sha in own for own in starts], table.index, dtype=bool)
            rows = table.loc[names_it | table["run"].isin(listed[sha])]
            if not rows.empty:
                yield from _check_order(file, path, rows.assign(registration=sha), listed[sha])


def check_history() -> str:
    """Return the reason why the order of commits cannot be checked; "" in a whole checkout."""
    try:
        shallow = subprocess.run(
            ["git", "rev-parse", "--is-shallow-repository"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "this is no checkout of the repository"
    return "the repository's history is cut" if shallow == "true" else ""


def _check_order(file: Path, path: Path, rows: pd.DataFrame, registered: set[str]) -> Iterator[str]:
    """Yield a line if a run of a table came before its registration, or is none of its runs."""
    try:
        check_first(file, rows.assign(status="finished", commit=rows["commit"].fillna("")))
    except InputError as error:
        yield f"{path}: {error}"
    if lacking := _lacking_columns(read_json(file, "").get("columns", []), path):
        yield f"{path}: no table there has {', '.join(lacking)}, which {file} names"
    strangers = sorted({*rows["run"]} - registered)
    if registered and strangers:
        yield f"{path}: {len(strangers)} runs are not in {file}, such as {strangers[0]}"


def _registered_runs(file: Path) -> set[str]:
    """Return the ids of the runs that a registration lists; early ones list none."""
    runs = read_json(file, "").get("runs") or {}
    return {one for part in runs.values() for ids in part.values() for one in ids}


def _lacking_columns(registered: Sequence[str], path: Path) -> list[str]:
    """Return the registered columns that neither a table nor its run table has.

    Registrations are never changed; a column that has another name since then is looked up by it.
    """
    curves = path.with_name("runs.parquet")
    there = {*pd.read_csv(path, nrows=0)}
    if curves.exists():
        there |= {*pq.read_schema(curves).names}
    if "arm" in there:
        there.add("name")
    return [name for name in registered if not {*new_columns(name)} <= there]


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
    first = check_committed(file)
    ours = digest(file)
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
    metric = registration["metric"]
    found = []
    table = outcomes.drop_duplicates("run").set_index("run")
    for one in registration["predictions"]:
        rows = table.reindex(one["runs"])
        ended = (rows["status"] == "finished") & (rows["tokens"] == one["tokens"])
        measured = float(np.mean(rows[metric].to_numpy(float))) if ended.all() else None
        law = one["loss"]
        baselines = one["baselines"]
        means = {f"mean of law and {k}": (law["value"] + v) / 2 for k, v in baselines.items()}
        row = {"name": one["name"], **_phase(one), "runs": len(one["runs"])}
        row |= {"measured": measured, "predicted": {"law": law["value"], **baselines, **means}}
        covered = measured is not None and law["low"] <= measured <= law["high"]
        found.append(row | {"covered": covered})
    return found


def _phase(one: dict[str, Any]) -> dict[str, str]:
    """Return lr_phase and weights of a prediction; early registrations have one name for both."""
    if "ending" in one:
        return dict(zip(PHASE, PHASES.get(one["ending"], ("", "")), strict=True))
    return {name: one.get(name, "") for name in PHASE}


def _phase_name(one: dict[str, Any]) -> str:
    """Return the name of an LR phase and its weights, as in `bss.stats.LR_PHASES`."""
    return "averaged" if one["weights"] == "averaged" else one["lr_phase"]


def score(registration: dict[str, Any], outcomes: pd.DataFrame) -> dict[str, Any]:
    """Return scores per LR phase and over "all"; the embedded fit of a registration is not read.

    Returns:
        `schedules`, one entry each. `judged` has four scores per predictor: the median |error| (%
        of the measured loss), Spearman's rank correlation, RMS error over RMS spread of
        differences, and coverage of the interval. `compared` is the mean |error| minus the mean
        |error| of a baseline.
    """
    found = schedules(registration, outcomes)
    names = [_phase_name(one) for one in found]
    groups = [*dict.fromkeys(name for name in names if name), "all"]
    of = {
        group: [one for one, name in zip(found, names, strict=True) if group in (name, "all")]
        for group in groups
    }
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
    measured = np.array([one["measured"] for one in ended], float)
    judged = {}
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
        value = float(statistic(*values))
        draws = statistic(*(array[rows] for array in values))
    low, high = np.nanquantile(draws, ((1 - LEVEL) / 2, (1 + LEVEL) / 2), method="nearest")
    found = {"value": value, "low": min(low, value), "high": max(high, value)}
    known = {name: float(x) if np.isfinite(x) else None for name, x in found.items()}
    return {**known, "level": LEVEL}


def _differences(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    spread = np.std(measured, axis=-1)
    ratio = np.std(predicted - measured, axis=-1) / spread
    return np.where(spread > 1e-12 * np.mean(measured, axis=-1), ratio, np.nan)


def _centred_ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # of scores; training needs none of it

    ranks = rankdata(values, axis=-1)
    return ranks - ranks.mean(axis=-1, keepdims=True)


def _rank_correlation(predicted: np.ndarray, measured: np.ndarray) -> np.ndarray:
    a = _centred_ranks(predicted)
    b = _centred_ranks(measured)
    return (a * b).sum(axis=-1) / np.sqrt((a**2).sum(axis=-1) * (b**2).sum(axis=-1))


def main(arguments: list[str] | None = None) -> int:
    """Register or score from the command line; status 2 and one line for bad input."""
    parser = argparse.ArgumentParser(prog="experiments.preregister")
    parser.add_argument("command", choices=("register", "score", "state", "check"))
    parser.add_argument("name", nargs="?", help="name of the registration in results/predictions")
    parser.add_argument("table", nargs="?", type=Path, help="PREDICTED.csv, OUTCOMES.csv or .toml")
    parser.add_argument(
        "--config", action="append", default=[], metavar="FILE:PART", help="parts that decide"
    )
    parser.add_argument("--fit", type=Path, help="the fit that predicts; its hash is kept")
    parser.add_argument("--metric", default="eval_loss", help="final loss that is predicted")
    options = parser.parse_args(arguments)
    if options.command != "check" and options.table is None:
        parser.error(f"{options.command}: expected a NAME and a table")
    file = FOLDER / f"{options.name}.json"
    try:
        if options.command == "check":
            if reason := check_history():
                raise InputError(f"check: {reason}; clone it whole")
            lines = [*check()]
            print("\n".join(lines) or "every run came after its registration")
            return 1 if any(not line.startswith("note: ") for line in lines) else 0
        if options.command == "score":
            registration = read_json(file, "write one with `register`")
            table, origin = read_table(options.table)
            need(table, origin, "run", "status", "tokens", "commit", "registration")
            entry = {"commit": check_first(file, table), **score(registration, table)}
            print(json.dumps(entry, indent=1))
            return 0
        if options.command == "state":
            state(file, options.table, options.config)
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
