"""bss report: any runs, or a results directory, as one HTML page."""

import argparse
import shlex
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

from bss import version
from bss.cli.fitting import check_resamples
from bss.cli.output import Output, add_output_arguments
from bss.cli.points import add_measuring_arguments, measuring, read_curves
from bss.units import parse_tokens

if TYPE_CHECKING:
    from bss.report.results import Reported


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss report`."""
    text = "a run table (CSV or Parquet, as `bss import` writes it), a directory of runs, or the "
    text += "results directory of an experiment"
    parser.add_argument("source", metavar="RUNS|RESULTS", type=Path, help=text)
    text = "the page; by default report.html in the directory, or beside the table under its name"
    parser.add_argument("-o", dest="file", type=Path, help=text)
    add_measuring_arguments(parser)
    text = "losses before are not read by the law of loss curves: tokens, or a percentage"
    parser.add_argument("--since", help=text)
    parser.add_argument("--resamples", type=int, default=100, help="bootstrap refits")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Writes the page.

    Examples:
        bss report RUNS.parquet
        bss report RUNS.parquet -o page.html --targets 1.9,1.8 --resamples 50
    """
    from bss.report.page import write_results
    from bss.report.results import read_results

    source, file = options.source, options.file
    if file is None:
        file = source / "report.html" if source.is_dir() else source.with_suffix(".html")
    experiment = (source / "experiment.json").is_file()
    write_results(read_results(source) if experiment else _measured(options), file)
    return Output({"report": str(file)}, text=f"report: {file}")


def _measured(options: argparse.Namespace) -> "Reported":
    """What the runs say by themselves."""
    from bss.report.measured import How, measured_results

    runs, remarks = read_curves(options.source, options, need_finished=False)
    check_resamples(options.resamples)
    longest = max(int(n) for n in runs["tokens"])
    since = options.since
    since = None if since is None else parse_tokens(since, field="--since", total=longest)
    how = How(**measuring(options), since=since, resamples=options.resamples)
    experiment = {
        "title": f"Runs of {options.source.name}",
        "command": f"bss report {shlex.quote(str(options.source))}",
        "versions": {"bss": version(), **{n: metadata.version(n) for n in ("jax", "numpy")}},
    }
    return measured_results(runs, experiment, how, remarks)
