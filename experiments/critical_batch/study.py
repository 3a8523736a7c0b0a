"""What the critical-batch experiment measures, as values.

A cell is a model at a sequence length. At constant rate with weight averages one run serves every
budget of its cell, so the warm-up is a fixed number of tokens; with `warmup_share`, as Zhang et al.
(arXiv 2410.21676) train, every budget has runs of its own.
"""

import math
from dataclasses import dataclass

from bss.errors import InputError
from bss.models.sizes import named
from bss.training.step import half_life
from experiments.study import PricedStudy, check, check_counts, check_positive

BATCHES_PAST_BEND = 4
MOST_WARMUP = 0.1


@dataclass(frozen=True)
class BatchSweep:
    """One batch and the hyper-parameters it is tried at first.

    Attributes:
        tokens: the batch in tokens, so that it means the same at every context length.
        rates: learning rates; more are tried while the best is at an end of them.
        beta1s: first-moment decays per step; none for the setup's.
        beta2s: second-moment decays per step; none for the setup's.
        models: sizes it is for, in place of an entry for all; none for all.
    """

    tokens: int
    rates: tuple[float, ...]
    beta1s: tuple[float, ...] = ()
    beta2s: tuple[float, ...] = ()
    models: tuple[str, ...] = ()


@dataclass(frozen=True)
class Point:
    """A critical batch to measure: model, budget in tokens, sequence length (0: the setup's)."""

    model: str
    tokens: int
    seq_len: int = 0


@dataclass(frozen=True)
class PointSet:
    """Points that are fitted together, with batches in "sequences" or in "tokens"."""

    name: str
    points: tuple[Point, ...]
    unit: str = "sequences"


@dataclass(frozen=True)
class Bend:
    """A guess of the batch b/a at a budget D: `tokens`·(D / `budget`)^`exponent`, in tokens.

    It says how long to train each batch and which batches to try, nothing else.
    """

    tokens: float
    budget: float
    exponent: float = 0.5

    def at(self, budget: float) -> float:
        """The guess at a budget."""
        return self.tokens * (budget / self.budget) ** self.exponent


@dataclass(frozen=True)
class Comparison:
    """Other learning-rate schedules against the constant rate with averages, at one point.

    Attributes:
        model: size.
        tokens: budget of the target.
        batches: in tokens.
        factors: rates tried, as multiples of the batch's best constant rate.
        lengths: of annealed runs, as multiples of what the constant rate needs: 3 or more.
        decay: last part of a WSD run.
        warmup_share: of the run whose warm-up is a share of the budget, as the paper's.
    """

    model: str
    tokens: int
    batches: tuple[int, ...]
    factors: tuple[float, ...] = (1.0, 2.0)
    lengths: tuple[float, ...] = (0.7, 1.0, 1.4)
    decay: float = 0.2
    warmup_share: float = 0.25


@dataclass(frozen=True, kw_only=True)
class Study(PricedStudy):
    """The question.

    Attributes:
        designs: points that are fitted together.
        grid: batches, a factor of 2 apart, and their hyper-parameters.
        reference: B_ref in tokens, in the regime of linear scaling.
        bend: guess that sets run lengths and the largest batch, 4 times it.
        overhead: r of the definition.
        seeds: the sweep is done at the first, and repeated at all at B_ref and around the bend.
        margin: run lengths over what the guess says.
        rounds: of lengthening runs that missed a target and of adding rates at an end.
        warmup_share: 0 for the setup's warm-up; else the part of each budget that is warm-up, with
            runs of its own for each budget.
        noise_half_life: of the gradient noise scale's averages, in tokens; 0 measures none.
        noise_split: halve the buckets where a batch is a single one.
        schedules: the comparison of schedules; none to leave it out.
    """

    designs: tuple[PointSet, ...]
    grid: tuple[BatchSweep, ...]
    reference: int
    bend: Bend
    overhead: float = 0.2
    margin: float = 1.3
    rounds: int = 2
    warmup_share: float = 0.0
    noise_half_life: int = 0
    noise_split: bool = False
    schedules: Comparison | None = None
    resamples: int = 2000

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_numbers(self)
        _check_designs(self)
        _check_grid(self)
        if self.schedules is not None:
            _check_comparison(self, self.schedules)

    def cells(self) -> dict[tuple[str, int], tuple[int, ...]]:
        """Budgets by (model, sequence length), ascending; cells in the designs' order."""
        by_cell: dict[tuple[str, int], set[int]] = {}
        for design in self.designs:
            for point in design.points:
                by_cell.setdefault(self.cell(point), set()).add(point.tokens)
        return {cell: tuple(sorted(budgets)) for cell, budgets in by_cell.items()}

    def cell(self, point: Point) -> tuple[str, int]:
        """Model and sequence length of a point."""
        return point.model, point.seq_len or self.setup.text.seq_len

    def ladder(self, model: str, seq_len: int, budget: int) -> list[BatchSweep]:
        """The batches of a cell, up to the one nearest to 4 times the guessed bend in log."""
        by_tokens = {entry.tokens: entry for entry in self.grid if not entry.models}
        by_tokens |= {entry.tokens: entry for entry in self.grid if model in entry.models}
        whole = [by_tokens[size] for size in sorted(by_tokens) if size % seq_len == 0]
        enough = BATCHES_PAST_BEND * self.bend.at(budget) / math.sqrt(2)
        last = next((i for i, e in enumerate(whole) if e.tokens >= enough), len(whole) - 1)
        return whole[: last + 1]

    def length(self, budget: int, batch_tokens: int) -> int:
        """Tokens after which this batch should have met the target of this budget."""
        return round(self.margin * budget * (1 + batch_tokens / self.bend.at(budget)))


