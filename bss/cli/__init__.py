"""The `bss` command."""

from bss.cli.app import COMMANDS, main

__all__ = ["COMMANDS", "main"]
