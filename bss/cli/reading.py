"""The options that say how a user's table is read, shared by every command that reads one."""

import argparse

from bss.tables import Reading


def add_reading_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds --columns and --seq-len."""
    add_columns_argument(parser)
    parser.add_argument("--seq-len", type=int, help="tokens per sequence, where no column says it")


def add_columns_argument(parser: argparse.ArgumentParser) -> None:
    """Adds --columns alone, to a command whose sequence length comes from elsewhere."""
    told = "what the table calls its columns, OURS=THEIRS: params=N,tokens=D,batch=gbsz"
    parser.add_argument("--columns", metavar="NAMES", help=told)


def reading(options: argparse.Namespace) -> Reading:
    """How the options say that a table is read."""
    return Reading.parse(options.columns, options.seq_len)
