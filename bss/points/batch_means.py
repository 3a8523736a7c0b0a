"""What the batches of one valley measured: means over the runs of each, and how they scatter."""

from dataclasses import dataclass

import numpy as np
from scipy.sparse import coo_array, csgraph


def paired_seeds(group: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Seed effects [m] that groups of runs are compared within; 0 for all if there are none.

    Runs of one seed share initialization and data order. Two groups are compared within seeds if
    seeds connect them; if some are not connected, seeds are repetitions (derived here).

    Args:
        group: [m], what is compared, e.g. the batch size of each run.
        seed: [m], a label per run.

    Returns:
        Integer labels [m].
    """
    (groups, at), (seeds, of) = (np.unique(x, return_inverse=True) for x in (group, seed))
    edges = np.ones(len(at)), (at, len(groups) + of)
    graph = coo_array(edges, shape=(len(groups) + len(seeds),) * 2)
    parts, _ = csgraph.connected_components(graph, directed=False)
    return of if parts == 1 else np.zeros_like(of)


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
            seed: [m]; what runs of one seed share is taken out, if `paired_seeds` can.
        """
        batch, value = np.asarray(batch, float), np.asarray(value, float)
        known = np.ones(len(batch), bool) if bound is None else ~np.asarray(bound, bool)
        sizes, at = np.unique(batch, return_inverse=True)
        seed = np.zeros(len(batch)) if seed is None else np.asarray(seed)
        of = paired_seeds(at[known], seed[known])
        here, seeds = at[known], of.max(initial=0) + 1
        design = np.concatenate([np.eye(len(sizes))[here], np.eye(seeds)[of]], axis=1)
        each = np.ones(len(batch)) if relative is None else np.asarray(relative, float)
        scaled, weighed = design / each[known, None], value[known] / each[known]
        means = np.linalg.lstsq(scaled, weighed, rcond=None)[0]
        rest = weighed - scaled @ means
        count = np.bincount(here, minlength=len(sizes))
        freedom = len(here) - int((count > 0).sum()) - seeds + 1
        shift = design[:, len(sizes) :].mean(axis=0) @ means[len(sizes) :]
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
