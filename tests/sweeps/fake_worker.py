"""A fake worker: it sleeps for a run's tokens, and writes when and on which devices it did.

Seed 99 ends it, once.
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
        ((name, run),) = job["runs"].items()
        runs = Path(job["execution"]["runs"])
        if run["seed"] == 99 and not (runs / "killed").exists():
            (runs / "killed").touch()
            sys.exit(1)
        began = time.monotonic()
        start = run["parent"]["tokens"] if run["parent"] else 0
        time.sleep((run["schedule"]["tokens"] - start) * SECONDS_PER_TOKEN)
        record = {
            "seed": run["seed"],
            "tokens": run["schedule"]["tokens"],
            "devices": os.environ.get("CUDA_VISIBLE_DEVICES"),
            "began": began,
            "ended": time.monotonic(),
        }
        with open(runs / "records.jsonl", "a") as file:
            file.write(json.dumps(record) + "\n")
        (runs / name).mkdir()
        (runs / name / "status.json").write_text('{"status": "finished"}')
        print('""', flush=True)


if __name__ == "__main__":
    main()
