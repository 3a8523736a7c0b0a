"""Plan: batch schedule and learning rate (LR) resolved over a token budget into integer segments.

Steps of our runs are derived from tokens only here. Every map between the two is exact, in Python
integers, and takes O(log segments) for budgets of 10^4 or 10^13 tokens. The rules are derived here:

- A change of batch size takes effect at the first step that starts at or after it.
- The LR of a step is the schedule at the step's midpoint token.
- Trailing tokens that fill no batch are the remainder; they are not trained on.
"""

import itertools
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from bss.cells import Table, lines_html
from bss.errors import InputError, check, check_type
from bss.installation import from_above
from bss.schedules import by_step
from bss.schedules.batch import BatchSchedule
from bss.schedules.coupling import Coupling, Settings
from bss.schedules.lengths import Budget, settled
from bss.schedules.rates import LRSchedule, constant
from bss.schedules.stretches import stretches_within
from bss.units import format_tokens, parse_number, parse_tokens

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

BRIEF_STEPS = 20  # a stage of fewer is rarely meant
HYPERPARAMS = {
    "learning_rate": "lr",
    "b1": "beta1",
    "b2": "beta2",
    "weight_decay": "weight_decay",
}
"""Settings of a step by their names in optax."""


@dataclass(frozen=True)
class Segment:
    """Consecutive steps of one batch size.

    Attributes:
        start_tokens: position at which its first step starts.
        end_tokens: position at which its last step ends.
        batch: sequences per step.
        steps: number of steps.
        start_step: steps of the plan before it.
        lr_start: LR of its first step, scaling with the batch size included.
        lr_end: LR of its last step.
        seq_len: tokens per sequence.
    """

    start_tokens: int
    end_tokens: int
    batch: int
    steps: int
    start_step: int
    lr_start: float
    lr_end: float
    seq_len: int

    @property
    def size(self) -> int:
        """Tokens per step."""
        return self.batch * self.seq_len


@dataclass(frozen=True)
class StepSpec:
    """One step of a plan.

    Attributes:
        step: its number, from 0.
        tokens: position at which it starts.
        batch: sequences.
        settings: learning rate, betas and weight decay.
        given: the settings that the plan sets; others have their defaults.
    """

    step: int
    tokens: int
    batch: int
    settings: Settings
    given: tuple[str, ...] = ()

    @property
    def lr(self) -> float:
        """The LR of the step, scaling with the batch size included; 1 without an LR schedule."""
        return self.settings.lr

    def hyperparams(self, *names: str, opt_state: Any = None) -> dict[str, np.float32]:
        """Return settings of the step for `optax.inject_hyperparams`, by their names in optax.

        Args:
            *names: Some of "learning_rate", "b1", "b2" and "weight_decay". Betas that the plan does
                not set are 0.9 and 0.95.
            opt_state: State of the optimizer. If given, each name must be one of its
                hyperparameters.

        Raises:
            InputError: If a name is unknown, or the plan sets no LR or weight decay, or the
                optimizer has no such hyperparameter.

        Examples:
            >>> lr = LRSchedule("cosine", peak=1e-3)
            >>> step = plan(8, tokens="1M", seq_len=64, lr=lr).at(0)
            >>> {name: round(float(x), 4) for name, x in step.hyperparams("learning_rate").items()}
            {'learning_rate': 0.001}
        """
        for name in names:
            if name not in HYPERPARAMS:
                raise InputError(
                    f"hyperparams: {name!r} is unknown; choose from {', '.join(HYPERPARAMS)}"
                )
            field = HYPERPARAMS[name]
            if field not in (*self.given, "beta1", "beta2"):
                fix = "lr=..." if field == "lr" else f"coupling=bss.Coupling({field}=...)"
                raise InputError(f"hyperparams: the plan sets no {name}; give `bss.plan` {fix}")
        if opt_state is not None:
            from_above("training.microbatching:check_injected")(opt_state, names)
        return {name: np.float32(getattr(self.settings, HYPERPARAMS[name])) for name in names}


