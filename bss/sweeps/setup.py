"""The settings of the runs of a sweep, as in a config's `setup`.

`runs_per_program` and `processes_per_run` pack runs into programs and processes.
"""

from bisect import bisect_right
from dataclasses import dataclass, field, fields
from functools import cache
from pathlib import Path

from bss.errors import check, check_least
from bss.models.sizes import SIZES, ModelSpec, group_of, model_of
from bss.schedules.config import ScheduleConfig
from bss.training.execution import COMPILED, Execution, SharedExecution
from bss.training.optimizers import AdamW, Optimizer
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig
from bss.units import parse_tokens
from bss.values import read_fields


@dataclass(frozen=True)
class TextConfig:
    """The corpus, its tokenizer and their directory. "synthetic" needs no files.

    Attributes:
        corpus: by name, "files:PATH/**/*.txt", "shards:DIRECTORY" or package.module:ATTRIBUTE; see
            `bss.data.prepare`. "synthetic:mode_decay=0.2" changes the synthetic language; see
            `bss.data.synthetic`.
        tokenizer: "bytes", "bpe-SIZE" or the path of a tokenizer.json.
        root: folder of all prepared corpora.
        seq_len: targets per sequence, in tokens.
        text_feature: the field of JSON lines, or the feature of a tfds data set, that is the text.

    Examples:
        >>> TextConfig("files:texts/**/*.txt", seq_len=512).tokenizer
        'bytes'
    """

    corpus: str = "stdlib"
    tokenizer: str = "bytes"
    root: str = "data"
    seq_len: int = 128
    text_feature: str = "text"

    def __post_init__(self) -> None:
        read_fields(self, "text.")


@dataclass(frozen=True)
class EngineConfig(SharedExecution):
    """Settings of the execution of a sweep.

    `devices` is the number of devices of one process of a run; 0 means `fsdp`, or the process's
    share if `workers` is given.

    Attributes:
        workers: number of worker processes; 0: one in every slot, that is for every `devices`
            accelerators, or for every core if there are none.
        pin: Whether to pin each worker to a core on machines without accelerators.
        retries: Number of times that a run is tried again after its worker or machine was lost.
        address: HOST:PORT of a Ray cluster; empty for the one that RAY_ADDRESS names, the one of
            this machine, or a new one.
        vmap_runs: number of runs of one shape to train in one program and process. 0 means 64 on
            accelerators for models below 1M parameters, else 1.
        processes: number of processes that train a run together, each on its own node of a Slurm
            job: a number, or by non-embedding parameters, "0:1 500M:2".
        slurm: options of `sbatch` for the jobs of engine "slurm", e.g. "--partition=gpu --gpus=1
            --time=4:00:00".

    Examples:
        >>> EngineConfig(vmap_runs=16, processes="0:1 500M:2").vmap_runs
        16
    """

    workers: int = 0
    pin: bool = True
    retries: int = 2
    address: str = ""
    vmap_runs: int = 0
    processes: str | int = "1"
    slurm: str = ""

    def __post_init__(self) -> None:
        read_fields(self, "engine.")
        check_least("engine", self, workers=0, retries=0, vmap_runs=0)
        parse_processes(self.processes)

    def execution(self, data: str = "") -> Execution:
        """Return the execution settings for runs on the token shards of a directory."""
        shared = {f.name: getattr(self, f.name) for f in fields(SharedExecution)}
        return Execution(**shared, data=data, compilation_cache=str(Path(self.runs) / COMPILED))


@dataclass(frozen=True)
class RunSetup:
    """The settings of a run.

    Attributes:
        model: A named size, a group of fields, or a family's value; see `bss.models.sizes`.
        text: Training data.
        optimizer: Optimizer settings at the first batch size of the schedule.
        schedule: Tokens, batch size and LR.
        evaluation: Evaluations on held-out tokens during the run.
        averages: Half-lives of weight averages, "50K" tokens or "4%" of the tokens consumed.
    """

    model: ModelSpec = "nano"
    text: TextConfig = field(default_factory=TextConfig)
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    averages: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        read_fields(self, "setup.")
        if isinstance(self.model, str) and self.model not in SIZES:
            object.__setattr__(self, "model", group_of(self.model))
        model_of(self.model)  # refused before a corpus is prepared for it


@dataclass(frozen=True)
class Setup(RunSetup):
    """The run that a sweep overlays, and the settings of its execution.

    Attributes:
        engine: How and where the runs are trained; the other attributes are those of `RunSetup`.

    Raises:
        InputError: If the model is unknown.

    Examples:
        >>> schedule = ScheduleConfig(tokens=200_000, warmup=10_000)
        >>> Setup(model="pico", schedule=schedule).schedule.stable_tokens  # the LR is constant
        inf
    """

    engine: EngineConfig = field(default_factory=EngineConfig)


def planned_run(setup: RunSetup, vocab_size: int | None = None, content: str = "") -> RunConfig:
    """Return the run that a sweep overlays, without its data, for an estimate of its cost.

    If the model has no vocabulary size, `vocab_size` is used.
    """
    text = setup.text
    return RunConfig(
        model_of(group_of(setup.model, vocab_size)),
        DataConfig(text.corpus, text.tokenizer, content, text.seq_len),
        setup.optimizer,
        setup.schedule,
        setup.evaluation,
        setup.averages,
    )


SMALL_MODEL = 1_000_000
"""Number of parameters below which a model does not fill an accelerator."""
VMAPPED_RUNS = 64
"""Number of runs of such a model that share a program on an accelerator."""


def runs_per_program(run: RunConfig, config: EngineConfig, *, accelerators: bool) -> int:
    """Return how many runs like this one are trained in one program.

    It is `config.vmap_runs` if that is set. Else small models share a program on accelerators; on
    CPUs each core trains one run. A run of several processes is trained alone.
    """
    if processes_per_run(config.processes, run) > 1:
        return 1
    one_device = config.fsdp == 1 and config.devices < 2
    small = run.model.counts().total < SMALL_MODEL
    return config.vmap_runs or (VMAPPED_RUNS if accelerators and small and one_device else 1)


@cache
def parse_processes(written: str | int) -> tuple[tuple[int, int], ...]:
    """Parse pairs of a smallest model, in non-embedding parameters, and a number of processes.

    Raises:
        InputError: If the text is neither a number nor such pairs, "0:1 500M:2".

    Examples:
        >>> parse_processes(2), parse_processes("0:1 500M:2")
        (((0, 2),), ((0, 1), (500000000, 2)))
    """
    field = "setup.engine.processes"
    expected = 'a number, or by the parameters of the model, "0:1 500M:2"'
    pairs = [part.partition(":")[::2] for part in str(written).split()]
    if len(pairs) == 1 and not pairs[0][1]:
        pairs = [("0", pairs[0][0])]
    check(all(count.isdecimal() and int(count) for _, count in pairs), field, written, expected)
    parsed = tuple((parse_tokens(size, field=field), int(count)) for size, count in pairs)
    sizes = [size for size, _ in parsed]
    check(bool(sizes) and sizes[0] == 0 and sizes == sorted({*sizes}), field, written, expected)
    return parsed


def processes_per_run(written: str | int, run: RunConfig) -> int:
    """Return how many processes train a run together."""
    pairs = parse_processes(written)
    return pairs[bisect_right([size for size, _ in pairs], run.model.counts().non_embedding) - 1][1]
