"""What the laws say of runs that they have not seen: public tables, and planted data.

    python -m benchmarks.laws                    # public tables, beside published scores
    python -m benchmarks.laws --planted          # planted data, by laws that are not the package's
    python -m benchmarks.laws --part tables      # only this part, the others are kept
    python -m benchmarks.laws --planted --seeds 5 9     # of other generator seeds

What is found goes to benchmarks/results/laws.json. A part is a file with `measured(seeds)`, which
gives numbers as a dict, and `lines(told)`, which prints them.
"""

import argparse
import importlib
import json
import time
from pathlib import Path

from bss.files import write_json

RESULT = Path(__file__).parents[1] / "results" / "laws.json"
PUBLIC, PLANTED = ("rates",), ("tables", "curves", "schedules")
SEEDS = 0, 4  # first and last


def main() -> None:
    """Measures the parts that are asked for, prints them and saves them beside the others."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--planted", action="store_true", help="planted data")
    parser.add_argument("--part", choices=(*PUBLIC, *PLANTED, "all"), default="all")
    text = "of the planted data: the first and the last"
    parser.add_argument("--seeds", type=int, nargs=2, default=SEEDS, help=text)
    options = parser.parse_args()
    first, last = options.seeds
    seeds = range(first, last + 1)
    parts = (options.part,) if options.part != "all" else PLANTED if options.planted else PUBLIC
    found = json.loads(RESULT.read_text()) if RESULT.is_file() else {}
    for name in parts:
        start, part = time.time(), importlib.import_module(f"benchmarks.laws.{name}")
        told = part.measured(seeds)
        if name in PLANTED:
            print(f"{name}, generator seeds {first} to {last}")
            told = {"seeds": [first, last], "minutes": round((time.time() - start) / 60, 1)} | told
        print(*part.lines(told), sep="\n")
        found[name] = told
        write_json(RESULT, found)


if __name__ == "__main__":
    main()
