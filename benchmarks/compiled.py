"""What gpu and paper configs take of the machines that they name: results/compiled.json.

    python -m benchmarks.compiled                                  # all that is missing
    python -m benchmarks.compiled configs/es_wsd.py:gpu            # of some configs

One program at a time, saved as soon as it is compiled: the same command continues. No device is
needed, but the extras that compile for it: aot-gpu and aot-cudnn, aot-tpu. It prints what does not
fit.
"""

import argparse
import importlib.metadata
import sys
from pathlib import Path
from typing import Any

from bss.files import read_json, write_json
from bss.machines.absent import Machine, machine
from bss.sweeps.programs import COMPILED, Job, jobs, keys, program_of, setup_of
from bss.sweeps.reading import read_config
from bss.training.aot.compiled import examine
from configs import papers

CONFIGS = (
    *("configs/es_wsd.py:gpu", "configs/es_ablations.py:gpu", "configs/late_switch.py:gpu"),
    *("configs/es_wsd.py:paper", "configs/late_switch.py:paper", "configs/critical_batch.py:paper"),
    *("configs/critical_batch.py:gpu", "configs/ladder.py:es_4.7M", "configs/ladder.py:large"),
    "configs/ladder.py:width_gpu",
    *(f"configs/papers.py:{size}" for size in papers.SIZES),
)
PACKAGES = {"jax", "jaxlib", "jax-cuda13-pjrt", "nvidia-cudnn-cu13", "libtpu"}


def versions() -> dict[str, str]:
    """Of what compiles, as far as it is installed."""
    there = importlib.metadata.distributions()
    return {one.name: one.version for one in there if one.name in PACKAGES}


def compiled(job: Job, key: dict[str, Any], on: Machine) -> dict[str, Any]:
    """The row of a program: its key, and what it takes and does."""
    capacity = {key["bucket"]: 1} if key["program"] == "train" else {}
    entry = next(examine(job.run, capacity, job.execution, on)).entry()
    return {**key, **entry, "kernels": dict(entry["kernels"] or {})}


def main() -> None:
    """Compiles what is missing."""
    parser = argparse.ArgumentParser(description="compiles every gpu and paper config")
    parser.add_argument("configs", nargs="*", default=CONFIGS, metavar="FILE:SIZE")
    parser.add_argument("--output", type=Path, default=COMPILED)
    options = parser.parse_args()
    for text in options.configs:
        config = read_config(text)
        on = machine(setup_of(config).engine.machine)
        for job in jobs(config):
            for key in keys(job, on.name):
                row = _kept(job, key, on, options.output)
                peak = f"{row['peak_bytes'] / 1e9:.3g} GB"
                fits = "fits" if row["fits"] else "does NOT fit"
                print(text, job.model, row["program"], row["bucket"], peak, fits, flush=True)


def _kept(job: Job, key: dict[str, Any], on: Machine, path: Path) -> dict[str, Any]:
    """The row of a program, from the table where it is there."""
    if row := program_of(_read(path)["programs"], key):
        return row
    row = compiled(job, key, on)
    table = _read(path)  # again: others may compile besides
    table["programs"].append(row)
    write_json(path, table)
    return row


def _read(path: Path) -> dict[str, Any]:
    here = {"versions": versions(), "programs": []}
    table = read_json(path, "delete it to begin anew") if path.is_file() else here
    both = table["versions"] | here["versions"]
    if not table["versions"].items() <= both.items():
        sys.exit(f"{path} is of {table['versions']}, here is {here['versions']}; delete it")
    return {**table, "versions": both}


if __name__ == "__main__":
    main()
