"""Shared by the notebooks: directories of results, and numbers as text."""

import importlib
import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from bss.stats import LR_PHASES, ComparedRun, Comparison

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


def results_of(experiment: str, *, trains: bool = True) -> Path:
    """Return the directory of an experiment's results.

    These are the committed results, unless the environment has RUN=smoke|cpu|gpu. Then the
    experiment runs first, at that size, and the directory is named by its config.

    Args:
        experiment: name of its driver, config and results.
        trains: False for theory, whose cpu size replaces gpu.

    Raises:
        RuntimeError: If the experiment failed, with the end of its output.
    """
    size = os.environ.get("RUN")
    if not size:
        return ROOT / "results" / experiment
    return _run(experiment, "cpu" if size == "gpu" and not trains else size)


def results_of_parts(experiment: str, *parts: str) -> dict[str, Path]:
    """Return the directories of an experiment by part.

    With RUN=smoke the size smoke runs and replaces every part; with RUN=cpu|gpu each part runs. A
    part that ends in "_h100" is the size before that, whose results were made on that device.

    Args:
        experiment: name of its driver, config and results.
        parts: as its results name them.

    Raises:
        RuntimeError: If the experiment failed, with the end of its output.
    """
    run = os.environ.get("RUN")
    if not run:
        return {part: ROOT / "results" / experiment / part for part in parts}
    sizes = {part: "smoke" if run == "smoke" else part.removesuffix("_h100") for part in parts}
    folders = {size: _run(experiment, size) for size in dict.fromkeys(sizes.values())}
    return {part: folders[size] for part, size in sizes.items()}


def results_of_sizes(
    experiment: str, sizes: Mapping[str, str], smoke_parts: Sequence[str]
) -> dict[str, Path]:
    """Return the directories of an experiment by part, with the tables of its analysis.

    With RUN=smoke the size smoke runs and replaces `smoke_parts`; the other parts are the committed
    ones. With RUN=cpu|gpu each part runs.

    Args:
        experiment: name of its driver, config and results.
        sizes: the size of each part, by its directory.
        smoke_parts: parts that the size smoke has.

    Raises:
        RuntimeError: If the experiment failed, with the end of its output.
    """
    folders = {part: ROOT / "results" / experiment / part for part in sizes}
    run = os.environ.get("RUN")
    if run == "smoke":
        folder = _run(experiment, "smoke")
        _call(f"experiments.{experiment}.analysis", f"--part={folder}")
        return folders | dict.fromkeys(smoke_parts, folder)
    if run:
        for size in sizes.values():
            _run(experiment, size)
        _call(f"experiments.{experiment}.analysis")
    return folders


def smoke(experiment: str) -> Path:
    """Train an experiment at its smoke size; return the directory of its results."""
    return _run(experiment, "smoke")


def _run(experiment: str, size: str) -> Path:
    """Runs an experiment at a size; returns where its config has the results."""
    _call(f"experiments.{experiment}", f"--config=configs/{experiment}.py:{size}")
    return ROOT / importlib.import_module(f"configs.{experiment}").get_config(size).results


def _call(module: str, *arguments: str) -> None:
    """Run a module in a new process; raise RuntimeError if it fails."""
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()[-1000:]}")


def contenders_table(finals: pd.DataFrame) -> pd.DataFrame:
    """Return final losses minus the best fixed batch size's in each LR phase, in 1e-3 nats.

    ± is half of the 95% confidence interval (paired t over seeds).

    Args:
        finals: A table of final losses.

    Returns:
        Text: one row per compared run, best first in the first LR phase; one column per LR phase.
    """

    def text(one: ComparedRun) -> str:
        if one.best:
            return f"best constant, {one.loss:.4f}"
        error = "" if one.error is None else f" ± {1e3 * one.error:.1f}"
        return f"{1e3 * one.difference:+.1f}{error}".replace("-", "−")

    columns = {
        LR_PHASES[phase].short: {one.name: text(one) for one in rows}
        for phase, rows in Comparison(finals).by_phase().items()
    }
    return pd.DataFrame(columns).fillna("")


def read_table(folder: Path, name: str) -> Any:
    """A table or a JSON file of a results directory."""
    path = folder / name
    return json.loads(path.read_text()) if path.suffix == ".json" else pd.read_csv(path)
