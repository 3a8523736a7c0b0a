"""RunConfig: the settings that determine a run's trajectory and loss curve, and the run's id.

The execution of a run (devices, micro-batches, directories) is configured by
`bss.training.execution`. Two runs with equal configs have equal ids, whatever executed them.
"""

import dataclasses
import functools
import hashlib
import json
import math
import re
from bisect import bisect_left, bisect_right
from dataclasses import dataclass, field
from typing import Any, Literal

from bss.errors import InputError, check_least
from bss.models import ModelFamily
from bss.registry import Registered
from bss.schedules.config import ScheduleConfig, without_units
from bss.schedules.coupling import Coupling
from bss.schedules.momentum import beta1_by
from bss.schedules.plan import Plan, resolve
from bss.training.optimizers import AdamW, Optimizer
from bss.units import parse_tokens
from bss.values import read_fields, to_dict

TAKEN_NAMES = ("eval", "test", "train", "grad", "noise")
"""Reserved column prefixes."""

SpikePolicy = Literal["stop", "skip"]


@dataclass(frozen=True)
class DataConfig:
    """The training tokens and their order.

    Attributes:
        corpus: name of the corpus, for display; `content` identifies it.
        tokenizer: name of the tokenizer, for display.
        content: content hash of the token shards; shards with another hash are refused.
        seq_len: targets per sequence, in tokens.
        seed: seed of the data order, any integer; compared runs share it.
        repeat: allow more tokens than the corpus has.
    """

    corpus: str = "stdlib"
    tokenizer: str = "bytes"
    content: str = ""
    seq_len: int = 128
    seed: int = 0
    repeat: bool = False

    def __post_init__(self) -> None:
        read_fields(self, "data.")


@dataclass(frozen=True)
class HeldOutSet:
    """An additional held-out set, evaluated during the run.

    Attributes:
        name: prefix of its columns, e.g. "wiki" for wiki_loss, wiki_loss_se, ...
        content: content hash of its token shards, in the same folder as the run's shards; empty
            for the run's own.
        split: "validation", "test" or another split of its shards.
        tokens: number of tokens of the split.
    """

    name: str
    content: str = ""
    split: str = "validation"
    tokens: int = 32_768


@dataclass(frozen=True)
class EvaluationConfig:
    """Fixed held-out tokens, the same for all compared runs.

    Attributes:
        tokens: held-out tokens of the validation split, evaluated during the run.
        test_tokens: held-out tokens of the test split, evaluated once at the end; 0 for none.
        per_efold: evaluations per e-fold of tokens consumed.
        first: tokens consumed at the first evaluation by e-folds.
        every_steps: steps of the run between further evaluations; 0: none.
        every_tokens: tokens consumed between further evaluations; 0: none.
        seq_len: length of the held-out sequences, in tokens; 0 for the run's sequence length. Runs
            of different lengths are compared on one.
        sets: additional sets, of the run's corpus or of one with the same tokenizer.
        metrics: names of metrics in addition to the loss, of `bss.training.evaluation.METRICS` or
            as `package.module:ATTRIBUTE`.

    Examples:
        >>> EvaluationConfig(tokens=65_536, per_efold=10).first
        100000
    """

    tokens: int = 32_768
    test_tokens: int = 0
    per_efold: int = 20
    first: int = 100_000
    seq_len: int = 0
    sets: tuple[HeldOutSet, ...] = ()
    metrics: tuple[str, ...] = ()
    every_steps: int = 0
    every_tokens: int = 0

    def __post_init__(self) -> None:
        read_fields(self, "evaluation.")
        least = {"tokens": 1, "test_tokens": 0, "per_efold": 1, "first": 1, "seq_len": 0}
        least |= {"every_steps": 0, "every_tokens": 0}
        check_least("evaluation", self, **least)
        taken: set[str] = set(TAKEN_NAMES)
        for one in self.sets:
            check_least(f"evaluation.sets {one.name}", one, tokens=1)
            if not one.name.isidentifier() or one.name in taken:
                raise InputError(
                    f"evaluation.sets: {one.name!r} is not a new name; use letters, digits, "
                    f"underscores, and none of {', '.join(sorted(taken))}"
                )
            taken.add(one.name)


@dataclass(frozen=True)
class NoiseScaleConfig:
    """Measurement of the gradient noise scale; see `bss.training.noise_scale.noise_estimates`.

    Attributes:
        half_life: half-life of the averages of its numerator and denominator, in tokens; 0: off.
        split: use micro-batches of at most half the batch, so that every batch above 1 is measured;
            else a batch of one micro-batch is not.
    """

    half_life: int = 0
    split: bool = False

    def __post_init__(self) -> None:
        read_fields(self, "noise_scale.")
        check_least("noise_scale", self, half_life=0)
        if self.split and not self.half_life:
            raise InputError(
                "noise_scale.split is on without a noise_scale.half_life; give one, in tokens"
            )


