"""How users are put into regions: four schemes, from coherent to hostile (paper, appendix G.4, Table 13)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from regionfed_flwr.errors import RegionFedError

SCHEMES = ("semantic", "geographic", "random", "adversarial")

_SCATTER = 0.55
"""Standard deviation of a user's place around its population's, in distances between neighbouring populations.

About two thirds of the users of a population then live nearer to it than to any other.
"""


def assign_regions(
    scheme: str,
    home: Sequence[int] | None,
    profiles: npt.ArrayLike | None,
    num_regions: int,
    generator: np.random.Generator,
) -> tuple[int, ...]:
    """Return the region of each user.

    Parameters
    ----------
    scheme : str
        ``"semantic"``: the user's population. ``"geographic"``: blocks of neighbours by a simulated place near that
        of the population. ``"random"``: by lot. ``"adversarial"``: every region has users of as many populations as
        possible.
    home : sequence of int or None
        Population of each user. None: the populations are clusters of the profiles.
    profiles : array_like, shape (users, k), or None
        Each user's distribution over classes; needed where ``home`` is None.
    num_regions : int
    generator : numpy.random.Generator
        For the places and the lot; not used by the other schemes.

    Returns
    -------
    tuple of int
        All of 0 to num_regions - 1 occur. Sizes differ by at most 1, save in the semantic scheme.

    Raises
    ------
    RegionFedError
        If there are fewer users than regions, a population without users, nothing to tell populations by, or no such
        scheme.
    """
    if scheme not in SCHEMES:
        raise RegionFedError(f"There is no region scheme '{scheme}'; allowed are {', '.join(SCHEMES)}.")
    populations = _populations(home, profiles, num_regions)
    users = len(populations)
    _check_count(users, num_regions)
    if scheme == "semantic":
        _check_filled(populations, num_regions)
        return tuple(populations.tolist())
    blocks = np.arange(users) * num_regions // users  # equal sizes
    regions = np.empty(users, dtype=np.int64)
    if scheme == "geographic":
        regions[np.argsort(populations + _SCATTER * generator.standard_normal(users))] = blocks
    elif scheme == "random":
        regions[generator.permutation(users)] = blocks
    else:
        regions[np.argsort(populations, kind="stable")] = np.arange(users) % num_regions
    return tuple(regions.tolist())


def cluster_profiles(profiles: npt.ArrayLike, num_groups: int) -> npt.NDArray[np.int64]:
    """Group users by the cosine similarity of their distributions (paper, appendix B.3).

    Parameters
    ----------
    profiles : array_like, shape (users, k)
        Each user's distribution over classes; no row may be all zero.
    num_groups : int

    Returns
    -------
    ndarray of int64, shape (users,)
        Group of each user, by agglomerative clustering with average linkage; no group is empty, and the groups are
        numbered by their first users.

    Raises
    ------
    RegionFedError
        If there are fewer users than groups, or a user has no samples.
    """
    rows = np.asarray(profiles, dtype=np.float64)
    _check_count(len(rows), num_groups)
    empty = np.flatnonzero(~rows.any(axis=1))
    if empty.size:
        raise RegionFedError(f"User {empty[0]} has no samples, so it cannot be put into a region by its classes.")
    if num_groups == 1:
        return np.zeros(len(rows), dtype=np.int64)
    from sklearn.cluster import AgglomerativeClustering

    labels = AgglomerativeClustering(num_groups, metric="cosine", linkage="average").fit_predict(rows)
    _, first, inverse = np.unique(labels, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[inverse]


def _populations(home: Sequence[int] | None, profiles: npt.ArrayLike | None, num_regions: int) -> npt.NDArray[np.int64]:
    if home is not None:
        return np.asarray(home, dtype=np.int64)
    if profiles is None:
        raise RegionFedError("Regions need each user's population or each user's distribution over classes.")
    return cluster_profiles(profiles, num_regions)


def _check_count(users: int, num_regions: int) -> None:
    if not 1 <= num_regions <= users:
        raise RegionFedError(
            f"{users} users cannot be put into {num_regions} regions; there must be at least one region, and at least "
            "one user for each."
        )


def _check_filled(populations: npt.NDArray[np.int64], num_regions: int) -> None:
    """Refuse populations that are not exactly the regions."""
    empty = sorted(set(range(num_regions)) - set(populations.tolist()))
    if empty:
        raise RegionFedError(f"Region {empty[0]} of {num_regions} has no users; each region needs at least one user.")
    if len(np.unique(populations)) > num_regions:
        raise RegionFedError(
            f"Users come from {len(np.unique(populations))} populations, but there are {num_regions} regions; "
            "the semantic scheme needs one region for each population."
        )
