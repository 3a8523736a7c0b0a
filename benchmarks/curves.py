"""Loss curves of 12 small configs, to compare later code with to the last bit.

    python -m benchmarks.curves --check          # against benchmarks/baselines/curves, 3 minutes
    python -m benchmarks.curves --check --only fsdp,branch
    python -m benchmarks.curves                  # write them anew
    python -m benchmarks.curves --check --only demo     # final losses of `make demo` in runs/demo

Each config is trained by `bss train` (the fleet by `bss sweep`) on one CPU core. Losses differ by
rounding with the number of threads, with the CPU and with jaxlib. Each of two processes has a
core of its own: on one they would wait for each other at every step. machine.json names the CPU and
jaxlib; `--check` elsewhere is refused with the command that makes the curves of the parent commit
there. The text is synthetic. A CSV per config has 20 rows per run, or a few more, with all digits
and without times.
"""

import argparse
import csv
import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jaxlib

from bss.provenance import commit

FOLDER = Path(__file__).parent / "baselines" / "curves"
MACHINE = FOLDER / "machine.json"
DEMO = FOLDER.with_name("demo_losses.csv")
RUNS = Path("runs/demo")
SEQ_LEN = 16
BATCH = 4
STEPS = 200
TOKENS = SEQ_LEN * BATCH * STEPS
TIMES = {"seconds"}  # columns that differ from run to run
FORK = TOKENS // 2

Json = dict[str, Any]
RUN: Json = {
    "model": {"vocab_size": 64, "num_layers": 2, "d_model": 32, "num_heads": 2, "d_ff": 128},
    "data": {"corpus": "synthetic", "content": "synthetic", "seq_len": SEQ_LEN},
    "optimizer": {"lr": 1e-2, "weight_decay": 0.1},
    "schedule": {"tokens": TOKENS, "batch": BATCH, "warmup": TOKENS // 10, "decay": TOKENS // 5},
    "evaluation": {"tokens": 32 * SEQ_LEN, "per_efold": 5, "first": TOKENS // 40},
}
EXECUTION: Json = {"buckets": [4], "evaluation_bucket": 8, "devices": 1}
SETS = [{"name": "later", "split": "test", "tokens": 512}, {"name": "few", "tokens": 256}]
CONFIGS: dict[str, Json] = {
    "batch_ramp": {
        "run": {"schedule": {"batch": f"0:2 {TOKENS // 4}:4 {TOKENS // 2}:8"}},
        "execution": {"buckets": [2]},
    },
    "weight_averages": {"run": {"averages": ["1K", "10%"]}},
    "mup": {"run": {"model": {"parametrization": "mup", "base_width": 16}}},
    "mixture": {"run": {"model": {"family": "mixture", "num_experts": 4, "top_k": 2}}},
    "sgd": {"run": {"optimizer": {"name": "sgd", "lr": 0.5, "weight_decay": 0.0}}},
    "muon": {"run": {"optimizer": {"name": "muon"}}},
    "two_processes": {"processes": 2, "execution": {"buckets": [2]}},
    "fleet": {"seeds": 4},
    "branch": {"run": {"schedule": {"batch": 8}}, "fork": FORK},
    "fsdp": {
        "run": {"schedule": {"batch": 8, "tokens": 2 * TOKENS}},
        "execution": {"buckets": [8], "devices": 8, "fsdp": 8, "evaluation_bucket": 4},
        "devices": 8,
    },
    "noise_scale": {"run": {"noise_scale": {"half_life": 2000}}, "execution": {"buckets": [2]}},
    "two_held_out_sets": {"run": {"evaluation": {"sets": SETS, "metrics": ["accuracy"]}}},
}


def merged(one: Json, other: Mapping[str, Any]) -> Json:
    """Nested dicts, the other's values where both have one."""
    both = {k: merged(one.get(k, {}), v) if isinstance(v, dict) else v for k, v in other.items()}
    return {**one, **both}


def bss(words: list[str], devices: int, processes: int = 1) -> None:
    """Run a `bss` command in one process or in several that train together, each on one core."""
    environment = os.environ | {"JAX_NUM_CPU_DEVICES": str(devices), "JAX_PLATFORMS": "cpu"}
    environment.pop("XLA_FLAGS", None)
    command = [sys.executable, "-m", "bss", *words]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        together = [f"--processes={processes}", f"--coordinator=127.0.0.1:{free.getsockname()[1]}"]
    each = [[*together, f"--process={i}"] for i in range(processes)] if processes > 1 else [[]]
    how: Json = {"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    how["text"] = True
    started = [subprocess.Popen([*command, *more], **how) for more in each]
    cores = sorted(os.sched_getaffinity(0))
    for i, process in enumerate(started):  # before it starts XLA, which counts its cores
        os.sched_setaffinity(process.pid, {cores[i % len(cores)]})
    for process in started:
        printed, _ = process.communicate()
        if process.returncode:
            sys.exit(f"{' '.join(command)} ended with {process.returncode}:\n{printed}")


def train(config: Json, folder: Path) -> list[Json]:
    """Return the rows of a config's curve, or curves, trained below a folder."""
    devices = config.get("devices", 1)
    execution = EXECUTION | config.get("execution", {})
    execution = execution | {"runs": str(folder)}
    run = merged(RUN, config.get("run", {}))
    file = folder.with_suffix(".json")
    if seeds := config.get("seeds"):
        setup = {name: run[name] for name in ("model", "optimizer", "schedule", "evaluation")}
        text = {"corpus": "synthetic", "seq_len": SEQ_LEN}
        engine = execution | {"workers": 1, "vmap_runs": seeds}
        sweep = {"title": "seeds", "setup": {**setup, "text": text, "engine": engine}}
        file.write_text(json.dumps({**sweep, "axes": {"seed": [*range(seeds)]}}))
        bss(["sweep", str(file), "--out", str(folder.with_suffix(".out"))], devices)
        return rows_of(folder)
    if fork := config.get("fork"):
        parent = {"run": RUN, "execution": execution | {"forks": [fork]}}
        file.write_text(json.dumps(parent))
        bss(["train", str(file)], devices)
        (directory,) = folder.glob("*/curve.jsonl")
        run = run | {"parent": {"run": directory.parent.name, "tokens": fork}}
    file.write_text(json.dumps({"run": run, "execution": execution}))
    bss(["train", str(file)], devices, config.get("processes", 1))
    return rows_of(folder)


def rows_of(folder: Path) -> list[Json]:
    """Return the rows of all curves below a folder, in order of their ids."""
    rows = []
    for file in sorted(folder.glob("*/curve.jsonl")):
        for line in file.read_text().splitlines():
            row = {name: x for name, x in json.loads(line).items() if name not in TIMES}
            rows.append({"run": file.parent.name, **row})
    return rows


def finals(folder: Path) -> list[Json]:
    """Return the final losses of all runs below a folder, in order of their ids."""
    found = [(file.parent.name, file.read_text()) for file in sorted(folder.glob("*/status.json"))]
    return [{"run": name, **json.loads(status)["losses"]} for name, status in found]


def write(rows: list[Json], path: Path) -> None:
    """A CSV; numbers keep all digits."""
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(names)
        writer.writerows([[text(row.get(name)) for name in names] for row in rows])


def text(value: Any) -> str:
    """Return all digits of a number."""
    if value is None:
        return ""
    return repr(value) if isinstance(value, float) else str(value)


def difference(rows: list[Json], path: Path) -> float:
    """Return the largest difference of a number; infinite where rows, columns or texts differ."""
    with path.open(newline="") as file:
        before = list(csv.DictReader(file))
    now = [{name: text(value) for name, value in row.items()} for row in rows]
    if len(now) != len(before):
        return float("inf")
    largest = 0.0
    for one, other in zip(now, before, strict=True):
        for name in {**one, **other}:
            if (a := one.get(name, "")) != (b := other.get(name, "")):
                try:
                    largest = max(largest, abs(float(a) - float(b)))
                except ValueError:
                    return float("inf")
    return largest


def machine() -> dict[str, str]:
    """Return what decides how losses are rounded: the CPU and jaxlib."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    facts = {}
    for line in reversed(lines):  # of the first CPU
        name, _, value = line.partition(":")
        facts[name.strip()] = value.strip()
    named = [f"{name} {facts.get(name, 'unknown')}" for name in ("cpu family", "model", "stepping")]
    cpu = ", ".join([facts.get("model name", "unknown CPU"), *named])
    return {"cpu": cpu, "jaxlib": jaxlib.__version__}


def check_machine() -> None:
    """Exit with one line if the baselines were made on another CPU or by another jaxlib."""
    made = json.loads(MACHINE.read_text())
    for name, here in machine().items():
        if made[name] != here:
            sys.exit(
                f"{name}: the baselines are of {made[name]}, this is {here}; write them first at "
                "the parent commit: git worktree add ../parent HEAD~1, there "
                "`python -m benchmarks.curves`, and copy its benchmarks/baselines/curves"
            )


def main() -> int:
    """Train the configs; 1 if `--check` finds a difference."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    parser.add_argument("--only", default="", help=f"configs, e.g. {','.join(CONFIGS)},demo")
    options = parser.parse_args()
    names = options.only.split(",") if options.only else [*CONFIGS]
    if options.check:
        check_machine()
    else:
        MACHINE.write_text(json.dumps({**machine(), "commit": commit()}, indent=2) + "\n")
    different = 0
    with tempfile.TemporaryDirectory() as folder:
        for name in names:
            rows = train(CONFIGS[name], Path(folder) / name) if name != "demo" else finals(RUNS)
            path = DEMO if name == "demo" else FOLDER / f"{name}.csv"
            if not options.check:
                write(rows, path)
                print(f"{name}: {len(rows)} rows", flush=True)
                continue
            apart = difference(rows, path)
            different += apart > 0
            told = "equal" if apart == 0 else f"differ by at most {apart:.3g}"
            print(f"{name}: {told}, {len(rows)} rows", flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
