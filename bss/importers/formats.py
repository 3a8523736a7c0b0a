"""The importers that formats.toml declares."""

from collections.abc import Mapping
from typing import Any

from bss.importers.corrections import CORRECTIONS
from bss.importers.log import AnyOf, Importer
from bss.importers.names import NAMES, declared, metric_names
from bss.importers.records import EVENTS, Blocks, JsonEvents
from bss.importers.text import PREFIX, LineFormat


def _importer(name: str, declaration: Mapping[str, Any]) -> Importer:
    """Return a format as a table of formats.toml has it."""

    def joined(regex: str | list[str]) -> str:
        return "".join(regex).replace("<prefix>", PREFIX)

    given: dict[str, Any] = dict(declaration)
    for part in {*given} - {"settings", "finish", "labels", "trainers"}:
        given[part] = joined(given[part])
    if "marker" in given:
        return JsonEvents(names=NAMES[name], values=EVENTS[name], **given)
    if "metric" in given:
        given["trainers"] = tuple(metric_names(name, trainer) for trainer in given["trainers"])
        return Blocks(**given)
    given["settings"] = tuple(map(joined, given.get("settings", ())))
    given["finish"] = CORRECTIONS[given.get("finish", "as_logged")]
    return LineFormat(**given)


def declared_formats() -> dict[str, Importer]:
    """Return the importers that formats.toml declares, by name."""
    formats: dict[str, Importer] = {}
    for name, declarations in declared("formats.toml").items():
        versions = tuple(_importer(name, declaration) for declaration in declarations)
        about = "; ".join(version.about for version in versions)
        formats[name] = versions[0] if len(versions) == 1 else AnyOf(about, versions)
    return formats
