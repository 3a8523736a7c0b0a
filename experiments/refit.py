"""Fits E(S) again to the committed points of every experiment; nothing is trained.

    python -m experiments.refit              # results/*/fits.json, with what changed as it goes
    python -m experiments.refit results/demo

Schedules that were trained keep the law that they were made from: schedule.json and schedules.json
stay as they are.
"""

import argparse
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from bss.files import read_json, write_json
from bss.laws.fitting.estimate import Options
from bss.tables import read_points
from bss.values import to_dict
from experiments.es_ablations.measure import fitted as of_variation
from experiments.es_wsd.measure import Laws, fit_laws
from experiments.second_moment.e_of_s import fitted as of_long

RESULTS = Path("results")
HINT = "run the experiment again"
DIGITS = 3


def main() -> None:
    """Refits what is asked for, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="*", type=Path)
    asked = parser.parse_args().directories
    for directory in asked or [RESULTS / name for name in KINDS]:
        was = read_json(directory / "fits.json", HINT)
        made = KINDS[str(directory.relative_to(RESULTS))](directory, _options(directory))
        write_json(directory / "fits.json", to_dict(made))
        if (directory / "comparison.json").exists():
            first = next(iter(made.values()))
            write_json(directory / "comparison.json", to_dict(first.comparison))
        for line in _moved(dict(_optima(was)), dict(_optima(to_dict(made)))):
            print(f"{directory}: {line}", flush=True)


def _options(directory: Path) -> Options:
    config = read_json(directory / "experiment.json", HINT)["config"]
    return Options(config.get("resamples", 500))


def _demo(directory: Path, options: Options) -> dict[str, Any]:
    return fit_laws(read_points(directory / "points.csv"), options).fits


def _by_kind_and_rates(directory: Path, options: Options) -> dict[str, Laws]:
    table = pd.read_csv(directory / "points.csv", dtype={"run": str})
    groups = table.groupby(["kind", "rates"], sort=False)
    return {
        f"{kind}, {rates}": fit_laws(points.reset_index(drop=True), options)
        for (kind, rates), points in groups  # type: ignore[misc]
    }


def _by_variation(directory: Path, options: Options) -> dict[str, Any]:
    table = pd.read_csv(directory / "points.csv", dtype={"run": str})
    names = list(read_json(directory / "fits.json", HINT))
    # Each variation's points follow another's, of one kind after the other.
    sort = table["kind"] + table["model"]
    block = np.cumsum(sort.to_numpy() != np.roll(sort.to_numpy(), 1))
    parts = [table.loc[block == i].reset_index(drop=True) for i in np.unique(block)]
    found: dict[str, Any] = {}
    for name, part in zip([n for n in names for _ in range(2)], parts, strict=True):
        found.setdefault(name, {})[part["kind"].iloc[0]] = of_variation(part, options)
    return found


def _long(directory: Path, options: Options) -> dict[str, Any]:
    return of_long(read_points(directory / "points.csv"), options)


KINDS = {
    "demo": _demo,
    "es_wsd": _by_kind_and_rates,
    "es_ablations": _by_variation,
    "second_moment/long": _long,
}


def _optima(entry: Any, names: tuple[str, ...] = ()) -> Iterator[tuple[str, str]]:
    """B_opt of every fit at every target, as text, by where it stands."""
    if not isinstance(entry, dict):
        return
    if entry.get("kind") == "es":
        for at in entry["fits"]:
            best = at.get("B_opt")
            if best is not None:
                told = "unidentified" if best["value"] is None else f"{best['value']:.{DIGITS}g}"
                ends = [f"{best[e]:.{DIGITS}g}" if best[e] else "" for e in ("low", "high")]
                yield f"{', '.join(names)} at {at['target_loss']:g}", f"{told} ({' – '.join(ends)})"
        return
    for name, value in entry.items():
        inside = names if name in ("fits", "fit") else (*names, name)
        yield from _optima(value, inside)


def _moved(was: dict[str, str], now: dict[str, str]) -> list[str]:
    keys = dict.fromkeys([*was, *now])
    return [f"{key}: {was.get(key, '–')} -> {now.get(key, '–')}" for key in keys]


if __name__ == "__main__":
    main()
