"""A loss under a name of one's own: the other columns keep the names that are usual."""

import numpy as np
import pandas as pd
import pytest

from bss.cli import main
from bss.tables import read_runs

LOSS = 3 + 8 * np.arange(1, 13) ** -0.5


@pytest.mark.parametrize(
    ("name", "columns", "loss", "tokens"),
    [
        ("plain.csv", {"step": 100, "tokens": 13_107_200}, "ce_val", 157_286_400),
        ("micro.csv", {"micro_step": 1600, "tokens": 104_857_600}, "ce_val", 1_258_291_200),
        ("wandb.csv", {"_step": 307, "trainer/global_step": 100}, "val/nll", 157_286_400),
    ],
)
def test_tokens_are_those_of_the_table(tmp_path, name, columns, loss, tokens):
    at = np.arange(1, 13)
    table = pd.DataFrame({column: at * each for column, each in columns.items()})
    if "trainer/global_step" in table:  # the index of the step just done
        table["trainer/global_step"] -= 1
    table = table.assign(**{"lr-AdamW": 3e-4, loss: LOSS})
    table.to_csv(tmp_path / name, index=False)
    out = tmp_path / "runs.parquet"
    given = ["--columns", f"eval_loss={loss}", "--batch", "64", "--seq-len", "2048"]
    assert main(["import", "auto", str(tmp_path / name), "-o", str(out), *given]) == 0
    runs = read_runs(out)
    assert runs["tokens"].iloc[-1] == tokens
    assert runs["eval_loss"].tolist() == pytest.approx(LOSS.tolist())
    assert set(runs["lr"]) == {3e-4}
