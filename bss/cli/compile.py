"""bss compile: what a run takes of a machine, present or not, before anything is trained."""

import argparse
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from bss.cli.output import Output, Table, add_output_arguments, emit, progress
from bss.cli.train import read_job
from bss.errors import InputError
from bss.machines.absent import Machine, known, machine
from bss.models.family import Keep

if TYPE_CHECKING:
    from bss.sweeps.programs import Job
    from bss.training.aot.compiled import Examined
    from bss.training.aot.largest import Largest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss compile`."""
    add = parser.add_argument
    add("run_file", nargs="?", type=Path, help='{"run": {...}, "execution": {...}}')
    add("--config", metavar="FILE:SIZE", help="the buckets and models of an experiment's config")
    add("--on", required=True, metavar="MACHINE", help=known())
    add(
        "--fit",
        action="store_true",
        help="find the fastest bucket that fits, with and without remat",
    )
    add("--attention", metavar="KERNEL", help="cudnn, splash, reference, or one of your own")
    add("--unroll", type=int, metavar="N", help="layers in one turn of their loop; 0 for all")
    add("--keep", choices=get_args(Keep), help="what of a layer is not computed again")
    add("--fsdp", type=int, metavar="N", help="split the weights over N of the devices")
    one = "with --fsdp, whole gradients on every device, which meet once a step"
    add("--whole-gradient", action="store_true", default=None, help=one)
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Compiles every program; status 2 and one line where one does not fit.

    Examples:
        bss compile CONFIG.json --on cpu:1
        bss compile CONFIG.json --on cpu:1 --attention reference --json
    """
    if (options.run_file is None) == (options.config is None):
        raise InputError("expected RUN.json or --config FILE:SIZE, one of them")
    file = options.run_file or Path(options.config.partition(":")[0])
    if not file.is_file():
        raise InputError(f"config {file}: there is no such file; name one that is there")
    on = machine(options.on)
    if options.fit and on.pool is None:
        raise InputError(f"--fit: the memory of {on.name} is not known; ask for it on a GPU or TPU")
    from bss.sweeps.programs import jobs
    from bss.sweeps.reading import read_config
    from bss.training.aot.compiled import examine

    named_by = options.config or str(options.run_file)
    jobs = list(jobs(read_config(options.config)) if options.config else _of_file(options.run_file))
    names = "attention", "unroll", "keep", "fsdp", "whole_gradient"
    own = {name: getattr(options, name) for name in names}
    changes = {name: value for name, value in own.items() if value is not None}
    jobs = [job.under(**changes) for job in jobs]
    examined: list[tuple[Job, Examined]] = []
    largest: list[tuple[Job, Largest]] = []
    with progress() as report:
        for job in jobs:
            report(f"compiling {job.model} for {on.name}")
            programs = examine(job.run, job.capacity, job.execution, on)
            examined += [(job, program) for program in programs]
            largest += [(job, one) for one in _largest(job, on)] if options.fit else []
    output = _output(named_by, on, examined, largest)
    if output.json["fits"] is False:
        emit(output, as_json=options.json, plot=None)
        sys.stdout.flush()
        raise InputError(_refusal(on, examined))
    return output


def _largest(job: "Job", on: Machine) -> "Iterator[Largest]":
    from bss.training.aot.largest import fastest_bucket, remat_choices

    for run in remat_choices(job.run):
        yield fastest_bucket(run, job.execution, on)


def _of_file(path: Path) -> "Iterator[Job]":
    from bss.sweeps.programs import Job

    config, execution = read_job(path)
    capacity = execution.ladder(config).capacity(execution.plan(config))
    yield Job(config.model.label, config, execution, capacity)


def _output(
    title: str,
    on: Machine,
    examined: "list[tuple[Job, Examined]]",
    largest: "list[tuple[Job, Largest]]",
) -> Output:
    fitting = [one.memory.fits for _, one in examined]
    payload = {
        "machine": on.name,
        "devices": len(on.devices),
        "pool_bytes": on.pool and round(on.pool),
        "fits": None if None in fitting else all(fitting),
        "programs": [{"model": job.model, **one.entry()} for job, one in examined],
        "versions": {name: version(name) for name in ("jax", "jaxlib")},
    }
    tables = [
        Table(
            f"{title} on {on.name}: memory of one device",
            ("program", "bucket", "state", "temporary", "peak", "fits", "compiled in"),
            [(f"{job.model} {one.program}", *_memory_cells(one)) for job, one in examined],
        ),
        Table(
            "what it does, in one bucket of a step or one evaluation, and the time it takes",
            (
                *("program", "bucket", "attention", "FLOPs", "bytes", "between devices"),
                *("at least", "expected", "tokens/s", "MFU"),
            ),
            [
                (f"{job.model} {one.program}", *_work_cells(one))
                for job, one in examined
                if one.reading
            ],
        ),
    ]
    if largest:
        payload["largest"] = [{"model": job.model, **vars(one)} for job, one in largest]
        rows = [
            (
                *(job.model, "yes" if one.remat else "no", one.bucket or "none"),
                *(_gb(one.peak_bytes), f"{one.tokens_per_second:,.0f}", one.largest or "none"),
            )
            for job, one in largest
        ]
        names = ("model", "remat", "bucket", "peak", "tokens/s", "largest that fits")
        tables.append(Table("the fastest bucket that fits", names, rows))
    return Output(payload, tables)


def _gb(size: float) -> str:
    return f"{size / 1e9:.3g} GB"


def _memory_cells(one: "Examined") -> list[Any]:
    memory = one.memory
    sizes = (memory.state_bytes, memory.temp_bytes, memory.peak_bytes)
    fits = {None: "–", True: "yes", False: "no"}[memory.fits]
    return [one.bucket, *map(_gb, sizes), fits, f"{one.compile_seconds:.0f} s"]


def _work_cells(one: "Examined") -> list[Any]:
    reading, bound = one.reading, one.bound
    assert reading is not None
    moved = [
        f"{c.kind} × {c.count}{' in loops' if c.in_loop else ''}, {c.bytes / 1e6:.3g} MB"
        for c in reading.collectives
    ]
    cells = [one.bucket, reading.attention, f"{reading.flops:.3g}", f"{reading.bytes:.3g}"]
    cells.append("; ".join(moved) or "–")
    if bound is None:
        return [*cells, "–", "–", "–", "–"]
    told = one.expected or bound
    least, expected = (x and f"{x.seconds * 1e3:.3g} ms" for x in (bound, one.expected))
    return [
        *(*cells, f"{least} ({bound.by})", expected or "–"),
        *(f"{told.tokens_per_second:,.0f}", f"{told.mfu:.0%}"),
    ]


def _refusal(on: Machine, examined: "list[tuple[Job, Examined]]") -> str:
    """What needs most of what does not fit, and what the smallest bucket needs with remat."""
    from bss.training.aot.largest import one_bucket, remat_choices

    assert on.pool is not None
    failed = [(job, one) for job, one in examined if one.memory.fits is False]
    trained = [(job, one) for job, one in failed if one.program == "train"]
    job, worst = max(trained or failed, key=lambda pair: pair[1].memory.peak_bytes)
    message = (
        f"does not fit {on.name}: {job.model}, {worst.program} in buckets of {worst.bucket}, needs "
        f"{worst.memory.peak_bytes / 1e9:.3g} GB of {on.pool / 1e9:.3g}"
    )
    if not trained:
        return f"{message}; lower execution.evaluation_bucket"
    *_, remat = remat_choices(job.run)
    bucket = min(job.capacity)
    if remat is job.run and bucket == worst.bucket:
        return message
    needed = one_bucket(remat, bucket, job.execution, on).memory.peak_bytes / 1e9
    return f"{message}; bucket {bucket} with remat needs {needed:.3g}"
