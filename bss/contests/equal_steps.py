"""A run whose batch changed, beside the large batch at equal steps (after arXiv 2602.14208)."""

import numpy as np
import pandas as pd


def gaps_at_equal_steps(run: pd.DataFrame, large: pd.DataFrame) -> pd.DataFrame:
    """Held-out loss less that of the large batch at equal steps, from the last row of the small.

    The large batch's loss is linear in the logarithm of its steps; what it did not take is left
    out.

    Args:
        run: columns seed, step, batch, eval_loss of one schedule, evaluated alike at every seed.
        large: the same of the large batch.

    Returns:
        Nats [step, seed], of the seeds that both have; the first row is before the last change of
        the batch. Empty where the large batch did not take as many steps.
    """
    curves, others = (
        some.pivot_table(index="step", columns="seed", values="eval_loss").dropna()
        for some in (run, large)
    )
    if curves.empty or others.empty:
        return pd.DataFrame()
    batches = run.groupby("step")["batch"].first()
    before = int((batches != batches.iloc[-1]).sum()) - 1
    first, last = batches.index[max(before, 0)], others.index[-1]
    curves = curves.loc[(curves.index >= first) & (curves.index <= last)]
    at, known = (np.log(table.index.to_numpy(float)) for table in (curves, others))
    seeds = [seed for seed in curves.columns if seed in others.columns]
    return pd.DataFrame(
        {seed: curves[seed] - np.interp(at, known, others[seed].to_numpy()) for seed in seeds}
    )


def mean_curve(run: pd.DataFrame) -> pd.DataFrame:
    """The curve of a schedule's seeds, where all of them were evaluated.

    Args:
        run: columns seed, tokens, step, eval_loss, of one schedule at one rate.

    Returns:
        Columns tokens, steps, loss (the mean), low and high (the lowest and the highest seed).
    """
    seeds = run["seed"].nunique()
    grouped = run.groupby("tokens")
    losses = grouped["eval_loss"]
    table = losses.agg(loss="mean", low="min", high="max")
    table.insert(0, "steps", grouped["step"].first())
    return table.loc[losses.count() == seeds].reset_index()
