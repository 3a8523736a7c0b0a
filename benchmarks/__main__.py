"""`make bench`: step, ramp and start, one after another; `--only NAME` for any.

python -m benchmarks                       # 10 to 15 minutes on two cores
python -m benchmarks --max-autotune        # with torch.compile's longest search
python -m benchmarks --only sweep,storage
"""

import argparse
import importlib
import sys
from collections.abc import Sequence

DEFAULT = ("step", "ramp", "start")
NAMES = (*DEFAULT, "sweep", "answers", "imports", "storage", "buckets")


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs benchmarks; returns the first status that is not 0.

    Options that are not its own are those of the benchmark, where it is one.
    """
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--only", default="", help=f"of {', '.join(NAMES)}, with commas")
    parser.add_argument("--max-autotune", action="store_true", help="of the step's")
    options, others = parser.parse_known_args(arguments)
    names = options.only.split(",") if options.only else [*DEFAULT]
    if unknown := [name for name in names if name not in NAMES]:
        print(f"benchmarks: --only {unknown[0]}: expected {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if others and len(names) > 1:
        message = f"benchmarks: {others[0]}: is of one benchmark; name it by --only"
        print(message, file=sys.stderr)
        return 2
    for name in names:
        print(f"\n{name}", flush=True)
        more = ["--max-autotune"] if options.max_autotune and name == "step" else []
        benchmark = importlib.import_module(
            "benchmarks.step.__main__" if name == "step" else f"benchmarks.{name}"
        ).BENCHMARK
        if status := benchmark.main([*more, *others]):
            return status
    return 0


if __name__ == "__main__":
    sys.exit(main())