def _check_numbers(study: Study) -> None:
    check(study, ["rounds", "noise_half_life"], lambda value: value >= 0, "0 or more")
    check(study, ["resamples"], lambda value: value >= 10, "10 or more")
    check_counts(study, "margin")
    check_positive(study, "overhead")
    check(study, ["warmup_share"], lambda part: 0 <= part < 1, "a part of 1, as 0.25")
    study.check_averages()
    for text in study.setup.averages:
        half_life(text, 100)
    if study.bend.tokens <= 0 or study.bend.budget <= 0:
        raise InputError("bend.tokens and bend.budget must be positive; guess where it may be")


def _check_designs(study: Study) -> None:
    names = [design.name for design in study.designs]
    if not names or len(set(names)) < len(names):
        raise InputError(f"designs are {names}; expected one or more with different names")
    for design in study.designs:
        where = f"design {design.name}"
        if design.unit not in ("sequences", "tokens"):
            raise InputError(f"{where}: unit {design.unit!r}; write sequences or tokens")
        if not design.points:
            raise InputError(f"{where} has no points; give it a model and a budget")
        lengths = {study.cell(point)[1] for point in design.points}
        if len(lengths) > 1 and design.unit == "sequences":
            raise InputError(f"{where} mixes sequence lengths; set unit to tokens")
        for point in design.points:
            named(point.model)
            if point.tokens < 1:
                raise InputError(f"{where}: {point.tokens} tokens; give a budget")
    least = min(budgets[0] for budgets in study.cells().values())
    warmup = study.setup.schedule.warmup
    if not study.warmup_share and warmup > MOST_WARMUP * least:
        raise InputError(
            f"setup.schedule.warmup is {warmup}; expected at most {MOST_WARMUP:.0%} of the "
            f"smallest budget, {round(MOST_WARMUP * least)}: one run serves every budget"
        )


def _check_grid(study: Study) -> None:
    for entry in study.grid:
        if entry.tokens < 1 or not entry.rates or min(entry.rates) <= 0:
            raise InputError(
                f"grid: batch {entry.tokens} with rates {list(entry.rates)}; expected positive "
                "tokens and at least one positive rate"
            )
    for (model, seq_len), budgets in study.cells().items():
        sizes = [entry.tokens for entry in study.ladder(model, seq_len, budgets[-1])]
        where = f"grid: model {model} at sequences of {seq_len}"
        if len(sizes) < 3:
            raise InputError(f"{where} has {len(sizes)} batches; expected 3 or more")
        if study.reference not in sizes:
            raise InputError(
                f"{where} lacks the reference batch of {study.reference} tokens; add it to the grid"
            )


def _check_comparison(study: Study, comparison: Comparison) -> None:
    cell = (comparison.model, study.setup.text.seq_len)
    if comparison.tokens not in study.cells().get(cell, ()):
        raise InputError(
            f"schedules: {comparison.model} at {comparison.tokens} tokens is in no design; "
            "add it to one"
        )
    sizes = [entry.tokens for entry in study.ladder(*cell, comparison.tokens)]
    if not comparison.batches or set(comparison.batches) - set(sizes):
        raise InputError(f"schedules.batches are {list(comparison.batches)}; choose among {sizes}")
    if len(comparison.lengths) < 3 or min(comparison.lengths) <= 0 or not comparison.factors:
        raise InputError("schedules: expected 3 positive lengths or more, and a factor or more")
    for name in ("decay", "warmup_share"):
        part = getattr(comparison, name)
        if not 0 < part < 1:
            raise InputError(f"schedules.{name} is {part}; expected a part of 1")
