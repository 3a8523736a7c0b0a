"""Commands called in the test's own process: what they print, and the line that refuses."""

import json
import subprocess
import sys

from bss.cli import main


def printed(capsys, *arguments: str) -> dict:
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


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
