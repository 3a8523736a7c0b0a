"""A run is a value: everything that determines its trajectory and its curve, frozen and typed.

Where and how a run is executed (device, buckets, threads, directories) is not here: that is
`bss.training.execution`. Two runs with equal configs have equal ids, whatever ran them.
"""

import dataclasses
import hashlib
import json
import math
from dataclasses import dataclass, field
from typing import Any

from bss.errors import InputError, check_least
from bss.models import ModelFamily
from bss.registry import Chosen
from bss.schedules.config import ScheduleConfig
from bss.schedules.coupling import Coupling
from bss.schedules.momentum import beta1_by
from bss.schedules.plan import Plan, resolve
from bss.training.average import half_life
from bss.training.optimizers import AdamW, Optimizer
from bss.values import to_dict

TAKEN_NAMES = ("eval", "test", "train", "grad", "noise")
"""With which columns of a curve begin already."""


@dataclass(frozen=True)
class DataConfig:
    """Which tokens, in which order.

    Attributes:
        corpus: name of the corpus, for people; `content` is what counts.
        tokenizer: name of the tokenizer, for people.
        content: content hash of the token shards; a run refuses shards with another one.
        seq_len: targets per sequence, in tokens.
        seed: the data seed; compared runs share it.
        repeat: allow more tokens than the corpus holds.
    """

    corpus: str = "stdlib"
    tokenizer: str = "bytes"
    content: str = ""
    seq_len: int = 128
    seed: int = 0
    repeat: bool = False


@dataclass(frozen=True)
class HeldOutSet:
    """Another held-out set, evaluated along the run.

    Attributes:
        name: before its columns: of "wiki" they are wiki_loss, wiki_loss_se, ...
        content: content hash of its token shards, which lie beside the run's; empty for the run's.
        split: "validation", "test" or what its shards have.
        tokens: how many of the split.
    """

    name: str
    content: str = ""
    split: str = "validation"
    tokens: int = 32_768


@dataclass(frozen=True)
class EvaluationConfig:
    """Fixed held-out tokens, the same for every run that is compared.

    Attributes:
        tokens: held-out tokens of the validation split, evaluated along the run.
        test_tokens: held-out tokens of the test split, evaluated once at the end; 0 for none.
        per_efold: evaluations per e-fold of tokens consumed.
        first: tokens consumed at the first evaluation.
        seq_len: length of the held-out sequences, in tokens; 0 for the run's own. Runs of different
            lengths are compared on one.
        sets: others, of the run's corpus or of any that was tokenized alike.
        metrics: what is measured of each besides the loss, by the names of
            `bss.training.metrics.METRICS` or as `package.module:ATTRIBUTE`.
    """

    tokens: int = 32_768
    test_tokens: int = 0
    per_efold: int = 20
    first: int = 100_000
    seq_len: int = 0
    sets: tuple[HeldOutSet, ...] = ()
    metrics: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        least = {"tokens": 1, "test_tokens": 0, "per_efold": 1, "first": 1, "seq_len": 0}
        check_least("evaluation", self, **least)
        taken: set[str] = set(TAKEN_NAMES)
        for one in self.sets:
            check_least(f"evaluation.sets {one.name}", one, tokens=1)
            if not one.name.isidentifier() or one.name in taken:
                raise InputError(
                    f"evaluation.sets: {one.name!r} is no name of its own; use letters, digits, "
                    f"underscores, and none of {', '.join(sorted(taken))}"
                )
            taken.add(one.name)


@dataclass(frozen=True)
class NoiseScaleConfig:
    """Whether the run measures its gradient noise scale; see `bss.training.noise_scale`.

    Attributes:
        half_life: of the averages of its numerator and denominator, in tokens; 0 measures none.
        split: pick buckets of at most half the batch, so that every batch above 1 is measured;
            else a batch of one bucket is not.
    """

    half_life: int = 0
    split: bool = False

    def __post_init__(self) -> None:
        check_least("noise_scale", self, half_life=0)
        if self.split and not self.half_life:
            raise InputError(
                "noise_scale.split is on without a noise_scale.half_life; give one, in tokens"
            )


