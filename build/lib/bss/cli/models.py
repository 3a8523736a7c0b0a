"""bss models: the named sizes."""

import argparse
from dataclasses import asdict

from bss.cli.output import Output, Table, add_output_arguments, number
from bss.models import sizes


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `bss models`."""
    parser.add_argument("--seq-len", type=int, default=512, help="for the FLOPs of attention")
    parser.add_argument("--vocab-size", type=int, help="instead of each size's usual one")
    add_output_arguments(parser, run)


def run(options: argparse.Namespace) -> Output:
    """Lists the sizes."""
    rows = sizes.table(options.seq_len, options.vocab_size)
    columns = ["model", "layers", "d_model", "heads", "vocab"]
    columns += ["non-embedding", "total", "FLOPs/token"]
    cells = [
        (
            r.name,
            r.layers,
            r.d_model,
            r.heads,
            r.vocab_size,
            f"{r.non_embedding:,}",
            f"{r.total:,}",
            number(r.flops_per_token),
        )
        for r in rows
    ]
    title = f"named models; training FLOPs at {options.seq_len} tokens per sequence"
    return Output({"models": [asdict(r) for r in rows]}, [Table(title, columns, cells)])
