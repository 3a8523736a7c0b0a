"""What one run is asked for, as flat as a command line wants it."""

import dataclasses
from dataclasses import dataclass, field

from bss.schedules.config import ScheduleConfig
from bss.training.config import EvaluationConfig, RunConfig
from bss.training.execution import Execution
from bss.training.optimizers import AdamW, Optimizer
from experiments.study import EngineConfig, Setup, TextConfig, base_run


@dataclass(frozen=True)
class Study:
    """One run.

    Attributes:
        model: a named size.
        text: what it reads.
        optimizer: at the first batch of the schedule.
        schedule: tokens, batch and learning rate.
        evaluation: of held-out tokens along the run.
        averages: half-lives of weight averages, "50K" tokens or "4%" of the tokens consumed.
        seed: of the initialisation and of the data order.
        buckets: ladder of bucket sizes in sequences; empty lets the plan choose.
        checkpoint_seconds: at most this long between checkpoints.
        runs: directory of run directories.
        results: directory of the curve and its figure.
    """

    model: str = "nano"
    text: TextConfig = field(default_factory=TextConfig)
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    averages: tuple[str, ...] = ()
    seed: int = 0
    buckets: tuple[int, ...] = ()
    checkpoint_seconds: float = 60.0
    runs: str = "runs"
    results: str = "results"

    def run(self) -> tuple[RunConfig, Execution]:
        """The run on its corpus, which is prepared where it is missing.

        Raises:
            InputError: an unknown size or corpus, or one with too little text.
        """
        engine = EngineConfig(
            self.runs, buckets=self.buckets, checkpoint_seconds=self.checkpoint_seconds
        )
        run, execution = base_run(
            Setup(
                self.model,
                self.text,
                self.optimizer,
                self.schedule,
                self.evaluation,
                self.averages,
                engine,
            )
        )
        data = dataclasses.replace(run.data, seed=self.seed)
        return dataclasses.replace(run, seed=self.seed, data=data), execution