@dataclass(frozen=True, repr=False)
class Plan:
    """Batch size and LR of each step from position `start` to `budget`; made by `bss.plan`.

    Iterating over a plan yields its steps, each with step, tokens, batch and lr. Positions are
    tokens consumed since the start of the schedule. Steps are counted from 0 at
    `start`, which is above 0 for a forked run.

    Attributes:
        schedule: the batch schedule.
        seq_len: tokens per sequence; of the first stage, if lengths change.
        start: position of the first step.
        budget: position at which the tokens run out.
        rate: LR as a function of the position; None if none was given.
        coupling: scaling of the settings with the batch size.
        segments: in order, at least one; neighbours differ in batch size or length of sequences.
        remarks: sentences that an export states as comments, e.g. how far the plan is beyond the
            runs of its fit.

    Raises:
        InputError: From its methods: If a step or a position is outside of the plan.

    Examples:
        >>> [(step.batch, step.tokens) for step in plan("0:4 1K:8", tokens="2K", seq_len=64)]
        [(4, 0), (4, 256), (4, 512), (4, 768), (8, 1024)]
    """

    schedule: BatchSchedule
    seq_len: int
    start: int
    budget: int
    rate: Callable[[Any], Any] | None
    coupling: Coupling
    segments: tuple[Segment, ...]
    remarks: tuple[str, ...] = ()

    def __repr__(self) -> str:
        lines = [self.answer, *(f"warning: {text}" for text in self.warnings)]
        return "\n".join(lines)

    def _repr_html_(self) -> str:
        """Return the totals, the stages and the warnings, as a notebook shows them."""
        stages = Table.of_records("", self.to_dict()["segments"])
        return lines_html(self.answer, self.warnings, [stages])

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[StepSpec]:
        return (self.at(step) for step in range(self.steps))

    @property
    def answer(self) -> str:
        """The batch sizes and totals in one line."""
        return (
            f"{self.schedule}: {self.steps:,} steps, {self.tokens:,} tokens, "
            f"{self.remainder_tokens:,} not trained"
        )

    @property
    def warnings(self) -> list[str]:
        """Remarks, and stages that are never reached, or very short."""
        return [*self.remarks, *self.unseen(), *self.brief(), *self.delayed()]

    @property
    def steps(self) -> int:
        """Steps of the whole plan."""
        return self.segments[-1].start_step + self.segments[-1].steps

    @property
    def tokens(self) -> int:
        """Position at which the last step ends."""
        return self.segments[-1].end_tokens

    @property
    def remainder_tokens(self) -> int:
        """Tokens at the end of the budget that fill no batch."""
        return self.budget - self.tokens

    @property
    def seq_lens(self) -> tuple[int, ...]:
        """Tokens per sequence of each stage; empty if all sequences have one length."""
        return self.schedule.seq_lens and tuple(segment.seq_len for segment in self.segments)

    @property
    def devices(self) -> int:
        """The largest number of devices that the batch size of every step divides into."""
        return math.gcd(*(segment.batch for segment in self.segments))

    def step_at(self, tokens: int) -> int:
        """Return the number of complete steps at a position in [start, budget]."""
        if not self.start <= tokens <= self.budget:
            raise InputError(
                f"tokens: {tokens} is outside the plan; "
                f"write a position from {self.start} to {self.budget}"
            )
        i = bisect_right(self.segments, tokens, key=lambda s: s.start_tokens) - 1
        segment = self.segments[i]
        done = (tokens - segment.start_tokens) // segment.size
        return segment.start_step + min(done, segment.steps)

    def tokens_at(self, step: int) -> int:
        """Return the position at which a step starts; for `step == steps`, the end of the plan."""
        if not 0 <= step <= self.steps:
            raise InputError(f"step: {step} is outside the plan; write 0 to {self.steps}")
        segment = self._segment(step)
        return segment.start_tokens + (step - segment.start_step) * segment.size

    def tokens_at_each(self, steps: np.ndarray) -> np.ndarray:
        """Return `tokens_at` of many steps, unchecked, in float64."""
        firsts = [*(segment.start_step for segment in self.segments), self.steps]
        return np.interp(steps, firsts, [self.tokens_at(step) for step in firsts])

    def next_boundary(self, tokens: int) -> int:
        """Return the first step boundary at or after `tokens`; in the remainder, the end of the
        last step.
        """
        step = self.step_at(tokens)
        boundary = self.tokens_at(step)
        return boundary if boundary >= tokens or step == self.steps else self.tokens_at(step + 1)

    def at(self, step: int) -> StepSpec:
        """Return one step, 0 <= step < steps."""
        if not 0 <= step < self.steps:
            raise InputError(f"step: {step} is outside the plan; write 0 to {self.steps - 1}")
        segment = self._segment(step)
        tokens = self.tokens_at(step)
        settings = _settings(self.rate, self.coupling, tokens, segment.batch, segment.seq_len)
        given = (*(() if self.rate is None else ("lr",)), *self.coupling.given)
        return StepSpec(step, tokens, segment.batch, settings, given)

    def pack(self, rows: Any, micro_batch: int, *, octaves: bool = False) -> tuple[Any, np.int32]:
        """Lay out the rows of a step for `bss.microbatch_grad`, in a buffer of the largest batch.

        Args:
            rows: A tree of arrays [batch, ...], e.g. tokens [batch, seq_len].
            micro_batch: Sequences in a micro-batch, which divides every batch size of the plan.
            octaves: Whether the buffer is only as large as the next power of two of micro-batches:
                less to transfer, and one compiled program per power of two.

        Returns:
            The buffer, a tree of NumPy arrays, and the number of micro-batches that are real.

        Raises:
            InputError: If the micro-batch does not divide a batch size of the plan or the rows, or
                arrays differ in rows.

        Examples:
            >>> made = plan("0:2 1K:4", tokens="10K", seq_len=64)
            >>> batch, count = made.pack({"x": np.ones((2, 3))}, micro_batch=2)
            >>> batch["x"].shape, int(count)
            ((4, 3), 1)
        """
        self._check_micro_batch(micro_batch)
        largest = max(segment.batch for segment in self.segments)
        return from_above("training.microbatching:pack")(
            rows, micro_batch, largest, octaves=octaves
        )

    def lr_schedule(self) -> Callable[[Any], Any]:
        """Return the LR as a function of the step from 0, which may be traced: an optax schedule.

        Scaling with the batch size is included. On a JAX array in float32 the LR is within 1e-6 of
        the peak.

        Raises:
            InputError: If the plan has no LR.

        Examples:
            >>> made = plan("0:8 50%:16", tokens="1M", seq_len=64, lr=1e-3)
            >>> float(made.lr_schedule()(3))
            0.001
        """
        return by_step.lr_schedule(self)

    def every_k_schedule(self, micro_batch: int) -> Callable[[Any], Any]:
        """Return the micro-batches of a step as a function of the step, for `optax.MultiSteps`.

        The step counts updates from 0 and may be traced. The LR of the inner optimizer is then
        `lr_schedule`.

        Args:
            micro_batch: Sequences in a micro-batch.

        Raises:
            InputError: If the micro-batch does not divide a batch size of the plan.

        Examples:
            >>> made = plan("0:8 50%:16", tokens="1M", seq_len=64)
            >>> micro_batches = made.every_k_schedule(micro_batch=4)
            >>> int(micro_batches(0)), int(micro_batches(made.steps - 1))
            (2, 4)
        """
        self._check_micro_batch(micro_batch)
        return by_step.every_k_schedule(self, micro_batch)

    def brief(self) -> list[str]:
        """Return a warning about stages of fewer than BRIEF_STEPS steps."""
        few = [one for one in self.segments[:-1] if one.steps < BRIEF_STEPS]
        more = f" (and {len(few) - 1} more such stages)" if len(few) > 1 else ""
        return [
            f"batch {one.batch} lasts {one.steps} steps{more}; starts are tokens, or steps as "
            "20000steps:16"
            for one in few[:1]
        ]

    def unseen(self) -> list[str]:
        """Return warnings about stages beyond the budget or shorter than their step.

        Examples:
            >>> resolve(BatchSchedule.parse("0:8 10K:64 11K:2 9M:4"), 1_000_000, 128).unseen()
            ['stage 9M:4 lies beyond the 1M tokens: it is not trained',
            'stage 10K:64 is shorter than its step of 8,192 tokens']
        """
        beyond: list[str] = []
        short: list[str] = []
        ends = [*self.schedule.starts[1:], self.budget]
        lengths = self.schedule.seq_lens or (self.seq_len,) * len(ends)
        for number, (first, end) in enumerate(zip(self.schedule.starts, ends, strict=True)):
            stage = self.schedule.stage(number)
            size = self.schedule.batches[number] * lengths[number]
            begin = max(first, self.start)
            last = min(end, self.budget)
            if first >= self.budget:
                beyond.append(f"{stage} lies beyond the {format_tokens(self.budget)} tokens")
            elif end > self.start and (last - begin < size or self.next_boundary(begin) >= last):
                short.append(f"{stage} is shorter than its step of {size:,} tokens")
        lines = []
        for stages, more in ((beyond, ": it is not trained"), (short, "")):
            others = f" (and {len(stages) - 1} more)" if len(stages) > 1 else ""
            lines += [f"stage {stage}{more}{others}" for stage in stages[:1]]
        return lines

    def delayed(self) -> list[str]:
        """Return a warning about stages that wait for a whole sequence of their length."""
        late = []
        for before, segment in itertools.pairwise(self.segments):
            due = bisect_right(self.schedule.starts, segment.start_tokens) - 1
            if segment.start_tokens - self.schedule.starts[due] >= before.size:
                late.append(
                    f"stage {self.schedule.stage(due)} begins at {segment.start_tokens:,} tokens, "
                    f"the first step there at a whole sequence of {segment.seq_len} tokens"
                )
        return late

    def to_dict(self) -> dict[str, Any]:
        """Return the plan for JSON: segments and totals."""
        totals = ("steps", "tokens", "remainder_tokens", "devices")
        left_out = {"start_step"} if self.seq_lens else {"start_step", "seq_len"}
        segments = [
            {name: value for name, value in asdict(segment).items() if name not in left_out}
            for segment in self.segments
        ]
        return {"segments": segments, **{name: getattr(self, name) for name in totals}}

    def to_frame(self) -> "pd.DataFrame":
        """Return a row per stage.

        Columns start_tokens, end_tokens, batch (sequences), steps, lr_start and lr_end; seq_len if
        lengths of sequences change.
        """
        import pandas as pd

        return pd.DataFrame(self.to_dict()["segments"])

    def plot(self, ax: "Axes | None" = None) -> "Axes":
        """Plot batch size (left axis) and LR (right axis) against tokens.

        Args:
            ax: Axes to draw on; by default a new figure of pyplot.

        Returns:
            The axes of the batch size.
        """
        return from_above("plots.schedules:plot_plan")(self, ax)

    def export(self, trainer: str, *, approximate: bool = False) -> str:
        """Return the plan as settings or Python of another trainer; see `bss.export`.

        Args:
            trainer: "megatron", "levanter", "maxtext", "huggingface", "deepspeed", "lightning",
                "composer", "olmo-core", "torchtitan", "jax", "torch", "python", "csv", or
                `package.module:ATTRIBUTE`.
            approximate: Export the nearest plan that the trainer can follow.

        Raises:
            InputError: If the trainer is unknown or cannot follow the plan.
        """
        how = {"approximate": approximate, "remarks": self.remarks}
        return from_above("exports:export")(self, trainer, **how)

    def _check_micro_batch(self, micro_batch: int) -> None:
        check(micro_batch >= 1, "micro_batch", micro_batch, "a positive number of sequences")
        for segment in self.segments:
            if segment.batch % micro_batch:
                raise InputError(
                    f"micro_batch: {micro_batch} does not divide batch size {segment.batch} of the "
                    f"plan; write a divisor of {self.devices}"
                )

    def _segment(self, step: int) -> Segment:
        return self.segments[bisect_right(self.segments, step, key=lambda s: s.start_step) - 1]


