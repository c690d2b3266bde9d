import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.strategies.base import THETA
from regionfed_flwr.strategies.wire import encode_vectors
from tests.strategies.quadratics import Quadratics

CENTRES = [[0.0, 1.0], [2.0, -1.0], [5.0, 0.5], [4.0, 4.0]]


def alpha_one(**keys):
    """Settings under which alpha is exactly 1."""
    return {"alpha_min": 1.0, "rho": 1.0} | keys


def test_one_region_has_nothing_to_adapt_and_is_fedavg():
    q = Quadratics([0, 0, 0, 0], CENTRES, examples=(1, 2, 3, 4))
    regionfed, fedavg = q.run("regionfed", rounds=3), q.run("fedavg", rounds=3)
    assert torch.equal(regionfed.theta, fedavg.theta)
    assert torch.equal(regionfed.regions[0].direction, torch.zeros(2))
    assert torch.equal(regionfed.regional_models()[0], regionfed.theta)


@pytest.mark.parametrize("keys", [{"region_weight": "size"}, {}])
def test_shared_model_is_fedavgs_to_the_bit(keys):
    sizes = (1, 2, 3, 4) if keys else (2, 2, 2, 2)  # uniform region weights are FedAvg's only with equal regions
    q = Quadratics([0, 0, 1, 1], CENTRES, examples=sizes)
    assert torch.equal(q.run("regionfed", rounds=5, **keys).theta, q.run("fedavg", rounds=5).theta)


def test_uniform_regions_weigh_the_same_whatever_their_size():
    q = Quadratics([0, 1, 1, 1], [[1.0], [4.0], [4.0], [4.0]], examples=(1, 5, 5, 5))
    assert q.run("regionfed", learning_rate=1.0).theta.item() == pytest.approx(2.5)
    assert q.run("fedavg", learning_rate=1.0).theta.item() == pytest.approx((1 + 15 * 4) / 16)


def test_full_adaptation_is_regional_fedavg_of_the_round_and_none_is_the_shared_model():
    q = Quadratics([0, 0, 1, 1], CENTRES)
    start = torch.tensor(q.run("regionfed", rounds=2).theta.tolist())
    q.start = start
    full = q.run("regionfed", **alpha_one())
    for region in (0, 1):
        members = [CENTRES[u] for u in (2 * region, 2 * region + 1)]
        alone = Quadratics([0, 0], members, start=start.tolist()).run("fedavg")
        assert torch.allclose(full.regional_models()[region], alone.theta, atol=1e-6)
    none = q.run("regionfed", **alpha_one(rho=0.0))
    assert torch.equal(none.regional_models()[0], none.theta)


def test_identical_regions_do_not_conflict():
    q = Quadratics([0, 0, 1, 1], [[1.0], [2.0], [1.0], [2.0]])
    strategy = q.run("regionfed", rounds=3)
    for state in strategy.regions.values():
        assert state.conflict == 0
        assert torch.equal(state.direction, torch.zeros(1))


@settings(max_examples=20, deadline=None)
@given(st.lists(st.floats(-5, 5, width=32), min_size=3, max_size=3))
def test_isotropic_quadratics_are_solved_exactly(centres):
    """At the mean of the centres one gradient step of length 1 gives v_r = c_r - mean(c): rho = 1/alpha solves r."""
    q = Quadratics([0, 1, 2], [[c] for c in centres], start=[sum(centres) / 3])
    strategy = q.run("regionfed", **alpha_one(learning_rate=1.0, evaluate_every=0))
    for region, centre in enumerate(centres):
        assert strategy.regional_models()[region].item() == pytest.approx(centre, abs=1e-5)


def test_alpha_grows_with_a_regions_conflict():
    q = Quadratics([0, 1, 2], [[0.0], [0.1], [9.0]])
    strategy = q.run("regionfed", learning_rate=1.0)
    states = strategy.regions
    assert states[2].conflict > states[0].conflict > states[1].conflict
    assert states[2].alpha > states[0].alpha > states[1].alpha >= 0.5
    assert states[0].alpha == 0.75  # the median region


def test_absent_region_keeps_its_adaptation():
    q = Quadratics([0, 1], [[1.0], [3.0]], examples=(1, 1))
    strategy = q.run("regionfed", rounds=1)
    before = strategy.regions[1]
    replies = type("R", (), {})()
    replies.num_examples, replies.metrics = {0: 1}, {0: {}}
    replies.sums = {"update/region-0": torch.tensor([2**36])}
    replies.weight = lambda users: sum(replies.num_examples.get(u, 0) for u in users)
    strategy.step(2, replies)
    strategy.adapt(2)
    assert strategy.regions[1] is before
    assert strategy.regions[0].conflict == 0  # alone, the region is the mean


class Rounds:
    """Keeps the number of every finished round."""

    def __init__(self):
        self.seen = []

    def on_phase(self, event, server_round, rounds, text):
        pass

    def on_round(self, record, strategy):
        self.seen.append(record.round)


def test_goes_on_from_any_round_with_the_same_bits():
    q = Quadratics([0, 0, 1, 1], CENTRES, examples=(3, 3, 5, 5))
    keys = {"local_epochs": 2, "batch_size": 2, "optimizer": "adamw"}
    whole, half, rounds = q.run("regionfed", rounds=4, **keys), q.run("regionfed", rounds=2, **keys), Rounds()
    grid, again = q.build("regionfed", 4, callbacks=[rounds], **keys)
    again.regions, again.centre = dict(half.regions), half.centre
    again.start(grid, encode_vectors({THETA: half.theta}), num_rounds=4, first_round=3)
    assert rounds.seen == [3, 4]
    assert torch.equal(again.theta, whole.theta)
    for region, state in whole.regions.items():
        assert again.regions[region].alpha == state.alpha
        assert torch.equal(again.regions[region].direction, state.direction)
