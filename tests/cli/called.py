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


def alone(*arguments: str) -> tuple[set[str], float]:
    """The modules that a command loads in a process of its own, and its CPU seconds."""
    code = (
        f"import json, sys, time; from bss.cli import main; main({list(arguments)!r}); "
        "print(json.dumps([[*sys.modules], time.process_time()]))"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    modules, seconds = json.loads(told.stdout.splitlines()[-1])
    return {*modules}, seconds
