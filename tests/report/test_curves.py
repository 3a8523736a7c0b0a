"""The explorable loss curves of a report."""

import json

import numpy as np
import pandas as pd

from bss.report.curves import MOST_POINTS, interactive
from bss.tables import check_runs


def runs_of(name, rows):
    step = np.arange(1, rows + 1)
    table = {"run": name, "batch": 8, "seq_len": 64, "step": step, "loss": 3 - step / rows}
    return pd.DataFrame(table)


def curves_of(runs):
    return json.loads(interactive(runs)["numbers"])


def test_curves_are_the_losses_at_most_so_many_points():
    runs = check_runs(pd.concat([runs_of("short", 20), runs_of("long", 5 * MOST_POINTS)]))
    short, long = curves_of(runs)
    assert (short["name"], short["batch"]) == ("short", 8)
    np.testing.assert_allclose(short["losses"], runs["loss"][:20])
    np.testing.assert_allclose(short["tokens"], runs["tokens"][:20])
    assert len(long["tokens"]) == MOST_POINTS
    assert long["tokens"][-1] == 5 * MOST_POINTS * 8 * 64


def test_names_of_runs_cannot_end_the_script():
    runs = check_runs(runs_of("</script><img src=x>", 5))
    assert curves_of(runs)[0]["name"] == "</script><img src=x>"
    assert "<" not in interactive(runs)["numbers"]
