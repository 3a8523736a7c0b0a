"""Statistics of comparisons over seeds.

- paired: paired t tests, Holm's adjustment, minimum detectable effects, slopes.
- compared: tables of final losses, each run against the best constant-batch run.
- answers: the result for a statement, the only place where an effect becomes a word.
"""

from bss.stats.answers import (
    MOST_CENSORED,
    WORDS,
    Answer,
    Claim,
    Effect,
    Numbers,
    answers,
    effect_of,
    least,
    mean_of,
)
from bss.stats.compared import (
    CONSTANT_ROLES,
    LR_PHASES,
    ROLES,
    ComparedRun,
    Comparison,
    LrPhase,
    phases_of,
)
from bss.stats.paired import (
    LEVEL,
    POWER,
    Difference,
    Slope,
    compare,
    detectable_shift,
    half_interval,
    holm,
    mean_interval,
    minimum_detectable_effect,
    paired,
    slope,
)

__all__ = [
    "CONSTANT_ROLES", "LEVEL", "LR_PHASES", "MOST_CENSORED", "POWER", "ROLES", "WORDS", "Answer",
    "Claim", "ComparedRun", "Comparison", "Difference", "Effect", "LrPhase", "Numbers", "Slope",
    "answers", "compare", "detectable_shift", "effect_of", "half_interval", "holm", "least",
    "mean_interval", "mean_of", "minimum_detectable_effect", "paired", "phases_of", "slope",
]  # fmt: skip
