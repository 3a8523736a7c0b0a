"""CPU seconds of each test, a pytest plugin.

    COSTS=costs.jsonl PYTEST_ADDOPTS="-p tests.costs" make test
    python tests/costs.py costs.jsonl       # CPU seconds by package, largest worker

CPU seconds are user and system time of the worker and of processes that it waited for.
"""

import json
import os
import resource
import sys
from collections import Counter
from pathlib import Path

try:
    import pytest
except ImportError:  # summing needs no pytest
    pytest = None


def used() -> float:
    """Return CPU seconds of this process and of its finished children."""
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


if pytest is not None:

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(item):
        """Append one line per test to the file named by COSTS."""
        before = used()
        yield
        row = {
            "test": item.nodeid,
            "slow": item.get_closest_marker("slow") is not None,
            "cpu_seconds": round(used() - before, 3),
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        }
        with Path(os.environ["COSTS"]).open("a") as out:
            out.write(json.dumps(row) + "\n")


def main() -> None:
    """Print CPU seconds by package, faster tests and slow ones, and the largest worker."""
    rows = [json.loads(line) for line in Path(sys.argv[1]).read_text().splitlines()]
    fast, slow = Counter(), Counter()
    for row in rows:
        package = "/".join(row["test"].split("::")[0].split("/")[:2])
        (slow if row["slow"] else fast)[package] += row["cpu_seconds"]
    print("package,tests,slow_tests")
    for package in sorted(fast | slow):
        print(f"{package},{fast[package]:.0f},{slow[package]:.0f}")
    print(f"all,{fast.total():.0f},{slow.total():.0f}")
    print(f"largest worker: {max(row['rss_mb'] for row in rows)} MB")


if __name__ == "__main__":
    main()
