"""The `bss` command: subcommands are typed functions, imported when they are called.

Exit status: 0; 1 if `bss import` did not read a file that looks like a log, or the curves of `bss
check` are not equal. For bad input and errors of the system it is 2, with one line on stderr. After
running work is saved it is 130 at Ctrl-C and 143 at SIGTERM.
"""

import gc
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

from cyclopts import App, CycloptsError, Group, Parameter
from cyclopts.exceptions import (
    CoercionError,
    MissingArgumentError,
    UnusedCliTokensError,
    ValidationError,
)

from bss.cli.ending import ended
from bss.cli.options import Trust
from bss.cli.output import Output, Show, emit
from bss.errors import InputError
from bss.installation import version
from bss.registry import trusting
from bss.renamed import moved
from bss.training.hardware import look_for_present

COMMANDS = {
    "plan": "print, plot or export a batch and learning-rate plan before training",
    "train": "train one run from a JSON config",
    "sweep": "train a sweep from one config; write tables, E(S) and a report",
    "compile": "memory, FLOPs and least time of a run on a machine that need not be present",
    "import": "convert other trainers' logs into a run table",
    "check": "whether two loss curves that should be equal are",
    "points": "steps and tokens to target losses, from loss curves",
    "fit es": "E(S): tokens against steps to target losses",
    "fit critical": "critical batch sizes and their law, from steps to a target",
    "fit loss": "the law of final losses over model size, tokens and batch",
    "fit lr": "the best learning rate of each size, and its law in size, tokens and batch",
    "fit own": "a law of your own: a formula, its parameters and its unit of replication",
    "fit curve": "the functional scaling law, from loss curves under any schedule",
    "fit branches": "the penalty of a larger batch, from branches at checkpoints of a run",
    "predict": "a loss or a batch size by a fitted law, with its interval",
    "next": "the runs that narrow a fit's answer the most per FLOP",
    "schedule": "derive a batch-size schedule from a fit or a measured noise scale",
    "advise": "recommend a batch size for a planned run, with the cost of others",
    "rules": "published rules for batch size and learning rate, side by side",
    "theory risk": "the exact excess risk of a batch schedule",
    "theory optimal": "the optimal batch schedule for a data budget",
    "theory switch": "when to switch from one batch to a larger one",
    "theory critical": "critical batches of SGD on least squares",
    "report": "any runs, or a results directory, as one HTML page",
    "models": "named models, their parameters and FLOPs",
    "runs": "list a runs directory",
}
TASKS = {
    "Start": ("advise", "import", "fit", "report"),
    "Use a fit": ("predict", "next", "schedule", "plan"),
    "Train": ("train", "sweep", "runs", "compile"),
    "Reference": ("rules", "models", "points", "check", "theory"),
}
"""The groups of the help page, in the order in which a user needs them."""
GROUPS = {
    "fit": "fit a law to measurements",
    "theory": "kernel regression and least squares under SGD, exactly",
}

WAITED_FOR = (
    "fit",
    "import",
    "check",
    "report",
    "compile",
    "points",
    "predict",
    "next",
    "schedule",
)
"""Commands of seconds or more that do not print their progress."""

ONE_THREAD = ("plan", "advise", "rules", "schedule", "fit branches")
"""Commands of small matrices, for which threads of BLAS cost more than the answer."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; return its exit status."""
    if arguments is None:
        gc.disable()  # while modules are imported; `_run` enables it
        arguments = sys.argv[1:]
    given = [str(one) for one in arguments]
    name = next((" ".join(given[:n]) for n in (2, 1) if " ".join(given[:n]) in COMMANDS), "")
    if name in ONE_THREAD and "numpy" not in sys.modules:
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    return ended(f"bss {name}".strip(), partial(_run, given, name))


