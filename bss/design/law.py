"""What a design asks of a fit: posteriors and losses of runs, and what was measured."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from bss.design.goals import Space
from bss.laws import TableFit
from bss.laws.final_loss.rated.law import Posterior, RatedLaw
from bss.points.valley import MISFIT


@dataclass(frozen=True)
class Law:
    """A fit, as a design asks it.

    Attributes:
        posterior: of expected losses at params, tokens, batch_tokens and lr (None without rates),
            [m] each: normal ones, one a form.
        losses: the expected ones at the same.
        space: batches and rates that were measured.
    """

    posterior: Callable[..., tuple[Posterior, ...]]
    losses: Callable[..., np.ndarray]
    space: Space

    @classmethod
    def rated(cls, law: RatedLaw) -> "Law":
        """Of a law with a rate."""
        b, e = law.points.batch, law.points.lr
        space = Space((float(b.min()), float(b.max())), (float(e.min()), float(e.max())))
        return cls(law.posterior, law.losses, space)

    @classmethod
    def of(cls, fit: TableFit | RatedLaw) -> "Law":
        """Of a fit; where its rates do not vary, lr is ignored."""
        if isinstance(fit, RatedLaw):
            return cls.rated(fit)
        if fit.rates is not None:
            return cls.rated(fit.rates)
        seen = fit.tested["batch_tokens"]
        return cls(
            lambda n, d, b, lr: _doubted(fit, n, d, b),
            lambda n, d, b, lr: fit.predict(n, d, b),
            Space((seen.low, seen.high), None),
        )


def _doubted(
    fit: TableFit, params: np.ndarray, tokens: np.ndarray, batch: np.ndarray
) -> tuple[Posterior, ...]:
    """Posteriors whose noise holds a part of the rise above the best batch.

    By that part a form of a valley may be wrong (`bss.points.valley`), so that runs far from the
    best batch do not seem to tell where it is.
    """
    least = {
        at: float(fit.law_at(*at).valley(*at)[1].min())
        for at in {*zip(params, tokens, strict=True)}
    }
    best = np.array([least[at] for at in zip(params, tokens, strict=True)])
    return tuple(
        one._replace(noise=np.hypot(one.noise, MISFIT * np.maximum(one.mean - best, 0)))
        for one in fit.posterior(params, tokens, batch)
    )
