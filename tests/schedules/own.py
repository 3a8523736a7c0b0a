"""Learning rates of a user's own: those that are ones, and those that are none."""

import math

import numpy as np
import optax

from bss.schedules.rates import LearningRate


def _halving(peak, warmup):
    rise, fall = optax.linear_schedule(0, peak, warmup), optax.exponential_decay(peak, 4096, 0.5)
    return optax.join_schedules([rise, fall], [warmup])


def _cooled(peak, tokens, decay):
    return lambda count: peak * min(1.0, (tokens - count) / decay) if decay else peak


HALVING = LearningRate(_halving)
RESTARTS = LearningRate(lambda peak, tokens: optax.cosine_decay_schedule(peak, tokens // 4))
COOLED = LearningRate(_cooled, stable=lambda tokens, decay: tokens - decay, late=("decay",))
NEGATIVE = LearningRate(lambda peak: lambda count: peak * (1 - count / 1000))
NAN = LearningRate(lambda peak, tokens: lambda count: math.nan if count > 0.4 * tokens else peak)
FAILS = LearningRate(lambda peak: lambda count: np.zeros(3)[5])
NO_FUNCTION = LearningRate(lambda peak: peak)
