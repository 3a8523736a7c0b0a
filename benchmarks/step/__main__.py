"""The command: which shapes on how many cores, and the cells of what was measured."""

import argparse
import dataclasses
import math
import statistics
import sys
from collections.abc import Iterator, Sequence

from benchmarks import step
from benchmarks.command import MACHINE, Benchmark, machine_cells, pinned
from benchmarks.race import Variant, race
from benchmarks.record import Row, installed, present_cores, ratio, told
from benchmarks.step.shapes import SHAPES, TINY, Shape, named
from bss.installation import install
from bss.training.hardware import gpus

RIVALS = ("eager", "compile", "flax")
WITHOUT = {"not_measured": f"torch is not installed; {install('torch')}"}
WARM = 8
"""Steps before the first turn; the losses after them are compared."""


def measured(options: argparse.Namespace) -> Iterator[Row]:
    """Yield a row for each shape and number of cores."""
    for name in named(options.shapes):
        shape = (SHAPES | TINY)[name]
        if shape.gpu:
            on = present_cores()
            why = {} if gpus() else {"not_measured": "no NVIDIA GPU is here"}
            yield {"shape": name, **(why or _raced(shape, on, options))}
            continue
        for start, on in pinned(options.cores):
            more = {} if "not_measured" in start else _raced(shape, on, options)
            yield {"shape": name, **start, **more}


def _raced(shape: Shape, on: list[int], options: argparse.Namespace) -> Row:
    """Return all variants in one race; on a GPU, with its limited memory, one race per rival."""
    ours, rivals = _variants(shape, len(on))
    races = [[*ours, one] for one in rivals] if shape.gpu else [[*ours, *rivals]]
    without = {} if installed("torch") else dict.fromkeys(("eager", "compile"), WITHOUT)
    names = [one.name for one in ours]
    row = Row(variants=without, ratios={})
    for variants in races:
        found = race(variants, on, options.seconds, options.rounds)
        row["ratios"] |= _ratios(names, found["variants"])
        row = {**found, "variants": found["variants"] | row["variants"], "ratios": row["ratios"]}
    row["ours"] = names
    row["apart"] = _apart(row["variants"])
    for one in row["variants"].values():
        if one.get("seconds"):
            one["tokens_per_second"] = round(shape.tokens / statistics.median(one["seconds"]))
    return row


def _apart(variants: Row) -> float | None:
    """Return the difference of losses after a few steps: only seeds differ if all train one model.

    Infinite if a loss is not finite.
    """
    losses = [one["warm"] for one in variants.values() if "warm" in one]
    if not all(map(math.isfinite, losses)):
        return math.inf
    return round(max(losses) / min(losses) - 1, 4) if losses else None


def _of_ours(shape: Shape) -> dict[str, int]:
    """Return the names of our variants, and their steps per dispatch; only one fits a GPU."""
    one = {"1 step": 1}
    if shape.gpu or shape.several == 1:
        return one
    return one | {f"{shape.several} steps": shape.several}


def _ratios(names: Sequence[str], variants: Row) -> Row:
    """Return our speed relative to each rival, by "OURS / RIVAL"."""
    times = {name: one["seconds"] for name, one in variants.items() if one.get("seconds")}
    return {
        f"{ours} / {rival}": ratio(times[rival], times[ours])
        for ours in names
        for rival in RIVALS
        if ours in times and rival in times
    }


def _variants(shape: Shape, cores: int) -> tuple[list[Variant], list[Variant]]:
    """Ours and the rivals."""
    fields = dataclasses.asdict(shape)
    module = "benchmarks.step"
    how = fields | {"cores": cores}
    ours = [
        Variant(name, f"{module}.ours:ours", how | {"steps_a_dispatch": count}, count, WARM)
        for name, count in _of_ours(shape).items()
    ]
    rivals = [
        Variant(mode, f"{module}.torch_rival:rival", {"mode": mode, **fields}, warm=WARM)
        for mode in (RIVALS[:-1] if installed("torch") else ())
    ]
    return ours, [*rivals, Variant("flax", f"{module}.plain:plain", fields, warm=WARM)]


def cells(row: Row) -> list[Sequence[str]]:
    """Return a line for each of ours."""
    return [
        (
            row["shape"],
            str(row.get("cores", "GPU")),
            ours,
            f"{row['variants'][ours]['tokens_per_second']:,}",
            *(told(row["ratios"].get(f"{ours} / {rival}")) for rival in RIVALS),
            *machine_cells(row),
        )
        for ours in row["ours"]
        if row["variants"].get(ours, {}).get("seconds")
    ]


def _add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--shapes", default="", help=f"shapes, e.g. {','.join(SHAPES)}")


BENCHMARK = Benchmark(
    "step",
    step.__doc__ or "",
    measured,
    ("shape", "cores", "steps a dispatch", "tokens/s", *(f"× {one}" for one in RIVALS), *MACHINE),
    cells,
    seconds=16.0,
    cores="1,2",
    add=_add,
)

if __name__ == "__main__":
    sys.exit(BENCHMARK.main())
