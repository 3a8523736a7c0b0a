"""The command: which shapes on how many cores, and the table of what was measured."""

import argparse
import dataclasses
import math
import os
import sys
from collections.abc import Sequence
from typing import Any

from benchmarks import step
from benchmarks.race import Variant, race
from benchmarks.record import Row, gpu_users, head, installed, ratio, save, table, told
from benchmarks.step.shapes import SHAPES, TINY, Shape, check_cores, named
from bss import install
from bss.errors import InputError
from bss.machines.slots import gpus
from bss.provenance import machine

OURS = {"1 step": 1, "8 steps": 8}
"""Ours, by steps a dispatch."""
RIVALS = ("eager", "compile", "max-autotune", "flax")
HUGE = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""As the workers of a sweep have it; all variants here."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Measures, prints and saves; returns the status of the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=step.__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--shapes", default="", help=f"of {', '.join(SHAPES)}")
    add("--cores", default="1,2", help="how many, in a list with commas")
    add("--seconds", type=float, default=25.0, help="of each shape, beside what is compiled")
    add("--max-autotune", action="store_true", help="torch.compile's slowest search too")
    options = parser.parse_args(arguments)
    try:
        result = measured(options)
    except InputError as error:
        print(f"benchmarks.step: {error}", file=sys.stderr)
        return 2
    print(shown(result))
    save("step", result)
    return 0


def measured(options: argparse.Namespace) -> Row:
    """The whole result: a row for each shape and number of cores."""
    if not options.seconds > 0:
        raise InputError(f"--seconds: {options.seconds:g}; write a positive number")
    rows, present = [], sorted(os.sched_getaffinity(0))
    asked = _numbers(options.cores)
    check_cores(asked, len(present))
    for name in named(options.shapes):
        shape = (SHAPES | TINY)[name]
        for cores in (0,) if shape.gpu else asked:
            row = {"shape": name, **({} if shape.gpu else {"cores": cores})}
            print(f"{name}: {cores or 'GPU'} ...", file=sys.stderr, flush=True)
            rows.append(row | _row(shape, present[-cores:], cores, options))
    device = machine()  # last: it takes a GPU's memory
    more = {"seconds": options.seconds, "environment": HUGE, "note": gpu_users()}
    return head("python -m benchmarks.step", device, **more, table=rows)


def _numbers(text: str) -> list[int]:
    try:
        return [int(one) for one in text.split(",")]
    except ValueError:
        raise InputError(f"--cores: {text!r}; write numbers, as 1,2") from None


def _row(shape: Shape, on: list[int], cores: int, options: argparse.Namespace) -> Row:
    """What was measured of a shape, or why it was not."""
    if shape.gpu and not gpus():
        return {"not_measured": "no NVIDIA GPU is here"}
    if len(on) < cores:
        return {"not_measured": f"this process may use only {len(on)} core"}
    variants = _variants(shape, options.max_autotune)
    found = race(variants, on, options.seconds)
    told = found["variants"]
    times = {name: one["seconds"] for name, one in told.items() if one.get("seconds")}
    for one in told.values():
        if one.get("seconds"):
            one["tokens_per_second"] = round(shape.tokens / sorted(one["seconds"])[len(one["seconds"]) // 2])
    ratios = {
        ours: {rival: ratio(times[rival], times[ours]) for rival in RIVALS if rival in times}
        for ours in OURS
        if ours in times
    }
    return found | {"ratios": ratios}


def _variants(shape: Shape, max_autotune: bool) -> list[Variant]:
    fields, module = dataclasses.asdict(shape), "benchmarks.step"
    ours = [
        Variant(name, f"{module}.ours:ours", {"steps_a_dispatch": steps, **fields}, unit=steps)
        for name, steps in OURS.items()
    ]
    modes = RIVALS[: 3 if max_autotune else 2]
    torch = [Variant(m, f"{module}.torch_rival:rival", {"mode": m, **fields}) for m in modes]
    variants = [*ours, *torch, Variant("flax", f"{module}.plain:plain", fields)]
    return [dataclasses.replace(one, environment=HUGE) for one in variants]


def shown(result: Row) -> str:
    """The result as a table, with what was not measured, and why, beneath."""
    columns = ("shape", "cores", "ours", "tokens/s", *(f"× {rival}" for rival in RIVALS))
    rows, notes = [], [result["note"]] if result["note"] else []
    for row in result["table"]:
        on = f"{row['shape']}, {row.get('cores', 'GPU')}"
        if "not_measured" in row:
            notes.append(f"{on}: not measured: {row['not_measured']}")
            continue
        for ours, against in row["ratios"].items():
            speed = f"{row['variants'][ours]['tokens_per_second']:,}"
            cells = (told(against.get(rival)) for rival in RIVALS)
            rows.append((row["shape"], str(row.get("cores", "GPU")), ours, speed, *cells))
    return "\n".join([table(columns, rows), *notes])


if __name__ == "__main__":
    sys.exit(main())
