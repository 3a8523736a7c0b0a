"""The `bss` command. Each subcommand is a file here that imports its own room.

Every command prints a table for people and, with --json, one JSON object for programs; --plot
FILE saves a picture where one helps. Exit status 0; 2 with one line for bad input, and for what
the system refuses; 130 at Ctrl-C and 143 at SIGTERM, once what runs is saved.

Examples:
    bss models
    bss advise --params 85M --tokens 2.5B --seq-len 1024
"""

import argparse
import importlib
import keyword
import os
import sys
import warnings
from collections.abc import Sequence
from typing import NoReturn

from bss import version
from bss.cli.ending import ended
from bss.cli.output import Output, add_examples, check_outputs, emit
from bss.training.hardware import look_for_present

COMMANDS = {
    "plan": "print, plot or export a plan before anything is trained",
    "train": "train one run from its JSON config",
    "sweep": "train a sweep from one config, and say what it says: tables, E(S), a report",
    "compile": "what a run takes of a machine, present or not, and what bounds it there",
    "import": "other trainers' logs into a run table",
    "points": "steps and tokens to target losses, from loss curves",
    "fit": "fit a law: es, critical, table, curve",
    "predict": "a loss or a batch by a fitted law, with its interval",
    "schedule": "a fitted law into a batch schedule",
    "advise": "the best batch of a run before anything is trained, and what others cost",
    "rules": "published rules of batch and rate, side by side",
    "theory": "the regression theory, run exactly: risk, optimal, switch, critical",
    "report": "any runs, or a results directory, as one HTML page",
    "models": "named models, their parameters and FLOPs",
    "runs": "what a runs directory holds",
}
_BRIEF = ("plan", "advise", "rules")
"""Done in one thread: the others that a numerics library starts would cost more than the answer."""


class _Parser(argparse.ArgumentParser):
    """Tells a bad option in one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


class _Version(argparse.Action):
    """Prints the version, which takes longer to look up than all the help does."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> NoReturn:
        print(f"bss {version()}")
        parser.exit()


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    command = given[0] if given and given[0] in COMMANDS else ""
    return ended(f"bss {command}".strip(), lambda: _run(parser(command), given))


def parser(command: str = "") -> argparse.ArgumentParser:
    """The command line of all commands; of the one that is named, with its options."""
    if command in _BRIEF and "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    whole = _Parser(prog="bss", description="Batch-size scaling laws.")
    add_examples(whole, __doc__)
    whole.add_argument("--version", action=_Version, nargs=0, help="show the version and exit")
    subparsers = whole.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, text in COMMANDS.items() if not command else [(command, COMMANDS[command])]:
        subparser = subparsers.add_parser(name, help=text, description=text)
        if name == command:  # import only the room that is asked for
            module = f"{name}_" if keyword.iskeyword(name) else name
            importlib.import_module(f"bss.cli.{module}").add_arguments(subparser)
    return whole


def _run(parser: argparse.ArgumentParser, given: Sequence[str]) -> int:
    look_for_present()
    options = parser.parse_args(given)
    check_outputs(options)
    with warnings.catch_warnings():
        warnings.showwarning = _show_warning
        result = options.run(options)
        if isinstance(result, Output):
            emit(result, as_json=options.json, plot=getattr(options, "plot", None))
            return 0
        return result


def _show_warning(message: Warning | str, *_: object, **__: object) -> None:
    print(f"note: {message}", file=sys.stderr)