def resolve(
    schedule: BatchSchedule,
    tokens: int,
    seq_len: int | None,
    *,
    rate: Callable[[Any], Any] | None = None,
    coupling: Coupling | None = None,
    start: int = 0,
) -> Plan:
    """Resolve a batch schedule over a token budget.

    Args:
        schedule: batch size in sequences as a function of the position in tokens.
        tokens: the budget, i.e. the position at which the tokens run out.
        seq_len: tokens per sequence; None if the schedule has its lengths.
        rate: LR as a function of the position, such as `bss.schedules.rates.wsd`. By default it is
            1, so that the plan contains the factors of the coupling.
        coupling: scaling of the settings with the batch size; none by default. Its `tokens` is set
            to the budget.
        start: the position at which the plan begins, above 0 for a forked run.

    Raises:
        InputError: If an argument is out of range, or the budget does not contain a single step.

    Examples:
        >>> plan = resolve(BatchSchedule.parse("0:8 2M:16"), 3_000_000, 128)
        >>> [(s.batch, s.steps) for s in plan.segments], plan.remainder_tokens
        ([(8, 1954), (16, 487)], 1728)
    """
    schedule, seq_len = settled(schedule, seq_len)
    check(seq_len >= 1, "seq_len", seq_len, "a positive number of tokens")
    check(start >= 0 and tokens >= 1, "tokens", f"from {start} to {tokens}", "a positive budget")
    coupling = replace(coupling or Coupling(), tokens=tokens)
    if schedule.seq_lens:
        _check_lengths(schedule, coupling, start)
    lengths = schedule.seq_lens or (seq_len,) * len(schedule.batches)
    # At a larger batch a shorter half-life may be what is meant.
    least = min(batch * length for batch, length in zip(schedule.batches, lengths, strict=True))
    half_life = coupling.beta1_half_life or least
    check(half_life >= least, "beta1_half_life", half_life, f"a step's {least:,} tokens or more")
    segments: list[Segment] = []
    done = 0
    for one in stretches_within(schedule, seq_len, tokens, start):
        steps = int(one.steps)
        end = one.start + steps * one.size
        shape = (one.batch, one.seq_len)
        first = _settings(rate, coupling, one.start, *shape).lr
        last = _settings(rate, coupling, end - one.size, *shape).lr
        segments.append(Segment(one.start, end, one.batch, steps, done, first, last, one.seq_len))
        done += steps
    if not segments:
        raise InputError(
            f"tokens: {format_tokens(tokens)} holds no step of {schedule(start)} sequences of "
            f"{seq_len} tokens from position {format_tokens(start)}; raise tokens"
        )
    return Plan(schedule, seq_len, start, tokens, rate, coupling, tuple(segments))


