"""What a figure shows: the artists that an empty one lacks."""

import re
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.path import Path as Line
from matplotlib.text import Text


@pytest.fixture(scope="module")
def saved():
    """Figures by the name of the file that each was saved in, which is left empty."""
    figures = {}
    save = Figure.savefig

    def keep(figure, file, *arguments, **options):
        if not isinstance(file, str | Path):
            return save(figure, file, *arguments, **options)
        name = re.sub(r"^\.(.+)\.\d+$", r"\1", Path(file).name)  # the one that is replaced
        figures[name] = figure
        return Path(file).touch()

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


def collisions(figure):
    """Texts on one another or beyond the edge, legends on data or on other axes; as pairs."""
    figure.draw_without_rendering()
    boxes = [(text.get_text(), text.get_window_extent()) for text in _texts(figure)]
    boxes += [("legend", legend.get_window_extent()) for legend in figure.legends]
    found = [
        (one, other)
        for i, (one, box) in enumerate(boxes)
        for other, beside in boxes[:i]
        if box.padded(-0.5).overlaps(beside.padded(-0.5))
    ]
    edge = figure.bbox.padded(1)
    found += [(name, "edge") for name, box in boxes if not _holds(edge, box)]
    for ax in figure.axes:
        outside = [legend.get_window_extent() for legend in figure.legends]
        found += [("legend", "axes") for box in outside if box.overlaps(ax.get_window_extent())]
        if inside := ax.get_legend():
            covered = [_covers(inside.get_window_extent(), ax, line) for line in ax.lines]
            found += [("legend", "data")] * sum(covered)
    return found


def _texts(figure):
    """The texts that are seen: ticks within the limits, labels, titles, annotations."""
    found = list(figure.texts)
    for ax in figure.axes:
        found += [child for child in ax.get_children() if isinstance(child, Text)]
        for axis in (ax.xaxis, ax.yaxis) if ax.axison else ():
            low, high = sorted(axis.get_view_interval())
            inside = [tick for tick in axis.get_major_ticks() if low <= tick.get_loc() <= high]
            found += [axis.label, *(tick.label1 for tick in inside)]
    return [text for text in found if text.get_text().strip() and text.get_visible()]


def _holds(edge, box):
    return edge.x0 <= box.x0 and edge.y0 <= box.y0 and box.x1 <= edge.x1 and box.y1 <= edge.y1


def _covers(box, ax, line):
    if line.get_transform() != ax.transData:
        return False
    data = np.asarray(line.get_data(), float).T
    path = ax.transData.transform_path(Line(data[np.isfinite(data).all(axis=1)]))
    joined = line.get_linestyle() != "None" and len(path.vertices) > 1
    if joined:
        return path.intersects_bbox(box, filled=False)
    return bool(box.count_contains(path.vertices))
