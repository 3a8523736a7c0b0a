"""Whether runs fit the machine that their config names, by what was compiled for it."""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bss.files import read_json
from bss.machines.targets import TARGETS
from bss.sweeps.programs import Job

COMPILED = Path(__file__).resolve().parents[2] / "results" / "compiled.json"
"""The table of the checkout: `python -m benchmarks.compiled` makes it."""


def keys(job: Job, machine: str) -> Iterator[dict[str, Any]]:
    """What tells the programs of a job from others: each bucket's, then the evaluation's."""
    run = job.run
    shared = {
        "machine": machine,
        "model": job.model,
        "seq_len": run.data.seq_len,
        "optimizer": type(run.optimizer).__name__,
        "averages": len(run.averages),
    }
    yield from ({**shared, "program": "train", "bucket": bucket} for bucket in job.capacity)
    yield {**shared, "program": "evaluation", "tokens": run.evaluation.tokens}


def read_compiled(path: Path = COMPILED) -> list[dict[str, Any]]:
    """The programs of the table; none where there is no table."""
    return read_json(path, "see docs/machines.md")["programs"] if path.is_file() else []


def program_of(programs: Iterable[dict[str, Any]], key: Mapping[str, Any]) -> dict[str, Any] | None:
    """The program of a key, where it was compiled."""
    return next((one for one in programs if key.items() <= one.items()), None)


def fits_line(jobs: Iterable[Job], machine: str, path: Path = COMPILED) -> str:
    """Whether all programs of jobs fit a machine, in one line."""
    programs = read_compiled(path)
    wanted = [key for job in jobs for key in keys(job, machine)]
    known = [one for key in wanted if (one := program_of(programs, key))]
    rest = f"bss compile --config FILE:SIZE --on {machine}"
    if not known:
        return f"{machine}: not compiled; {rest} says whether it fits"
    most = max(known, key=lambda one: one["peak_bytes"])
    target = next(t for t in TARGETS if t.name == machine.partition(":")[0])
    size = f"at most {most['peak_bytes'] / 1e9:.3g} GB of {target.memory / 1e9:.3g}"
    where = f"{most['model']}, {most['program']} in buckets of {most['bucket']}"
    if not most["fits"]:
        return f"{machine}: does not fit; {where}, needs {size.removeprefix('at most ')}"
    if missing := len(wanted) - len(known):
        return (
            f"{machine}: {len(known)} of {len(wanted)} programs fit, {size} ({where}); "
            f"{missing} are not compiled; {rest}"
        )
    return f"{machine}: fits, {size} ({where})"
