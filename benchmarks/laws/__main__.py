"""What fits say of planted data, by laws that are not the package's.

    python -m benchmarks.laws --planted                  # writes benchmarks/results/laws.json
    python -m benchmarks.laws --planted --part tables    # only these, the others are kept

A part is a file with `measured(seeds)`, which gives numbers as a dict, and `lines(told)`, which
prints them.
"""

import argparse
import importlib
import json
import time
from pathlib import Path

from bss.files import write_json

RESULT = Path(__file__).parents[1] / "results" / "laws.json"
PARTS = ("tables", "curves")
SEEDS = range(5)


def main() -> None:
    """Measures the parts that are asked for, prints them and saves them beside the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--planted", action="store_true", required=True, help="planted data")
    parser.add_argument("--part", choices=(*PARTS, "all"), default="all")
    options = parser.parse_args()
    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    for name in PARTS if options.part == "all" else (options.part,):
        start, part = time.time(), importlib.import_module(f"benchmarks.laws.{name}")
        told = part.measured(SEEDS)
        print(f"{name}, generator seeds {SEEDS[0]} to {SEEDS[-1]}", *part.lines(told), sep="\n")
        found[name] = {"seeds": len(SEEDS), "minutes": round((time.time() - start) / 60, 1)} | told
        write_json(RESULT, found)


if __name__ == "__main__":
    main()
