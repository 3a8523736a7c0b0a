"""modded-nanogpt: its log of a run, which begins with the program that ran.

The log (KellerJordan/modded-nanogpt, `train_gpt.py` commit 0016a3c; logs under `records/`) is the
source, a line of 100 `=`, and lines
    step:125/1390 val_loss:4.2345 train_time:12345ms step_avg:98.76ms
The batch is in the source's `Hyperparameters`, read as literals and never executed: `batch_size` in
tokens or sequences as its comment says ("batch size in tokens"; "in sequences, across all
devices"), `sequence_length` or `train_seq_len`; with `grad_accum_steps = 8 // world_size` a step
has 8 sequences. What cannot be read so, a schedule for one, is left to --batch. The oldest logs
begin with a line of `=` too, and have a `train_loss`, of one device's last micro-batch.
"""

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bss.importers.lines import PREFIX, lines_of, log_of, loss_of, matches
from bss.importers.log import Importer, Log

RULE = "=" * 100
SEQ_LENS = ("sequence_length", "train_seq_len")
OPERATIONS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Mult: operator.mul,
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.FloorDiv: operator.floordiv,
}

_BEGINS = re.compile(PREFIX + r"step:\d+/\d+ (?:val|train)_loss:")
_WHOLE = re.compile(
    r"step:(\d+)/\d+ (val|train)_loss:(\S+) train_time:\S+ step_avg:\S+ms(?:\s.*)?$"
)


@dataclass(frozen=True)
class RecordedRun(Importer):
    """A log of the program and its run."""

    about: str = "modded-nanogpt: log of the program and its run"

    def recognises(self, file: Path, head: str) -> bool:
        """By the settings in its source, or its lines."""
        lines = re.search(_BEGINS.pattern, head, re.MULTILINE)
        program = file.suffix in (".txt", ".log") and "import torch" in head and "val_loss" in head
        return lines is not None or program

    def read(self, file: Path, columns: Mapping[str, str]) -> Iterator[Log]:
        """The run of a file."""
        rows = []
        for line, row in matches(file, _BEGINS, _WHOLE):
            column = "eval_loss" if row[2] == "val" else "loss"
            rows.append({"step": float(row[1]), column: loss_of(file, line, row[3])})
        batch, seq_len, notes = _settings(file)
        if any("loss" in row for row in rows):
            notes = (*notes, "train_loss is of one device's last micro-batch")
        example = "step:125/1390 val_loss:4.2345 train_time:…"
        yield log_of(file, rows, example, seq_len, notes, **batch)


def _settings(file: Path) -> tuple[dict[str, float], int | None, tuple[str, ...]]:
    """The batch's column, the sequence length, and what could not be read."""
    source = []
    for _, line in lines_of(file):
        if not line.startswith(RULE):
            source.append(line)
        elif source:
            break
    try:
        tree = ast.parse("\n".join(source))
    except (SyntaxError, ValueError, RecursionError):
        return {}, None, ("the program's source could not be read",)
    values = _literals(tree)
    seq_len = next((values[name][0] for name in SEQ_LENS if name in values), None)
    if "batch_size" in values:
        size, line = values["batch_size"]
        comment = source[line - 1].partition("#")[2]
        if "in tokens" in comment:
            return {"batch_tokens": float(size)}, seq_len, ()
        if "in sequences" in comment:
            return {"batch": float(size)}, seq_len, ()
    if "train_seq_len" in values and (sequences := _sequences(tree)):
        return {"batch": float(sequences)}, seq_len, ()
    return {}, seq_len, ("the program does not say its batch in a way that can be read",)


def _literals(tree: ast.Module) -> dict[str, tuple[int, int]]:
    """Whole numbers of the settings' class, with their lines."""
    literals: dict[str, tuple[int, int]] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and node.name == "Hyperparameters":
            for part in node.body:
                target: Any = part.targets[0] if isinstance(part, ast.Assign) else None
                target = part.target if isinstance(part, ast.AnnAssign) else target
                value = _whole(getattr(part, "value", None))
                if isinstance(target, ast.Name) and value is not None and value > 0:
                    literals[target.id] = (value, part.lineno)
    return literals


def _sequences(tree: ast.Module) -> int | None:
    """The sequences of a step: c of `grad_accum_steps = c // world_size`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.BinOp):
            names = [target.id for target in node.targets if isinstance(target, ast.Name)]
            value = node.value
            if names == ["grad_accum_steps"] and isinstance(value.op, ast.FloorDiv):
                return _whole(value.left)
    return None


def _whole(node: ast.AST | None) -> int | None:
    """A whole number, or a product, sum or quotient of them; None for anything else."""
    if isinstance(node, ast.Constant) and type(node.value) is int and node.value < 2**53:
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in OPERATIONS:
        left, right = _whole(node.left), _whole(node.right)
        if left is not None and right is not None:
            if isinstance(node.op, ast.FloorDiv) and right == 0:
                return None
            value = OPERATIONS[type(node.op)](left, right)
            return value if 0 <= value < 2**53 else None
    return None
