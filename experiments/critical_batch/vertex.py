"""The best batch of one (N, D) without a law: the vertex of a parabola in log B (derived here).

The parabola goes by least squares through the batches about the least loss. The least of the
measured batches itself is noisier: near it losses differ by less than their own scatter.
"""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

NEAREST = 5


@dataclass(frozen=True)
class Vertex:
    """Where the parabola is least.

    Attributes:
        batch: in the unit of the batches; NaN where the losses have no minimum.
        scatter: standard deviation of the losses about it, in nats; NaN with three batches.
        freedom: degrees of freedom behind the scatter.
        leverage: standard error of log batch per nat of scatter.
        interior: whether the least loss is at neither end of the batches, and the vertex among
            those of the parabola.
    """

    batch: float
    scatter: float
    freedom: int
    leverage: float
    interior: bool


def vertex(batch: ArrayLike, loss: ArrayLike) -> Vertex:
    """The vertex of a parabola in log batch through the NEAREST batches about the least loss.

    They are the nearest by their order; all where there are fewer, and the outer ones where the
    least is near an end.

    Args:
        batch: [n] distinct and positive.
        loss: [n] finite, in nats.
    """
    order = np.argsort(np.asarray(batch, float))
    x, y = np.log(np.asarray(batch, float))[order], np.asarray(loss, float)[order]
    first = max(0, min(int(np.argmin(y)) - NEAREST // 2, len(order) - NEAREST))
    x, y = x[first : first + NEAREST], y[first : first + NEAREST]
    centre, count = float(np.mean(x)), len(x)
    none = Vertex(math.nan, math.nan, max(count - 3, 0), math.nan, interior=False)
    if count < 3:
        return none
    design = np.vander(x - centre, 3)
    curvature, slope, _ = theta = np.linalg.lstsq(design, y, rcond=None)[0]
    if curvature <= 0:
        return none
    at = -slope / (2 * curvature)
    by_theta = np.array([slope / (2 * curvature**2), -1 / (2 * curvature), 0.0])
    rest = y - design @ theta
    inside = x[0] < at + centre < x[-1]
    return Vertex(
        batch=math.exp(at + centre),
        scatter=math.sqrt(rest @ rest / (count - 3)) if count > 3 else math.nan,
        freedom=count - 3,
        leverage=math.sqrt(by_theta @ np.linalg.inv(design.T @ design) @ by_theta),
        interior=bool(inside and 0 < np.argmin(y) < count - 1),
    )


def pooled_scatter(vertices: list[Vertex]) -> float:
    """The scatter of losses over cells that scatter alike, in nats; NaN where none has one.

    A parabola through five batches leaves two degrees of freedom, too few for an error of its own.
    """
    known = [at for at in vertices if at.freedom and math.isfinite(at.scatter)]
    freedom = sum(at.freedom for at in known)
    squares = sum(at.scatter**2 * at.freedom for at in known)
    return math.sqrt(squares / freedom) if freedom else math.nan
