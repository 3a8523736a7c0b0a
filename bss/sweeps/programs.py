"""What a config asks to be compiled: a run of each shape, in each bucket; whether it fits."""

import dataclasses
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss.files import read_json
from bss.machines.slots import memory_fraction
from bss.machines.targets import TARGETS
from bss.models.sizes import SIZES
from bss.models.written import Written, model_of, name_of
from bss.sweeps.setup import EngineConfig, RunSetup, Setup, planned_run
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.values import from_dict

COMPILED = Path(__file__).resolve().parents[2] / "results" / "compiled.json"
"""The table of the checkout: `python -m benchmarks.compiled` makes it."""


@dataclass(frozen=True)
class Job:
    """A run to be compiled: what it is called, and by bucket the most of it in a step."""

    model: str
    run: RunConfig
    execution: Execution
    capacity: Mapping[int, int]

    def under(self, **changes: Any) -> "Job":
        """The same under another execution."""
        execution = dataclasses.replace(self.execution, **changes)
        return dataclasses.replace(self, execution=execution)


def setup_of(config: Mapping[str, Any]) -> Setup:
    """The set-up of a config, which has one or is as flat as that of one run."""
    if "setup" in config:
        return from_dict(Setup, config["setup"], "setup.")
    flat, engine = (
        {f.name: config[f.name] for f in dataclasses.fields(kind) if f.name in config}
        for kind in (RunSetup, EngineConfig)
    )
    return from_dict(Setup, {**flat, "engine": engine})


def jobs(config: Mapping[str, Any]) -> Iterator[Job]:
    """The base run of a config at each model and length that it names, in each of its buckets."""
    setup = setup_of(config)
    buckets, execution = setup.engine.buckets, setup.engine.execution()
    own_length = setup.text.seq_len
    named = [(setup.model, None), *_named(config)]
    shapes = ((name_of(model), model_of(model), length or own_length) for model, length in named)
    for name, model, length in dict.fromkeys(shapes):
        text = dataclasses.replace(setup.text, seq_len=length)
        base = planned_run(dataclasses.replace(setup, model=model, text=text))
        own = execution.ladder(base).capacity(base.plan()) if not buckets else {}
        yield Job(name, base, execution, own or dict.fromkeys(buckets, 1))


def job_of(run: RunConfig, execution: Execution) -> Job:
    """A run as the table names it: its model by the size that it is, in the buckets of its plan."""
    sizes = (name for name in SIZES if model_of(name) == run.model)
    capacity = execution.ladder(run).capacity(run.plan())
    return Job(next(sizes, run.model.label), run, execution, capacity)


def _named(value: Any) -> Iterator[tuple[Written, int | None]]:
    """Sizes, or groups, that are a config's "model" or "models", and a "seq_len" beside them."""
    if isinstance(value, list | tuple):
        for inner in value:
            yield from _named(inner)
    elif isinstance(value, Mapping):
        length = value.get("seq_len")
        for key, inner in value.items():
            if key in ("model", "models"):
                models = inner if isinstance(inner, list | tuple) else [inner]
                yield from ((m, length) for m in models if isinstance(m, Mapping) or m in SIZES)
            else:
                yield from _named(inner)


def keys(job: Job, machine: str) -> Iterator[dict[str, Any]]:
    """What tells the programs of a job from others: each bucket's, then the evaluation's."""
    run = job.run
    shared = {
        "machine": machine,
        "model": job.model,
        "seq_len": run.data.seq_len,
        "optimizer": type(run.optimizer).__name__,
        "averages": len(run.averages),
    }
    yield from ({**shared, "program": "train", "bucket": bucket} for bucket in job.capacity)
    yield {**shared, "program": "evaluation", "tokens": run.evaluation.tokens}


def read_compiled(path: Path = COMPILED) -> list[dict[str, Any]]:
    """The programs of the table; none where there is no table."""
    return read_json(path, "see docs/machines.md")["programs"] if path.is_file() else []


def program_of(programs: Iterable[dict[str, Any]], key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The program of a key, where it was compiled."""
    return next((one for one in programs if key.items() <= one.items()), None)


def fits_line(jobs: Iterable[Job], machine: str, path: Path = COMPILED) -> str:
    """Whether all programs of jobs fit a machine, in one line."""
    programs = read_compiled(path)
    wanted = [key for job in jobs for key in keys(job, machine)]
    known = [one for key in wanted if (one := program_of(programs, key))]
    rest = f"bss compile --config FILE:SIZE --on {machine}"
    if not known:
        return f"{machine}: not compiled; {rest} says whether it fits"
    most = max(known, key=lambda one: one["peak_bytes"])
    target = next(t for t in TARGETS if t.name == machine.partition(":")[0])
    pool = target.pool(memory_fraction())
    size = f"at most {most['peak_bytes'] / 1e9:.3g} GB of {pool / 1e9:.3g}"
    where = f"{most['model']}, {most['program']} in buckets of {most['bucket']}"
    if most["peak_bytes"] > pool:
        return f"{machine}: does not fit; {where}, needs {size.removeprefix('at most ')}"
    if missing := len(wanted) - len(known):
        return (
            f"{machine}: {len(known)} of {len(wanted)} programs fit, {size} ({where}); "
            f"{missing} are not compiled; {rest}"
        )
    return f"{machine}: fits, {size} ({where})"
