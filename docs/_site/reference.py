"""The two pages that are read off the code: cli.md from the commands, api.md from `bss.__all__`."""

import importlib
import io
from typing import Any

from rich.console import Console

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
    from bss.cli.app import COMMANDS, application

    parts = ["# Every command and option", "As `.venv/bin/bss COMMAND --help` prints it."]
    for name in COMMANDS:
        console = Console(width=80, file=io.StringIO(), color_system=None)
        application(name).help_print(name.split(), console=console)
        parts += [f"## bss {name}", f"```text\n{console.file.getvalue()}```"]
    return "\n\n".join(parts) + "\n"


def api() -> str:
    """Return the exports of `bss` by package, each with the package's docstring."""
    import bss

    rooms: dict[str, list[str]] = {f"bss.{room}": [] for room in ROOMS}
    for name in sorted({*bss.__all__} - {"__version__"}):
        home = getattr(getattr(bss, name), "__module__", "bss")
        rooms.setdefault(".".join(home.split(".")[:2]), []).append(name)
    parts = ["# The Python interface", (bss.__doc__ or "").split("\n\n", 1)[1]]
    for room in filter(rooms.get, rooms):
        about = (importlib.import_module(room).__doc__ or "").split("\n\n")[0]
        parts += [f"## {room}", about, *(f"::: bss.{name}" for name in rooms[room])]
    return "\n\n".join(parts) + "\n"
