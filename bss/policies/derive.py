"""A fit to a batch schedule over a budget, with its policy, its source and its warnings."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pandas as pd

from bss.errors import InputError, check_type
from bss.laws import CurveFit, EsFit
from bss.policies import with_settings
from bss.policies.beyond import beyond_measured
from bss.policies.follow_optimum import FollowOptimum, follow_measured
from bss.policies.forecast import why_not
from bss.policies.functional_best import assumed_rate, expected_losses
from bss.policies.policy import Basis, Limits, Policy
from bss.registry import attempt
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import LRSchedule, wsd
from bss.tables.schema import check_points
from bss.units import parse_number, parse_tokens, rounded_tokens
from bss.values import SLACK

POLICIES_OF = {
    "es": "follow-optimum",
    "loss": "best-batch",
    "curve": "functional-best",
    "branches": "last-crossing",
}
"""The default policy, by kind of fit that has a best batch size."""


@dataclass(frozen=True)
class DerivedSchedule:
    """A batch schedule and how it was chosen; `bss.plan` takes it.

    Attributes:
        schedule: The batch sizes, in sequences over tokens.
        law: The name of the law; "measured" without one.
        note: A sentence on how it was chosen.
        warnings: How far the schedule goes beyond the runs, a sentence each.
        policy: The name of the policy.
        expected: Of a fit of loss curves: predicted losses in nats (`expected_losses`); else empty.

    Examples:
        >>> derived = DerivedSchedule(BatchSchedule.parse("0:64 1B:128"), "asymmetric", "", ())
        >>> str(derived), derived.schedule.batches
        ('0:64 1B:128', (64, 128))
    """

    schedule: BatchSchedule
    law: str
    note: str
    warnings: tuple[str, ...]
    policy: str = "follow-optimum"
    expected: Mapping[str, float] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the notation of the batch sizes, e.g. "0:8 2M:16"."""
        return str(self.schedule)

    def __repr__(self) -> str:
        lines = [f"{self.schedule} ({self.note})", *(f"warning: {text}" for text in self.warnings)]
        return "\n".join(lines)


def schedule_of(
    fit: Any,
    tokens: str | int,
    *,
    stages: int = 4,
    multiple_of: int = 1,
    min_batch: float | None = None,
    max_batch: float | None = None,
    policy: str | Policy | None = None,
    lr: Any = None,
    settings: Mapping[str, Any] | None = None,
    **others: Any,
) -> DerivedSchedule:
    """Return the batch schedule of a fit over a budget, by a policy.

    Args:
        fit: Of E(S), of final losses or of loss curves.
        tokens: Token budget, e.g. "10B".
        stages: Constant stages at most.
        multiple_of: Batch sizes are multiples of it.
        min_batch: In sequences; by default the smallest batch size measured.
        max_batch: In sequences; by default the largest batch size measured.
        policy: Name of a policy, `package.module:ATTRIBUTE`, or a policy; the default depends on
            the fit. With the setting `minimize` it is "soonest", or "fewest-steps" for
            minimize="steps". That is the default for loss curves under an LR that decays, and
            for E(S) of decayed losses.
        lr: For a fit of loss curves: a peak LR, an `LRSchedule` or a function of tokens; by default
            the largest peak LR measured, constant.
        settings: Settings of the policy.
        **others: The same by name, e.g. params="350M" with a fit of final losses, or
            minimize="time", step_time="0.9 + 0.05*B" with a fit of E(S).

    Raises:
        InputError: If the fit has no best batch size or no sequence length, a setting is unknown,
            or the limits leave no schedule.
    """
    if getattr(fit, "KIND", "") not in POLICIES_OF:
        kinds = ", ".join(POLICIES_OF)
        raise InputError(f"fit: {type(fit).__name__} has no schedule; give a fit of {kinds}")
    budget = parse_tokens(tokens, field="tokens")
    given = {**(settings or {}), **others}
    if fit.seq_len is None or fit.in_sequences:
        raise InputError("fit: its table had no sequence length; fit it again with seq_len")
    rate = _rate_of(fit, lr, budget)
    name = policy or default_policy(fit, rate, given.get("minimize"))
    if name == "fewest-steps":
        given.pop("minimize", None)
    chosen = with_settings(name, given) if isinstance(name, str) else name
    basis = Basis(int(fit.seq_len), fit, rate)
    limits = Limits(stages, multiple_of, min_batch=min_batch, max_batch=max_batch)
    derive = partial(chosen, basis, budget, limits)
    label = name if isinstance(name, str) else type(name).__name__
    schedule = attempt("policy", label, derive) if ":" in label else derive()
    if not isinstance(schedule, BatchSchedule):
        raise InputError(f"policy: {label} gave {schedule!r}; expected a BatchSchedule")
    expected: dict[str, float] = {}
    if isinstance(fit, CurveFit):
        sizes = limits.within(basis.measured).ladder()
        expected = expected_losses(fit, schedule, budget, rate, sizes)
    return DerivedSchedule(
        schedule,
        fit.law_name,
        _source(fit) if label == "follow-optimum" else f"policy {label}",
        tuple(beyond_measured(fit, schedule, budget, rate)),
        label,
        expected,
    )


