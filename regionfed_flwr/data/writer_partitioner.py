"""A partitioner for flwr-datasets: one partition per writer, writers grouped into regions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from datasets import Dataset
from flwr_datasets.partitioner import Partitioner

from regionfed_flwr.data.femnist.similarity import even_groups
from regionfed_flwr.data.regions import cluster_profiles
from regionfed_flwr.errors import RegionFedError


@dataclass(frozen=True)
class _Plan:
    """Writer, region and rows of each partition."""

    writers: tuple[object, ...]
    regions: tuple[int, ...]
    rows: tuple[npt.NDArray[np.int64], ...]


class WriterRegionPartitioner(Partitioner):  # type: ignore[misc]  # the base has no type hints
    """One partition per writer, ordered by region, then by writer id.

    Regions are clusters of the writers' class distributions by cosine similarity (paper appendix B.3). Every row is
    in exactly one partition.

    Parameters
    ----------
    partition_by : str
        Column of the writer ids.
    label_by : str
        Column of the classes.
    num_regions : int
    even : bool
        Give all regions as many writers (up to one); otherwise a region is a cluster of any size.

    Examples
    --------
    >>> partitioner = WriterRegionPartitioner("writer_id", "character", num_regions=10)
    >>> partitioner.dataset = dataset
    >>> partitioner.load_partition(0), partitioner.region_of_partition(0)
    """

    def __init__(self, partition_by: str, label_by: str, num_regions: int, *, even: bool = True) -> None:
        super().__init__()
        self._partition_by = partition_by
        self._label_by = label_by
        self._num_regions = num_regions
        self._even = even
        self._plan: _Plan | None = None

    def load_partition(self, partition_id: int) -> Dataset:
        """Return the rows of one writer."""
        return self.dataset.select(self._planned().rows[partition_id])

    @property
    def num_partitions(self) -> int:
        """Number of writers."""
        return len(self._planned().writers)

    def region_of_partition(self, partition_id: int) -> int:
        """Return the region, from 0, of a partition."""
        return self._planned().regions[partition_id]

    def writer_of_partition(self, partition_id: int) -> object:
        """Return the writer id of a partition."""
        return self._planned().writers[partition_id]

    def _planned(self) -> _Plan:
        """Read the two columns once."""
        if self._plan is None:
            self._plan = self._make_plan()
        return self._plan

    def _make_plan(self) -> _Plan:
        writers, writer_of_row = self._column(self._partition_by)
        classes, class_of_row = self._column(self._label_by)
        if not 1 <= self._num_regions <= len(writers):
            raise RegionFedError(
                f"num_regions is {self._num_regions}, but the data set has {len(writers)} writers; allowed is 1 to "
                f"{len(writers)}."
            )
        counts = np.zeros((len(writers), len(classes)), dtype=np.int64)
        np.add.at(counts, (writer_of_row, class_of_row), 1)
        group = even_groups if self._even else cluster_profiles
        regions = group(counts, self._num_regions)
        order = np.argsort(regions, kind="stable")
        rows = np.split(np.argsort(writer_of_row, kind="stable"), np.cumsum(counts.sum(axis=1))[:-1])
        return _Plan(
            writers=tuple(writers[order].tolist()),
            regions=tuple(regions[order].tolist()),
            rows=tuple(rows[i] for i in order),
        )

    def _column(self, name: str) -> tuple[npt.NDArray[np.generic], npt.NDArray[np.int64]]:
        """Return the distinct values of a column, ascending, and which of them each row has."""
        if name not in self.dataset.column_names:
            raise RegionFedError(
                f"The data set has no column '{name}'; its columns are {', '.join(self.dataset.column_names)}."
            )
        values = self.dataset[name][:]
        if None in values:
            raise RegionFedError(f"Column '{name}' is empty in row {values.index(None)}; each row needs a value.")
        return np.unique(values, return_inverse=True)
