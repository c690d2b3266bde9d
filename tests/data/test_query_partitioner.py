"""The partitioner of pooled queries."""

from __future__ import annotations

from collections import Counter
from typing import Any

import datasets
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.data.esci import EsciFederation, EsciSpec, preferred_categories
from regionfed_flwr.data.query_partitioner import RegionQueryPartitioner
from regionfed_flwr.errors import RegionFedError


@pytest.fixture(scope="module")
def pool() -> datasets.Dataset:
    spec = EsciSpec(samples_per_user=150, dirichlet_alpha=1.0)
    return EsciFederation(spec).to_dataset().shuffle(seed=0).add_column("row", range(12_000))


def split(pool: datasets.Dataset, **arguments: Any) -> RegionQueryPartitioner:
    partitioner = RegionQueryPartitioner(**arguments)
    partitioner.dataset = pool
    return partitioner


def columns(partitioner: RegionQueryPartitioner, name: str) -> list[list[Any]]:
    return [partitioner.load_partition(i)[name][:] for i in range(partitioner.num_partitions)]


def test_a_pool_of_regions_falls_apart_with_the_bias(pool: datasets.Dataset) -> None:
    partitioner = split(pool, seed=4)
    categories = columns(partitioner, "category")
    for region, own in enumerate(preferred_categories(8)):
        users = [i for i in range(80) if partitioner.region_of_partition(i) == region]
        seen = [category for user in users for category in categories[user]]
        assert len(users) == 10
        assert len(seen) == pytest.approx(1500, abs=150)
        share = np.mean([category in own for category in seen])
        # Twice the variance: the pool's categories are drawn, and the regions once more.
        assert share == pytest.approx(0.7, abs=3 * np.sqrt(2 * 0.7 * 0.3 / len(seen)))


def test_every_row_is_in_exactly_one_partition(pool: datasets.Dataset) -> None:
    rows = [row for part in columns(split(pool), "row") for row in part]
    assert sorted(rows) == list(range(12_000))


@settings(max_examples=25, deadline=None)
@given(
    rows=st.lists(st.tuples(st.sampled_from(["Food", "Toys", "Comics"]), st.sampled_from(["a", "b"])), max_size=30),
    regions=st.integers(1, 12),
    users=st.integers(1, 4),
    alpha=st.floats(0.01, 100),
    bias=st.sampled_from([0.0, 0.3, 1.0]),
)
def test_small_pools_are_covered_too(
    rows: list[tuple[str, str]], regions: int, users: int, alpha: float, bias: float
) -> None:
    table = datasets.Dataset.from_dict(
        {"kind": [kind for kind, _ in rows], "aim": [aim for _, aim in rows], "row": list(range(len(rows)))}
    )
    partitioner = split(
        table,
        regions=regions,
        users_per_region=users,
        alpha=alpha,
        category_bias=bias,
        category_column="kind",
        intent_column="aim",
    )
    parts = columns(partitioner, "row")
    assert len(parts) == partitioner.num_partitions == regions * users
    assert sorted(row for part in parts for row in part) == list(range(len(rows)))


def test_empty_partitions_load_as_empty_data_sets(pool: datasets.Dataset) -> None:
    partitioner = split(pool.select(range(3)))
    sizes = [len(partitioner.load_partition(i)) for i in range(80)]
    assert sum(sizes) == 3
    assert partitioner.load_partition(sizes.index(0)).column_names == pool.column_names


def test_seed_decides(pool: datasets.Dataset) -> None:
    few = pool.select(range(500))
    first, again, other = (columns(split(few, seed=seed, users_per_region=2), "row") for seed in (1, 1, 2))
    assert first == again != other


def test_alpha_skews_intents_within_a_region(pool: datasets.Dataset) -> None:
    def largest(alpha: float) -> float:
        parts = [Counter(part) for part in columns(split(pool, alpha=alpha), "intent")]
        return float(np.mean([max(part.values()) / part.total() for part in parts if part.total() >= 20]))

    assert largest(0.05) > 0.5 > 0.3 > largest(100.0)


def test_own_preferred_sets(pool: datasets.Dataset) -> None:
    partitioner = split(pool, regions=2, users_per_region=1, category_bias=1.0, preferred=[{"Books", "Home"}, {"Toys"}])
    left, right = (set(part) for part in columns(partitioner, "category"))
    assert {"Books", "Home"} <= left
    assert "Toys" in right
    assert "Toys" not in left
    assert not {"Books", "Home"} & right
    assert "Food" in left & right  # preferred by no region, so spread


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"regions": 0}, "at least one of both"),
        ({"users_per_region": 0}, "at least one of both"),
        ({"alpha": 0.0}, "above 0"),
        ({"alpha": float("nan")}, "above 0"),
        ({"category_bias": 1.5}, "0 to 1"),
        ({"regions": 3, "preferred": [{"Toys"}]}, "one set for each of the 3"),
        ({"regions": 1, "preferred": [set()]}, "at least one category"),
    ],
)
def test_wrong_arguments_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(RegionFedError, match=message):
        RegionQueryPartitioner(**arguments)


def test_missing_columns_are_named(pool: datasets.Dataset) -> None:
    with pytest.raises(RegionFedError, match="no column 'aisle'; its columns are query, typed"):
        split(pool, category_column="aisle").load_partition(0)


@pytest.mark.parametrize("partition", [-1, 80])
def test_unknown_partitions_are_refused(pool: datasets.Dataset, partition: int) -> None:
    partitioner = split(pool)
    with pytest.raises(RegionFedError, match="0 to 79"):
        partitioner.load_partition(partition)
    with pytest.raises(RegionFedError, match="0 to 79"):
        partitioner.region_of_partition(partition)