@dataclass(frozen=True)
class Parent:
    """The checkpoint a branch starts from: the parent's id and its tokens consumed there."""

    run: str
    tokens: int


@dataclass(frozen=True)
class RunConfig:
    """One training run.

    Attributes:
        averages: half-lives of weight averages, "50K" tokens or "4%" of the tokens consumed.
        seed: the initialisation's; the data has a seed of its own.
        parent: the fork point a branch starts from.
        noise_scale: the gradient noise scale, off by default.
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

    def __post_init__(self) -> None:
        for text in self.averages:
            half_life(text, self.schedule.tokens)
        if self.model.own_rates and not self.optimizer.own_rates:
            raise InputError(
                f"optimizer.name is {self.optimizer.chosen}; expected adamw, which alone has the "
                "rates of a parametrization other than standard"
            )
        rule = self.schedule.beta1_coupling
        if rule != "none" and self.optimizer.one_beta1:
            raise InputError(
                f"schedule.beta1_coupling is {rule}; {self.optimizer.chosen} averages with one "
                "beta1 throughout, so leave it out"
            )

    @property
    def id(self) -> str:
        """Twelve hexadecimal digits that name the trajectory.

        They hash the fields that differ from their defaults, so that a new option renames no
        old run. Left out are the names of corpus and tokenizer, settings without effect, and the
        stop of a trunk (a run whose schedules do not depend on it): asking for more tokens
        continues it.
        """
        return self.effective()._hash()

    def effective(self) -> "RunConfig":
        """The same without settings that change nothing; those chosen say themselves which."""
        o, schedule = self.optimizer, self.schedule.effective(self.optimizer.weight_decay)
        if schedule.beta1_by:
            sizes = [batch * self.data.seq_len for batch in schedule.batch.batches]
            rule, tokens = schedule.beta1_by
            if all(beta1_by(rule, o.beta1, size, tokens / size) == o.beta1 for size in sizes):
                schedule = schedule.without(("beta1_coupling",))
        return dataclasses.replace(
            self, model=self.model.effective(), optimizer=o.effective(), schedule=schedule
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
    def depends_on_stop(self) -> bool:
        """Whether learning rate or beta1 before the stop depend on where the stop is."""
        return self.schedule.stable_tokens < math.inf or self.schedule.beta1_by is not None

    @property
    def start(self) -> int:
        """Tokens consumed before the first step: 0, or the fork of a branch."""
        return self.parent.tokens if self.parent else 0

    def plan(self) -> Plan:
        """The run as integer segments; raises InputError where it cannot be run."""
        s, o = self.schedule, self.optimizer
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
        """Token counts at which the run evaluates: an evenly spaced grid in log tokens.

        The grid does not depend on the stop, so that a continued trunk keeps it.
        """
        e, stop = self.evaluation, self.schedule.tokens
        last = math.floor(math.log(max(stop / e.first, 1)) * e.per_efold)
        grid = [round(e.first * math.exp(k / e.per_efold)) for k in range(last + 1)]
        return [tokens for tokens in grid if self.start < tokens < stop]


def _non_default(value: Any) -> dict[str, Any]:
    """What of a dataclass differs from its defaults, nested, empty branches dropped.

    A class that was chosen is named where it is not the default's. A float field is a float
    however it was written: 1 and 1.0 name the same run.
    """
    differing: dict[str, Any] = {}
    for f in dataclasses.fields(value):
        v = getattr(value, f.name)
        if dataclasses.is_dataclass(v) and not hasattr(v, "parse"):
            if nested := _non_default(v):
                differing[f.name] = nested
        elif v != f.default:
            plain = to_dict(v)
            differing[f.name] = float(plain) if f.type is float else plain
    if isinstance(value, Chosen) and not value.is_default:
        differing[value.key] = value.chosen
    return differing
