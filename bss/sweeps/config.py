"""Configs of sweeps and experiments, read from a file: Python or JSON."""

import json
import os
import runpy
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from bss.errors import InputError, check_least
from bss.files import read_json
from bss.sweeps.axes import axis_name, parse_set, read_axes
from bss.sweeps.engines import ENGINES
from bss.sweeps.grid import Axis, expand
from bss.sweeps.setup import EngineConfig, Setup, planned_run
from bss.values import from_dict, to_dict


@dataclass(frozen=True, kw_only=True)
class SweepConfig:
    """A sweep as a config file has it.

    Attributes:
        setup: the run that the axes overlay, and what trains.
        axes: {"schedule.batch": [4, 8]}, a list of overlays, or "module:AXIS"; none for one run.
        axis: more axes as a command line has them, "schedule.batch=4,8".
        title: of the report.
        engine: what trains; see `bss.sweeps.engines`.
        targets: number of target losses.
        resamples: number of bootstrap refits of each interval.
        results: directory of the tables and the report.
        dry_run: print the cost and train nothing.

    Raises:
        InputError: If a field is out of range.
    """

    setup: Setup = field(default_factory=Setup)
    axes: Any = field(default_factory=dict)
    axis: tuple[str, ...] = ()
    title: str = "A sweep"
    engine: str = "local"
    targets: int = 5
    resamples: int = 500
    results: str = ""
    dry_run: bool = False

    def __post_init__(self) -> None:
        check_least("config", self, targets=1, resamples=10)
        ENGINES.load(self.engine)
        if callable(self.axes):
            raise InputError('axes is a function; a config names it: write "module:AXIS"')
        if not (self.results or self.dry_run):
            raise InputError("results is empty, --out is missing; name a directory for the results")

    def every_axis(self) -> list[Axis]:
        """Return the axes of `axes`, then those of `axis`."""
        return read_axes(self.axes, self.axis)

    def extends(self, earlier: Mapping[str, Any]) -> bool:
        """Return True if every run of an earlier config with this setup is a run of this one.

        Axes that only grew give a sweep that goes on. An earlier `module:AXIS` is not imported: it
        must be this config's.
        """
        written = earlier.get("axes")
        more = earlier.get("axis") or []
        if isinstance(written, str) and written != self.axes:
            return False
        if not isinstance(more, list) or not all(isinstance(text, str) for text in more):
            return False
        try:
            before = read_axes(written, more)
            base = planned_run(self.setup)
            runs = {(run.id, run.schedule.tokens) for run in expand(base, *before)}
        except InputError:  # a field of another version
            return False
        own = expand(base, *self.every_axis())
        return runs <= {(run.id, run.schedule.tokens) for run in own}


def sweep_config(
    text: str,
    changes: Sequence[str] = (),
    axes: Sequence[str] = (),
    *,
    results: str | Path | None = None,
    dry_run: bool = False,
) -> SweepConfig:
    """Read the config of a sweep and change it, as `bss sweep` does.

    Args:
        text: as `read_config` takes it.
        changes: of the setup, each as "optimizer.lr=2e-3".
        axes: more axes, each as "schedule.batch=4,8". An axis replaces the config's axis of the
            same field.
        results: directory of the tables and the report; by default the config's.
        dry_run: print the cost and train nothing.

    Raises:
        InputError: If the config or a change is wrong, or an axis varies what a change sets.
    """
    entry = {"results": "", **read_config(text, "config")}
    entry |= {"results": str(results or entry["results"]), "dry_run": dry_run}
    for change in changes:
        _set(entry, change)
    config = from_dict(SweepConfig, entry)
    setup = config.setup
    engine = setup.engine
    if engine.runs == EngineConfig.runs:  # the default
        engine = replace(engine, runs=str(Path(config.results) / "runs"))
    replaced = {axis_name(text) for text in axes}
    kept = [text for text in config.axis if axis_name(text) not in replaced]
    config = replace(config, setup=replace(setup, engine=engine), axis=(*kept, *axes))
    known = [axis for axis in config.every_axis() if not callable(axis)]
    varied = {name for one in known for overlay in one for name in overlay}
    for change in changes:
        if (name := ".".join(parse_set(change)[0])) in varied:
            raise InputError(
                f"--set {change} has no effect: an axis varies {name}; change the config's axes"
            )
    return config


def _set(config: dict[str, Any], change: str) -> None:
    """Apply a change to the setup of a config."""
    (*groups, leaf), value = parse_set(change)
    place: Any = config
    for group in ("setup", *groups):
        place = place.setdefault(group, {})
        if not isinstance(place, dict):
            raise InputError(f"--set {change}: {group} is {place!r}, which has no fields")
    place[leaf] = value


_EXPECTED = "write FILE.py, FILE.py:SIZE or FILE.json"


def read_config(text: str, field: str = "--config") -> dict[str, Any]:
    """Return a config as nested dicts.

    Args:
        text: FILE.json, or FILE.py with a `get_config()` or `CONFIG` that is a ConfigDict, a dict
            or a `Setup`. FILE.py:SIZE passes SIZE to its `get_config`.
        field: Name of the option for error messages.

    Raises:
        InputError: If the file does not exist, fails, or has no config.
    """
    file, _, size = text.partition(":")
    if file.endswith(".json"):
        return read_json(file, "write a config", field)
    if not file.endswith(".py") or not Path(file).is_file():
        raise InputError(f"{field} {text}: config not found; {_EXPECTED}")
    try:
        config = _held(file, size)
    except Exception as error:  # a user's file may fail in any way
        message = (
            str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
        )
        first = message.splitlines()[0] if message else ""
        raise InputError(f"{field} {text}: {first}") from None
    if hasattr(config, "to_json_best_effort"):
        return json.loads(config.to_json_best_effort())
    if isinstance(config, Setup):
        return {"setup": to_dict(config)}
    if not isinstance(config, Mapping):
        raise InputError(
            f"{field} {text}: holds no config; expected get_config() or CONFIG, "
            'a dict {"setup": {...}, "axes": {...}} or a Setup'
        )
    return {**config, **{k: to_dict(v) for k, v in config.items() if isinstance(v, Setup)}}


def _held(file: str, size: str) -> Any:
    """Return the config of a module, which finds its neighbours in the working directory."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    module = runpy.run_path(file, run_name=Path(file).stem)
    if "get_config" in module:
        return module["get_config"](*([size] if size else []))
    if size:
        raise ValueError("it has no get_config that takes a size; leave it out")
    return module.get("CONFIG")
