"""What every experiment starts from and ends with: data, base run, price, provenance."""

import dataclasses
import datetime
import json
import signal
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any, TypeVar

from absl import app, flags, logging
from ml_collections import ConfigDict, config_flags

from bss.data.prepare import prepare
from bss.data.stream import Stream
from bss.errors import InputError
from bss.files import read_json, write_json
from bss.models.sizes import named
from bss.schedules.config import ScheduleConfig
from bss.sweeps.contenders import Contender
from bss.sweeps.engine import LocalEngine
from bss.sweeps.grid import distinct
from bss.sweeps.price import hours, price
from bss.sweeps.progress import Progress
from bss.training.config import DataConfig, EvaluationConfig, RunConfig
from bss.training.directory import read_status
from bss.training.execution import Execution, commit, machine
from bss.training.optimizers import AdamW, Optimizer
from bss.training.source import SYNTHETIC
from bss.values import from_dict

S = TypeVar("S")


@dataclass(frozen=True)
class TextConfig:
    """The corpus, its tokenizer and where both are kept; "synthetic" needs neither."""

    corpus: str = "stdlib"
    tokenizer: str = "bytes"
    root: str = "data"
    seq_len: int = 128


@dataclass(frozen=True)
class EngineConfig:
    """How a sweep is executed.

    Attributes:
        runs: directory of run directories.
        workers: processes; 0 for one per core.
        pin: a core for each worker; off on an accelerator.
        buckets: ladder of bucket sizes in sequences.
        checkpoint_seconds: at most this long between checkpoints.
    """

    runs: str = "runs"
    workers: int = 0
    pin: bool = True
    buckets: tuple[int, ...] = ()
    checkpoint_seconds: float = 60.0


@dataclass(frozen=True)
class Setup:
    """The shared part of an experiment's config."""

    model: str = "nano"
    text: TextConfig = field(default_factory=TextConfig)
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    averages: tuple[str, ...] = ()
    engine: EngineConfig = field(default_factory=EngineConfig)


def check_counts(study: Any, *names: str) -> None:
    """Refuses a study whose named fields are not 1 or more."""
    for name in names:
        if getattr(study, name) < 1:
            raise InputError(f"{name} is {getattr(study, name)}; expected 1 or more")


def check_parts(study: Any, *names: str) -> None:
    """Refuses a study whose named fields are no parts of 1."""
    for name in names:
        if not 0 < getattr(study, name) < 1:
            raise InputError(f"{name} is {getattr(study, name)}; expected a part of 1, as 0.2")


def check_positive(study: Any, *names: str) -> None:
    """Refuses a study whose named fields are not above 0."""
    for name in names:
        if not getattr(study, name) > 0:
            raise InputError(f"{name} is {getattr(study, name)}; expected a positive number")


def check_seeds(study: Any) -> None:
    """Refuses a study without seeds, or with one twice."""
    if not study.seeds or len(set(study.seeds)) < len(study.seeds):
        raise InputError(f"seeds are {list(study.seeds)}; expected different ones, at least one")


def planned_run(setup: Setup) -> RunConfig:
    """The run that a sweep overlays, without its data: enough to price it."""
    text = setup.text
    data = DataConfig(text.corpus, text.tokenizer, "", text.seq_len)
    return RunConfig(
        named(setup.model),
        data,
        setup.optimizer,
        setup.schedule,
        setup.evaluation,
        setup.averages,
    )


