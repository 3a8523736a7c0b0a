"""bss models: the named sizes."""

import argparse

from bss.cli.output import Output, Table, add_output_arguments, number
from bss.models import sizes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss models`."""
    parser.add_argument("--seq-len", type=int, default=512, help="for the FLOPs of attention")
    parser.add_argument("--vocab-size", type=int, help="instead of each size's usual one")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Lists the sizes.

    Examples:
        bss models
        bss models --seq-len 2048 --vocab-size 50257
    """
    rows = sizes.table(options.seq_len, options.vocab_size)
    cells = {
        "model": lambda r: r["name"],
        "layers": lambda r: r["layers"],
        "d_model": lambda r: r["d_model"],
        "heads": lambda r: r["heads"],
        "vocab": lambda r: r["vocab_size"],
        "non-embedding": lambda r: f"{r['non_embedding']:,}",
        "active": lambda r: f"{r['active']:,}",
        "total": lambda r: f"{r['total']:,}",
        "FLOPs/token": lambda r: number(r["flops_per_token"]),
    }
    title = f"named models; training FLOPs at {options.seq_len} tokens per sequence"
    return Output({"models": rows}, [Table.of(title, rows, cells)])
