"""Published rules as values: what papers would train with, and how settings follow the batch.

Two kinds. A `Rule` maps a setting (N, D, …) to hyperparameters; a `Scaling` maps hyperparameters
that are right at one batch to those at another. One file a source, with its equation and a golden
number; a user's own is named `package.module:ATTRIBUTE`. Ramps of published runs are in
`bss.rules.ramps`. What could not be verified in its source is not here.
"""

from collections.abc import Iterable

from bss.registry import Registry
from bss.rules.deepseek import DEEPSEEK
from bss.rules.filatov import FILATOV
from bss.rules.half_life import HALF_LIFE
from bss.rules.kaplan import KAPLAN, KAPLAN_RATE
from bss.rules.linear import LINEAR
from bss.rules.marin import MARIN
from bss.rules.mccandlish import MCCANDLISH, NOISE_SCALE
from bss.rules.minicpm import MINICPM
from bss.rules.momentum import MOMENTUM
from bss.rules.nanochat import NANOCHAT, NANOCHAT_SCALING
from bss.rules.power_lines import POWER_LINES, POWER_LINES_CRITICAL, POWER_LINES_DECAY
from bss.rules.rule import Answer, Change, Rule, Scaling, answer
from bss.rules.sde import SDE
from bss.rules.setting import Hyperparameters, Setting
from bss.rules.square_root import SQUARE_ROOT
from bss.rules.step_law import STEP_LAW
from bss.rules.surge import SURGE
from bss.rules.timescale import TIMESCALE
from bss.rules.zhang import ZHANG

__all__ = [
    "RULES",
    "SCALINGS",
    "Answer",
    "Change",
    "Hyperparameters",
    "Rule",
    "Scaling",
    "Setting",
    "answers",
]

RULES: Registry[Rule] = Registry(
    "rule",
    {
        "deepseek": DEEPSEEK,
        "step-law": STEP_LAW,
        "power-lines": POWER_LINES,
        "minicpm": MINICPM,
        "nanochat": NANOCHAT,
        "marin": MARIN,
        "zhang": ZHANG,
        "power-lines-critical": POWER_LINES_CRITICAL,
        "kaplan": KAPLAN,
        "mccandlish": MCCANDLISH,
        "kaplan-rate": KAPLAN_RATE,
        "power-lines-decay": POWER_LINES_DECAY,
    },
    Rule,
)
SCALINGS: Registry[Scaling] = Registry(
    "scaling",
    {
        "sqrt": SQUARE_ROOT,
        "linear": LINEAR,
        "noise-scale": NOISE_SCALE,
        "surge": SURGE,
        "sde": SDE,
        "half-life": HALF_LIFE,
        "momentum": MOMENTUM,
        "timescale": TIMESCALE,
        "filatov": FILATOV,
        "nanochat": NANOCHAT_SCALING,
    },
    Scaling,
)


def answers(setting: Setting, names: Iterable[str] = RULES) -> list[Answer]:
    """What each rule of these names says of a setting, or what it lacks to say it.

    Raises:
        InputError: no rule has such a name.

    Examples:
        >>> said = answers(Setting(params=85e6, tokens=2.5e9, seq_len=1024), ["step-law", "kaplan"])
        >>> [(a.name, a.batch, a.in_range, a.missing) for a in said]
        [('step-law', 'best', True, ()), ('kaplan', 'critical', None, ('loss',))]
        >>> round(said[0].hyperparameters.batch_tokens), round(said[0].hyperparameters.lr, 5)
        (134788, 0.00305)
    """
    return [answer(name, RULES[name], setting) for name in names]
