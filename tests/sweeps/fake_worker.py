"""Stands for a worker: it sleeps for a run's tokens, and tells when and on which devices it did.

Seed 99 kills it, once.
"""

import json
import os
import sys
import time
from pathlib import Path

SECONDS_PER_TOKEN = 5e-5


def main():
    for line in sys.stdin:
        job = json.loads(line)
        (run,) = job["runs"]
        killed = Path(job["execution"]["runs"]) / "killed"
        if run["seed"] == 99 and not killed.exists():
            killed.touch()
            sys.exit(1)
        began = time.monotonic()
        start = run["parent"]["tokens"] if run["parent"] else 0
        time.sleep((run["schedule"]["tokens"] - start) * SECONDS_PER_TOKEN)
        told = {
            "seed": run["seed"],
            "tokens": run["schedule"]["tokens"],
            "branch": run["parent"] is not None,
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "began": began,
            "ended": time.monotonic(),
        }
        print(json.dumps({"event": "done", **told}), flush=True)


if __name__ == "__main__":
    main()
