"""Bytes that a step's compiled program moves, by the sizes of its instructions.

    python -m benchmarks.moved --on h100:1 --bucket 32                  # 85M, 1024 tokens
    python -m benchmarks.moved --on h100:1 --bucket 32 --logits bfloat16
    python -m benchmarks.moved --passes 60      # the largest, with all that a fusion writes

Nothing is run, and the machine need not be present. Each instruction outside of fusions counts its
operands and its result once, and a loop as often as it is known to turn. A loop over micro-batches
counts once. What caches hold is not known, so that this is an upper bound.
"""

import argparse
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace

from bss.cli.quiet import quiet_stderr
from bss.machines.absent import devices_of
from bss.models.sizes import named
from bss.training.execution import Execution, compiler_options
from bss.training.programs import step_programs
from bss.training.run_config import DataConfig, RunConfig
from bss.training.sharding import mesh_of
from bss.training.step import state_shapes

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "f16": 2, "bf16": 2, "s32": 4, "u32": 4}
BYTES |= {"f32": 4, "s64": 8, "u64": 8, "f64": 8}
ARRAY = re.compile(r"\b([a-z]+\d*)\[([\d,]*)\]")
LINE = re.compile(r"\s*(?:ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)")
Label = Callable[[str, str, str, str], str]
"""Maps an instruction's name, shape, kind and the rest of its line to what it is counted as."""
FREE = {"parameter", "constant", "tuple", "get-tuple-element", "bitcast", "iota", "after-all"}


def by_kind(name: str, shape: str, kind: str, rest: str) -> str:
    """Return the kind of an instruction: of a custom call its target."""
    target = re.search(r'custom_call_target="([^"]+)"', rest)
    return target[1] if target else kind


def by_pass(name: str, shape: str, kind: str, rest: str) -> str:
    """Return the name of an instruction without its number, and the arrays that it writes."""
    arrays = ", ".join(f"{dtype}[{dims}]" for dtype, dims in ARRAY.findall(shape))
    return f"{re.sub(r'[.][0-9.]+$', '', name)} -> {arrays}"


def moved(text: str, label: Label = by_kind) -> Counter[str]:
    """Return the bytes moved by label of an instruction, of the text of a compiled module."""
    computations = dict(_computations(text))
    entry = re.search(r"^ENTRY %?([\w.-]+)", text, re.MULTILINE)
    if entry is None:
        raise ValueError("the module has no entry")
    return _of(entry[1], computations, label)


def _computations(text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the name and the lines of each computation."""
    name = ""
    lines: list[str] = []
    for line in text.splitlines():
        header = re.match(r"(?:ENTRY )?%?([\w.-]+) \(.*\{$", line)
        if header:
            name = header[1]
            lines = []
        elif line.startswith("}"):
            yield name, lines
        else:
            lines.append(line)


def _of(name: str, computations: dict[str, list[str]], label: Label) -> Counter[str]:
    sizes: dict[str, int] = {}
    found: Counter[str] = Counter()
    for line in computations[name]:
        match = LINE.match(line)
        if match is None:
            continue
        result, shape, kind, rest = match.groups()
        sizes[result] = _bytes(shape)
        if kind == "while":
            turns = re.search(r'known_trip_count":\{"n":"(\d+)"', rest)
            count = int(turns[1]) if turns else 1
            each = _of(_called(rest, "body"), computations, label)
            found.update({key: count * size for key, size in each.items()})
        elif kind == "call":
            found.update(_of(_called(rest, "to_apply"), computations, label))
        elif kind not in FREE:
            operands = re.findall(r"%([\w.-]+)", rest.partition(")")[0])
            size = sizes[result] + sum(sizes[operand] for operand in operands)
            found[label(result, shape, kind, rest)] += size
    return found


def _called(rest: str, role: str) -> str:
    """Return the computation that an instruction calls."""
    match = re.search(rf"{role}=%?([\w.-]+)", rest)
    if match is None:
        raise ValueError(f"no {role} in {rest}")
    return match[1]


def _bytes(shape: str) -> int:
    arrays = ARRAY.findall(shape)
    return sum(
        BYTES.get(kind, 4) * math.prod(map(int, filter(None, dims.split(","))))
        for kind, dims in arrays
    )


def main() -> None:
    """Compile the step and print the bytes."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--on", default="h100:1", help="machine, as of `bss compile`")
    parser.add_argument("--size", default="85M", help="name of a model")
    parser.add_argument("--seq-len", type=int, default=1024, help="tokens of a sequence")
    parser.add_argument("--bucket", type=int, default=32, help="sequences of the micro-batch")
    parser.add_argument("--logits", default="float32", help="float32 or bfloat16")
    parser.add_argument("--passes", type=int, default=0, help="largest passes to list")
    options = parser.parse_args()
    with quiet_stderr():
        mesh = mesh_of(devices_of(options.on), 1)
        model = replace(named(options.size), dtype="bfloat16", remat=True, scan_layers=True)
        run = RunConfig(model, DataConfig(seq_len=options.seq_len))
        execution = Execution(logits_dtype=options.logits)
        programs = step_programs(
            run,
            state_shapes(run, mesh),
            {options.bucket: 1},
            mesh,
            compiler_options(execution, mesh),
            attention=execution.attention_of(run, mesh),
            layers=execution.layers_of(run, mesh),
        )
        program = programs[options.bucket].result()
    text = program.as_text()
    found = moved(text)
    print(f"{sum(found.values()) / 1e9:.1f} GB moved, ", end="")
    print(f"{program.memory_analysis().temp_size_in_bytes / 1e9:.1f} GB of temporaries")
    print(", ".join(f"{name} {size / 1e9:.2f}" for name, size in found.most_common(5)))
    for name, size in moved(text, by_pass).most_common(options.passes):
        print(f"{size / 1e9:6.2f} GB  {name}")


if __name__ == "__main__":
    main()