def base_run(setup: Setup) -> tuple[RunConfig, Execution]:
    """The run that a sweep overlays, on shards that are prepared first where missing."""
    text = setup.text
    if text.corpus == SYNTHETIC:
        model, content, shards = named(setup.model), SYNTHETIC, ""
    else:
        prepared = prepare(text.corpus, text.tokenizer, Path(text.root))
        stream = Stream(prepared.tokens("train"), text.seq_len, seed=0)
        stream.check(setup.schedule.tokens // text.seq_len)
        model, content = named(setup.model, prepared.vocab_size), prepared.content_hash
        shards = str(prepared.directory)
    planned = planned_run(setup)
    data = dataclasses.replace(planned.data, content=content)
    run = dataclasses.replace(planned, model=model, data=data)
    execution = Execution(
        runs=setup.engine.runs,
        data=shards,
        buckets=setup.engine.buckets,
        checkpoint_seconds=setup.engine.checkpoint_seconds,
        compilation_cache=str(Path(setup.engine.runs) / "compiled"),
    )
    return run, execution


def batch_unit(setup: Setup) -> int:
    """What every derived batch is a multiple of, so that it is a whole number of buckets."""
    return min(setup.engine.buckets, default=1)


def make_engine(setup: Setup) -> LocalEngine:
    """The engine that the setup describes."""
    return LocalEngine(setup.engine.workers, pin=setup.engine.pin)


def print_price(title: str, runs: Sequence[RunConfig]) -> None:
    """Says what a list of runs costs, equal ones once, before it starts."""
    say(f"{title}: {price(runs)}")


def print_hours(costs: dict[str, float], peak_flops: float, mfu: float) -> None:
    """Says what the parts of a study and all of it take: FLOPs, and hours of one device.

    Args:
        costs: FLOPs of each part by name.
        peak_flops: of the device.
        mfu: the part of it that is reached.
    """
    for name, cost in {**costs, "all": sum(costs.values())}.items():
        taken = hours(cost, peak_flops, mfu)
        print(f"{name:<12}{cost:>10.3g} FLOPs {taken:>10.4g} hours of one device")
    say(f"hours: at {mfu:.0%} of {peak_flops:.3g} FLOP/s (assumed)")


def train_all(
    engine: LocalEngine, runs: Sequence[RunConfig], execution: Execution, title: str
) -> list[RunConfig]:
    """Trains runs, equal ones once, and returns those that finished; the others are named."""
    statuses = engine.train(distinct(runs), execution, Progress(title))
    for run in distinct(runs):
        status = statuses[run.id]
        if status["status"] != "finished":
            told = status.get("message") or f"at {status.get('tokens', 0):,} tokens"
            say(f"run {run.id} (batch {run.schedule.batch}): {status['status']}, {told}")
    return [run for run in runs if statuses[run.id]["status"] == "finished"]


def finished(
    engine: LocalEngine, contenders: list[Contender], execution: Execution, title: str
) -> list[Contender]:
    """Trains contenders; returns those whose run finished."""
    done = train_all(engine, [contender.run for contender in contenders], execution, title)
    return [contender for contender in contenders if contender.run in done]


def priced(
    engine: LocalEngine, contenders: list[Contender], execution: Execution, title: str
) -> list[Contender]:
    """Says what contenders cost, and trains them as `finished` does."""
    print_price(title, [contender.run for contender in contenders])
    return finished(engine, contenders, execution, title)


def say(text: str) -> None:
    """Tells the person who waits."""
    print(text, file=sys.stderr, flush=True)


def provenance(
    config: Any, started: float, runs: Sequence[RunConfig] = (), directory: str = ""
) -> dict[str, Any]:
    """The record beside every result: command, commit, device, date, price.

    `seconds` are those of the last call, to which finished runs cost nothing; `training_seconds`
    those of all steps of all runs in `directory`, without evaluation, compilation and saving, each
    on its worker.
    """
    statuses = [read_status(Path(directory) / run.id) for run in distinct(runs)]
    cost = price(runs)
    return {
        "command": " ".join(["python -m", _module(), *sys.argv[1:]]),
        "commit": commit(),
        "date": datetime.date.today().isoformat(),
        "device": machine(),
        "cores": LocalEngine().workers,
        "seconds": round(time.monotonic() - started, 1),
        "training_seconds": round(sum(status.get("seconds", 0.0) for status in statuses)),
        "trained_tokens": cost.trained,
        "evaluated_tokens": cost.evaluated,
        "versions": {p: version(p) for p in ("bss", "jax", "flax", "optax", "numpy")},
        "config": config,
    }


def _module() -> str:
    spec = sys.modules["__main__"].__spec__
    return spec.name.removesuffix(".__main__") if spec else "experiments"


def check_results(directory: Path, config: Any) -> None:
    """Refuses to overwrite the results of another study; a field added since says nothing.

    Raises:
        InputError: naming a field that differs.
    """
    try:
        held = read_json(directory / "experiment.json", "name a results directory")["config"]
    except (InputError, KeyError):
        return
    ours = json.loads(json.dumps(config))
    for name in ours:
        if held.get(name, ours[name]) != ours[name]:
            raise InputError(
                f"results: {directory} holds another study ({name} differs); "
                "choose another --config.results, or move that one away"
            )


def write_results(directory: Path, files: dict[str, Any]) -> None:
    """Writes JSON values, tables (CSV or Parquet by suffix) and figures into a directory."""
    from bss.tables import write_table

    directory.mkdir(parents=True, exist_ok=True)
    for name, value in files.items():
        if name.endswith(".json"):
            write_json(directory / name, value)
        elif name.endswith(".png"):
            value.savefig(directory / name, dpi=150)
        else:
            write_table(value, directory / name)


def run_experiment(study: type[S], experiment: Callable[[S], None]) -> None:
    """Parses --config into a frozen study and runs it.

    Bad input is one line and status 2; Ctrl-C and SIGTERM save every run and leave with 130 and
    143: the same command continues.
    """
    config = config_flags.DEFINE_config_file("config", lock_config=True)

    def main(arguments: list[str]) -> None:
        if len(arguments) > 1:
            raise app.UsageError(f"unexpected argument {arguments[1]!r}")
        logging.set_verbosity(logging.WARNING)
        warnings.showwarning = lambda message, *_, **__: say(f"note: {message}")
        signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
        try:
            experiment(from_dict(study, _plain(config.value)))
        except InputError as error:
            say(f"{_module()}: {error}")
            sys.exit(2)
        except OSError as error:
            say(f"{_module()}: {_one_line(error)}")
            sys.exit(2)
        except KeyboardInterrupt:
            say("interrupted; every run is saved, the same command continues")
            sys.exit(130)

    flags.mark_flag_as_required("config")
    app.run(main, flags_parser=_parse_flags)


def _parse_flags(arguments: list[str]) -> list[str]:
    """Flags as absl parses them; a bad one is told in one line."""
    try:
        return flags.FLAGS(arguments)
    except (flags.Error, AttributeError, LookupError, TypeError, ValueError) as error:
        say(f"{_module()}: {_one_line(error)}; see the config's docstring")
        sys.exit(2)


def _one_line(error: Exception) -> str:
    """An error of absl or ml_collections, which may carry a traceback, in one line."""
    lines = str(error).replace("\\n", "\n").splitlines()
    told = [line.strip().rstrip(".") for line in lines if line.strip()]
    return told[-1] if any("Traceback" in line for line in told) else " ".join(told)


def _plain(config: ConfigDict) -> dict[str, Any]:
    return json.loads(config.to_json_best_effort())