def application(called: str = "") -> App:
    """Return the command line; of subcommands only the one that is called is imported."""
    app = App(
        "bss",
        help="Find the batch size of a training run. First step: "
        "`bss advise --params 350M --tokens 30B --seq-len 2048`.",
        version=version,
        help_format="markdown",
        default_parameter=Parameter(
            negative=(), show_default=_shown, consume_multiple=False, allow_repeating=True
        ),
    )
    panels = [Group(task, sort_key=i) for i, task in enumerate(TASKS)]
    tasks = {
        name: panel for panel, names in zip(panels, TASKS.values(), strict=True) for name in names
    }
    groups = {name: App(name, help=about, group=tasks[name]) for name, about in GROUPS.items()}
    for group in groups.values():
        app.command(group)
    for name, about in COMMANDS.items():
        group, _, last = name.rpartition(" ")
        module, function = command_path(name)
        how: dict[str, Any] = {"name": last, "help": about}
        if name in tasks:
            how["group"] = tasks[name]
        if name == called:
            target = getattr(importlib.import_module(module), function)
            how["help_epilogue"] = _examples(target.__doc__)
        else:
            target = f"{module}:{function}"
        groups.get(group, app).command(target, **how)
    return app


def command_path(name: str) -> tuple[str, str]:
    """Return the module and the function of a command: "fit es" is `es` in bss.cli.fit."""
    first, _, second = name.partition(" ")
    module = "import_" if first == "import" else first
    return f"bss.cli.{module}", second or module


def _run(given: list[str], name: str) -> int:
    look_for_present()
    if old := moved(given):
        raise InputError(old)
    try:
        command, bound, *_ = application(name).parse_args(
            given, exit_on_error=False, print_error=False
        )
    except CycloptsError as error:
        if isinstance(error.__cause__, InputError):
            raise error.__cause__ from None
        called = f"bss {name}".strip()
        print(f"{called}: {_problem(error)}; see {called} --help", file=sys.stderr)
        return 2
    if not gc.isenabled():
        gc.freeze()  # modules stay until the end, so the collector need not visit them
        gc.enable()
    show = next((one for one in bound.arguments.values() if isinstance(one, Show)), Show())
    trusts = any(isinstance(one, Trust) and one.trust for one in bound.arguments.values())
    with warnings.catch_warnings(), trusting() if trusts else nullcontext(), _waiting(name):
        warnings.showwarning = lambda message, *_, **__: print(f"note: {message}", file=sys.stderr)
        result = command(*bound.args, **bound.kwargs)
    if isinstance(result, Output):
        emit(result, show)
        return result.status
    return result or 0


def _waiting(name: str) -> AbstractContextManager[Any]:
    """Show on a terminal's stderr how long a command has been at work, until it ends."""
    if not (name.startswith(WAITED_FOR) and sys.stderr.isatty()):
        return nullcontext()
    from rich.console import Console
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}"), TimeElapsedColumn())
    progress = Progress(*columns, console=Console(stderr=True), transient=True)
    progress.add_task(f"bss {name}", total=None)
    return progress


def _problem(error: CycloptsError) -> str:
    """Return the option and its problem in one line."""
    option = error.argument.name if error.argument else ""
    if isinstance(error, MissingArgumentError):
        return f"{option}: missing"
    if isinstance(error, UnusedCliTokensError):
        return f"unrecognized arguments: {' '.join(error.unused_tokens or [])}"
    text = " ".join(str(error).partition("Available commands")[0].split()).rstrip(".")
    if isinstance(error, CoercionError | ValidationError) and option:
        return f"{option}: {text.replace(f' for {option}', '')}"
    return text


def _shown(default: Any) -> Any:
    """Return a default as the help page shows it; None for an empty one."""
    return None if default is None or default is False or default in ("", ()) else default


def _examples(docstring: str | None) -> str:
    """Return the examples of a docstring as the end of a help page."""
    lines = (docstring or "").partition("Examples:\n")[2].strip().splitlines()
    return "\n".join(["Examples:\n```", *(f"  {line.strip()}" for line in lines), "```"])
