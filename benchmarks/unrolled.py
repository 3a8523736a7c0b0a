"""What a step of 85M moves by how its layers are computed, compiled for a GPU that is not here.

    python -m benchmarks.unrolled                       # all that is missing; then a table
    python -m benchmarks.unrolled --model 302M --output FILE

Nothing is measured: bytes are those of the compiled program's own text, which is tuned to no device
(docs/machines/absent.md). "plain" is the same kernel of attention with what lies between products
as it is on CPUs, and was on GPUs before `one_pass`. A row is saved as soon as it is compiled; the
same command continues. It needs the extras aot-gpu and aot-cudnn.
"""

import argparse
import dataclasses
import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

from benchmarks.accelerator.trainer import run_of
from benchmarks.compiled import versions
from bss.files import read_json, write_json
from bss.machines.absent import Machine, machine
from bss.models.family import Keep
from bss.models.transformer.attention import KERNELS
from bss.provenance import commit
from bss.training.aot.compiled import examine
from bss.training.execution import Execution

RESULTS = Path("benchmarks/results/unrolled.json")
UNROLL = (0, 1, 2, 4, 3, 6)
SEQ_LEN = 1024
PLAIN = dataclasses.replace(KERNELS["cudnn"], fused=False)
POOL = 0.75
"""Of a GPU's memory, what JAX gives programs where nobody says otherwise."""


def variants() -> Iterator[dict[str, Any]]:
    """How layers are computed, as fields of an execution."""
    for unroll, keep in itertools.product(UNROLL, get_args(Keep)[::-1]):
        yield {"attention": "cudnn", "unroll": unroll, "keep": keep}
    for unroll, keep in ((1, "nothing"), (1, "all"), (0, "all")):
        yield {"attention": f"{__spec__.name}:PLAIN", "unroll": unroll, "keep": keep}


def compiled(model: str, bucket: int, how: dict[str, Any], on: Machine) -> dict[str, Any]:
    """The row of a variant."""
    run, execution = run_of(model, SEQ_LEN), Execution(**how)
    start = time.process_time()
    one = next(examine(run, {bucket: 1}, execution, on))
    seconds = time.process_time() - start
    reading = one.reading
    assert reading is not None and one.expected is not None and on.target is not None
    rest = reading.bytes - reading.product_bytes - reading.attention_bytes
    return {
        **how,
        "peak_bytes": one.memory.peak_bytes,
        "fits_default_pool": one.memory.peak_bytes <= on.target.pool(POOL),
        "flops": reading.flops,
        "product_bytes": reading.product_bytes,
        "attention_bytes": reading.attention_bytes,
        "rest_bytes": rest,
        "expected_seconds": one.expected.seconds,
        "compile_cpu_seconds": round(seconds, 1),
        "commit": commit(),
    }


def table(rows: list[dict[str, Any]]) -> str:
    """Rows as Markdown, the loop over layers first, that without one last."""
    rows = sorted(rows, key=lambda row: (row["attention"] == "cudnn", row["unroll"] or math.inf))
    lines = [
        "| | unroll | keep | peak GB | TFLOP | products GB | attention GB | rest GB | expected ms "
        "| compiled in CPU s |",
        f"|{'---|' * 10}",
    ]
    for row in rows:
        sizes = (row[f"{kind}_bytes"] / 1e9 for kind in ("product", "attention", "rest"))
        cells = (
            "" if row["attention"] == "cudnn" else "plain",
            *(row["unroll"] or "all", row["keep"], f"{row['peak_bytes'] / 1e9:.1f}"),
            *(f"{row['flops'] / 1e12:.1f}", *(f"{size:.1f}" for size in sizes)),
            *(f"{1e3 * row['expected_seconds']:.1f}", row["compile_cpu_seconds"]),
        )
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def main() -> None:
    """Compiles what is missing, and prints all."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])  # type: ignore[union-attr]
    parser.add_argument("--model", default="85M")
    parser.add_argument("--bucket", type=int, default=32)
    parser.add_argument("--output", type=Path, default=RESULTS)
    options = parser.parse_args()
    on, path = machine("h100:1"), options.output
    key = {"model": options.model, "bucket": options.bucket, "versions": versions()}
    rows = read_json(path, "delete it to begin anew")["rows"] if path.is_file() else []
    for how in variants():
        if not any(how.items() <= row.items() for row in rows):
            rows.append(compiled(options.model, options.bucket, how, on))
            write_json(path, {**key, "machine": on.name, "seq_len": SEQ_LEN, "rows": rows})
    print(table(rows))


if __name__ == "__main__":
    main()
