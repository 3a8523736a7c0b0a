"""Random damages of files of a run directory: reported, or the run ends as undisturbed."""

import random
import shutil
import warnings
from collections import Counter
from pathlib import Path
from threading import Event

from benchmarks.unattended.runs import STEPS, a_run, an_execution, directory_of, ended_as
from bss.errors import InputError
from bss.training.checkpoint import Damaged
from bss.training.execution import use_compilation_cache
from bss.training.loop import Interrupted, train
from bss.training.run_directory import read_status

KINDS = ("flip", "cut", "delete", "garbage")
_ASKED = STEPS - 6


class _Stop(Event):
    """An event that is set after a number of queries."""

    left = _ASKED

    def is_set(self) -> bool:
        self.left -= 1
        return self.left < 0


def damage(file: Path, kind: str, draw: random.Random) -> None:
    """Flips a bit, cuts a file, deletes it, or writes garbage over a part."""
    whole = file.read_bytes()
    at = draw.randrange(max(len(whole), 1))
    if kind == "delete":
        file.unlink()
    elif kind == "cut":
        file.write_bytes(whole[:at])
    elif kind == "garbage" or not whole:
        some = draw.randbytes(draw.randint(1, 64))
        file.write_bytes(whole[:at] + some + whole[at + len(some) :])
    else:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << draw.randrange(8)]) + whole[at + 1 :])


def measured(count: int, folder: Path, seed: int) -> dict[str, int]:
    """Return how many damages were reported, ended as undisturbed, or were silent or crashed.

    The file of a silent damage or a crash is printed.
    """
    run = a_run()
    draw = random.Random(seed)
    found = Counter[str]()
    kept = _begun(folder)
    expected = ended_as(run, kept["finished"])
    for number in range(count):
        state = draw.choice(sorted(kept))
        kind = draw.choice(KINDS)
        place = folder / "damaged" / "x"
        shutil.rmtree(place, ignore_errors=True)
        shutil.copytree(kept[state], place)
        directory = directory_of(run, place)
        files = sorted(path for path in directory.rglob("*") if path.is_file())
        file = draw.choice(files)
        damage(file, kind, draw)
        outcome = _outcome(place, expected)
        found[outcome] += 1
        if outcome.startswith(("silent", "crashed")):
            print(f"{number}: {kind} of {file.relative_to(directory)}, {state}: {outcome}")
    return dict(found)


def _begun(folder: Path) -> dict[str, Path]:
    """Folders of the run, stopped on its way and finished."""
    run = a_run()
    kept = {state: folder / state / "x" for state in ("stopped", "finished")}
    for state, place in kept.items():
        execution = an_execution(place)
        use_compilation_cache(execution)
        try:
            train(run, execution, stop=_Stop() if state == "stopped" else None)
        except Interrupted:
            continue
    return kept


def _outcome(place: Path, expected: tuple) -> str:
    run = a_run()
    with warnings.catch_warnings(record=True, action="always") as said:
        try:
            reported = read_status(directory_of(run, place)).status == "damaged"
            train(run, an_execution(place))
            same = ended_as(run, place) == expected
        except InputError:
            return "reported, refused"
        except Damaged:  # of a run that has finished, and reads none
            return "reported when it is read"
        except Exception as error:  # what a person would see as a traceback
            return f"crashed by {type(error).__name__}"
    reported = reported or any(issubclass(one.category, RuntimeWarning) for one in said)
    if same:
        return "reported, same losses" if reported else "same losses"
    return "reported, other losses" if reported else "silent"
