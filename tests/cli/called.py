"""Commands called in the test's own process: what they print, and the line that refuses."""

import json
import subprocess
import sys

from bss.cli import main
from tests import names


def printed(capsys, *arguments: object) -> dict:
    """Return the JSON that a command prints, whose keys are all in the table of names."""
    assert main([*map(str, arguments), "--json"]) == 0
    entry = json.loads(capsys.readouterr().out)
    undeclared = names.undeclared({*names.keys_in(entry)}, "columns", "keys")
    assert not undeclared, f"names that docs/names.toml lacks: {undeclared}"
    return entry


def refused(capsys, *arguments: str) -> str:
    assert main(list(arguments)) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def alone(*arguments: str) -> set[str]:
    """The modules that a command loads in a process of its own."""
    code = (
        f"import json, sys; from bss.cli import main; main({list(arguments)!r}); "
        "print(json.dumps([*sys.modules]))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {*json.loads(told.stdout.splitlines()[-1])}
