"""One process's cases, measured one after another; rows go to standard output as they come.

    python -m benchmarks.accelerator.measure JOB      # {"seconds": left, "cases": [...]}

Each line is {"case": its index, "row": {...}}. Output of compilers and libraries goes to standard
error.
"""

import datetime
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from types import MappingProxyType
from typing import Any, TextIO

import jax

from benchmarks.accelerator.cases import Case
from benchmarks.record import installed

MEASURES = MappingProxyType(
    {
        "machine": "steps:machine",
        "step": "steps:step",
        "gradients": "numbers:gradients",
        "repeats": "numbers:repeats",
        "ramp": "loops:ramp",
        "fleet": "loops:fleet",
    }
)
"""Each a generator of rows, given the settings of a case; loaded when it is measured."""

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "jax-cuda13-plugin")


def rows(cases: list[Case], until: float) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield rows with the index of their case; an error is a row too.

    A case is not begun with less time left than it takes, roughly.
    """
    for index, case in enumerate(cases):
        if time.monotonic() + case.seconds > until:
            continue  # the caller notes what has no row
        start = time.monotonic()
        try:
            module, function = MEASURES[case.what].split(":")
            loaded = importlib.import_module(f"benchmarks.accelerator.{module}")
            for numbers in getattr(loaded, function)(**case.settings):
                yield index, _row(case, numbers | {"took": round(time.monotonic() - start, 1)})
        except Exception as error:  # what one case dies of must not cost the others
            traceback.print_exc()
            message = (str(error).splitlines() or [""])[0]
            yield index, _row(case, {"error": f"{type(error).__name__}: {message}"})


def _row(case: Case, numbers: dict[str, Any]) -> dict[str, Any]:
    return {
        "what": case.what,
        **case.settings,
        **numbers,
        "device": jax.local_devices()[0].device_kind,
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "versions": {name: number for name in _PACKAGES if (number := installed(name))},
    }


def _standard_output() -> TextIO:
    """Return a copy of it; the original becomes standard error."""
    copy = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return copy


def main() -> None:
    """Measure the cases of a job."""
    job = json.loads(sys.argv[1])
    cases = [Case(**case) for case in job["cases"]]
    with _standard_output() as output:
        for index, row in rows(cases, time.monotonic() + job["seconds"]):
            print(json.dumps({"case": index, "row": row}), file=output)


if __name__ == "__main__":
    main()
