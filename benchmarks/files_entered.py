"""Count the files of bss whose functions are called on the way through a task.

    python -m benchmarks.files_entered fit      # run table, points, fit_es, policy, BatchSchedule
    python -m benchmarks.files_entered train    # experiments.train, from a config to the results

A file counts once if any of its functions is entered, in any thread of this process; module-level
code of imports does not count. The list is in the order of the first call.
"""

import argparse
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import bss

ROOT = Path(bss.__file__).parent
JOINT = "bss.sweeps.engines:JointEngine"  # trains in this process


def entered(task: Callable[[], object]) -> list[str]:
    """Return the files of bss, relative to the package, in which `task` enters a function."""
    codes: dict[tuple[str, str], None] = {}

    def called(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            codes[frame.f_code.co_filename, frame.f_code.co_name] = None

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        task()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # pyright: ignore[reportArgumentType]
    paths = [Path(file) for file, name in codes if name != "<module>"]
    return [*dict.fromkeys(str(p.relative_to(ROOT)) for p in paths if p.is_relative_to(ROOT))]


def fit() -> Callable[[], object]:
    """Return a task: a batch schedule from the run table of planted curves."""
    from benchmarks.laws.planted_curves import planted
    from bss.laws import fit_es
    from bss.laws.base import Options
    from bss.points.measuring import measure_points
    from bss.policies.follow_optimum import FollowOptimum
    from bss.policies.policy import Basis, Limits

    runs = planted("inner", 0).runs
    seq_len, tokens = int(runs["seq_len"].iloc[0]), int(runs["tokens"].max())

    def task() -> None:
        points, _ = measure_points(runs, count=3)
        fit = fit_es(points, options=Options(20))
        schedule = FollowOptimum()(Basis(seq_len, fit), tokens, Limits())
        assert schedule.batches

    return task


def train() -> Callable[[], object]:
    """Return a task: `experiments.train` of a pico model on synthetic text, in this process."""
    from bss.values import from_dict
    from configs.train import get_config
    from experiments.train.__main__ import Study, experiment

    config = get_config("pico")
    config.text.corpus, config.schedule.tokens = "synthetic", 20480
    folder = tempfile.mkdtemp()
    config.runs, config.results, config.engine = f"{folder}/runs", f"{folder}/results", JOINT
    study = from_dict(Study, config.to_dict())
    return lambda: experiment(study)


def main() -> None:
    """Print the files of a task, and their number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    tasks = {"fit": fit, "train": train}
    parser.add_argument("task", choices=tasks)
    files = entered(tasks[parser.parse_args().task]())
    print("\n".join([*files, f"{len(files)} files"]))


if __name__ == "__main__":
    main()
