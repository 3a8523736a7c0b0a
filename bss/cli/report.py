"""bss report: a results directory as one HTML page."""

import argparse
from pathlib import Path

from bss.cli.output import Output, add_output_arguments
from bss.report import write_report


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss report`."""
    parser.add_argument("results", type=Path, help="results directory of an experiment")
    parser.add_argument("-o", dest="file", type=Path, help="the page; RESULTS/report.html if none")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Writes the page."""
    file = options.file or options.results / "report.html"
    write_report(options.results, file)
    return Output({"report": str(file)}, text=f"report: {file}")
