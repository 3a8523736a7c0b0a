"""Planted noise scales and branches whose last crossings are known."""

import math

import numpy as np
import pandas as pd
from scipy.optimize import brentq


def planted_noise(number, flat=False):
    """Return a table of noise scales, and the true noise scale (tokens) as a function of tokens.

    The noise scale is a power of the steps, some with a bend; the scatter is lognormal, some of it
    correlated from row to row. A flat one stays within the scatter of a batch size.
    """
    draw = np.random.default_rng(number)
    rows = int(draw.integers(60, 200))
    size = int(2 ** draw.integers(17, 20))
    step = np.arange(1, rows + 1) * 100
    scale = float(np.exp(draw.uniform(np.log(3e3), np.log(3e4))))
    power = 0.0 if flat else float(draw.uniform(0.3, 0.7))
    bend = float(draw.uniform(0.0, 0.02)) if number % 3 == 0 and not flat else 0.0
    scatter = float(draw.uniform(0.05, 0.4))
    memory = float(draw.choice([0.0, 0.0, 0.3]))
    if flat:
        scale = 2.0**18

    def true(tokens):
        x = np.asarray(tokens) / size
        return scale * x**power * np.exp(bend * np.log(x / 1000) ** 2)

    error = draw.standard_normal(rows)
    for i in range(1, rows):
        error[i] = memory * error[i - 1] + math.sqrt(1 - memory**2) * error[i]
    table = pd.DataFrame({"step": step, "tokens": step * size})
    table["noise_scale"] = true(table["tokens"]) * np.exp(scatter * error)
    return table, true


def true_crossing(true, level, last, first):
    """Return where a rising (or, with a negative level function, falling) curve passes 0."""
    if level(true(first)) >= 0:
        return 0.0
    if level(true(last)) < 0:
        return math.inf
    return float(np.exp(brentq(lambda x: level(true(np.exp(x))), np.log(first), np.log(last))))


def planted_branches(number, flat=False):
    """Return a table of branches, and the true penalty of each batch size over tokens.

    The penalty falls as a power of the tokens to a floor, and grows with the factor; each loss has
    its own error. A flat one stays within the errors of the tolerance of 0.02 nats.
    """
    draw = np.random.default_rng(number)
    count = int(draw.integers(8, 17))
    forks = np.arange(1, count + 1) * 131_072_000
    height = float(draw.uniform(0.04, 0.09))
    power = 0.0 if flat else float(draw.uniform(0.6, 1.1))
    floor = float(draw.uniform(0.0, 0.008))
    error = float(draw.uniform(0.0005, 0.003))
    factors = [16] if number % 2 else [4, 16]
    if flat:
        height, floor = 0.02, 0.0

    def penalty(tokens, factor):
        fall = (np.asarray(tokens) / forks[0]) ** -power
        return (height * fall + floor) * math.log2(factor) / 4

    rows = []
    for fork in forks:
        trunk = 4.5 - 0.12 * math.log(fork / 1e7) + error * draw.standard_normal()
        plain = {"fork": fork, "seq_len": 1024, "tokens": fork + 134_217_728}
        rows.append({**plain, "run": f"a{fork}-b128", "batch": 128, "loss": trunk})
        for factor in factors:
            loss = trunk + penalty(fork, factor) + error * draw.standard_normal()
            name = f"a{fork}-b{128 * factor}"
            rows.append({**plain, "run": name, "batch": 128 * factor, "loss": loss})
    return pd.DataFrame(rows), {128 * f: (lambda t, f=f: penalty(t, f)) for f in factors}
