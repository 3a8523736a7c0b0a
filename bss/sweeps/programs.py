"""What an experiment's config asks to be compiled: a run of each shape, in each of its buckets."""

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from bss.models.sizes import SIZES, Written, model_of, name_of
from bss.sweeps.setup import EngineConfig, RunSetup, Setup, planned_run
from bss.training.config import RunConfig
from bss.training.execution import Execution
from bss.values import from_dict


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
