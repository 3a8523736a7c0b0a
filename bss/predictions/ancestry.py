"""Whether a file was committed before runs were trained, as git tells it."""

import hashlib
import subprocess
from pathlib import Path

import pandas as pd

from bss.errors import InputError
from bss.predictions.registration import digest

ALL = "all runs are scored, or none"


def check_first(file: Path, outcomes: pd.DataFrame) -> str:
    """The commit that added a file, which is the same now and which every run came after.

    Args:
        file: in a git repository.
        outcomes: of runs, as `bss.sweeps.table.outcomes` has them; those without a commit are
            missing.

    Raises:
        InputError: the file is not committed or has changed since; a run recorded another file, or
            one of its starts, or of its parents', was at a commit that does not have this one.
    """
    first = first_commit(file)
    there = _git(file, "show", f"{first}:./{file.name}")
    if there is None or hashlib.sha256(there).hexdigest() != digest(file):
        raise InputError(
            f"{file}: is not what commit {first[:12]} added; the first counts, so restore it"
        )
    after: dict[str, bool] = {}
    for row in outcomes.loc[outcomes["status"] != "missing"].to_dict("records"):
        if row["registration"] != digest(file):
            raise InputError(
                f"run {row['run']}: records registration {str(row['registration'])[:12]}, not "
                f"{digest(file)[:12]} of {file}; {ALL}"
            )
        for commit in str(row["commit"]).split():
            if commit not in after:
                arguments = "merge-base", "--is-ancestor", first, commit.removesuffix("+")
                after[commit] = _git(file, *arguments) is not None
            if not after[commit]:
                raise InputError(
                    f"run {row['run']}: was trained at commit {commit}, which does not come after "
                    f"{first[:12]} that added {file}; {ALL}"
                )
    return first


def first_commit(file: Path) -> str:
    """The commit that added a file for the first time; InputError where there is none."""
    arguments = "log", "--full-history", "--diff-filter=A", "--format=%H", "--", file.name
    commits = (_git(file, *arguments) or b"").decode().split()
    if not commits:
        raise InputError(f"{file}: is not committed; commit it before its runs are trained")
    return commits[-1]


def _git(file: Path, *arguments: str) -> bytes | None:
    """What git answers in the folder of a file; None where it fails."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=file.parent, capture_output=True, timeout=60, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout
