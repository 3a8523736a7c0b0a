"""bss compile: memory and least time of a run's programs on a machine that need not be present."""

from pathlib import Path
from typing import Any

from bss.cells import Table
from bss.cli.output import Output, Show
from bss.cli.quiet import quiet_stderr
from bss.cli.train import read_job
from bss.errors import InputError
from bss.machines.absent import devices_of, machine_named
from bss.training.execution import Execution
from bss.training.hardware import memory_fraction, target_named
from bss.training.run_config import RunConfig


def compile(
    run_file: Path | None = None, /, *, config: str | None = None, on: str, show: Show = Show()
) -> Output:
    """Compile the train step of a run; status 1 if it does not fit, 2 for bad input.

    Args:
        run_file: JSON: {"run": {...}, "execution": {...}}
        config: FILE:SIZE, the base run of an experiment's config
        on: machine, as NAME:DEVICES: cpu, h100, h200, v5e, v5p, or a slice of TPUs: v5p-64

    Examples:
        bss compile RUN.json --on cpu:1
        bss compile --config configs/es_wsd.py:gpu --on h100:1 --json
    """
    if (run_file is None) == (config is None):
        raise InputError("expected RUN.json or --config FILE:SIZE, one of them")
    file = run_file or Path(str(config).partition(":")[0])
    if not file.is_file():
        raise InputError(f"{file}: no such file; name a run or a config")
    from bss.training.memory import step_memory

    machine = machine_named(on)
    with quiet_stderr():
        devices = devices_of(machine)
    target = target_named(machine.partition(":")[0])
    run, execution = _of_config(config) if config else read_job(file)
    sizes = execution.buckets if config else ()
    buckets, left_out = _divided([*sizes] or _planned(run, execution, devices), len(devices))
    pool = target and target.pool(memory_fraction())
    rows = []
    with quiet_stderr():
        for row in step_memory(run, execution, buckets, devices):
            fits = pool and row["peak_bytes"] is not None and row["peak_bytes"] <= pool
            least = target and row["model_flops"] / (len(devices) * target.peak_flops)
            rows.append(row | {"fits": fits, "least_seconds": least})
    fits = None if pool is None else all(row["fits"] for row in rows)
    payload = {"machine": on, "devices": len(devices), "pool_bytes": pool and round(pool)}
    title = f"{run.model.label} on {on}, one device" + (f" of {pool / 1e9:.3g} GB" if pool else "")
    table = Table.of_records(title, rows)
    payload |= {"fits": fits, "left_out": left_out, "programs": rows}
    warnings = []
    if left_out:
        sizes = ", ".join(map(str, left_out))
        warnings = [f"left out: buckets that {len(devices)} devices do not divide: {sizes}"]
    return Output(payload, "", [table], warnings, status=1 if fits is False else 0)


def _planned(run: RunConfig, execution: Execution, devices: list[Any]) -> list[int]:
    """Return the micro-batch sizes of a run's plan."""
    from bss.training.bucket_choice import choose_buckets
    from bss.training.sharding import mesh_of

    chosen = choose_buckets(execution, run, mesh_of(devices, execution.fsdp), {})
    return [*chosen.bucket_sizes(run).max_microbatches(run.plan())]


def _divided(buckets: list[int], devices: int) -> tuple[list[int], list[int]]:
    """Return the sizes that the devices divide, and the others; all of them if none is divided."""
    fitting = [bucket for bucket in buckets if bucket % devices == 0]
    if not fitting:
        return buckets, []
    return fitting, [bucket for bucket in buckets if bucket % devices]


def _of_config(name: str) -> tuple[RunConfig, Execution]:
    """Return the base run of a config, and how it is executed."""
    from bss.sweeps.config import read_config
    from bss.sweeps.setup import Setup, planned_run
    from bss.values import from_dict

    setup = from_dict(Setup, read_config(name).get("setup", {}), "setup.")
    return planned_run(setup), setup.engine.execution()
