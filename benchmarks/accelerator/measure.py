"""One process's cases, measured one after another; rows go to standard output as they come.

    python -m benchmarks.accelerator.measure < JOB      # {"seconds": left, "cases": [...]}

Each line is {"case": its index, "row": {...}}, the row null where the case begins. What compilers
and others print goes to standard error.
"""

import datetime
import importlib
import json
import os
import sys
import time
import traceback
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, version
from types import MappingProxyType
from typing import Any, TextIO

from benchmarks.accelerator.cases import Case

MEASURES = MappingProxyType(
    {
        "machine": "steps:machine",
        "step": "steps:step",
        "gradients": "numbers:gradients",
        "repeats": "numbers:repeats",
        "host": "numbers:host",
        "ramp": "loops:ramp",
        "fleet": "loops:fleet",
        "torch": "torch_rival:rival",
    }
)
"""Each a generator of rows, given the settings of a case; loaded when it is measured."""

_PACKAGES = ("jax", "jaxlib", "flax", "optax", "numpy", "torch", "jax-cuda13-plugin")


def rows(cases: list[Case], until: float) -> Iterator[tuple[int, dict[str, Any] | None]]:
    """Rows with the index of their case, before them None; an error is a row too.

    A case is not begun with less time left than it takes at a guess.
    """
    for index, case in enumerate(cases):
        if time.monotonic() + case.seconds > until:
            continue  # whoever asked notes what has no row
        yield index, None
        start = time.monotonic()
        try:
            module, function = MEASURES[case.what].split(":")
            loaded = importlib.import_module(f"benchmarks.accelerator.{module}")
            for numbers in getattr(loaded, function)(**case.settings):
                yield index, _row(case, numbers | {"took": round(time.monotonic() - start, 1)})
        except ModuleNotFoundError as error:
            yield index, _row(case, {"not_measured": f"{error.name} is not installed"})
        except Exception as error:  # what one case dies of must not cost the others
            traceback.print_exc()
            message = (str(error).splitlines() or [""])[0]
            yield index, _row(case, {"error": f"{type(error).__name__}: {message}"})


def _row(case: Case, numbers: dict[str, Any]) -> dict[str, Any]:
    return {"what": case.what, **case.settings, **numbers, **_provenance(case.what)}


def _provenance(what: str) -> dict[str, Any]:
    return {
        "device": _device("torch_rival" if what == "torch" else "trainer"),
        "date": datetime.datetime.now().isoformat(timespec="seconds"),
        "versions": {package: number for package in _PACKAGES if (number := _version(package))},
    }


def _device(module: str) -> str | None:
    try:
        return importlib.import_module(f"benchmarks.accelerator.{module}").device_name()
    except ModuleNotFoundError:
        return None


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _standard_output() -> TextIO:
    """A copy of it; the original becomes standard error."""
    copy = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    return copy


def main() -> None:
    """Measures the cases of a job."""
    job = json.load(sys.stdin)
    cases = [Case(**case) for case in job["cases"]]
    with _standard_output() as output:
        for index, row in rows(cases, time.monotonic() + job["seconds"]):
            print(json.dumps({"case": index, "row": row}), file=output)


if __name__ == "__main__":
    main()
