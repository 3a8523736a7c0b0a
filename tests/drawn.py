"""What a figure shows: the artists that an empty one lacks."""

from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure


@pytest.fixture(scope="module")
def saved():
    """Figures by the name of the file that each was saved in."""
    figures = {}
    save = Figure.savefig

    def keep(figure, file, *arguments, **options):
        if isinstance(file, str | Path):
            figures[Path(file).name] = figure
        return save(figure, file, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", keep)
        yield figures


def texts(figure):
    """Titles, axis labels and legend texts."""
    found = {text.get_text() for legend in figure.legends for text in legend.get_texts()}
    for ax in figure.axes:
        found |= {ax.get_xlabel(), ax.get_ylabel(), ax.get_title("left"), ax.get_title("right")}
    return found - {""}


def points(figure):
    """How many finite points the lines of each of its axes have."""
    return [
        sum(np.isfinite(np.asarray(line.get_data(), float)).all(axis=0).sum() for line in ax.lines)
        for ax in figure.axes
    ]