def default_policy(fit: Any, rate: Any, minimize: str | None) -> str:
    """Return the name of the default policy: the fewest steps, where decayed losses are known.

    Args:
        fit: Of a kind in POLICIES_OF.
        rate: LR as a function of tokens, or None.
        minimize: "steps", or the quantity that the policy soonest minimizes; None for the other
            policies.
    """
    if minimize is not None:
        return "fewest-steps" if minimize == "steps" else "soonest"
    if not why_not(fit, rate):
        return "fewest-steps"
    return POLICIES_OF[fit.KIND]


def _rate_of(fit: Any, lr: Any, tokens: int) -> Any:
    """Return an LR as a function of tokens; by default the LR of the fit of loss curves."""
    if isinstance(lr, LRSchedule):
        return lr.over(tokens)
    if lr is None:
        return assumed_rate(fit, tokens) if isinstance(fit, CurveFit) else None
    return lr if callable(lr) else wsd(parse_number(lr, field="lr"), tokens)


def _source(fit: EsFit) -> str:
    """Return the law of a fit and the sources of its best batch sizes as a sentence."""
    sources = dict.fromkeys(at.best.method for at in fit.fits if at.best.value)
    by = "measured minimum" if fit.law_name == "measured" else f"{fit.law.name} law"
    return f"{by}, {fit.choice}; B_opt: {', '.join(sources)}"


def derive_schedule(
    fit: EsFit | None, points: pd.DataFrame, tokens: str | int, limits: Limits
) -> DerivedSchedule:
    """Return the schedule of a fit, or of the points if the fit does not identify B_opt.

    Args:
        fit: A fit to the points, or None if no law could be fitted.
        points: A table of points, with the columns of `bss.read_points`.
        tokens: Token budget, e.g. "10B".
        limits: Limits of the schedule.

    Returns:
        The schedule, its law, a sentence on how it was chosen, and what is beyond the runs.

    Raises:
        InputError: If no target was reached, or the limits leave no schedule.

    Examples:
        >>> rows = [{"target_loss": loss, "batch": b, "seq_len": 64, "steps": scale * (b + 64 / b)}
        ...         for loss, scale in ((2.2, 10), (2.0, 20)) for b in (4, 8, 16)]
        >>> str(derive_schedule(None, pd.DataFrame(rows), 100_000, Limits(stages=2)))
        '4'
    """
    check_type("fit", fit, (EsFit, type(None)), "a fit of E(S), or None")
    check_type("points", points, pd.DataFrame, "a table of points")
    check_type("limits", limits, Limits, "bss.Limits(...)")
    points = check_points(points)
    tokens = parse_tokens(tokens, field="tokens")
    why = "no law is fitted"
    if fit is not None:
        try:
            schedule = FollowOptimum()(Basis(fit.seq_len, fit), tokens, limits)
            beyond = tuple(beyond_measured(fit, schedule, tokens))
            return DerivedSchedule(schedule, fit.law_name, _source(fit), beyond)
        except InputError as error:
            why = str(error)
    note = f"the best measured batch at each target is followed: {why}"
    schedule = follow_measured(points, tokens, limits)
    beyond = _beyond_points(points, tokens)
    return DerivedSchedule(schedule, "measured", note, beyond, "follow-measured")


def _beyond_points(points: pd.DataFrame, tokens: int) -> tuple[str, ...]:
    most = float(points["tokens_to_target"].max())
    if tokens <= most * (1 + SLACK):
        return ()
    return (
        f"beyond {rounded_tokens(most)} tokens nothing was measured; {rounded_tokens(tokens)} "
        f"tokens are {tokens / most:.3g} times as far",
    )
