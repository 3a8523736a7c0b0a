"""The `bss` command."""

from bss.cli.main import COMMANDS, main

__all__ = ["COMMANDS", "main"]
