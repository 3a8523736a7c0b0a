"""What the batches of one valley measured: means over the runs of each, and how they scatter."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class BatchMeans:
    """What was measured of one valley; arrays are [n], one entry a batch.

    Attributes:
        batch: distinct and positive, in any unit.
        value: losses in nats, or logarithms of tokens; means where there are several runs.
        count: runs behind each.
        bound: whether the value is only a lower bound, as of a run that missed its target.
        relative: scatter of a run there, over that of others.
        squares, freedom: of the values of single runs about their means, over `relative`.
        typical: standard deviation that such a value usually has.
        tokens: whether values are logarithms of tokens, which rise no faster than the batch.
    """

    batch: np.ndarray
    value: np.ndarray
    count: np.ndarray
    bound: np.ndarray
    relative: np.ndarray
    squares: float = 0.0
    freedom: int = 0
    typical: float = 0.004
    tokens: bool = False

    @classmethod
    def of_runs(
        cls,
        batch: np.ndarray,
        value: np.ndarray,
        *,
        bound: np.ndarray | None = None,
        seed: np.ndarray | None = None,
        relative: np.ndarray | None = None,
        typical: float = 0.004,
        tokens: bool = False,
    ) -> "BatchMeans":
        """Of single runs [m], in any order: means over the runs of a batch.

        Args:
            batch, value, typical, tokens: as of the class.
            bound: [m], as of the class; bounds of a batch that others of its runs measure are left
                out, and of a batch with bounds alone the lowest counts.
            relative: [m], as of the class.
            seed: [m]; what runs of one seed share, data order for one, is taken out.
        """
        batch, value = np.asarray(batch, float), np.asarray(value, float)
        known = np.ones(len(batch), bool) if bound is None else ~np.asarray(bound, bool)
        sizes, at = np.unique(batch, return_inverse=True)
        seeds, of = np.unique(np.zeros(len(batch)) if seed is None else seed, return_inverse=True)
        design = np.zeros((len(batch), len(sizes) + len(seeds)))
        design[np.arange(len(batch)), at] = 1
        design[np.arange(len(batch)), len(sizes) + of] = 1
        each = np.ones(len(batch)) if relative is None else np.asarray(relative, float)
        scaled, weighed = design[known] / each[known, None], value[known] / each[known]
        means = np.linalg.lstsq(scaled, weighed, rcond=None)[0]
        rest = weighed - scaled @ means
        freedom = int(known.sum() - np.linalg.matrix_rank(design[known])) if known.any() else 0
        count = np.bincount(at[known], minlength=len(sizes))
        shift = means[len(sizes) :] @ np.bincount(of[known], minlength=len(seeds)) / known.sum()
        lowest = np.full(len(sizes), np.inf)
        np.minimum.at(lowest, at[~known], value[~known])
        return cls(
            batch=sizes,
            value=np.where(count > 0, means[: len(sizes)] + shift, lowest),
            count=np.maximum(count, 1),
            bound=count == 0,
            relative=np.bincount(at, each) / np.bincount(at),
            squares=float(rest @ rest),
            freedom=freedom,
            typical=typical,
            tokens=tokens,
        )
