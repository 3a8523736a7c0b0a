"""`bss train --restarts`: refused where there would be nothing to go on from."""

import dataclasses
import json

from bss.cli import main
from bss.values import to_dict


def test_restarts_without_checkpoints_are_refused_in_a_line(
    tiny_run, tiny_execution, tmp_path, capsys
):
    file = tmp_path / "job.json"
    job = {"run": to_dict(tiny_run), "execution": dataclasses.asdict(tiny_execution)}
    file.write_text(json.dumps(job))
    assert main(["train", str(file), "--restarts", "3"]) == 2
    told = capsys.readouterr().err
    assert "--restarts 3: execution.checkpoint_seconds is 1e+09, so a run would begin" in told
    assert told.count("\n") == 1
