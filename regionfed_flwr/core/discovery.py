"""Regions found from the users' update directions (paper K.5.1).

Labels are int64 arrays with one entry per user, in a fixed order of the users.
"""

from __future__ import annotations

from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import normalize

from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.errors import RegionFedError

Labels = NDArray[np.int64]
_BLOCK = 1 << 20  # coordinates hashed per step, so that a sketch needs no second vector
_FLOOR = 1e-9  # affinity of strangers: the spectral embedding wants a connected graph


def sketch(vector: Tensor, size: int, seed: int) -> Tensor:
    """Project a direction to few dimensions: each coordinate is added, with a random sign, to a random cell.

    The map (CountSketch) is linear and public: users who share seed and size can be compared, and the expectation of
    the sketches' inner product is the vectors'. Its variance is below ``2 |x|^2 |y|^2 / size``.

    Parameters
    ----------
    vector : Tensor
        Shape ``(d,)``, on the CPU.
    size : int
        Cells k.
    seed : int
        Public seed of the cells and signs.

    Returns
    -------
    Tensor
        Shape ``(k,)``, float64.

    Raises
    ------
    ValueError
        For a size below 1.
    """
    if size < 1:
        raise ValueError(f"a sketch cannot have {size} cells")
    generator = torch_generator(seed, "sketch")
    cells = torch.zeros(size, dtype=torch.float64)
    for start in range(0, len(vector), _BLOCK):
        block = vector[start : start + _BLOCK].detach().to(torch.float64)
        draw = torch.randint(2 * size, (len(block),), generator=generator)
        cells.index_add_(0, draw // 2, block * (1 - 2 * (draw % 2)))
    return cells


def similarity(sketches: Tensor, *, centred: bool = False) -> NDArray[np.float64]:
    """Return the cosines between the users' directions or their sketches.

    Parameters
    ----------
    sketches : Tensor
        Shape ``(U, k)``.
    centred : bool
        Subtract the users' mean first. Updates share what all users have to learn, and that common part makes every
        cosine large; without it the groups stand out, but users without groups seem to have some.

    Returns
    -------
    ndarray
        Shape ``(U, U)``, symmetric, 1 on the diagonal; a zero vector is at 0 to all others.
    """
    points = sketches.detach().to(torch.float64)
    if centred:
        points = points - points.mean(0)
    unit = normalize(points, dim=1)
    cosines: NDArray[np.float64] = (unit @ unit.T).clamp(-1, 1).numpy()
    np.fill_diagonal(cosines, 1.0)
    return cosines


def discover(
    similarity: NDArray[np.float64],
    num_groups: int | None,
    max_groups: int,
    seed: int,
    min_size: int = 2,
    affinity: Literal["positive", "shifted"] = "positive",
) -> Labels:
    """Group users by spectral clustering.

    Parameters
    ----------
    similarity : ndarray
        Cosines, shape ``(U, U)``.
    num_groups : int or None
        Number of groups K; None: the largest gap between the first ``max_groups`` eigenvalues of the normalised
        Laplacian and their successors.
    max_groups : int
        Largest K to consider when it is not given.
    seed : int
        Seed of the clustering.
    min_size : int
        Smaller groups are merged with the most similar one.
    affinity : str
        ``positive``: max(S, 0). ``shifted``: (1 + S) / 2, for a given K only: it makes strangers half alike, and the
        eigenvalues then show one group.

    Returns
    -------
    ndarray
        Labels 0, 1, ... in order of the groups' first users, shape ``(U,)``.

    Raises
    ------
    RegionFedError
        When K, or ``max_groups`` without it, is below 1 or K exceeds the number of users.
    """
    users = len(similarity)
    wanted = max_groups if num_groups is None else num_groups
    if not users or wanted < 1 or (num_groups is not None and wanted > users):
        raise RegionFedError(
            f"Region discovery was asked for {num_groups or 'any number of'} groups, {max_groups} at most; with "
            f"{users} users it can find from 1 to {users}."
        )
    weights = np.maximum(similarity, 0) if affinity == "positive" else (1 + similarity) / 2
    weights = np.maximum(weights, _FLOOR)
    count = _eigengap(weights, max_groups) if num_groups is None else num_groups
    return merge_small(_cluster(weights, count, seed), similarity, min_size)


def merge_small(labels: Labels, similarity: NDArray[np.float64], min_size: int) -> Labels:
    """Merge groups below ``min_size``, the smallest first, with the group of the highest mean similarity.

    Returns
    -------
    ndarray
        Labels 0, 1, ... in order of the groups' first users.
    """
    merged = labels.copy()
    while True:
        names, sizes = np.unique(merged, return_counts=True)
        if len(names) < 2 or sizes.min() >= min_size:
            return _in_order(merged)
        small = names[sizes.argmin()]
        others = names[names != small]
        rows = similarity[merged == small]
        merged[merged == small] = others[int(np.argmax([rows[:, merged == name].mean() for name in others]))]


def match_labels(new: Labels, old: Labels) -> Labels:
    """Rename new groups after the old ones with which they share the most users (Hungarian assignment).

    A group that shares no user with an old one gets a name that was not in use.

    Raises
    ------
    ValueError
        When the two are not labels of the same number of users.
    """
    from scipy.optimize import linear_sum_assignment

    if new.shape != old.shape:
        raise ValueError(f"labels of {len(new)} and {len(old)} users cannot be matched")
    new_names, new_index = np.unique(new, return_inverse=True)
    old_names, old_index = np.unique(old, return_inverse=True)
    overlap = np.zeros((len(new_names), len(old_names)), dtype=np.int64)
    np.add.at(overlap, (new_index, old_index), 1)
    rows, columns = linear_sum_assignment(overlap, maximize=True)
    renamed = {r: int(old_names[c]) for r, c in zip(rows, columns, strict=True) if overlap[r, c]}
    unused = (name for name in range(len(new_names) + len(old_names)) if name not in old_names)
    return np.array([renamed[r] if r in renamed else renamed.setdefault(r, next(unused)) for r in new_index], np.int64)


def migrate(labels_new: Labels, labels_old: Labels, sketches: Tensor, margin: float = 0.05) -> Labels:
    """Let a user change groups only where that is clearly better.

    A user moves when its cosine with the others of the group that it would join exceeds that with the others of the
    group that it would leave by the margin, or when the group that it would leave no longer exists. Users held back
    can leave a group smaller than before: see :func:`merge_small`.

    Parameters
    ----------
    labels_new, labels_old : ndarray
        Matched labels (see :func:`match_labels`), shape ``(U,)``.
    sketches : Tensor
        The users' directions or their sketches, shape ``(U, k)``; a group's centroid is the mean of unit vectors.
    margin : float
        Smallest gain of the cosine.

    Returns
    -------
    ndarray
        Labels, shape ``(U,)``.
    """
    unit = normalize(sketches.detach().to(torch.float64), dim=1).numpy()
    result = labels_old.copy()
    surviving = set(labels_new.tolist())
    for user in np.flatnonzero(labels_new != labels_old).tolist():
        joined = _cosine_with_others(user, labels_new == labels_new[user], unit)
        left = _cosine_with_others(user, labels_old == labels_old[user], unit)
        if joined > left + margin or int(labels_old[user]) not in surviving:
            result[user] = labels_new[user]
    return result


def adjusted_rand(labels: Labels, truth: Labels) -> float:
    """Return the adjusted Rand index of two groupings: 1 when they agree, about 0 by chance."""
    from sklearn.metrics import adjusted_rand_score

    return float(adjusted_rand_score(truth, labels))


def _eigengap(weights: NDArray[np.float64], max_groups: int) -> int:
    from scipy.sparse.csgraph import laplacian

    eigenvalues = np.linalg.eigvalsh(laplacian(weights, normed=True))
    gaps = np.diff(eigenvalues)[:max_groups]
    return int(gaps.argmax()) + 1 if len(gaps) else 1


def _cluster(weights: NDArray[np.float64], count: int, seed: int) -> Labels:
    from sklearn.cluster import SpectralClustering

    if count == 1:
        return np.zeros(len(weights), dtype=np.int64)
    if count == len(weights):
        return np.arange(count, dtype=np.int64)
    model = SpectralClustering(count, affinity="precomputed", random_state=seed)
    return np.asarray(model.fit_predict(weights), dtype=np.int64)


def _in_order(labels: Labels) -> Labels:
    """Rename groups to 0, 1, ... in order of their first users."""
    names, first, index = np.unique(labels, return_index=True, return_inverse=True)
    rank = np.empty(len(names), dtype=np.int64)
    rank[first.argsort()] = np.arange(len(names))
    return rank[index]


def _cosine_with_others(user: int, members: NDArray[np.bool_], unit: NDArray[np.float64]) -> float:
    """Return the cosine of a user with the sum of a group's other members; 0 when there are none."""
    others = members.copy()
    others[user] = False
    total = unit[others].sum(0)
    norm = float(np.linalg.norm(total))
    return float(unit[user] @ total) / norm if norm > 0 else 0.0
