"""A Flower Datasets partitioner that splits a pool of queries into regions and users (paper, appendix B.1)."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import datasets
import numpy as np
import numpy.typing as npt
from flwr_datasets.partitioner import Partitioner

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.esci.populations import preferred_categories
from regionfed_flwr.errors import RegionFedError


class RegionQueryPartitioner(Partitioner):  # type: ignore[misc]  # flwr_datasets is untyped
    """Splits queries into ``regions * users_per_region`` users with two-level heterogeneity.

    A row of category c goes to region r with a probability in proportion to P(c | r) of equation 8: a pool that is
    the union of such regions falls apart into them again, with the bias in every region. From any other pool a
    region can have less than the bias of its own categories, since every row has to go somewhere. A category that
    the bias gives to no region is spread evenly. Inside a region the rows of each intent are dealt to the users with
    Dirichlet probabilities.

    Users are numbered by region: region r has the users from r * users_per_region on. Every row is in exactly one
    partition, and a partition may be empty.

    Parameters
    ----------
    regions, users_per_region : int
    alpha : float
        Concentration of the Dirichlet distribution; the lower, the more skewed.
    category_bias : float
        Share of a region's rows in its own categories, 0 to 1.
    seed : int
    category_column, intent_column : str
        Columns of the data set.
    preferred : sequence of collections, optional
        Each region's preferred categories; by default those of the ESCI-like benchmark.

    Raises
    ------
    RegionFedError
        For numbers out of range; when a partition is asked for, if there is no such partition or the data set lacks
        a column.
    """

    def __init__(
        self,
        regions: int = 8,
        users_per_region: int = 10,
        alpha: float = 0.3,
        category_bias: float = 0.7,
        seed: int = 0,
        category_column: str = "category",
        intent_column: str = "intent",
        preferred: Sequence[Collection[str]] | None = None,
    ) -> None:
        super().__init__()
        _check(regions, users_per_region, alpha, category_bias, preferred)
        self._regions = regions
        self._users_per_region = users_per_region
        self._alpha = alpha
        self._bias = category_bias
        self._seed = seed
        self._columns = (category_column, intent_column)
        self._preferred = preferred_categories(regions) if preferred is None else preferred
        self._owner: npt.NDArray[np.int64] | None = None

    @property
    def num_partitions(self) -> int:
        """Number of users in all regions."""
        return self._regions * self._users_per_region

    def load_partition(self, partition_id: int) -> datasets.Dataset:
        """Return the rows of one user, in the order of the data set."""
        self._check_partition(partition_id)
        if self._owner is None:
            self._owner = self._assign_rows()
        return self.dataset.select(np.flatnonzero(self._owner == partition_id))

    def region_of_partition(self, partition_id: int) -> int:
        """Return the region that a user belongs to."""
        self._check_partition(partition_id)
        return partition_id // self._users_per_region

    def _check_partition(self, partition_id: int) -> None:
        if not 0 <= partition_id < self.num_partitions:
            raise RegionFedError(
                f"There is no partition {partition_id}; the partitions are 0 to {self.num_partitions - 1}."
            )

    def _assign_rows(self) -> npt.NDArray[np.int64]:
        """Return the user of each row."""
        categories, intents = (self._column(name) for name in self._columns)
        generator = numpy_generator(self._seed, "query partition")
        region_of = np.zeros(len(categories), dtype=np.int64)
        probabilities = _region_probabilities(np.unique(categories).tolist(), self._preferred, self._bias)
        for category, weights in probabilities.items():
            rows = np.flatnonzero(categories == category)
            region_of[rows] = generator.choice(self._regions, size=len(rows), p=weights)
        owner = region_of * self._users_per_region
        for region in range(self._regions):
            for intent in np.unique(intents):
                rows = np.flatnonzero((region_of == region) & (intents == intent))
                shares = generator.dirichlet(np.full(self._users_per_region, self._alpha))
                owner[rows] += generator.choice(self._users_per_region, size=len(rows), p=shares)
        return owner

    def _column(self, name: str) -> npt.NDArray[np.str_]:
        if name not in self.dataset.column_names:
            present = ", ".join(self.dataset.column_names)
            raise RegionFedError(f"The data set to partition has no column '{name}'; its columns are {present}.")
        return np.array(self.dataset[name], dtype=np.str_)


def _check(
    regions: int,
    users_per_region: int,
    alpha: float,
    category_bias: float,
    preferred: Sequence[Collection[str]] | None,
) -> None:
    if regions < 1 or users_per_region < 1:
        raise RegionFedError(
            f"{regions} regions of {users_per_region} users cannot be filled; there must be at least one of both."
        )
    if not 0 < alpha < np.inf:
        raise RegionFedError(f"The Dirichlet concentration alpha is {alpha}; it must be a number above 0.")
    if not 0 <= category_bias <= 1:
        raise RegionFedError(f"The category bias is {category_bias}; it must be from 0 to 1.")
    if preferred is not None and (len(preferred) != regions or not all(preferred)):
        raise RegionFedError(
            f"The preferred categories must be one set for each of the {regions} regions, with at least one category."
        )


def _region_probabilities(
    categories: Sequence[str], preferred: Sequence[Collection[str]], bias: float
) -> dict[str, npt.NDArray[np.float64]]:
    """Return P(region | category) for equally large regions with the distributions of equation 8."""
    known = set(categories).union(*preferred)
    probabilities = {}
    for category in categories:
        weights = np.array(
            [
                bias / len(own) if category in own else (1 - bias) / (len(known) - len(own))
                for own in map(set, preferred)
            ]
        )
        total = weights.sum()
        probabilities[category] = weights / total if total > 0 else np.full(len(preferred), 1 / len(preferred))
    return probabilities
