"""The Python names and the options of every command, kept in a list that changes on purpose only.

After such a change: `python -m tests.cli.test_public_api`, and an entry in CHANGELOG.md.
"""

from pathlib import Path

import bss
from bss.cli.app import COMMANDS, application

LIST = Path(__file__).with_name("public_api.txt")


def flags(command):
    """The options and operands of a command."""
    root = app = application(command)
    for part in command.split():
        app = app[part]
    for argument in app.assemble_argument_collection(default_parameter=root.default_parameter):
        yield from (name for name in argument.names if name != "*")


def public():
    lines = [f"bss.{name}" for name in bss.__all__]
    return [*lines, *(f"bss {one} {flag}" for one in COMMANDS for flag in sorted(flags(one)))]


def test_names_and_options_are_those_of_the_list():
    assert public() == LIST.read_text().splitlines()


if __name__ == "__main__":
    LIST.write_text("\n".join(public()) + "\n")
