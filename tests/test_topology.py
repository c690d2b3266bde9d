import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.topology import Placement, build_topology


def nodes(count, regions=None):
    return [Placement(100 + i, i, regions[i] if regions else None) for i in range(count)]


@given(st.integers(1, 5), st.integers(1, 6), st.integers(1, 40), st.randoms(use_true_random=False))
def test_blocks_keep_the_regions_of_a_node_few(regions, per_region, count, random):
    region_of = [r for r in range(regions) for _ in range(per_region)]
    random.shuffle(region_of)
    topology = build_topology([f"r{r}" for r in range(regions)], region_of, nodes(count))
    hosted = topology.by_node(range(len(region_of)))
    assert sorted(u for users in hosted.values() for u in users) == list(range(len(region_of)))
    in_order = sorted(range(len(region_of)), key=lambda u: (region_of[u], u))
    places = [topology.node_of[u] for u in in_order]
    assert places == sorted(places)  # blocks
    assert places == [100 + k * count // len(in_order) for k in range(len(in_order))]


def test_nodes_of_a_region_host_only_its_users():
    topology = build_topology(["a", "b"], [0, 1, 0, 1], nodes(3, regions=[1, 0, 1]))
    assert topology.by_node(range(4)) == {100: [1], 101: [0, 2], 102: [3]}


def test_refusals_are_sentences():
    with pytest.raises(RegionFedError, match=r"Region 'b' .* has no users"):
        build_topology(["a", "b"], [0, 0], nodes(1))
    with pytest.raises(RegionFedError, match="both say partition-id = 0"):
        build_topology(["a"], [0], [Placement(1, 0), Placement(2, 0)])
    with pytest.raises(RegionFedError, match="No node hosts region 'b'"):
        build_topology(["a", "b"], [0, 1], nodes(1, regions=[0]))
    with pytest.raises(RegionFedError, match="all or none"):
        build_topology(["a"], [0], [Placement(1, 0), Placement(2, 1, 0)])


@given(st.floats(0.01, 1), st.integers(0, 5), st.integers(1, 5))
def test_cohorts_are_reproducible_and_cover_every_region(fraction, seed, server_round):
    topology = build_topology(["a", "b"], [0] * 7 + [1] * 3, nodes(2))
    cohort = topology.cohort(fraction, seed, server_round)
    assert cohort == topology.cohort(fraction, seed, server_round)
    sizes = [sum(topology.region_of[u] == r for u in cohort) for r in (0, 1)]
    assert sizes == [max(1, round(fraction * 7)), max(1, round(fraction * 3))]
