"""beta1 by what was measured here, in runs from the start at one batch.

Fitted by experiments/momentum/betas.py on results/momentum: 99k parameters, 64-token sequences of
Python code, beta2 .95 per step, decayed to zero, each beta1 at the better of two rates. 1 - beta1
is a power of the steps of the run that is not shown to be another than 0. Golden: .7 at every batch
there is within .001 nats of the best of five beta1.
"""

from bss.rules.rule import Rule
from bss.rules.setting import Hyperparameters, Setting
from bss.schedules.momentum import LAW

_SIZES = (0.98 * LAW.params, 1.02 * LAW.params)


def beta1(setting: Setting) -> Hyperparameters:
    """beta1 by the steps of the run."""
    assert setting.steps is not None  # the rule needs a batch
    return Hyperparameters(setting.batch_tokens, beta1=LAW.of(setting.steps))


MEASURED_BETA1 = Rule(
    "derived here, results/momentum",
    beta1,
    batch=None,
    fitted={"params": _SIZES, "tokens": LAW.range("tokens"), "steps": LAW.range("steps")},
    needs=("batch_tokens",),
)
