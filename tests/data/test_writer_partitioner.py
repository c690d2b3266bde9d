import datasets
import numpy as np
import pytest

from regionfed_flwr.data.writer_partitioner import WriterRegionPartitioner
from regionfed_flwr.errors import RegionFedError


@pytest.fixture(scope="module")
def letters() -> datasets.Dataset:
    """Return 12 writers of three kinds, interleaved: 6 who write a and b, 4 c and d, 2 e and f; 10 rows each."""
    kinds = ["ab"] * 6 + ["cd"] * 4 + ["ef"] * 2
    names = [f"w{number:02}" for number in np.random.default_rng(0).permutation(12)]
    rows = [(name, kind[i % 2]) for i in range(10) for name, kind in zip(names, kinds, strict=True)]
    writer, character = zip(*rows, strict=True)
    return datasets.Dataset.from_dict({"writer": writer, "character": character, "row": range(120)})


def partitioned(data: datasets.Dataset, regions: int, *, even: bool = True) -> WriterRegionPartitioner:
    partitioner = WriterRegionPartitioner("writer", "character", regions, even=even)
    partitioner.dataset = data
    return partitioner


@pytest.mark.parametrize("even", [True, False])
def test_every_row_is_in_one_partition_of_one_writer(letters: datasets.Dataset, even: bool) -> None:
    partitioner = partitioned(letters, 3, even=even)
    parts = [partitioner.load_partition(i) for i in range(partitioner.num_partitions)]
    assert sorted(row for part in parts for row in part["row"][:]) == list(range(120))
    for number, part in enumerate(parts):
        assert set(part["writer"][:]) == {partitioner.writer_of_partition(number)}
        assert part["row"][:] == sorted(part["row"][:])


@pytest.mark.parametrize("even", [True, False])
def test_partitions_are_ordered_by_region_then_writer(letters: datasets.Dataset, even: bool) -> None:
    partitioner = partitioned(letters, 3, even=even)
    keys = [(partitioner.region_of_partition(i), str(partitioner.writer_of_partition(i))) for i in range(12)]
    assert keys == sorted(keys)
    assert {region for region, _ in keys} == {0, 1, 2}


def test_clusters_are_the_kinds_of_writers(letters: datasets.Dataset) -> None:
    partitioner = partitioned(letters, 3, even=False)
    kinds = {
        (partitioner.region_of_partition(i), min(partitioner.load_partition(i)["character"][:])) for i in range(12)
    }
    assert len(kinds) == 3 and len({kind for _, kind in kinds}) == 3


def test_even_regions_have_as_many_writers(letters: datasets.Dataset) -> None:
    partitioner = partitioned(letters, 3)
    assert [partitioner.region_of_partition(i) for i in range(12)] == [0] * 4 + [1] * 4 + [2] * 4


def test_works_in_a_federated_dataset(letters: datasets.Dataset) -> None:
    from flwr_datasets.partitioner import Partitioner

    partitioner = WriterRegionPartitioner("writer", "character", 2)
    assert isinstance(partitioner, Partitioner) and not partitioner.is_dataset_assigned()
    partitioner.dataset = letters
    assert partitioner.num_partitions == 12


def test_faults_are_named(letters: datasets.Dataset) -> None:
    with pytest.raises(RegionFedError, match="no column 'author'; its columns are writer, character, row"):
        wrong = WriterRegionPartitioner("author", "character", 2)
        wrong.dataset = letters
        _ = wrong.num_partitions
    for regions in (0, 13):
        with pytest.raises(RegionFedError, match=f"num_regions is {regions}, but the data set has 12 writers"):
            partitioned(letters, regions).load_partition(0)
    hole = letters.remove_columns("writer").add_column("writer", ["w"] * 119 + [None])
    with pytest.raises(RegionFedError, match="Column 'writer' is empty in row 119"):
        partitioned(hole, 1).load_partition(0)
