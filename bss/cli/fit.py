"""bss fit: laws from measurements. `bss fit es RUNS.csv` fits E(S) to loss curves.

Examples:
    bss fit es RUNS.parquet --targets 1.9,1.8
    bss fit critical STEPS.csv
"""

import argparse
from importlib import import_module

from bss.cli.kinds import KINDS
from bss.cli.output import add_examples


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command lines of `bss fit`, each in a file of its own."""
    add_examples(parser, __doc__)
    laws = parser.add_subparsers(dest="law_kind", metavar="LAW", required=True)
    for name, kind in KINDS.items():
        law = laws.add_parser(name, help=kind.about, description=kind.about)
        import_module(kind.commands).add_arguments(law)
