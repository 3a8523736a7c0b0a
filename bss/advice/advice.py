"""The best batch size of one planned run, its interval, and the losses of other batch sizes.

Inside the range in which a user's own fit was tested, its answer is used. Outside, published
sources are pooled (`bss.advice.sources`), and losses come from the fit of published final losses.
"""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from bss.advice.fit_advice import TOLERANCE, FitAdvice
from bss.advice.of_fit import fit_advice, nearest_published, published
from bss.advice.receipt import Receipt, receipt
from bss.advice.sources import (
    AXES,
    POOLED,
    UNCOVERED,
    Extrapolation,
    Pooled,
    Source,
    calibration,
    pool,
    rounded_ratio,
)
from bss.cells import Table, estimate, lines_html
from bss.errors import check
from bss.laws import read_fit
from bss.laws.base import Estimate
from bss.rules import RULES, Answer, Setting, answers
from bss.units import parse_number, parse_tokens, rounded_tokens
from bss.values import to_dict

if TYPE_CHECKING:
    from bss.laws import LrFit
    from bss.laws.step_time import StepTime

BASIS = "sources fix beta2 per step; with a half-life fixed in tokens the optimum can be smaller"
"""As in results/published/marin_beta2.csv: 64 instead of 128 sequences."""


FACTORS = (0.5, 1.0, 2.0)
PUBLISHED = "published"
FITS_READ = ("es", "loss", "lr")
"""Kinds of fit that advice can use."""


