"""What the published steps of arXiv 2410.21676 show: five sizes, with data in proportion."""

from importlib.resources import files

import pandas as pd

from bss.laws import CriticalFit, fit_critical
from bss.laws.base import Options
from bss.tables import read_points

OVERHEAD, REFERENCE = 0.2, 256


def published_points() -> pd.DataFrame:
    """The published steps, as a table of points."""
    return read_points(str(files("bss.laws") / "published" / "cbs_steps.csv"))


def published_fit(points: pd.DataFrame | None = None) -> CriticalFit:
    """Critical batches of the published steps, or of some of them, as the paper defines them."""
    return fit_critical(
        published_points() if points is None else points,
        overhead=OVERHEAD,
        reference=REFERENCE,
        options=Options(resamples=500, level=0.95),
    )
