"""bss compile: memory and least time of a run's programs on a machine that need not be present."""

import dataclasses
import math
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bss.cells import Table
from bss.cli.output import Output, Show, progress
from bss.cli.train import read_job
from bss.errors import InputError
from bss.machines.absent import devices_of
from bss.training.hardware import Target, memory_fraction, target_named

if TYPE_CHECKING:
    from bss.training.execution import Execution
    from bss.training.run_config import RunConfig

Job = tuple["RunConfig", "Execution", list[int]]  # and its micro-batch sizes
Row = dict[str, Any]
REFUSED = re.compile(r"RESOURCE_EXHAUSTED.*?(temporaries \(|Used )([\d.]+)([KMGT])", re.DOTALL)


def compile(
    run_file: Path | None = None,
    /,
    *,
    config: str | None = None,
    on: str,
    fit: bool = False,
    show: Show = Show(),
) -> Output:
    """Compile every program of a run; status 1 if one does not fit, 2 for bad input.

    Args:
        run_file: JSON: {"run": {...}, "execution": {...}}
        config: FILE:SIZE, every model of an experiment's config
        on: machine, as NAME:DEVICES: cpu, h100, h200, a100, v5e, v5p
        fit: find the largest micro-batch that fits

    Examples:
        bss compile RUN.json --on cpu:1
        bss compile --config configs/es_wsd.py:gpu --on h100:1 --json
    """
    if (run_file is None) == (config is None):
        raise InputError("expected RUN.json or --config FILE:SIZE, one of them")
    file = run_file or Path(str(config).partition(":")[0])
    if not file.is_file():
        raise InputError(f"{file}: no such file; name a run or a config")
    devices, target = devices_of(on), target_named(on.partition(":")[0])
    if fit and target is None:
        raise InputError(f"--fit: the memory of {on} is unknown; name a GPU or TPU")
    pool = target and target.pool(memory_fraction())
    rows: list[Row] = []
    with progress() as report:
        for job in _jobs_of_config(config) if config else [_job_of_run(file)]:
            report(f"compiling {job[0].model.label} for {on}")
            rows += _largest(job, devices, target) if fit else _rows(job, devices, target)
    fits = None if pool is None else all(row["fits"] for row in rows)
    payload = {"machine": on, "devices": len(devices), "pool_bytes": pool and round(pool)}
    title = f"{file.name} on {on}, one device" + (f" of {pool / 1e9:.3g} GB" if pool else "")
    table = Table.of_records(title, rows)
    status = 1 if fits is False else 0
    return Output({**payload, "fits": fits, "programs": rows}, tables=[table], status=status)


def _job_of_run(file: Path) -> Job:
    config, execution = read_job(file)
    return config, execution, [*execution.bucket_sizes(config).max_microbatches(config.plan())]


def _jobs_of_config(name: str) -> Iterator[Job]:
    """Yield the base run of a config at each model and sequence length that the config names."""
    from bss.models.sizes import model_of
    from bss.sweeps.reading import read_config
    from bss.sweeps.setup import Setup, planned_run
    from bss.values import from_dict

    config = read_config(name)
    setup = from_dict(Setup, config.get("setup", {}), "setup.")
    default = setup.text.seq_len
    named = [(setup.model, default), *_named(config, default)]
    for model, length in dict.fromkeys((model_of(model), length) for model, length in named):
        text = dataclasses.replace(setup.text, seq_len=length)
        base = planned_run(dataclasses.replace(setup, model=model, text=text))
        execution = setup.engine.execution()
        buckets = [
            *(setup.engine.buckets or execution.bucket_sizes(base).max_microbatches(base.plan()))
        ]
        yield base, execution, buckets


