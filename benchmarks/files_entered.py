"""Count the files of bss whose functions are called on the way through a task.

    python -m benchmarks.files_entered fit      # run table, points, fit_es, policy, BatchSchedule
    python -m benchmarks.files_entered train    # experiments.train, from a config to the results

A file counts once if any of its functions is entered, in any thread of this process; module-level
code of imports does not count. The list is in the order of the first call. `train` also prints the
call chain, without repetitions: the files of the stack at the first update of the optimizer.
"""

import argparse
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from types import FrameType

import bss

ROOT = Path(bss.__file__).parent
UPDATE = "update_fn"  # of optax transformations
JOINT = "bss.sweeps.engines:JointEngine"  # trains in this process


def entered(task: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Return the files, relative to bss/, in which `task` enters a function, and the call chain."""
    codes: dict[tuple[str, str], None] = {}
    chain: list[tuple[str, str]] = []

    def called(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        codes[frame.f_code.co_filename, frame.f_code.co_name] = None
        if not chain and frame.f_code.co_name == UPDATE and "optax" in frame.f_code.co_filename:
            main = sys._current_frames()[threading.main_thread().ident or 0]
            stacks = [frame] if frame is main else [frame, main]  # programs compile in threads
            for above in stacks:
                stack = [f.f_code for f, _ in traceback.walk_stack(above)]
                chain[:0] = [(code.co_filename, code.co_name) for code in reversed(stack)]

    threading.setprofile(called)
    sys.setprofile(called)
    try:
        task()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return _files(codes), _files(chain)


def _files(codes: Iterable[tuple[str, str]]) -> list[str]:
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
    config.schedule.warmup, config.schedule.decay = 1024, 2048
    folder = tempfile.mkdtemp()
    config.runs, config.results, config.engine = f"{folder}/runs", f"{folder}/results", JOINT
    study = from_dict(Study, config.to_dict())
    return lambda: experiment(study)


def main() -> None:
    """Print the files of a task, and their number."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    tasks = {"fit": fit, "train": train}
    parser.add_argument("task", choices=tasks)
    files, chain = entered(tasks[parser.parse_args().task]())
    print("\n".join([*files, f"{len(files)} files"]))
    if chain:
        print(f"call chain to the optimizer's update, {len(chain)} files: {' > '.join(chain)}")


if __name__ == "__main__":
    main()
