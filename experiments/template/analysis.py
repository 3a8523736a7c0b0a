"""Write table.csv and figure.png: what weight decay changes, by batch size.

python -m experiments.template.analysis runs/weight_decay
"""

from pathlib import Path

import pandas as pd

from bss.plots import style
from bss.stats import paired
from bss.tables import write_table
from experiments.tables import Tables, analyze

DECAY = "optimizer.weight_decay"


def differences(finals: pd.DataFrame) -> pd.DataFrame:
    """Return held-out loss with minus without weight decay, paired by seed, with 95% intervals."""
    losses = finals.pivot(index=["batch", "seed"], columns=DECAY, values="eval_loss")
    apart = losses[losses.columns.max()] - losses[losses.columns.min()]
    rows = [
        {"batch": int(str(batch)), **vars(paired(own.to_numpy()))}
        for batch, own in apart.groupby("batch")
    ]
    return pd.DataFrame(rows).sort_values("batch", ignore_index=True)


def write(folder: Path) -> None:
    """Write the table and the figure."""
    table = differences(Tables(folder).read("finals.csv"))
    write_table(table, folder / "table.csv")
    figure, ((ax,),) = style.new_figure(3.0)
    x, mean, low, high = style.columns(table, "batch", "mean", "low", "high")
    style.bars(ax, (x, mean, low, high), style.named_styles(["weight decay"])["weight decay"])
    style.batch_axis(ax.xaxis, x)
    ax.set(xlabel="batch size (sequences)", ylabel="loss with minus without\n(nats per token)")
    figure.savefig(folder / "figure.png", dpi=150)


if __name__ == "__main__":
    analyze(__doc__, write)
