"""Train the runs of FOLDER/runs.json by JointEngine as one of two processes.

python -m tests.sweeps.joint_processes FOLDER COORDINATOR PROCESS
"""

import json
import sys
import time
from pathlib import Path

from bss.sweeps.engines import JointEngine
from bss.sweeps.setup import EngineConfig
from bss.training import run_directory
from bss.training.distributed import DistributedConfig, initialized
from bss.training.execution import Execution
from bss.training.run_config import RunConfig
from bss.training.run_directory import RunDirectory, RunStatus
from bss.values import from_dict, to_dict


class LateDirectory(RunDirectory):
    """How a run has ended is written late, as to a slow disk: no process may read it before."""

    def write_status(self, status: RunStatus) -> None:
        if status.status != "running":
            time.sleep(0.5)
        super().write_status(status)


def main(folder: Path, coordinator: str, process: int) -> None:
    """Write the statuses of the runs to FOLDER/PROCESS.json."""
    run_directory.RunDirectory = LateDirectory
    told = json.loads((folder / "runs.json").read_text())
    runs = [from_dict(RunConfig, one) for one in told["runs"]]
    execution = from_dict(Execution, told["execution"])
    with initialized(DistributedConfig(2, coordinator, process)):
        statuses = JointEngine(EngineConfig()).train(runs, execution)
        (folder / f"{process}.json").write_text(json.dumps(to_dict(statuses)))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]))
