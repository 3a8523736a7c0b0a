"""Ways in which logs go wrong, and what is to become of them: the same table, or one line.

Left out, because no reader could see them: a file cut at the end of a row, losses rounded, and
counts in wrong units where a format tells none.
"""

from collections.abc import Callable, Sequence

import numpy as np

from tests.importers.writers import Row, Written

Rows = list[Row]
SAME, REFUSED, DIVERGED = "same", "refused", "diverged"


def duplicated(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """A row written again, there or later."""
    i = int(rng.integers(len(rows)))
    told = list(rows)
    told.insert(int(rng.integers(i + 1, len(rows) + 1)), dict(rows[i]))
    return told


def reordered(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    return [rows[i] for i in rng.permutation(len(rows))]


def not_a_number(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """One loss that is NaN, between finite ones."""
    column = "loss" if "loss" in written.says else "eval_loss"
    i = int(rng.choice([i for i, row in enumerate(rows) if column in row][:-1]))
    return [{**row, column: float("nan")} if j == i else row for j, row in enumerate(rows)]


def diverged(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """Losses that are NaN from a row on."""
    i = int(rng.integers(9, len(rows)))
    nan = [{c: float("nan") for c in ("loss", "eval_loss") if c in row} for row in rows[i:]]
    return [*rows[:i], *({**row, **lost} for row, lost in zip(rows[i:], nan, strict=True))]


def interleaved(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """Two ranks write their own losses into one log."""

    def other(row: Row) -> Row:
        losses = {c: round(row[c] + 0.5, 2) for c in ("loss", "eval_loss") if c in row}
        return {**row, **losses}

    return [told for row in rows for told in (row, other(row))]


def wrong_units(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """Tokens in thousands, or 64 times too many: samples taken for tokens."""
    factor = float(rng.choice([1e-3, 1e3, 64.0]))
    return [{**row, "tokens": max(64, int(row["tokens"] * factor) // 64 * 64)} for row in rows]


def rounded(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """Tokens of two digits, as in 1.3M."""
    return [{**row, "tokens": int(float(f"{row['tokens']:.1e}")) // 64 * 64} for row in rows]


def restarted(rows: Sequence[Row], rng: np.random.Generator, written: Written) -> Rows:
    """An attempt with other losses is abandoned, and some of its steps are done again."""
    last = int(rng.integers(9, len(rows)))
    first = int(rng.integers(3, last))
    abandoned = [{**row, "loss": round(row["loss"] + 0.3, 2)} for row in rows[first:last]]
    losses = [{**row, "eval_loss": 9.0} if "eval_loss" in row else row for row in abandoned]
    return [*rows[:first], *losses, *rows[first:]]


MUTATIONS: dict[str, tuple[Callable[..., Rows], str]] = {
    "duplicated": (duplicated, SAME),
    "reordered": (reordered, SAME),
    "NaN": (not_a_number, REFUSED),
    "diverged": (diverged, DIVERGED),
    "interleaved ranks": (interleaved, REFUSED),
    "wrong units": (wrong_units, REFUSED),
    "rounded": (rounded, REFUSED),
    "restarted": (restarted, SAME),
}
COUNTED = ("tokens", "samples", "rounded_tokens")
"""Columns that wrong or rounded counts can be seen in."""


def mutations_of(written: Written) -> list[str]:
    """Those that a reader of the format could see."""
    unseen = () if set(COUNTED) & set(written.says) else ("wrong units", "rounded")
    return [name for name in MUTATIONS if name not in unseen]