def _named(config: Any, seq_len: int) -> Iterator[tuple[Any, int]]:
    """Yield the values of "model" and "models" in a config, with the "seq_len" next to them."""
    from bss.models.sizes import SIZES

    if isinstance(config, list | tuple):
        config = dict(enumerate(config))
    if not isinstance(config, Mapping):
        return
    length = config.get("seq_len", seq_len)
    for key, value in config.items():
        if key in ("model", "models"):
            models = value if isinstance(value, list | tuple) else [value]
            yield from ((m, length) for m in models if isinstance(m, Mapping) or m in SIZES)
        else:
            yield from _named(value, seq_len)


def _rows(job: Job, devices: list[Any], target: Target | None) -> Iterator[Row]:
    """Compile the train step of each micro-batch, then the evaluation, from shapes alone."""
    from bss.training.evaluation import Evaluation
    from bss.training.execution import compiler_options
    from bss.training.programs import step_programs
    from bss.training.sharding import mesh_of
    from bss.training.step import make_step, state_shapes

    config, execution, buckets = job
    mesh, seq_len, model = mesh_of(devices, execution.fsdp), config.data.seq_len, config.model
    state, options = state_shapes(config, mesh), compiler_options(execution, mesh)
    attention, layers = execution.attention_of(config, mesh), execution.layers_of(config, mesh)
    step = make_step(config, mesh, attention, layers=layers)
    programs = step_programs(step, state, dict.fromkeys(buckets, 1), config, mesh, options)

    def row(name: str, bucket: int, compiled: Callable[[], Any], beside: int, flops: float) -> Row:
        peak = _peak(compiled, _bytes(state)) + beside
        time = target and flops / (len(devices) * target.peak_flops)
        fits = target and peak <= target.pool(memory_fraction())
        told = {"model": model.label, "program": name, "bucket": bucket}
        told |= {"state_bytes": _bytes(state), "peak_bytes": peak, "fits": fits}
        return told | {"model_flops": flops, "least_seconds": time}

    for bucket in buckets:
        flops = bucket * seq_len * model.training_flops_per_token(seq_len)
        yield row("train", bucket, lambda size=bucket: programs[size], 0, flops)
    length = config.evaluation.seq_len or seq_len
    n = max(config.evaluation.tokens // length, 1)
    evaluation = Evaluation(config, mesh, state, execution.evaluation_bucket, options, attention)
    beside = _bytes(state) - (0 if config.averages else _bytes(state.params))
    flops, size = n * length * model.forward_flops_per_token(length), length + 1
    compiled = lambda: evaluation.sums_of(n, size, evaluation.loss)  # noqa: E731
    yield row("evaluation", evaluation.shape(n, size)[1], compiled, beside, flops)


def _largest(job: Job, devices: list[Any], target: Target | None) -> Iterator[Row]:
    """Double the micro-batch from one sequence per device while its train step fits."""
    config, execution, _ = job
    found, size = None, len(devices)
    while (row := next(_rows((config, execution, [size]), devices, target)))["fits"]:
        found, size = row, 2 * size
    yield found or row


def _peak(compiled: Callable[[], Any], state_bytes: int) -> int:
    """Return the bytes a program needs on a device, also if a TPU's compiler refuses it."""
    from jax.errors import JaxRuntimeError

    try:
        uses = compiled().memory_analysis()
    except JaxRuntimeError as error:
        if (match := REFUSED.search(str(error))) is None:
            raise
        needed = round(float(match[2]) * 1024 ** (1 + "KMGT".index(match[3])))
        return needed + (state_bytes if "temporaries" in match[1] else 0)
    arguments = uses.argument_size_in_bytes + uses.output_size_in_bytes - uses.alias_size_in_bytes
    return arguments + uses.temp_size_in_bytes + uses.generated_code_size_in_bytes


def _bytes(tree: Any) -> int:
    """Return the bytes of arrays on one device."""
    import jax

    arrays = jax.tree.leaves(tree)
    return sum(math.prod(x.sharding.shard_shape(x.shape)) * x.dtype.itemsize for x in arrays)
