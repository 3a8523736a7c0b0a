"""Settings near a log: Hydra's `.hydra/config.yaml` in its directory, or in one above it.

Hydra (facebookresearch/hydra, `_internal/utils.py`) writes the composed configuration of each job
into its output directory. Names are compared by their last part. A batch size may be of a device:
it is used with a note if nothing says that several make a step, and `--batch` replaces it.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from bss.errors import InputError
from bss.importers.batches import ASSUMED
from bss.importers.counts import accumulation
from bss.importers.lines import number
from bss.importers.log import Log
from bss.importers.names import plain_name, with_settings
from bss.importers.plain import METRICS, SETTING_NAMES
from bss.importers.table import flat
from bss.tables.likeness import HELD_OUT, words_of_name

PLACE = ".hydra/config.yaml"
ABOVE = 4
"""Directories above a log that are looked into, e.g. csv_logs/version_0."""
MOST_SETTINGS = 100_000
NAMES = {
    **SETTING_NAMES,
    "seq_len": (*METRICS.names["seq_len"], "max_seq_length", "context_size"),
    "peak_lr": ("peak_lr", "max_lr", "base_lr", "lr", "learning_rate", "peak_learning_rate"),
    "seed": ("seed", "random_seed"),
    "vocabulary": ("vocab_size",),
}
PARTS = ("devices", "num_devices", "gpus", "num_gpus", "n_gpus", "world_size", "num_nodes", "nodes")
"""Settings above 1 with which a batch size may be of one of several devices."""


def with_settings_beside(log: Log, file: Path) -> Log:
    """Return a log with the batch, length, peak LR and seed that it lacks, from Hydra's settings.

    Raises:
        InputError: If the settings are not YAML.
    """
    path = _settings_of(file.resolve().parent)
    if path is None:
        return log
    values = _values(path, path.stat().st_mtime_ns)
    found = {ours: _one(values, names) for ours, names in NAMES.items()}
    known = {name: value for name, value in found.items() if value is not None}
    assumed = known.pop(ASSUMED, None)
    counted = {"step", "tokens"} <= {*log.rows}
    if counted or {"batch", "batch_tokens", ASSUMED} & {*log.rows, *known}:
        assumed = None  # the log has a better one
    if counted:
        known.pop("batch", None)
    notes = list(log.notes)
    several = [f"{name} is {value}" for name, value in _parts(values).items()]
    if assumed is not None and several:
        notes.append(f"batch_size {assumed:g} of {PLACE} is not read, as {' and '.join(several)}")
        assumed = None
    of_log = {"seq_len": log.seq_len, "vocabulary": log.vocabulary, **(log.labels or {})}
    of_log = {name: value for name, value in of_log.items() if value is not None}
    told = with_settings(log, {**known, **of_log})
    if assumed is not None:
        told = replace(told, rows=told.rows.assign(**{ASSUMED: assumed}))
        notes.append(
            f"batch is batch_size {assumed:g} of {PLACE}; if that is per device, give --batch"
        )
    return replace(told, notes=tuple(notes))


def _settings_of(folder: Path) -> Path | None:
    """Return the settings of the job in whose directory a folder is."""
    places = (place / PLACE for place in [folder, *folder.parents][: ABOVE + 1])
    return next((path for path in places if path.is_file()), None)


@lru_cache(maxsize=8)  # the logs of a job share its settings
def _values(path: Path, modified: int) -> dict[str, float]:
    """Return the numbers among settings by path, without those of held-out data.

    Args:
        path: of the settings.
        modified: when, so that a file that has changed is read again.
    """
    del modified
    values: dict[str, float] = {}
    for name, value in flat(read_yaml(path)).items():
        if words_of_name(name) & HELD_OUT or isinstance(value, bool):
            continue
        try:
            values[name] = number(value)
        except (TypeError, ValueError):
            continue
    return values


def _one(values: Mapping[str, float], names: tuple[str, ...]) -> float | None:
    """Return the value of the first name that is there, if it has one value."""
    for known in names:
        there = {
            value for name, value in values.items() if plain_name(name.split("/")[-1]) == known
        }
        if there:
            return there.pop() if len(there) == 1 else None
    return None


def _parts(values: Mapping[str, float]) -> dict[str, int]:
    """Return the settings by which several batches make a step."""
    devices = {
        name: int(value)
        for name, value in values.items()
        if plain_name(name.split("/")[-1]) in PARTS and value > 1
    }
    return {**accumulation(values), **devices}


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file; none if it has no mapping.

    Raises:
        InputError: If it is not YAML, or has too many settings.
    """
    import yaml

    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        raise InputError(f"{path}: is not YAML; correct it, or move it away") from None
    if _count(config, MOST_SETTINGS) == MOST_SETTINGS:
        raise InputError(f"{path}: has over {MOST_SETTINGS:,} settings; move it away")
    return config if isinstance(config, dict) else {}


def _count(value: Any, most: int) -> int:
    """Return the number of values in nested settings, at most `most`: aliases repeat them."""
    waiting = [value]
    count = 0
    while waiting and count < most:
        one = waiting.pop()
        count += 1
        if isinstance(one, Mapping | list):
            waiting += one.values() if isinstance(one, Mapping) else one
    return count
