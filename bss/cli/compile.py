"""bss compile: memory and least time of a run's programs on a machine that need not be present."""

from pathlib import Path

from bss.cells import Table
from bss.cli.output import Output, Show
from bss.cli.train import read_job
from bss.errors import InputError
from bss.machines.absent import devices_of
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
        on: machine, as NAME:DEVICES: cpu, h100, h200, a100, v5e, v5p

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

    devices, target = devices_of(on), target_named(on.partition(":")[0])
    run, execution, buckets = _of_config(config) if config else _of_file(file)
    pool = target and target.pool(memory_fraction())
    rows = []
    for row in step_memory(run, execution, buckets, devices):
        fits = pool and row["peak_bytes"] is not None and row["peak_bytes"] <= pool
        least = target and row["model_flops"] / (len(devices) * target.peak_flops)
        rows.append(row | {"fits": fits, "least_seconds": least})
    fits = None if pool is None else all(row["fits"] for row in rows)
    payload = {"machine": on, "devices": len(devices), "pool_bytes": pool and round(pool)}
    title = f"{run.model.label} on {on}, one device" + (f" of {pool / 1e9:.3g} GB" if pool else "")
    table = Table.of_records(title, rows)
    payload |= {"fits": fits, "programs": rows}
    return Output(payload, tables=[table], status=1 if fits is False else 0)


def _of_file(file: Path) -> tuple[RunConfig, Execution, list[int]]:
    """Return a run, how it is executed, and its micro-batch sizes."""
    run, execution = read_job(file)
    return run, execution, [*execution.bucket_sizes(run).max_microbatches(run.plan())]


def _of_config(name: str) -> tuple[RunConfig, Execution, list[int]]:
    """Return the same of the base run of a config."""
    from bss.sweeps.config import read_config
    from bss.sweeps.setup import Setup, planned_run
    from bss.values import from_dict

    setup = from_dict(Setup, read_config(name).get("setup", {}), "setup.")
    run, execution = planned_run(setup), setup.engine.execution()
    own = setup.engine.buckets or execution.bucket_sizes(run).max_microbatches(run.plan())
    return run, execution, [*own]
