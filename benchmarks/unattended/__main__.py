"""Kill short runs and damage their files at random, and count the outcomes.

    python -m benchmarks.unattended --kills 200 --damages 500    # less than an hour of two cores

200 kills: 140 of one process, 40 of 4 vmapped runs, 14 of two processes, 6 of Ray workers (if
installed). `--part` selects some of these. The exit status is 1 if a damage was silent or crashed a
run, a curve differs, or a process or lock was left. It is also 1 if a full run has fewer than 100
kills after a second checkpoint, or fewer than 40 inside a save.
"""

import argparse
import random
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from benchmarks.unattended import damages, kills

LEAST = {"after a second checkpoint": 100, "inside a save": 40}
"""Of 200 kills and more; else it counts as a mistake."""
BAD = ("left running", "locked", "not finished", "rows missing", "beyond 2e-6")


def too_few(found: Mapping[str, int]) -> list[str]:
    """Return the kinds of kills of which a full run has too few, with their counts."""
    return [f"{found.get(k, 0)} of {n} {k}" for k, n in LEAST.items() if found.get(k, 0) < n]


def main() -> int:
    """Run the selected parts and print counts; return 1 on a failure."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--kills", type=int, default=0, help="number, split 140 : 40 : 14 : 6")
    names = ", ".join(kills.PARTS)
    parser.add_argument("--part", action="append", choices=kills.PARTS, help=f"kind: {names}")
    parser.add_argument("--damages", type=int, default=0)
    parser.add_argument("--seed", type=int, help="random seed; by default it is drawn and printed")
    options = parser.parse_args()
    seed = random.randrange(10**6) if options.seed is None else options.seed
    print(f"seed {seed}")
    wrong = 0
    all_kills = Counter[str]()
    with tempfile.TemporaryDirectory(prefix="unattended-") as name:
        if options.damages:
            start = time.time()
            folder = Path(name) / "damages"
            found = damages.measured(options.damages, folder, seed)
            wrong += sum(n for what, n in found.items() if what.startswith(("silent", "crashed")))
            print(f"{options.damages} damages, {time.time() - start:.0f} s: {found}", flush=True)
        for place, (part, share) in enumerate(kills.PARTS.items()):
            if part not in (options.part or kills.PARTS):
                continue
            if not (count := round(options.kills * share / 200)):
                continue
            if part == "Ray" and not find_spec("ray"):
                print(f"Ray: {count} kills left out, as Ray is not installed")
                continue
            start = time.time()
            folder = Path(name) / f"kills-{place}"
            found = kills.measured(part, count, folder, random.Random(seed + place))
            wrong += sum(found.get(what, 0) for what in BAD)
            all_kills.update(found)
            print(f"{part}, {time.time() - start:.0f} s: {found}", flush=True)
    if options.kills:
        print(f"all kills: {dict(all_kills)}")
    if options.kills >= 200 and not options.part and (short := too_few(all_kills)):
        print(f"too few of these kills for a full run: {', '.join(short)}")
        wrong += 1
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
