"""The extent of a schedule beyond the runs of its fit, which no measurement supports."""

from bss.errors import InputError
from bss.laws import BranchFit, CurveFit, EsFit, LossFit
from bss.laws.functional.values import untested_of
from bss.schedules.batch import BatchSchedule
from bss.schedules.rates import WarmupStableDecay
from bss.units import rounded_tokens
from bss.values import SLACK


def beyond_measured(
    fit: EsFit | CurveFit | LossFit | BranchFit,
    schedule: BatchSchedule,
    tokens: int,
    rate: WarmupStableDecay | None = None,
) -> list[str]:
    """Return what of a schedule is beyond the runs that its fit was made from.

    It is what `bss predict` refuses without `--extrapolate` (derived here).

    Args:
        fit: The fit that the schedule was derived from.
        schedule: Batch sizes in sequences, over tokens.
        tokens: Token budget.
        rate: LR of the run as a function of tokens, for a fit of loss curves.

    Returns:
        A sentence for each quantity that is beyond; none within the range of the runs.
    """
    found = []
    if isinstance(fit, EsFit):
        found += _beyond_targets(fit, schedule, tokens)
    elif isinstance(fit, LossFit | BranchFit):
        found += fit.untested({"tokens": tokens})
    elif rate is not None:
        found += untested_of(fit, schedule, tokens, rate)
    if isinstance(fit, CurveFit):
        return found  # which names the batches too
    low = min(fit.batches)
    high = max(fit.batches)
    for batch in sorted({*schedule.batches}):
        if not low * (1 - SLACK) <= batch <= high * (1 + SLACK):
            found.append(f"batch {batch}: outside the measured {low:.6g} to {high:.6g}")
    return found


def _beyond_targets(fit: EsFit, schedule: BatchSchedule, tokens: int) -> list[str]:
    """Return how far a budget is beyond the tokens in which a run reached its lowest target."""
    taken = [float(count) for count in fit.rows.get("measured", ())]
    taken = taken or [at.E_min for at in fit.fits if at.E_min is not None]
    if not taken or tokens <= max(taken) * (1 + SLACK):
        return []
    times = tokens / max(taken)
    text = (
        f"beyond {rounded_tokens(max(taken))} tokens (loss {fit.fits[-1].target_loss:.4g}) nothing "
        f"was measured; {rounded_tokens(tokens)} tokens are {times:.3g} times as far"
    )
    if len(fit.fits) == 1 and not fit.law.joint:  # one target has no slope in the loss
        return [text]
    try:
        loss = float(fit.losses(schedule.batches[-1], tokens)[0])
    except InputError:
        return [text]
    return [f"{text}, at loss {loss:.4g} by the law"]