@dataclass(frozen=True, repr=False)
class Advice:
    """The answer for one setting; batch sizes in tokens.

    Attributes:
        setting: the planned run.
        batch: the optimum with its 90% interval; a bound if the user's fit has no more.
        losses: losses at multiples of the optimum.
        rules: answers of published rules.
        warnings: what a reader must know.
        pooled: pooled optimum of published sources; None for a user's own fit.
        source: what the answer is of: "published", or the name of a fit.
        receipt: costs of a batch size that is used; None without one.
        peak_lr: the best peak LR at the batch size by the user's fit of best LRs; None without one.

    Examples:
        >>> answer = advise("350M", "20B", 2048)
        >>> answer.batch.low < answer.batch.value < answer.batch.high
        True
    """

    setting: Setting
    batch: Estimate
    losses: FitAdvice
    rules: tuple[Answer, ...]
    warnings: tuple[str, ...]
    pooled: Pooled | None = None
    source: str = PUBLISHED
    receipt: Receipt | None = None
    peak_lr: Estimate | None = None

    def __repr__(self) -> str:
        return "\n".join([*self.lines, *(f"warning: {text}" for text in self.warnings)])

    def _repr_html_(self) -> str:
        """Return the lines, the rules with an answer and the warnings, for a notebook."""
        known = [one.to_dict() for one in self.rules if one.hyperparameters.batch_tokens]
        columns = ("name", "batch_tokens", "lr", "in_range", "source")
        table = Table.of_records("Published rules", known, columns)
        first, *rest = self.lines
        return lines_html(first, [*rest, *self.warnings], [table])

    @property
    def answer(self) -> str:
        """The recommendation in one line, or why there is none."""
        seq_len = self.setting.seq_len
        if self.sequences is not None:
            size = rounded_tokens(self.sequences * seq_len)
            count = f"{self.sequences:,} sequences of {seq_len:,}"
            beyond = self.extrapolation
            note = f", extrapolated {rounded_ratio(beyond.factor)} ×" if beyond else ""
            return f"Recommended batch: {size} tokens ({count}){note}"
        ends = _ends(self.batch.low, self.batch.high)
        return f"No recommendation: the runs bound the optimum, {ends} tokens"

    @property
    def costs(self) -> list[dict[str, Any]]:
        """Excess loss and steps of half, once and twice the batch size; none without one."""
        size = (self.sequences or 0) * self.setting.seq_len or self.batch.value
        return [
            {
                "factor": factor,
                "batch_tokens": factor * size,
                "loss": self.losses.loss_at(factor),
                "steps": max(1, round(self.setting.tokens / (factor * size))),
            }
            for factor in FACTORS
            if size
        ]

    @property
    def tolerance(self) -> dict[str, float | None]:
        """The batch sizes within `TOLERANCE` nats of the optimum; None for an unknown end."""
        low, high = self.losses.tolerance()
        size = self.batch.value or 0
        return {"low": low and low * size, "high": high and high * size}

    @property
    def lines(self) -> list[str]:
        """The recommendation, the intervals, the costs and the source, one line each."""
        source = f"Source: {self.source}; inside its range"
        if self.pooled:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in self.weights.items())
            source = f"Source: {shares}; inside the range of "
            source += " and ".join(self.pooled.inside) or "none"
        if beyond := self.extrapolation:
            source += f"; parameters {rounded_ratio(beyond.params)} × and tokens "
            source += f"{rounded_ratio(beyond.tokens)} × those of the nearest measured run"
            source += f" ({beyond.source})"
        used = self.receipt.lines if self.receipt else []
        if self.peak_lr is not None:
            used = [f"Peak LR: {estimate(self.peak_lr)}, {self.peak_lr.level:.0%} interval", *used]
        if not self.costs:
            return [self.answer, *used, source]
        interval = f"90% interval of the optimum{'' if self.in_range else ', extrapolated'}: "
        interval += _ends(self.batch.low, self.batch.high)
        if any(self.tolerance.values()):
            interval += f"; within {TOLERANCE:g} nats of it: {_ends(**self.tolerance)}"
        half, one, twice = self.costs
        cost = "The costs of half and twice are unknown"
        if half["loss"] is not None and twice["loss"] is not None:
            cost = f"Half of it costs {half['loss']:.4f} nats, twice {twice['loss']:.4f}"
        return [self.answer, interval, *used, f"{cost}; steps {one['steps']:,}", source]

    @property
    def sources(self) -> list[dict[str, Any]]:
        """Peak LR and beta2 of each pooled source at its nearest measured run; None if unknown."""
        predictions = self.pooled.predictions if self.pooled else {}
        names = ("params", "tokens", "lr", "beta2")
        return [
            {"name": name, "weight": self.weights[name]} | {key: getattr(at, key) for key in names}
            for name, at in predictions.items()
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the advice for JSON: answer, interval, costs of other batch sizes, sources."""
        beyond = self.extrapolation
        return {
            "kind": "advice",
            "advice": self.answer,
            "setting": {**asdict(self.setting), "compute": self.setting.compute},
            "in_range": self.in_range,
            "extrapolation": beyond and {"factor": beyond.factor, **beyond._asdict()},
            "recommended_sequences": self.sequences,
            "batch_tokens": {end: getattr(self.batch, end) for end in ("value", "low", "high")},
            "tolerance": self.tolerance,
            "costs": self.costs,
            "source": self.source,
            "source_weights": self.weights,
            "inside": self.pooled.inside if self.pooled else [],
            "sources": self.sources,
            "receipt": self.receipt and self.receipt.to_dict(),
            "peak_lr": to_dict(self.peak_lr),
            "rules": [one.to_dict() for one in self.rules],
            "warnings": [*self.warnings],
        }

    @property
    def in_range(self) -> bool:
        """Whether the setting lies in the range of the user's fit or of a published source."""
        return self.pooled is None or bool(self.pooled.inside)

    @property
    def extrapolation(self) -> Extrapolation | None:
        """The distance of the setting from the nearest range of a published source; None inside."""
        return self.pooled.extrapolation if self.pooled else None

    @property
    def weights(self) -> dict[str, float]:
        """The share of each pooled source; empty for a user's own fit."""
        return self.pooled.weights if self.pooled else {}

    @property
    def sequences(self) -> int | None:
        """The recommended batch size in sequences, at least one; None if only bounds are known."""
        if self.batch.value is None:
            return None
        return max(1, round(self.batch.value / self.setting.seq_len))

    def known_losses(self) -> tuple[FitAdvice, str]:
        """Return losses around the optimum, and the size and budget they are of if it is another.

        Outside the tested range of the fit of published losses, they are of the nearest size and
        budget. A user's fit has its own alone.
        """
        if self.losses.factors.size or self.pooled is None:
            return self.losses, ""
        return nearest_published(self.setting)

    def with_peak_lr(self, fit: "LrFit") -> "Advice":
        """Return the advice with the best peak LR at its batch size.

        Args:
            fit: of best LRs.

        Raises:
            InputError: If the fit has no LR for the run.
        """
        setting = self.setting
        sizes = {"params": setting.params, "tokens": setting.tokens}
        if self.sequences is not None:
            sizes["batch"] = fit.in_unit(self.sequences)
        best = fit.best_lr(**sizes)
        notes = [f"peak LR: {text}" for text in (*fit.untested(sizes), *fit.misfits)]
        return replace(self, peak_lr=best, warnings=(*self.warnings, *notes))

    def with_receipt(
        self, batch_tokens: float, step_time: "StepTime | None" = None, price: float = 1.0
    ) -> "Advice":
        """Return the advice with the costs of a batch size that is used.

        Args:
            batch_tokens: the batch size in tokens.
            step_time: seconds per step; None without.
            price: of a device-hour.

        Raises:
            InputError: If the batch size is less than one sequence or more than the budget.
        """
        check(price is not None and price > 0, "price", price, "a positive number")
        losses, place = self.known_losses()
        used = receipt(self.setting, self.batch, losses, batch_tokens, step_time, price, place)
        note = (f"losses relative to the optimum are those of {place}",) if place else ()
        return replace(self, receipt=used, warnings=(*self.warnings, *note))


def advise(
    params: str | float,
    tokens: str | float,
    seq_len: str | int,
    *,
    fit: Any = None,
    rules: Iterable[str] = RULES,
    d_model: int | None = None,
    loss: float | None = None,
    noise_scale: str | float | None = None,
    lr: float | None = None,
    batch_tokens: str | float | None = None,
    batch: str | int | None = None,
    step_time: "StepTime | str | None" = None,
    devices: float = 1.0,
    price: float = 1.0,
) -> Advice:
    """Return the recommended batch size of a planned run, its interval, and the cost of others.

    Args:
        params: Non-embedding parameters, e.g. "7B".
        tokens: Token budget, e.g. "2T".
        seq_len: Tokens per sequence.
        fit: The user's own fit of E(S) or of final losses, or the path of a saved one; by default
            published sources are pooled. A fit of best LRs adds the peak LR at their batch size.
        rules: Names of rules to evaluate, or `package.module:ATTRIBUTE`.
        d_model: Width, for rules that need it.
        loss: Expected final loss in nats per token, for rules that need it.
        noise_scale: Gradient noise scale in tokens, for rules that need it.
        lr: Peak learning rate, for rules that need it.
        batch_tokens: A batch size in tokens that is used, e.g. "4M"; the advice then has a
            `receipt` of its costs.
        batch: The same in sequences.
        step_time: Seconds per step for the receipt: "0.05 + 0.002*B" or a `StepTime`.
        devices: Devices that take a step.
        price: Price of a device-hour.

    Returns:
        The advice: `answer`, `sequences`, `batch` (tokens, with its interval), `costs`, `rules`.

    Raises:
        InputError: If a quantity is not positive, or a rule or fit does not exist.

    Source: derived here, from the published sources that the answer names.

    Examples:
        >>> advise(params="350M", tokens="30B", seq_len=2048).sequences
        288
    """
    given = {"params": params, "tokens": tokens, "loss": loss, "lr": lr}
    given |= {"noise_scale": noise_scale}
    numbers = {n: parse_number(x, field=n) for n, x in given.items() if x is not None}
    for name in ("params", "tokens"):
        check(name in numbers, name, None, "a number, e.g. 7B")
    length = parse_tokens(seq_len, field="seq_len")
    setting = Setting(**numbers, seq_len=length, d_model=d_model)
    own = fit
    if isinstance(fit, str | PathLike):
        # Imports pandas, which advice without fits does without.
        from bss.laws.groups import one_fit

        own = one_fit(read_fit(str(fit), FITS_READ), None, "fit", FITS_READ)[1]
    found = recommend(setting, own, rules)
    if found.pooled is None:
        found = replace(found, source=str(fit) if isinstance(fit, str | PathLike) else "fit")
    size = used_batch(setting.seq_len, batch_tokens, batch)
    if size is None:
        check(step_time is None, "step_time", step_time, "a batch size too, e.g. batch_tokens='4M'")
        return found
    return found.with_receipt(size, _step_time(step_time, devices), price)


def used_batch(
    seq_len: int, batch_tokens: str | float | None, batch: str | int | None
) -> float | None:
    """Return a batch size in tokens that is given in tokens or in sequences; None without.

    Raises:
        InputError: If both are given, or one is not a positive count.
    """
    check(batch_tokens is None or batch is None, "batch", batch, "batch or batch_tokens, not both")
    if batch is not None:
        return float(parse_tokens(batch, field="batch") * seq_len)
    return None if batch_tokens is None else parse_number(batch_tokens, field="batch_tokens")


def _step_time(given: "StepTime | str | None", devices: float) -> "StepTime | None":
    """Return seconds per step, read from a formula or a file if it is a text."""
    check(devices is not None and devices > 0, "devices", devices, "a positive number")
    from bss.laws.step_time import StepTime  # loads pandas, which advice does not need

    return StepTime.read(given, devices) if isinstance(given, str) else given


def recommend(setting: Setting, fit: Any = None, rules: Iterable[str] = RULES) -> Advice:
    """Return the best batch size of a setting, extrapolated if no source measured it.

    Args:
        setting: the planned run.
        fit: a user's own fit, or its answer (`FitAdvice`); None without one.
        rules: registered names, or `package.module:ATTRIBUTE`.

    Raises:
        InputError: If no rule has such a name.
    """
    if getattr(fit, "KIND", "") == "lr":
        return recommend(setting, None, rules).with_peak_lr(fit)
    given = tuple(answers(setting, rules))
    if fit is not None and not isinstance(fit, FitAdvice):
        fit = fit_advice(fit, setting)
    warnings: tuple[str, ...] = ()
    if fit:
        warnings = fit.warnings
        if fit.best.note:
            warnings = (fit.best.why, *warnings)
    if fit and (fit.best.value or fit.best.low or fit.best.high):
        return Advice(setting, fit.best, fit, given, warnings)
    constants, known = calibration()
    tables = {name: source for name, source in known.items() if name not in RULES}
    named = {at.name: known.get(at.name) for at in given if _is_source(at)}
    sources = tables | {name: source or Source(RULES[name]) for name, source in named.items()}
    pooled = pool(sources, setting, constants)
    losses = published(setting)
    warnings = (*warnings, *losses.warnings, BASIS, UNCOVERED)
    return Advice(setting, pooled.batch, losses, given, warnings, pooled)


def _is_source(at: Answer) -> bool:
    """Return whether a rule is pooled: one of `POOLED`, or a user's own with a known range."""
    fitted = RULES[at.name].fitted
    pooled = at.name in (*POOLED, *RULES.loaded) and fitted and fitted.keys() <= AXES.keys()
    return bool(pooled) and at.batch == "best" and at.hyperparameters.batch_tokens is not None


def _ends(low: float | None, high: float | None) -> str:
    """Return "LOW to HIGH" in tokens, or the one end that is known."""
    if low and high:
        return f"{rounded_tokens(low)} to {rounded_tokens(high)}"
    return f"at least {rounded_tokens(low)}" if low else f"at most {rounded_tokens(high or 0)}"
