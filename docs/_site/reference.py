"""The two pages that are read off the code: cli.md from the parsers, api.md from `bss.__all__`."""

import argparse
import importlib
import keyword
import os
from collections.abc import Iterator
from typing import Any

ROOMS = ("sweeps", "points", "laws", "policies", "schedules", "training", "tables", "report")
"""In the order in which one meets them; others follow."""


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages."""
    from mkdocs.structure.files import File

    for name, text in {"cli.md": cli(), "api.md": api()}.items():
        files.append(File.generated(config, name, content=text))
    return files


def cli() -> str:
    """Every subcommand's help."""
    from bss.cli import COMMANDS

    os.environ["COLUMNS"] = "80"
    parts = ["# Every command and option", "As `.venv/bin/bss COMMAND --help` prints it."]
    for name, about in COMMANDS.items():
        parser = argparse.ArgumentParser(f"bss {name}", description=about)
        module = f"{name}_" if keyword.iskeyword(name) else name
        importlib.import_module(f"bss.cli.{module}").add_arguments(parser)
        parts.append(f"## bss {name}")
        parts += [f"```text\n{one.format_help()}```" for one in _parsers(parser)]
    return "\n\n".join(parts) + "\n"


def _parsers(parser: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    yield parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for one in dict.fromkeys(action.choices.values()):
                yield from _parsers(one)


def api() -> str:
    """What `bss` exports, by the room that it is from, under what that room says of itself."""
    import bss

    rooms: dict[str, list[str]] = {f"bss.{room}": [] for room in ROOMS}
    for name in bss.__all__:
        home = getattr(getattr(bss, name), "__module__", "bss")
        rooms.setdefault(".".join(home.split(".")[:2]), []).append(name)
    parts = ["# The Python interface", (bss.__doc__ or "").split("\n\n", 1)[1]]
    for room in filter(rooms.get, rooms):
        about = (importlib.import_module(room).__doc__ or "").split("\n\n")[0]
        parts += [f"## {room}", about, *(f"::: bss.{name}" for name in rooms[room])]
    return "\n\n".join(parts) + "\n"
