import pytest

from regionfed_flwr.errors import RegionFedError
from tests.strategies.quadratics import Quadratics

Q = Quadratics([0, 1, 0, 1], [[1.0], [2.0], [3.0], [4.0]])


def node(i, n, **more):
    return {"partition-id": i, "num-partitions": n} | more


def test_users_lie_on_nodes_in_blocks_of_regions():
    assert Q.build("fedavg", 1, num_nodes=2)[1].topology.node_of == (1000, 1001, 1000, 1001)


@pytest.mark.parametrize("names", [("region 1", "region 0"), ("r1", "r0"), (1, 0)])
def test_deployed_nodes_may_name_their_region(names):
    configs = [node(i, 2, region=name) for i, name in enumerate(names)]
    assert Q.build("fedavg", 1, node_configs=configs)[1].topology.node_of == (1001, 1000, 1001, 1000)


def test_named_regions_change_nothing_but_the_place():
    configs = [node(0, 3, region=1), node(1, 3, region=0), node(2, 3, region=1)]
    here, there = Q.run("regionfed", rounds=2), Q.run("regionfed", rounds=2, node_configs=configs)
    assert here.theta.item() == there.theta.item()


@pytest.mark.parametrize(
    ("configs", "sentence"),
    [
        ([{}], "no whole number 'partition-id'"),
        ([node(0, 1, region="Atlantis")], "region = 'Atlantis'; allowed is one of region 0, region 1"),
        ([node(0, 2), node(0, 2)], "both say partition-id = 0"),
        ([node(0, 3), node(1, 3)], "2 of 3 nodes have joined"),
        ([node(0, 1), node(1, 1)], "2 nodes have joined, but node 1000 says num-partitions = 1"),
        ([node(0, 2, region=0), node(1, 2, region=0)], "No node hosts region 'region 1'"),
        ([node(0, 2, region=0), node(1, 2)], "all or none must"),
    ],
)
def test_what_does_not_fit_is_said_in_a_sentence(configs, sentence):
    with pytest.raises(RegionFedError, match=sentence):
        Q.build("fedavg", 1, node_configs=configs)
