"""Planted best learning rates: sweeps whose losses are asymmetric bowls about a power law."""

import numpy as np
import pandas as pd

from bss.laws.minimum import asymmetric_bowl


def planted_sweeps(generator, *, scatter=0.0):
    """Return a table of sweeps, the best LR by (params, tokens, batch), and the exponents.

    `scatter` is the standard deviation of the log of the best LRs about the law.
    """
    models = int(generator.integers(3, 6))
    budgets = int(generator.integers(3, 6))
    exponents = dict(
        N=generator.uniform(-0.9, -0.3), D=generator.uniform(-0.1, 0.4), B=generator.uniform(0, 0.6)
    )
    noise = generator.uniform(0.001, 0.005)
    step = generator.choice([np.sqrt(2), 2.0])
    slopes = generator.uniform(0.7, 1.8, 2)
    height = generator.uniform(0.03, 0.1)
    batches = [256] if generator.random() < 0.5 else [64, 256, 1024]
    rows, best = [], {}
    sizes = [
        (6e7 * 4.0**i, 2e9 * 3.0**j, batch)
        for i in range(models)
        for j in range(budgets)
        for batch in batches
    ]
    for size in sizes:
        scaled = np.log(np.array(size) / (2e8, 1e10, 256))
        log_best = np.log(3e-3) + scaled @ [*exponents.values()]
        log_best += scatter * generator.standard_normal()
        tried = int(generator.integers(5, 9))
        first = round((log_best + generator.uniform(-0.7, 0.7)) / np.log(step)) - tried // 2
        lr = step ** (first + np.arange(tried))
        loss = 2.5 + height * asymmetric_bowl(np.log(lr) - log_best, *slopes)
        loss += noise * generator.standard_normal(tried)
        best[size] = float(np.exp(log_best))
        names = ("params", "tokens", "batch")
        rows += [
            dict(zip(names, size, strict=True)) | {"lr": x, "loss": y}
            for x, y in zip(lr, loss, strict=True)
        ]
    return pd.DataFrame(rows), best, exponents
