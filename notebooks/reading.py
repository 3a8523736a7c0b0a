"""What the notebooks share: where an experiment's results lie, and numbers as text."""

import importlib
import json
import math
import os
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas as pd
from IPython.display import Markdown

from bss.contests.claims import Claim, Question, effect_text, markdown
from bss.contests.contest import ENDINGS, Contest, Standing

ROOT = Path(__file__).resolve().parent.parent
if str(ROOT) not in sys.path:
    sys.path.append(str(ROOT))


def results_of(experiment: str, *, trains: bool = True) -> Path:
    """The directory of an experiment's results.

    They are the committed ones, unless the environment has RUN=smoke|cpu|gpu: then the experiment
    runs first, at that size, and the directory is the one that its config names.

    Args:
        experiment: name of its driver, config and results.
        trains: False for theory, whose cpu size stands in for gpu.

    Raises:
        RuntimeError: the experiment failed, with the end of what it said.
    """
    size = os.environ.get("RUN")
    if not size:
        return ROOT / "results" / experiment
    return _run(experiment, "cpu" if size == "gpu" and not trains else size)


def results_of_parts(experiment: str, *parts: str) -> dict[str, Path]:
    """The directories of an experiment whose sizes are parts of its question.

    With RUN=smoke the size smoke runs and stands for every part; with RUN=cpu|gpu each part runs.
    A part that ends in "_h100" is the size before that, whose results were made on that device.

    Args:
        experiment: name of its driver, config and results.
        parts: as its results name them.

    Raises:
        RuntimeError: the experiment failed, with the end of what it said.
    """
    run = os.environ.get("RUN")
    if not run:
        return {part: ROOT / "results" / experiment / part for part in parts}
    sizes = {part: "smoke" if run == "smoke" else part.removesuffix("_h100") for part in parts}
    folders = {size: _run(experiment, size) for size in dict.fromkeys(sizes.values())}
    return {part: folders[size] for part, size in sizes.items()}


def _run(experiment: str, size: str) -> Path:
    """Runs an experiment at a size; returns where its config has the results."""
    config = f"--config=configs/{experiment}.py:{size}"
    command = [sys.executable, "-m", f"experiments.{experiment}", config]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[1:])}: {done.stderr.strip()[-1000:]}")
    return ROOT / importlib.import_module(f"configs.{experiment}").get_config(size).results


def verdicts(claims: Iterable[Claim], table: str = "", words: str = "") -> str:
    """Claims as a Markdown table.

    Args:
        claims: of an experiment.
        table: only those computed from this committed table, by its name without suffix.
        words: only those whose statement has these words.
    """
    some = [one for one in claims if f"/{table}." in one.table or not table]
    return markdown([one for one in some if words in one.statement])


def contenders_table(contenders: pd.DataFrame) -> pd.DataFrame:
    """Final losses less that of the best constant of each ending, in 1e-3 nats.

    ± is half of the 95% interval by paired t over seeds, after Holm within the ending.

    Args:
        contenders: a table of final losses.

    Returns:
        Text: a row a contender, best first at the first ending, a column an ending.
    """

    def text(one: Standing) -> str:
        if one.best:
            return f"best constant, {one.loss:.4f}"
        error = "" if one.error is None else f" ± {1e3 * one.error:.1f}"
        return f"{1e3 * one.difference:+.1f}{error}".replace("-", "−")

    columns = {
        ENDINGS[ending].short: {one.name: text(one) for one in rows}
        for ending, rows in Contest(contenders).by_ending().items()
    }
    return pd.DataFrame(columns).fillna("")


def said(claims: Iterable[Claim], *asked: Question | str) -> Markdown:
    """The claims of some questions, each with its numbers and its verdict.

    What every note of a statement says stands below its table.
    """
    every, texts = list(claims), []
    for statement in (getattr(one, "statement", one) for one in asked):
        some = [one for one in every if one.statement == statement]
        notes = [one.note.split("; ") for one in some]
        common = [part for part in notes[0] if all(part in note for note in notes)] if some else []
        rows = [f"| **{statement}** | effect | p, both tests | verdict |", "|---|---|---|---|"]
        for one, parts in zip(some, notes, strict=True):
            own = "; ".join(part for part in parts if part not in common)
            where = one.condition + (f" <br>*{own}*" if own else "")
            rows.append(f"| {where} | {_effect(one)} | {_chances(one)} | {one.verdict} |")
        sources = ", ".join(dict.fromkeys(one.question.source for one in some))
        texts.append("\n".join(rows) + f"\n\n[{sources}] {'; '.join(common)}")
    return Markdown("\n\n".join(texts))


def _effect(one: Claim) -> str:
    if math.isnan(one.effect.estimate):
        return "–"
    bound = "" if one.effect.low is None and one.effect.high is None else effect_text(one)
    return (
        (bound or f" ({one.effect.estimate:+.4f} {one.question.unit})")
        .strip(" ()")
        .replace("-", "−")
    )


def _chances(one: Claim) -> str:
    """Both p after Holm, and the effect that would have been shown in 80% of such tables."""
    chances = one.effect.p_adjusted, one.effect.pooled_p_adjusted
    if None in chances:
        return "–"
    least = one.effect.smallest_effect
    texts = ("<0.001" if p < 1e-3 else f"{p:.3f}" for p in chances if p is not None)
    return ", ".join(texts) + (f" <br>*would show {least:.3f}*" if least else "")


def read_table(folder: Path, name: str) -> Any:
    """A table or a JSON file of a results directory."""
    path = folder / name
    return json.loads(path.read_text()) if path.suffix == ".json" else pd.read_csv(path)
