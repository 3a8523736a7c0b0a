"""The settings of the runs of a sweep, as in a config's `setup`."""

from dataclasses import dataclass, field, fields
from pathlib import Path

from bss.errors import check_least
from bss.models.sizes import SIZES, ModelSpec, group_of, model_of
from bss.schedules.config import ScheduleConfig
from bss.sweeps.packing import parse_processes
from bss.training.execution import Execution, SharedExecution
from bss.training.optimizers import AdamW, Optimizer
from bss.training.run_config import DataConfig, EvaluationConfig, RunConfig


@dataclass(frozen=True)
class TextConfig:
    """The corpus, its tokenizer and their directory. "synthetic" needs no files.

    Attributes:
        corpus: by name, "files:PATH/**/*.txt", "shards:DIRECTORY" or package.module:ATTRIBUTE; see
            `bss.data.prepare`.
        tokenizer: "bytes", "bpe-SIZE" or the path of a tokenizer.json.
        root: folder of all prepared corpora.
        seq_len: targets per sequence, in tokens.
        text_feature: the field of JSON lines, or the feature of a tfds data set, that is the text.
    """

    corpus: str = "stdlib"
    tokenizer: str = "bytes"
    root: str = "data"
    seq_len: int = 128
    text_feature: str = "text"


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
        fleet: number of runs of one shape to train in one program and process. 0 means 64 on
            accelerators for models below 1M parameters, else 1.
        processes: number of processes that train a run together, each on its own node of a Slurm
            job: a number, or by non-embedding parameters, "0:1 500M:2".
        slurm: options of `sbatch` for the jobs of engine "slurm", e.g. "--partition=gpu --gpus=1
            --time=4:00:00".
    """

    workers: int = 0
    pin: bool = True
    retries: int = 2
    address: str = ""
    fleet: int = 0
    processes: str | int = "1"
    slurm: str = ""

    def __post_init__(self) -> None:
        check_least("engine", self, workers=0, retries=0, fleet=0)
        parse_processes(self.processes)

    def execution(self, data: str = "") -> Execution:
        """Return the execution settings for runs on the token shards of a directory."""
        shared = {f.name: getattr(self, f.name) for f in fields(SharedExecution)}
        return Execution(**shared, data=data, compilation_cache=str(Path(self.runs) / "compiled"))


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
        if isinstance(self.model, str) and self.model not in SIZES:
            object.__setattr__(self, "model", group_of(self.model))
        model_of(self.model)  # refused before a corpus is prepared for it


@dataclass(frozen=True)
class Setup(RunSetup):
    """The run that a sweep overlays, and the settings of its execution."""

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
