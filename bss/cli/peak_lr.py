"""A peak learning rate of the command line: a number, or the best one by a saved fit."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Parameter, Token

from bss.cells import estimate
from bss.cli.options import parse_positive
from bss.errors import InputError
from bss.laws.base import Estimate

FROM = "from:"


def parse_peak(kind: Any, tokens: Sequence[Token]) -> float | Path:
    """Return a positive number, or the path of `from:PATH`."""
    text = tokens[0].value
    return Path(text.removeprefix(FROM)) if text.startswith(FROM) else parse_positive(kind, tokens)


PeakLR = Annotated[float | Path, Parameter(converter=parse_peak, accepts_keys=False)]
"""A peak LR, written as 1e-3, or as from:FIT."""


@dataclass(frozen=True)
class BestPeak:
    """The best peak LR of a planned run by a fit.

    Attributes:
        lr: with its interval.
        peak: its value.
        source: path of the fit.
        warnings: what of the run the fit was not measured at.
    """

    lr: Estimate
    peak: float
    source: Path
    warnings: tuple[str, ...]

    @property
    def line(self) -> str:
        """The LR with its interval and its source."""
        return f"peak LR {estimate(self.lr)}, {self.lr.level:.0%} interval, by {self.source}"

    def to_dict(self) -> dict[str, Any]:
        """Return the LR for JSON."""
        ends = {end: getattr(self.lr, end) for end in ("value", "low", "high")}
        return {**ends, "source": str(self.source), "warnings": [*self.warnings]}


def best_peak(source: Path, params: float | None, tokens: float, batch: float) -> BestPeak:
    """Return the best peak LR by a fit of `bss fit lr`.

    Args:
        source: path of the fit.
        params: non-embedding parameters; None if the fit has one size.
        tokens: token budget.
        batch: in sequences.

    Raises:
        InputError: If the file has no such fit, or the fit has no best LR there.
    """
    from bss.laws import read_fit
    from bss.laws.groups import one_fit

    _, fit = one_fit(read_fit(source, ("lr",), "--lr from:"), None, "--lr from:", ("lr",))
    if params is None and fit.needs("params"):
        raise InputError(f"--params: missing; the best LR of {source} depends on it, e.g. 350M")
    sizes = {"tokens": float(tokens), "batch": fit.in_unit(batch)}
    if params is not None:
        sizes["params"] = float(params)
    best = fit.best_lr(**sizes)
    if best.value is None:
        raise InputError(f"--lr from:{source}: {best.note}; give a number")
    remarks = (*fit.untested(sizes), *fit.misfits)
    warnings = [f"--lr from:{source}: {text}" for text in remarks]
    return BestPeak(best, best.value, source, tuple(warnings))
