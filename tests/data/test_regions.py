"""Region schemes: balance and structure."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.regions import assign_regions, cluster_profiles
from regionfed_flwr.errors import RegionFedError

BALANCED = ("geographic", "random", "adversarial")
HOME = tuple(np.repeat(np.arange(8), 10).tolist())


def regions_of(scheme: str, seed: int = 0, home: tuple[int, ...] = HOME, count: int = 8) -> npt.NDArray[np.int64]:
    return np.array(assign_regions(scheme, home, None, count, numpy_generator(seed, "test regions")))


@settings(max_examples=80, deadline=None)
@given(
    st.sampled_from(BALANCED),
    st.lists(st.integers(0, 9), min_size=1, max_size=60),
    st.integers(1, 40),
    st.integers(0, 99),
)
def test_sizes_differ_by_at_most_one(scheme: str, home: list[int], count: int, seed: int) -> None:
    count = min(count, len(home))
    sizes = np.bincount(regions_of(scheme, seed, tuple(home), count), minlength=count)
    assert len(sizes) == count
    assert sizes.sum() == len(home)
    assert sizes.max() - sizes.min() <= 1


def test_semantic_is_the_population() -> None:
    assert tuple(regions_of("semantic")) == HOME


def test_geographic_is_a_good_but_imperfect_proxy() -> None:
    agreement = np.mean([np.mean(regions_of("geographic", seed) == HOME) for seed in range(40)])
    assert 0.6 < agreement < 0.75
    # Whoever is not in the region of the population lives near it.
    assert np.mean(np.abs(regions_of("geographic") - HOME) <= 1) > 0.95


def test_random_agrees_by_chance_only() -> None:
    agreement = np.mean([np.mean(regions_of("random", seed) == HOME) for seed in range(40)])
    assert agreement == pytest.approx(1 / 8, abs=4 * np.sqrt(1 / 8 * 7 / 8 / 3200))
    assert not np.array_equal(regions_of("random", 0), regions_of("random", 1))


@pytest.mark.parametrize("users_per_region", [3, 8, 10, 20])
def test_adversarial_mixes_as_many_populations_as_possible(users_per_region: int) -> None:
    home = tuple(np.repeat(np.arange(8), users_per_region).tolist())
    regions = regions_of("adversarial", home=home)
    for region in range(8):
        counts = np.bincount(np.array(home)[regions == region], minlength=8)
        assert np.count_nonzero(counts) == min(8, users_per_region)
        assert counts.max() == -(-users_per_region // 8)


@pytest.mark.parametrize("scheme", BALANCED)
def test_same_seed_same_regions(scheme: str) -> None:
    np.testing.assert_array_equal(regions_of(scheme, 3), regions_of(scheme, 3))


def test_clustering_finds_populations_from_profiles() -> None:
    generator = numpy_generator(0, "test profiles")
    home = generator.permutation(np.repeat(np.arange(6), 7))
    profiles = generator.dirichlet(np.ones(30), size=6)[home] + 0.002 * generator.random((42, 30))
    found = np.array(assign_regions("semantic", None, profiles, 6, generator))
    same_home = home[:, None] == home[None, :]
    np.testing.assert_array_equal(found[:, None] == found[None, :], same_home)
    assert found[0] == 0  # numbered by first user


def test_schemes_without_populations_cluster_first() -> None:
    profiles = np.repeat(np.eye(4), 4, axis=0)
    regions = np.array(assign_regions("adversarial", None, profiles, 4, numpy_generator(0, "x")))
    for region in range(4):
        assert sorted(np.flatnonzero(regions == region) // 4) == [0, 1, 2, 3]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 25), st.integers(1, 25), st.integers(0, 1000))
def test_clustering_gives_exactly_the_groups_asked_for(users: int, groups: int, seed: int) -> None:
    groups = min(users, groups)
    # Few distinct profiles, so that ties and identical users occur.
    profiles = np.eye(3)[np.random.default_rng(seed).integers(3, size=users)]
    assert set(cluster_profiles(profiles, groups).tolist()) == set(range(groups))


def test_clustering_does_not_depend_on_scale() -> None:
    profiles = np.random.default_rng(0).random((20, 5))
    scaled = profiles * np.random.default_rng(1).uniform(1, 9, size=(20, 1))
    np.testing.assert_array_equal(cluster_profiles(profiles, 5), cluster_profiles(scaled, 5))


@pytest.mark.parametrize(
    ("scheme", "home", "profiles", "count", "message"),
    [
        ("nearest", (0, 1), None, 2, "no region scheme 'nearest'"),
        ("random", (0, 1), None, 3, "2 users cannot be put into 3 regions"),
        ("random", (0, 1), None, 0, "at least one region"),
        ("semantic", (0, 0, 2), None, 3, "Region 1 of 3 has no users"),
        ("semantic", (0, 1, 2), None, 2, "3 populations, but there are 2 regions"),
        ("semantic", None, np.eye(2), 3, "2 users cannot be put into 3 regions"),
        ("semantic", None, None, 2, "each user's population or"),
        ("semantic", None, np.array([[1.0, 0], [0, 0]]), 2, "User 1 has no samples"),
    ],
)
def test_mistakes_are_told(
    scheme: str, home: tuple[int, ...] | None, profiles: npt.NDArray[np.float64] | None, count: int, message: str
) -> None:
    with pytest.raises(RegionFedError, match=message):
        assign_regions(scheme, home, profiles, count, numpy_generator(0, "x"))
