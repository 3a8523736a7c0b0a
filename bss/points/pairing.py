"""Which seeds pair the runs of groups that are compared."""

import numpy as np


def paired_seeds(group: np.ndarray, seed: np.ndarray) -> np.ndarray:
    """Seed effects [n] that groups of runs are compared within; 0 for all if there are none.

    Runs of one seed share initialization and data order. Two groups are compared within seeds if
    seeds connect them; if some are not connected, seeds are repetitions (derived here).

    Args:
        group: [n], what is compared, e.g. the batch size of each run.
        seed: [n], a label per run.

    Returns:
        Integer labels [n].
    """
    from scipy.sparse import coo_array, csgraph  # a fit is read without it

    (groups, at), (seeds, of) = (np.unique(x, return_inverse=True) for x in (group, seed))
    edges = np.ones(len(at)), (at, len(groups) + of)
    graph = coo_array(edges, shape=(len(groups) + len(seeds),) * 2)
    parts, _ = csgraph.connected_components(graph, directed=False)
    return of if parts == 1 else np.zeros_like(of)
