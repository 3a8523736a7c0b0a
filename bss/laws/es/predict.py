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
from bss.laws.es.values import EsFit
from bss.laws.fitting.bootstrap import draw_noise
from bss.laws.fitting.estimate import Estimate, interval

RUNS = 10  # new runs drawn per refit
NO_DRAWS = "no interval: the fit keeps no refits; fit again with `bss fit es --json`"
NEVER = "never reached at this batch, by the law"


def lack_of_fit(fit: EsFit) -> tuple[float, float]:
    """Standard deviation of a run's loss about the law, relative, and its degrees of freedom.

    Points of one run share its luck, so that runs and not points give the freedom.
    """
    if not fit.scatter:  # of an older fit
        errors = np.array([row["relative_loss"] for row in fit.residuals], float)
        return math.sqrt(float(errors @ errors) / max(len(errors) - fit.law.free, 1)), 1.0
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
    found = Estimate(tokens, level=level, note=NO_DRAWS)
    if _drawn(fit):
        count = RUNS * _drawn(fit)
        scatter = draw_noise(*lack_of_fit(fit), (count, 1), np.random.default_rng(0))[:, 0]
        draws = np.exp(_log_tokens(fit, loss / (1 + scatter), batch, drawn=True))
        found = interval(tokens, draws, level=level)
    if not math.isfinite(tokens):
        found = Estimate(None, found.low, None, level, NEVER)
    ends = ("value", "low", "high")
    known = {end: getattr(found, end) for end in ends if getattr(found, end) is not None}
    return {
        "tokens": found,
        "steps": replace(found, **{end: value / size for end, value in known.items()}),
    }


def best(fit: EsFit, loss: float) -> dict[str, Estimate]:
    """The law's batches at a loss, in sequences, and E_min in tokens.

    A batch that the nearest targets do not identify is no more identified between them.

    Raises:
        InputError: as `reach`.
    """
    near = sorted(fit.fits, key=lambda target: abs(target.target_loss - loss))[:2]
    if math.isclose(near[0].target_loss, loss):
        if near[0].intervals:
            return near[0].batches | {"E_min": near[0].intervals["E_min"]}
        raise InputError(f"loss: {loss:g} is {near[0].status}")
    values, names = _quantities(fit, loss, drawn=False), (*fit.law.batches, "E_min")
    found = {
        name: Estimate(float(values[name][0]), level=fit.level, note=NO_DRAWS) for name in names
    }
    if _drawn(fit):
        spread = _quantities(fit, loss, drawn=True)
        found = {n: interval(float(values[n][0]), spread[n], level=fit.level) for n in names}
    for name in fit.law.batches:
        unknown = [target.batches[name] for target in near if target.batches[name].value is None]
        found[name] = unknown[0] if unknown else found[name]
    return found


def _drawn(fit: EsFit) -> int:
    """How many refits the fit keeps."""
    kept = [fit.draws, *(target.draws for target in fit.fits)]
    return max((len(next(iter(draws.values()))) for draws in kept if draws), default=0)


def _parameters(fit: EsFit, *, drawn: bool) -> dict[float, dict[str, np.ndarray]]:
    """The parameters in tokens [K] by target; of a joint law, once for all."""
    if fit.law.joint:
        found = {fit.fits[0].target_loss: fit.draws if drawn else fit.surface or {}}
    else:
        found = {at.target_loss: at.draws if drawn else at.parameters for at in fit.fits}
    arrays = {
        target: {name: np.atleast_1d(np.asarray(value, float)) for name, value in entry.items()}
        for target, entry in found.items()
        if entry
    }
    if not arrays:
        raise InputError(f"fit: the {fit.law.name} law is unidentified; add batches")
    return arrays


def _log_tokens(fit: EsFit, loss: np.ndarray, batch: float, *, drawn: bool) -> np.ndarray:
    """log E in tokens at losses [n], cycling through the parameters [K]."""
    found = _parameters(fit, drawn=drawn)
    logs = {}
    for target, entry in found.items():
        rows = {name: np.resize(value, len(loss)) for name, value in entry.items()}
        p, sizes = fit.law.from_tokens(rows, fit.seq_len), np.full(len(loss), float(batch))
        with jax.enable_x64(True), np.errstate(divide="ignore"):
            logs[target] = np.log(np.asarray(fit.law.sequences(p, sizes, loss)) * fit.seq_len)
    return next(iter(logs.values())) if fit.law.joint else _between(logs, loss)


def _quantities(fit: EsFit, loss: float, *, drawn: bool) -> dict[str, np.ndarray]:
    """The law's quantities [K] at a loss, E_min in tokens."""
    found = {
        target: fit.law.quantities(fit.law.from_tokens(entry, fit.seq_len), loss)
        for target, entry in _parameters(fit, drawn=drawn).items()
    }
    first = next(iter(found.values()))
    if not fit.law.joint:
        logs = {name: {t: np.log(at[name]) for t, at in found.items()} for name in first}
        losses = np.full(len(first["E_min"]), loss)
        first = {name: np.exp(_between(each, losses)) for name, each in logs.items()}
    return {**first, "E_min": first["E_min"] * fit.seq_len}


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
        found = low + share * (high - low)
    return np.where(np.isinf(low) | np.isinf(high), np.inf, found)