def plan(
    batch: Any,
    tokens: str | int,
    seq_len: str | int | None = None,
    *,
    lr: Any = None,
    coupling: Coupling | None = None,
    start: str | int = 0,
) -> Plan:
    """Return the plan of batch sizes and LRs over a token budget.

    Args:
        batch: Batch size in sequences: 256; a schedule as text, "0:8 2M:16"; a `BatchSchedule`; or
            the result of `fit.schedule`, also by sequence length. Starts are tokens, percentages,
            steps or samples. "0:1024x4096 252M:1024x8192" has the lengths of sequences too.
        tokens: Token budget, e.g. "10B"; or "255000steps" or "1440samples" of this schedule.
        seq_len: Tokens per sequence; left out if the schedule has the lengths.
        lr: A peak LR that stays; an `LRSchedule`; or the LR as a function of tokens, such as
            `bss.wsd(peak, total, warmup, decay)` or an optax schedule. By default the plan has no
            LR, and the factors of the coupling instead.
        coupling: Scaling of LR, betas and weight decay with the batch size; none by default.
        start: Position in tokens at which the plan begins, above 0 for a forked run.

    Raises:
        InputError: If an argument is not of these forms, or the budget contains no step.

    Source: derived here.

    Examples:
        >>> lr = LRSchedule("wsd", peak=1e-3, warmup="10K", decay="20%")
        >>> made = plan("0:8 50%:16", tokens="100K", seq_len=128, lr=lr)
        >>> [(step.batch, step.tokens) for step in made][48:50]
        [(8, 49152), (16, 50176)]
        >>> made.to_frame()["steps"].tolist()
        [49, 24]
    """
    length = None if seq_len is None else parse_tokens(seq_len, field="seq_len")
    check_type("coupling", coupling, (Coupling, type(None)), "bss.Coupling(...)")
    if isinstance(batch, Mapping):
        if length not in batch:
            known = ", ".join(map(str, batch))
            raise InputError(f"seq_len: no schedule of {length}; choose one of {known}")
        batch = batch[length]
    run = Budget.read(_batch_of(batch), tokens, length)
    return replace(
        resolve(
            run.schedule,
            run.tokens,
            run.seq_len,
            rate=_learning_rate(lr, run),
            coupling=coupling,
            start=parse_tokens(start, field="start"),
        ),
        remarks=tuple(getattr(batch, "warnings", ())),
    )


