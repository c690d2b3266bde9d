"""Regions of writers by the similarity of their class distributions (paper appendix B.3)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from scipy.cluster.hierarchy import leaves_list, linkage


def even_groups(class_counts: npt.NDArray[np.int64], num_groups: int) -> npt.NDArray[np.int64]:
    """Group writers by the cosine similarity of their class distributions, as many in each group.

    The leaves of the agglomerative tree are cut into equal runs. Cutting the tree at a height instead leaves most
    writers of such data in one group and single ones in the others.

    Parameters
    ----------
    class_counts : ndarray of int, shape (n, k)
        No row may be all zero.
    num_groups : int

    Returns
    -------
    ndarray of int, shape (n,)
        Group of each writer; sizes differ by at most one.
    """
    count = len(class_counts)
    leaves = leaves_list(linkage(class_counts, "average", metric="cosine")) if count > 1 else np.zeros(1, np.int64)
    groups = np.empty(count, dtype=np.int64)
    groups[leaves] = np.arange(count) * num_groups // count
    return groups