@dataclass(frozen=True)
class Parent:
    """The checkpoint that a forked run starts from: the parent's id and its tokens consumed."""

    run: str
    tokens: int

    def __post_init__(self) -> None:
        if not re.fullmatch(r"[0-9a-f]+", str(self.run)):
            raise InputError(
                f"parent.run: {self.run!r} is no run's id; give its hexadecimal digits"
            )


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    Attributes:
        model: the model family and its sizes.
        data: the training tokens.
        optimizer: the optimizer at the reference batch size.
        schedule: batch size and learning rate by tokens.
        evaluation: the held-out tokens.
        averages: half-lives of weight averages, "50K" tokens or "4%" of the tokens consumed.
        seed: seed of the initialisation, any integer.
        parent: the fork point that a forked run starts from.
        noise_scale: measurement of the gradient noise scale, off by default.
        spike_policy: what a step does whose loss, gradient or update is not finite: "stop" ends the
            run as diverged. "skip" leaves the state as it is, counts the step and goes on. It also
            skips a step with an outlying gradient norm; see `bss.training.spikes`.
        spike_scatters: limit of a log gradient norm above its mean, in standard deviations, 1 or
            more. It has an effect with "skip" only.

    Examples:
        >>> from bss.sweeps.setup import Setup, planned_run
        >>> run = planned_run(Setup())
        >>> run.schedule.tokens, run.plan().tokens  # whole steps of 8 sequences
        (1000000, 999424)
    """

    model: ModelFamily
    data: DataConfig = field(default_factory=DataConfig)
    optimizer: Optimizer = field(default_factory=AdamW)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)
    averages: tuple[str, ...] = ()
    seed: int = 0
    parent: Parent | None = None
    noise_scale: NoiseScaleConfig = field(default_factory=NoiseScaleConfig)
    spike_policy: SpikePolicy = "stop"
    spike_scatters: float = 6.0

    def __post_init__(self) -> None:
        read_fields(self, "run.")
        check_least("run", self, spike_scatters=1)
        for text in self.averages:
            half_life(text, self.schedule.tokens)
        if self.model.own_rates and not self.optimizer.own_rates:
            raise InputError(
                f"optimizer.name is {self.optimizer.chosen}; expected adamw, the only one with "
                "LR multipliers of a parametrization other than standard"
            )
        rule = self.schedule.beta1_coupling
        if rule != "none" and self.optimizer.one_beta1:
            raise InputError(
                f"schedule.beta1_coupling is {rule}; {self.optimizer.chosen} averages with one "
                "beta1 throughout, so leave it out"
            )

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """Return the fields of an entry, with lengths of the schedule in steps or samples resolved.

        The data determine the tokens of a sequence.
        """
        schedule = entry.get("schedule")
        if isinstance(schedule, dict):
            data = entry.get("data")
            given = data.get("seq_len") if isinstance(data, dict) else None
            seq_len = given if isinstance(given, int) else DataConfig.seq_len
            entry["schedule"] = without_units(schedule, seq_len)
        return entry

    @functools.cached_property
    def id(self) -> str:
        """Twelve hexadecimal digits that identify the trajectory.

        They are a hash of the fields that differ from their defaults, so that a new option does not
        rename old runs. The names of corpus and tokenizer and settings without effect are excluded.
        So is the token budget if no schedule depends on it, because a longer budget continues the
        run.
        """
        return self.effective()._hash()

    def effective(self) -> "RunConfig":
        """Return the config with settings that have no effect reset to their defaults."""
        o = self.optimizer
        schedule = self.schedule.effective(o.weight_decay)
        if schedule.beta1_by:
            sizes = [batch * self.data.seq_len for batch in schedule.batch.batches]
            rule, tokens = schedule.beta1_by
            if all(beta1_by(rule, o.beta1, tokens / size) == o.beta1 for size in sizes):
                schedule = schedule.without(("beta1_coupling",))
        scatters = self.spike_scatters if self.skips_spikes else RunConfig.spike_scatters
        return dataclasses.replace(
            self,
            model=self.model.effective(),
            optimizer=o.effective(),
            schedule=schedule,
            spike_scatters=scatters,
        )

    def _hash(self) -> str:
        unnamed = dataclasses.replace(
            self.data, corpus=DataConfig.corpus, tokenizer=DataConfig.tokenizer
        )
        schedule = self.schedule
        if not self.depends_on_stop:
            schedule = dataclasses.replace(schedule, tokens=ScheduleConfig.tokens)
        values = _non_default(dataclasses.replace(self, data=unnamed, schedule=schedule))
        text = json.dumps(values, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:12]

    @property
    def skips_spikes(self) -> bool:
        """True if a step that is not finite or outlying is skipped."""
        return self.spike_policy == "skip"

    @property
    def depends_on_stop(self) -> bool:
        """True if the learning rate or beta1 before the stop depend on the token budget."""
        return self.schedule.stable_tokens < math.inf or self.schedule.beta1_by is not None

    @property
    def start(self) -> int:
        """Tokens consumed before the first step: 0, or the fork point."""
        return self.parent.tokens if self.parent else 0

    def plan(self) -> Plan:
        """Return the run as integer segments.

        Raises:
            InputError: If the schedules have no plan.
        """
        s = self.schedule
        o = self.optimizer
        return resolve(
            s.batch,
            s.tokens,
            self.data.seq_len,
            rate=s.learning_rate(o.lr),
            coupling=Coupling(
                lr=s.lr_coupling,
                reference_batch=s.reference_batch or s.batch.batches[0],
                weight_decay=o.weight_decay,
                weight_decay_rule=s.weight_decay_coupling,
                beta1=o.beta1,
                beta1_half_life=o.beta1_half_life or None,
                beta1_rule=s.beta1_coupling,
                beta2=o.beta2,
                beta2_half_life=o.beta2_half_life or None,
            ),
            start=self.start,
        )

    def evaluation_tokens(self) -> list[int]:
        """Return the token counts at which the run evaluates, evenly spaced in log tokens.

        `evaluation.every_tokens` adds its multiples. None depends on the token budget, so that a
        continued run keeps them.
        """
        e = self.evaluation
        stop = self.schedule.tokens
        grid = _evaluation_grid(e.first, e.per_efold, stop)
        spaced = grid[bisect_right(grid, self.start) : bisect_left(grid, stop)]
        if not e.every_tokens:
            return [*spaced]
        first = (self.start // e.every_tokens + 1) * e.every_tokens
        return sorted({*spaced, *range(first, stop, e.every_tokens)})


@functools.lru_cache(maxsize=256)
def _evaluation_grid(first: int, per_efold: int, stop: int) -> tuple[int, ...]:
    """Return token counts to `stop`, evenly spaced in log tokens."""
    last = math.floor(math.log(max(stop / first, 1)) * per_efold)
    return tuple(round(first * math.exp(k / per_efold)) for k in range(last + 1))


def half_life(text: str, tokens: int) -> float:
    """Return a half-life in tokens: "50K", or "4%" of the `tokens` consumed so far.

    Raises:
        InputError: If it is neither.

    Examples:
        >>> half_life("50K", 1_000_000), half_life("4%", 1_000_000)
        (50000.0, 40000.0)
    """
    if not text.endswith("%"):
        count = parse_tokens(text, field="averages")
        if count > 0:
            return float(count)
    else:
        try:
            fraction = float(text[:-1]) / 100
        except ValueError:
            fraction = math.nan
        if 0 < fraction <= 1:
            return fraction * tokens
    raise InputError(f'averages: {text!r}: expected tokens, e.g. "50K", or 0 < percent <= 100')


def fork_points(run: RunConfig, plan: Plan, wanted: tuple[int, ...]) -> set[int]:
    """Return the step boundaries, in tokens, at which checkpoints for forked runs are kept.

    A point in the remainder is moved to the end of the last step; one beyond the token budget is
    ignored.
    """
    return {plan.next_boundary(t) for t in wanted if run.start < t <= plan.budget}


def evaluation_points(run: RunConfig, plan: Plan) -> set[int]:
    """Return the step boundaries, in tokens, at which a run evaluates; batch changes among them."""
    points = {plan.next_boundary(t) for t in run.evaluation_tokens()}
    if every := run.evaluation.every_steps:
        points |= {plan.tokens_at(step) for step in range(every, plan.steps, every)}
    return points | {segment.end_tokens for segment in plan.segments}


_fields = functools.cache(dataclasses.fields)
_PLAIN = frozenset({int, float, str, bool, tuple, type(None)})


def _non_default(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass that differ from their defaults, nested.

    The name of a registered class is included if it is not the default. A float field is a float
    however it was written: 1 and 1.0 are the same run.
    """
    differing: dict[str, Any] = {}
    for f in _fields(type(value)):
        v = getattr(value, f.name)
        if type(v) not in _PLAIN and dataclasses.is_dataclass(v) and not hasattr(v, "parse"):
            if nested := _non_default(v):
                differing[f.name] = nested
        elif v != f.default:
            plain = to_dict(v)
            differing[f.name] = float(plain) if f.type is float else plain
    if isinstance(value, Registered) and not value.is_default:
        differing[value.key] = value.chosen
    return differing
