"""Fits E(S) again to the committed points of every experiment; nothing is trained.

    python -m experiments.refit              # results/*/fits.json; git diff tells what changed
    python -m experiments.refit results/demo

Schedules that were trained keep the law that they were made from: schedule.json and schedules.json
stay as they are.
"""

import argparse
from pathlib import Path
from typing import Any

from bss.files import write_json
from bss.laws.base import Options
from bss.tables import read_points
from bss.values import to_dict
from experiments.es_wsd_archive.measure import Laws, fit_laws
from experiments.second_moment.tables import SHOWN
from experiments.tables import Tables

RESULTS = Path("results")


def main() -> None:
    """Refits what is asked for, by default all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directories", nargs="*", type=Path)
    directories = parser.parse_args().directories
    for directory in directories or [RESULTS / name for name in KINDS]:
        fits = KINDS[str(directory.relative_to(RESULTS))](directory, _options(directory))
        write_json(directory / "fits.json", to_dict(fits))
        if (directory / "comparison.json").exists():
            first = next(iter(fits.values()))
            write_json(directory / "comparison.json", to_dict(first.comparison))


def _options(directory: Path) -> Options:
    return Options(Tables(directory).config.get("resamples", 500))


def _demo(directory: Path, options: Options) -> dict[str, Any]:
    return fit_laws(read_points(directory / "points.csv"), options).fits


def _by_kind_and_rates(directory: Path, options: Options) -> dict[str, Laws]:
    groups = Tables(directory).read("points.csv").groupby(["kind", "rates"], sort=False)
    return {
        f"{kind}, {rates}": fit_laws(points.reset_index(drop=True), options)
        for (kind, rates), points in groups  # type: ignore[misc]
    }


def _long(directory: Path, options: Options) -> Laws:
    return fit_laws(read_points(directory / "points.csv"), options, SHOWN)


KINDS = {
    "demo": _demo,
    "es_wsd": _by_kind_and_rates,
    "second_moment/long": _long,
}


if __name__ == "__main__":
    main()
