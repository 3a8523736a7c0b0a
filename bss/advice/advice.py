"""The best batch size of one planned run, its interval, and the losses of other batch sizes.

Inside the range in which a user's own fit was tested, its answer is used. Outside, published
sources are pooled (`bss.advice.sources`), and losses come from the law of the published table.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from bss.advice.fit_advice import FitAdvice
from bss.advice.of_fit import published
from bss.advice.sources import AXES, POOLED, TABLE, Pooled, calibration, pool
from bss.laws.base import Estimate
from bss.rules import RULES, Answer, Setting, answers

BASIS = "sources fix beta2 per step; with a half-life fixed in tokens the optimum can be smaller"
"""As in results/published/marin_beta2.csv: 64 instead of 128 sequences."""


@dataclass(frozen=True)
class Advice:
    """The answer for one setting; batch sizes in tokens.

    Attributes:
        setting: the planned run.
        batch: the optimum with its 90% interval; a bound if the user's fit has no more.
        losses: losses at multiples of the optimum.
        rules: answers of published rules.
        warnings: what a reader must know.
        pooled: pooled optimum of published sources; None for a user's own fit.
    """

    setting: Setting
    batch: Estimate
    losses: FitAdvice
    rules: tuple[Answer, ...]
    warnings: tuple[str, ...]
    pooled: Pooled | None = None

    @property
    def in_range(self) -> bool:
        """Whether the setting lies in the range of the user's fit or of a published source."""
        return self.pooled is None or bool(self.pooled.inside)

    @property
    def weights(self) -> dict[str, float]:
        """The share of each pooled source; empty for a user's own fit."""
        return self.pooled.weights if self.pooled else {}

    @property
    def sequences(self) -> int | None:
        """The recommended batch size in sequences, at least one; None without a recommendation."""
        if self.batch.value is None or not self.in_range:
            return None
        return max(1, round(self.batch.value / self.setting.seq_len))


def advise(setting: Setting, fit: FitAdvice | None = None, rules: Iterable[str] = RULES) -> Advice:
    """Return the best batch size of a setting.

    Args:
        setting: the planned run.
        fit: the answer of a user's own fit; None without one.
        rules: registered names, or `package.module:ATTRIBUTE`.

    Raises:
        InputError: If no rule has such a name.
    """
    given = tuple(answers(setting, rules))
    warnings = (*((fit.best.why,) if fit.best.note else ()), *fit.warnings) if fit else ()
    if fit and (fit.best.value or fit.best.low or fit.best.high):
        return Advice(setting, fit.best, fit, given, warnings)
    constants, table = calibration()
    sources = {TABLE: table} | {at.name: RULES[at.name] for at in given if _is_source(at)}
    pooled, losses = pool(sources, setting, constants), published(setting)
    warnings = (*warnings, *losses.warnings, BASIS)
    return Advice(setting, pooled.batch, losses, given, warnings, pooled)


def _is_source(at: Answer) -> bool:
    """Return whether a rule is pooled: one of `POOLED`, or a user's own with a known range."""
    fitted = RULES[at.name].fitted
    pooled = at.name in (*POOLED, *RULES.loaded) and fitted and fitted.keys() <= AXES.keys()
    return bool(pooled) and at.batch == "best" and at.hyperparameters.batch_tokens is not None
