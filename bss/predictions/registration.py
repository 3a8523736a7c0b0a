"""A registration: what is predicted of runs that nobody has trained, by what, and how it counts.

It is a JSON file, committed before its runs are trained. A name is given once, a run is predicted
once: the first counts.
"""

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from bss.errors import InputError
from bss.files import read_json, write_json
from bss.laws import CurveFit
from bss.laws.fitting.estimate import Estimate
from bss.laws.functional.curves import stack
from bss.laws.functional.forecast import last_losses, untested
from bss.laws.functional.paths import plan_path
from bss.predictions.draw import Drawn, Ranges
from bss.schedules.config import ScheduleConfig
from bss.values import from_dict, to_dict

HINT = "write one with `bss register`"


@dataclass(frozen=True)
class Prediction:
    """The loss that is predicted of one schedule, whatever the seed.

    Attributes:
        name: of the schedule, which is the unit of all scores.
        runs: the runs that are trained by it, ids or names, one a seed.
        tokens: at which they end.
        loss: in nats, with the interval.
        baselines: what each baseline says of it, in nats, by name.
        ending: of its learning rate; scores are told for each.
        peak_lr: the peak of its rate.
        schedule: batch and rate; None where a table told them.
        extrapolates: what is beyond what the fit was tested for.
    """

    name: str
    runs: tuple[str, ...]
    tokens: int
    loss: Estimate
    baselines: Mapping[str, float] = field(default_factory=dict)
    ending: str = ""
    peak_lr: float | None = None
    schedule: ScheduleConfig | None = None
    extrapolates: tuple[str, ...] = ()


@dataclass(frozen=True)
class Registration:
    """Predictions, and all that decides how they will be scored.

    Attributes:
        name: of the file, without .json.
        metric: the loss that counts, as a run's status calls it, at the tokens of each prediction.
        predictions: one a schedule.
        fit: the law that predicts, whole.
        baselines: the rule by which each is made, by name.
        exclusions: what is left out, and why.
        seed: of the draw of schedules; None where they were chosen.
        ranges: what they were drawn from.
        date, commit: of the writing.

    Raises:
        InputError: on construction: no predictions, a name or a run twice, an estimate without an
            interval, a prediction without the value of a baseline.
    """

    name: str
    metric: str
    predictions: tuple[Prediction, ...]
    fit: Mapping[str, Any]
    baselines: Mapping[str, str] = field(default_factory=dict)
    exclusions: tuple[str, ...] = ()
    seed: int | None = None
    ranges: Ranges | None = None
    date: str = ""
    commit: str = ""

    KIND: ClassVar[str] = "registration"
    SCHEMA: ClassVar[int] = 1

    def __post_init__(self) -> None:
        if not re.fullmatch(r"\w[\w.-]*", self.name):
            raise InputError(f"register: {self.name!r} is no name of a file; write it as late_2026")
        if not self.predictions:
            raise InputError("predictions: none; register one or more")
        _refuse_twice("schedule", [one.name for one in self.predictions])
        _refuse_twice("run", self.runs)
        for one in self.predictions:
            if not one.runs:
                raise InputError(f"schedule {one.name}: no runs; name those that will be trained")
            if None in (one.loss.value, one.loss.low, one.loss.high):
                raise InputError(f"schedule {one.name}: its loss needs a value and an interval")
            if one.baselines.keys() != self.baselines.keys():
                names = ", ".join(self.baselines) or "none"
                raise InputError(f"schedule {one.name}: give each baseline a value: {names}")

    @property
    def runs(self) -> list[str]:
        """All that are predicted."""
        return [run for one in self.predictions for run in one.runs]

    def encoded(self, plain: dict[str, Any]) -> dict[str, Any]:
        """The fields behind kind and schema."""
        return {"kind": self.KIND, "schema": self.SCHEMA} | plain

    @classmethod
    def decoded(cls, entry: dict[str, Any]) -> dict[str, Any]:
        """The fields again; refuses another kind or schema."""
        form = entry.pop("kind", None), entry.pop("schema", None)
        if form != (cls.KIND, cls.SCHEMA):
            raise InputError(f"kind {form[0]!r}, schema {form[1]!r}: no registration; {HINT}")
        return entry


def predictions(
    fit: CurveFit,
    drawn: Sequence[Drawn],
    runs: Mapping[str, Sequence[str]],
    baselines: Mapping[str, Mapping[str, float]],
) -> tuple[Prediction, ...]:
    """What a law of loss curves says of drawn schedules.

    Args:
        fit: the law.
        drawn: the schedules.
        runs: that are trained by each, by its name.
        baselines: values in nats of each baseline for each schedule, by the names of both.
    """
    paths = [
        plan_path(s.batch, s.tokens, fit.seq_len, s.learning_rate(one.peak_lr))
        for one in drawn
        for s in [one.schedule]
    ]
    curves = stack(paths, fit.seq_len)
    rows = zip(drawn, paths, last_losses(fit, curves), untested(fit, curves), strict=True)
    return tuple(
        Prediction(
            one.name,
            tuple(runs[one.name]),
            int(path.tokens[0]),
            loss,
            {name: values[one.name] for name, values in baselines.items()},
            one.ending,
            one.peak_lr,
            one.schedule,
            beyond,
        )
        for one, path, loss, beyond in rows
    )


def register(registration: Registration, directory: Path) -> Path:
    """Writes a registration to DIRECTORY/NAME.json.

    Raises:
        InputError: the name is taken, or one of its runs is registered in that directory.
    """
    path = directory / f"{registration.name}.json"
    if path.exists():
        raise InputError(f"register {registration.name}: {path} is there, and the first counts")
    for other in sorted(directory.glob("*.json")):
        entry = read_json(other, HINT)
        if entry.get("kind") == Registration.KIND:
            for run in sorted({*registration.runs} & {*read_registration(other).runs}):
                raise InputError(f"run {run}: is registered in {other}, and the first counts")
    directory.mkdir(parents=True, exist_ok=True)
    write_json(path, to_dict(registration))
    return path


def read_registration(path: Path) -> Registration:
    """Reads what `register` wrote; InputError where it cannot be read."""
    entry = read_json(path, HINT)
    try:
        return from_dict(Registration, entry)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def digest(path: Path) -> str:
    """The SHA-256 of a file, in hexadecimal: what its runs record."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _refuse_twice(what: str, names: Sequence[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"{what} {name}: is predicted twice; predict it once")
