"""What a fitted law E(S) says of a run that was not fitted, with intervals (derived here).

The interval of a new run's tokens holds the parameters' refits and, drawn once per refit and run,
the scatter of the fitted points about the law, so that its lack of fit is in it. Between targets a
law per target is interpolated: logs of tokens and batches, in the loss.
"""

import math
from dataclasses import replace

import jax
import numpy as np

from bss.errors import InputError
from bss.laws.base import Estimate, interval
from bss.laws.es.values import EsFit, TargetFit
from bss.laws.resampling import draw_noise

RUNS = 10  # new runs drawn per refit
NO_DRAWS = "no interval: the fit keeps no refits; fit again with `bss fit es --json`"
NEVER = "never reached at this batch, by the law"


def lack_of_fit(fit: EsFit) -> tuple[float, float]:
    """Standard deviation of a run's loss about the law, relative, and its degrees of freedom.

    Points of one run share its luck, so that runs and not points give the freedom.
    """
    freedom = np.array([each.offset_dof for each in fit.scatter])
    variance = np.array([each.offset**2 + each.noise**2 for each in fit.scatter])
    return math.sqrt(float(variance @ freedom / freedom.sum())), float(freedom.sum())


def reach(fit: EsFit, loss: float, batch: float) -> dict[str, Estimate]:
    """Tokens and steps to a loss at a constant batch, as of one new run.

    Args:
        fit: a fit; without draws the values have no interval.
        loss: in nats.
        batch: in sequences.

    Raises:
        InputError: the law is unidentified, or of one target that is not this loss.
    """
    level, size = fit.level, batch * fit.seq_len
    tokens = float(np.exp(_log_tokens(fit, np.array([loss]), batch, drawn=False))[0])
    estimate = Estimate(tokens, level=level, note=NO_DRAWS)
    if _drawn(fit):
        count = RUNS * _drawn(fit)
        scatter = draw_noise(*lack_of_fit(fit), (count, 1), np.random.default_rng(0))[:, 0]
        draws = np.exp(_log_tokens(fit, loss / (1 + scatter), batch, drawn=True))
        estimate = interval(tokens, draws, level=level)
    if not math.isfinite(tokens):
        estimate = Estimate(None, estimate.low, None, level, NEVER)
    ends = (estimate.value, estimate.low, estimate.high)
    steps = [None if end is None else end / size for end in ends]
    return {"tokens": estimate, "steps": Estimate(*steps, level=level, note=estimate.note)}


def best(fit: EsFit, loss: float) -> dict[str, Estimate]:
    """The fit's batches at a loss, in sequences, and E_min in tokens.

    Between targets, and beyond the outer two, logarithms are on a line in the loss. A batch that
    the nearest targets do not identify is no more identified between them.

    Raises:
        InputError: the nearest target is unidentified.
    """
    near = sorted(fit.fits, key=lambda target: abs(target.target_loss - loss))[:2]
    names = tuple(dict.fromkeys((*fit.law.batches, "B_opt", "E_min")))
    estimates = [_told(target) for target in near]
    if len(near) == 1 or math.isclose(near[0].target_loss, loss):
        return {name: estimates[0][name] for name in names if name in estimates[0]}
    losses = [target.target_loss for target in near]
    share = (loss - losses[0]) / (losses[1] - losses[0])
    between = {}
    for name in (name for name in names if all(name in one for one in estimates)):
        pair = [one[name] for one in estimates]
        unknown = [estimate for estimate in pair if estimate.value is None]
        between[name] = unknown[0] if unknown else _on_a_line(pair[0], pair[1], share)
    return between


def _told(target: TargetFit) -> dict[str, Estimate]:
    fewest = target.intervals.get("E_min")
    unknown = target.status.startswith("unidentified") and fewest is None
    if unknown and (target.best or target.measured).value is None:
        raise InputError(f"loss: {target.target_loss:g} is {target.status}")
    return target.batches | ({} if fewest is None else {"E_min": fewest})


def _on_a_line(first: Estimate, second: Estimate, share: float) -> Estimate:
    """The estimate so far from the first to the second, in logarithms."""

    def between(end: str) -> float | None:
        start, stop = getattr(first, end), getattr(second, end)
        return float(start ** (1 - share) * stop**share) if start and stop else None

    value, low, high = (between(end) for end in ("value", "low", "high"))
    known = [x for x in (low, value, high) if x is not None]
    low, high = (None if low is None else min(known)), (None if high is None else max(known))
    return replace(first, value=value, low=low, high=high)


def _drawn(fit: EsFit) -> int:
    """How many refits the fit keeps."""
    refits = [fit.draws, *(target.draws for target in fit.fits)]
    return max((len(next(iter(draws.values()))) for draws in refits if draws), default=0)


def _parameters(fit: EsFit, *, drawn: bool) -> dict[float, dict[str, np.ndarray]]:
    """The parameters in tokens [K] by target; of a joint law, once for all."""
    if fit.law.joint:
        entries = {fit.fits[0].target_loss: fit.draws if drawn else fit.joint or {}}
    else:
        entries = {at.target_loss: at.draws if drawn else at.parameters for at in fit.fits}
    known = {target: entry.items() for target, entry in entries.items() if entry}
    if not known:
        raise InputError(f"fit: the {fit.law.name} law is unidentified; add batches")
    return {t: {name: np.atleast_1d(x).astype(float) for name, x in e} for t, e in known.items()}


def _log_tokens(fit: EsFit, loss: np.ndarray, batch: float, *, drawn: bool) -> np.ndarray:
    """log E in tokens at losses [n], cycling through the parameters [K], over the laws averaged."""
    if fit.level_with:
        alone = (replace(one, level_with=()) for one in fit.averaged)
        return np.mean([_log_tokens(one, loss, batch, drawn=drawn) for one in alone], axis=0)
    parameters = _parameters(fit, drawn=drawn)
    logs = {}
    for target, entry in parameters.items():
        rows = {name: np.resize(value, len(loss)) for name, value in entry.items()}
        p, sizes = fit.law.from_tokens(rows, fit.seq_len), np.full(len(loss), float(batch))
        with jax.enable_x64(True), np.errstate(divide="ignore"):
            logs[target] = np.log(np.asarray(fit.law.sequences(p, sizes, loss)) * fit.seq_len)
    return next(iter(logs.values())) if fit.law.joint else _between(logs, loss)


def _between(logs: dict[float, np.ndarray], loss: np.ndarray) -> np.ndarray:
    """Logs [n] by target as those at losses [n], on lines through neighbouring targets.

    Targets share their runs' luck, which their refits do not tell: they are paired by rank, as if
    it were all of it.
    """
    targets = np.array(sorted(logs))
    if len(targets) == 1:
        if np.allclose(loss, targets[0], rtol=1e-9):
            return logs[targets[0]]
        raise InputError(f"loss: the law was fitted at {targets[0]:g} alone; fit two targets")
    values = np.array([np.sort(logs[target]) for target in targets.tolist()])
    upper = np.clip(np.searchsorted(targets, loss), 1, len(targets) - 1)
    column = np.arange(len(loss))
    low, high = values[upper - 1, column], values[upper, column]
    share = (loss - targets[upper - 1]) / np.diff(targets)[upper - 1]
    with np.errstate(invalid="ignore"):
        logs_between = low + share * (high - low)
    return np.where(np.isinf(low) | np.isinf(high), np.inf, logs_between)
