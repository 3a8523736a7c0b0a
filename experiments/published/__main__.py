"""Derive tables and answers from published measurements.

python -m experiments.published                  # from results/published alone
python -m experiments.published --tables DIR     # also from tables without a licence, in DIR
"""

import argparse
from pathlib import Path

import pandas as pd

from experiments.published import critical, tuning
from experiments.published.analysis import DERIVED, exponents, ramp_pairs, ramps
from experiments.published.answers import FINDINGS, answered
from experiments.published.atlas import ATLAS, atlas


def _write(name: str, table: pd.DataFrame) -> None:
    table.to_csv(DERIVED / f"{name}.csv", index=False, float_format="%.4g")


def _write_rates(runs: dict[str, pd.DataFrame]) -> None:
    """Write the tables of best LRs; other sources and the order of sources stay as they were."""
    for name, numbers in (("lr_powers", tuning.lr_powers), ("kept_lr", tuning.kept_lr)):
        known = _committed(DERIVED / f"{name}.csv")
        found = {source: numbers(source, table) for source, table in runs.items()}
        _write(name, pd.concat((known | found).values()))


def _committed(file: Path) -> dict[str, pd.DataFrame]:
    """Return the rows of each source of a table of best LRs."""
    if not file.exists():
        return {}
    table = pd.read_csv(file)
    return {str(source): rows for source, rows in table.groupby("source", sort=False)}


def derive(tables: Path | None) -> None:
    """Write the derived tables; those of tables without a licence only if `tables` has these."""
    _write("exponents", exponents())
    _write("ramps", ramps())
    _write("ramp_pairs", ramp_pairs())
    points = critical.points_8b()
    _write("minimum_8b", critical.smallest_against_next(points))
    found = critical.critical(points)
    _write("critical", found)
    _write("soonest_8b", critical.soonest(found))
    _write("beta2_gains", tuning.beta2_gains())
    _write_rates({"step-law table": tuning.steplaw()})
    if tables is None:
        return
    names = {"openeurollm": "openeurollm.csv", "psgd-h": "psgdh_rates.csv"}
    _write_rates({name: pd.read_csv(tables / file, comment="#") for name, file in names.items()})
    _write("penalties", tuning.penalties(tables / "optimizer_batch.csv"))
    _write("branches", tuning.branches(tables / "muon_branch_ends.csv"))
    _write("ramp_steps", tuning.ramp_steps(tables / "nanogpt_ramp_curves.csv"))


def main() -> None:
    """Write the derived tables, findings.csv and atlas.csv."""
    parser = argparse.ArgumentParser(description="Derive tables from published measurements.")
    parser.add_argument("--tables", type=Path, help="directory of the tables without a licence")
    DERIVED.mkdir(exist_ok=True)
    derive(parser.parse_args().tables)
    answered().to_csv(FINDINGS, index=False)
    atlas().to_csv(ATLAS, index=False, float_format="%.6g")


if __name__ == "__main__":
    main()