def _batch_of(batch: Any) -> str | BatchSchedule:
    """Return the batch schedule that an argument of `plan` means, as a value or as text."""
    schedule = getattr(batch, "schedule", batch)  # of a `DerivedSchedule`
    if isinstance(schedule, BatchSchedule | str):
        return schedule
    if isinstance(schedule, int) and not isinstance(schedule, bool):
        return BatchSchedule.constant(schedule)
    raise InputError(
        f"batch: {batch!r} given; write a number of sequences, a text like '0:8 2M:16', or give a "
        "schedule"
    )


def _learning_rate(lr: Any, run: Budget) -> Callable[[Any], Any] | None:
    """Return the LR that an argument of `plan` means, as a function of tokens."""
    if isinstance(lr, LRSchedule):
        return lr.over(run)
    if lr is None or callable(lr):
        return lr
    return constant(parse_number(lr, field="lr"))


def _check_lengths(schedule: BatchSchedule, coupling: Coupling, start: int) -> None:
    """Refuse what a schedule with several lengths of sequences cannot have."""
    for name, rule in (("lr", coupling.lr), ("weight_decay_rule", coupling.weight_decay_rule)):
        if rule != "none":
            raise InputError(
                f"coupling {name}: {rule} counts the sequences of a batch, whose length changes in "
                f"{schedule}; leave it out, and set the LR with --lr-schedule"
            )
    stage = bisect_right(schedule.starts, start) - 1
    length = schedule.seq_lens[stage]
    check(start % length == 0, "start", start, f"a whole sequence of {length} tokens")


def _settings(
    rate: Callable[[Any], Any] | None, coupling: Coupling, tokens: int, batch: int, seq_len: int
) -> Settings:
    midpoint = (2 * tokens + batch * seq_len) / 2
    lr = 1.0 if rate is None else float(rate(midpoint))
    if not 0 <= lr < math.inf:
        raise InputError(
            f"rate: {lr:g} at {midpoint:,.0f} tokens; expected a finite one of 0 or more"
        )
    return coupling.settings(lr, batch, seq_len)
