"""Derive tables from published measurements.

python -m experiments.published                  # from results/published alone
python -m experiments.published --tables DIR     # also from tables without a licence, in DIR
"""

import argparse
from pathlib import Path

from experiments.published.analysis import DERIVED, exponents, penalties, ramps


def main() -> None:
    """Write the derived tables."""
    parser = argparse.ArgumentParser(description="Derive tables from published measurements.")
    parser.add_argument("--tables", type=Path, help="directory of the tables without a licence")
    tables = parser.parse_args().tables
    DERIVED.mkdir(exist_ok=True)
    exponents().to_csv(DERIVED / "exponents.csv", index=False, float_format="%.4g")
    ramps().to_csv(DERIVED / "ramps.csv", index=False, float_format="%.4g")
    if tables:
        found = penalties(tables / "optimizer_batch.csv")
        found.to_csv(DERIVED / "penalties.csv", index=False, float_format="%.4g")


if __name__ == "__main__":
    main()
