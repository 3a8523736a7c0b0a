"""Loss curves of a planted functional law of SGD, with run offsets and noise."""

from types import SimpleNamespace

import numpy as np
import pandas as pd

from bss.laws import CurveFit
from bss.laws.base import Estimate
from bss.laws.functional.data import plan_path, stack
from bss.laws.functional.law import CurveLaw, law_losses
from bss.schedules.batch import BatchSchedule
from bss.schedules.plan import resolve

LAW = CurveLaw(1.5, 2.0, 0.5, 0.1, 25.0, 10.0, 2.0, 1.5, 1.0, 1.0, 0.0)
TOKENS = 2_000_000
SEQ_LEN = 64
LR = 4e-3
OFFSET = 2e-3
NOISE = 1e-3
CONSTANTS = ("1", "2", "4", "8", "16")
TWO_STAGE = ("0:1 50%:8", "0:1 80%:16", "0:2 30%:8", "0:16 50%:2")


def curves(schedules, law=LAW, rate=LR, seed=None):
    """Rows of runs named by their schedules; with a seed, run offsets and noise in log loss."""
    draw = np.random.default_rng(seed)
    frames = []
    for text in schedules:
        schedule = BatchSchedule.parse(text, total=TOKENS)
        plan = resolve(schedule, TOKENS, SEQ_LEN)
        steps = sorted({plan.step_at(round(x)) for x in np.geomspace(20_000, TOKENS, 40)})
        at = np.array([plan.tokens_at(step) for step in steps])
        path = plan_path(schedule, TOKENS, SEQ_LEN, rate, at)
        loss = law_losses(law, stack([path], SEQ_LEN))[0, : len(at)]
        if seed is not None:
            offset = OFFSET * draw.standard_normal()
            loss = loss * np.exp(offset + NOISE * draw.standard_normal(len(at)))
        frame = pd.DataFrame({"run": text, "step": steps, "tokens": at, "seq_len": SEQ_LEN})
        frame["batch"] = [plan.at(step - 1).batch for step in steps]
        frames.append(frame.assign(lr=rate(at) if callable(rate) else rate, loss=loss))
    return pd.concat(frames, ignore_index=True)


def planted_curves():
    """The law, as a fit, and its curves."""
    parameters = {name: Estimate(value) for name, value in LAW._asdict().items()}
    fit = CurveFit(
        "sgd", LAW, parameters, "converged", True, 0.0, {}, SEQ_LEN, (1.0, 16.0), (LR, LR),
        TOKENS, 0, 0,
    )  # fmt: skip
    return SimpleNamespace(
        law=LAW,
        fit=fit,
        table=curves,
        tokens=TOKENS,
        seq_len=SEQ_LEN,
        constants=CONSTANTS,
        two_stage=TWO_STAGE,
    )
