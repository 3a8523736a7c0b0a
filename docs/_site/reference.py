"""The two pages that are read off the code: cli.md from the commands, api.md from `bss.__all__`."""

import io
from typing import Any

from rich.console import Console

TASKS = {
    "Read logs and tables": (
        "import_logs", "ImportedLogs", "read_runs", "read_points", "check_runs", "check_losses",
        "measure_points", "default_targets", "compare_curves", "Reading", "write_table",
    ),
    "Fit scaling laws": (
        "fit_es", "fit_critical", "fit_loss", "fit_curve", "fit_branches", "fit_lr", "fit_own",
        "read_fit", "EsFit", "CriticalFit", "LossFit", "CurveFit", "BranchFit", "LrFit", "OwnFit",
        "OwnLaw", "Parameter", "Options", "next_runs", "EqualFit",
    ),
    "Schedules and plans": (
        "plan", "Plan", "LRSchedule", "LearningRate", "wsd", "cosine", "BatchSchedule",
        "DerivedSchedule", "derive_schedule", "schedule", "NoiseRamp", "Limits", "Coupling",
        "export",
    ),
    "In your own loop": ("microbatch_grad", "Weighted", "NoiseScale"),
    "Advice": ("advise", "Advice"),
    "Train and sweep": (
        "sweep", "train", "Sweep", "Setup", "ScheduleConfig", "TextConfig", "EngineConfig",
        "EvaluationConfig", "RunConfig", "AdamW", "Corpus", "overlay", "sweep_product",
        "sweep_zip", "estimate_cost", "list_runs",
    ),
    "Reports and errors": ("write_report", "InputError", "version"),
}  # fmt: skip
"""The exports of `bss` by what they are for; tests/test_api.py keeps the list complete."""


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
    """Return the exports of `bss` by task."""
    import bss

    parts = ["# The Python interface", (bss.__doc__ or "").split("\n\n", 1)[1]]
    for task, names in TASKS.items():
        parts += [f"## {task}", *(f"::: bss.{name}" for name in names)]
    return "\n\n".join(parts) + "\n"
