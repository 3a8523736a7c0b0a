"""Stands for a worker: it sleeps for a run's tokens, and tells when and on which devices it did."""

import json
import os
import sys
import time

SECONDS_PER_TOKEN = 5e-5


def main():
    for line in sys.stdin:
        (run,) = json.loads(line)["runs"]
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
