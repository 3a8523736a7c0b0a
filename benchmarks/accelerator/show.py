"""Rows for people: one line each as they are measured, and all of a file as Markdown."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from bss.errors import InputError

Row = dict[str, Any]

_NAMED_BY = (
    "model",
    "bucket",
    "buckets",
    "seq_len",
    "attention",
    "remat",
    "unroll",
    "keep",
    "repeatable",
    "runs",
)
_LAYERS = ("unroll", "keep")
_COLUMNS = ("model", "bucket x buckets", "attention", "remat", "tokens/s", "ms a step", "MFU")
_COLUMNS += ("bound ms", "temporary GB", "peak GB", "measured GB", "compile s")


def line(row: Row) -> str:
    """One row as a line."""
    named = [f"{key} {row[key]}" for key in _NAMED_BY if row.get(key)]
    return f"{' '.join([row['what'], *named])}: {_told(row)}"


def _told(row: Row) -> str:
    """What was found, in words; or why nothing was."""
    for key in ("not_measured", "error"):
        if key in row:
            return f"{key.replace('_', ' ')}: {row[key]}"
    return ", ".join(_TOLD[row["what"]](row))


def _machine(row: Row) -> Iterable[str]:
    yield str(row["device"])
    yield f"products {row['matmul_flops'] / 1e12:.3g} TFLOP/s{_part(row, 'flops', 'matmul_flops')}"
    yield f"copies {row['bandwidth'] / 1e9:.3g} GB/s{_part(row, 'bandwidth', 'bandwidth')}"


def _part(row: Row, peak: str, reached: str) -> str:
    most = row[f"peak_{peak}"]
    return f" ({row[reached] / most:.0%} of the data sheet's)" if most else ""


def _step(row: Row) -> Iterable[str]:
    yield f"{row['tokens_per_second']:,.0f} tokens/s"
    yield f"{1e3 * row['seconds_per_step']:.3g} ms a step"
    if row["mfu"] is not None:
        yield f"MFU {row['mfu']:.1%}"
    if row.get("peak_bytes"):
        yield f"peak {_gb(row['peak_bytes'])} GB compiled"
    if row["device_peak_bytes"]:
        yield f"{_gb(row['device_peak_bytes'])} GB measured"
    yield f"compiled in {row['compile_seconds']:.3g} s"


def _gradients(row: Row) -> Iterable[str]:
    yield f"worst error {row['worst_error']:.2%} ({row['worst_tensor']})"
    yield f"worst embedding row {row['worst_embedding_row_error']:.2%}"
    yield f"loss {row['loss_error']:.1e}"


def _repeats(row: Row) -> Iterable[str]:
    yield (
        "identical to the bit"
        if row["identical"]
        else (
            f"apart by {row['loss_difference']:.1e} in losses, "
            f"{row['worst_parameter_difference']:.1e} in parameters"
        )
    )
    yield f"{1e3 * row['seconds_per_step']:.3g} ms a step"


def _host(row: Row) -> Iterable[str]:
    yield f"losses within {row['loss_difference']:.1e} of this CPU's over {row['steps']} steps"


def _fleet(row: Row) -> Iterable[str]:
    yield f"{row['steps_per_second']:,.0f} steps/s, of all runs"


def _ramp(row: Row) -> Iterable[str]:
    yield f"{row['recompilations']} compilations after first use"
    yield f"{row['seconds_lost']:.3g} s lost at the change"
    yield f"{row['tokens_per_second']:,.0f} tokens/s after it"


_TOLD = {
    "machine": _machine,
    "step": _step,
    "torch": _step,
    "gradients": _gradients,
    "repeats": _repeats,
    "host": _host,
    "ramp": _ramp,
    "fleet": _fleet,
}


def markdown(rows: list[Row]) -> str:
    """Rows as Markdown: a table of the steps, then a line for each other."""
    by = next((row for row in rows if "versions" in row), None)
    head = "Nothing was measured."
    if by:
        versions = ", ".join(f"{name} {version}" for name, version in by["versions"].items())
        head = f"{by['device']}, {by['date'][:10]}, commit {by['commit']}; {versions}."
    speeds = [row for row in rows if "tokens_per_second" in row and row["what"] != "ramp"]
    table = [_cells(_COLUMNS), _cells("---" for _ in _COLUMNS), *map(_cells, map(_speed, speeds))]
    others = [f"- {line(row)}" for row in rows if row not in speeds]
    return "\n".join([head, "", *table, "", *others])


def _cells(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _speed(row: Row) -> list[str]:
    """A step as cells, in the order of the columns; a missing number is empty."""
    bound = row.get("bound") or {}
    return [
        row["model"],
        f"{row['bucket']} x {row.get('buckets', 1)}",
        row.get("attention", "PyTorch's"),
        " ".join(["yes"] * bool(row.get("remat")) + [f"{k} {row[k]}" for k in _LAYERS if k in row]),
        f"{row['tokens_per_second']:,.0f}",
        f"{1e3 * row['seconds_per_step']:.3g}",
        "" if row["mfu"] is None else f"{row['mfu']:.1%}",
        f"{1e3 * bound['seconds'] * row['buckets']:.3g}" if bound else "",
        *(_gb(row.get(key)) for key in ("temp_bytes", "peak_bytes", "device_peak_bytes")),
        f"{row['compile_seconds']:.3g}",
    ]


def _gb(size: float | None) -> str:
    return "" if size is None else f"{size / 1e9:.2f}"


def told_rows(path: Path) -> list[Row]:
    """All rows of a file, those of earlier commands too.

    Raises:
        InputError: no such file, or a line that is no row.
    """
    try:
        lines = path.read_text().splitlines()
    except OSError as error:
        raise InputError(f"--show {path}: cannot be read ({type(error).__name__})") from None
    rows: list[Row] = []
    for number, text in enumerate(lines, 1):
        try:
            row = json.loads(text)
            row["what"]
        except (json.JSONDecodeError, KeyError, TypeError):
            raise InputError(f"--show {path}: line {number} is no row of this command") from None
        rows.append(row)
    if not rows:
        raise InputError(f"--show {path}: holds no row; measure with --output {path}")
    return rows


def read_rows(path: Path) -> list[Row]:
    """The rows of the last command that appended to a file; its first is of the machine."""
    rows = told_rows(path)
    first = [index for index, row in enumerate(rows) if row["what"] == "machine"]
    return rows[first[-1] if first else 0 :]
