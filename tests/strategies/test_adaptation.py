"""Directions, intensities, weights and the on-device tier of RegionFed, in closed form on quadratics."""

import pytest
import torch

from regionfed_flwr.core.alpha import personalization_weight
from tests.strategies.quadratics import Quadratics

# Three regions of one user: with a = 1 and step 1 from the mean of the centres, v_grad = c_r - mean(c).
CENTRES = [[0.0], [1.0], [5.0]]
EXACT = {"learning_rate": 1.0, "alpha_mode": "one", "rho_tolerance": 1e-4}


def from_mean(**keys):
    return Quadratics([0, 1, 2], CENTRES, start=[2.0]).run("regionfed", **(EXACT | keys))


def directions(strategy):
    return [s.direction.item() for _, s in sorted(strategy.regions.items())]


def rhos(strategy):
    return [s.rho for _, s in sorted(strategy.regions.items())]


def test_gradient_updates_are_descent_directions_at_theta():
    q = Quadratics([0, 1], [[1.0], [4.0]], curvature=(2.0, 0.5), start=[0.0])
    strategy = q.run("regionfed", update="gradient", alpha_mode="one")
    assert strategy.theta.item() == pytest.approx((2 * 1 + 0.5 * 4) / 2)  # server step 1 on the mean of -g
    assert [s.update.item() for s in strategy.regions.values()] == pytest.approx([2.0, 2.0])


def test_meta_without_lookahead_is_the_regions_own_descent_direction():
    q = Quadratics([0, 1], [[1.0], [4.0]], curvature=(2.0, 0.5), start=[0.5])
    strategy = q.run("regionfed", strategy="meta", update="gradient", lookahead=0.0)
    assert directions(strategy) == pytest.approx([2.0 * (1.0 - 0.5), 0.5 * (4.0 - 0.5)])


def test_meta_looks_ahead_to_the_next_shared_model():
    q = Quadratics([0, 1], [[1.0], [4.0]], curvature=(2.0, 0.5), start=[0.5])
    strategy = q.run("regionfed", strategy="meta")
    theta = strategy.theta.item()
    assert directions(strategy) == pytest.approx([2.0 * (1.0 - theta), 0.5 * (4.0 - theta)])


def test_second_order_meta_multiplies_by_the_inner_steps_derivative():
    """On a quadratic the outer gradient times (1 - eta a)."""
    q = Quadratics([0, 1], [[1.0], [4.0]], curvature=(2.0, 0.5), start=[0.5])
    first = directions(q.run("regionfed", strategy="meta", lookahead=0.3))
    second = directions(q.run("regionfed", strategy="meta", lookahead=0.3, meta_order=2))
    assert second == pytest.approx([first[0] * (1 - 0.3 * 2.0), first[1] * (1 - 0.3 * 0.5)])


def test_interp_is_one_more_regional_round_from_the_new_shared_model():
    q = Quadratics([0, 0, 1, 1], [[0.0], [2.0], [5.0], [9.0]], examples=(1, 3, 2, 2))
    keys = {"local_epochs": 2, "batch_size": 2}
    strategy = q.run("regionfed", strategy="interp", **keys)
    theta = strategy.theta.item()
    for region, members in ((0, slice(0, 2)), (1, slice(2, 4))):
        alone = Quadratics([0, 0], q.centres[members].tolist(), examples=q.examples[members], start=[theta])
        moved = alone.run("fedavg", seed=0, **keys).theta.item() - theta
        assert strategy.regions[region].direction.item() == pytest.approx(moved, rel=1e-4)


@pytest.mark.parametrize("search", ["golden", "section-k"])
def test_search_finds_the_intensity_that_solves_each_region(search):
    strategy = from_mean(rho_search=search)
    assert rhos(strategy) == pytest.approx([1.0, 1.0, 1.0], abs=1e-3)
    for region, model in strategy.regional_models().items():
        assert model.item() == pytest.approx(CENTRES[region][0], abs=5e-3)


def test_search_costs_are_counted():
    golden, section = (
        from_mean(rho_search="golden", rho_tolerance=0.01),
        from_mean(rho_search="section-k", rho_tolerance=0.01),
    )
    assert golden.regions[0].search.evaluations == 15  # 14 and J(0)
    assert (section.regions[0].search.exchanges, golden.regions[0].search.exchanges) == (5, 13)
    assert section.region_log()[0]["search_exchanges"] == 5.0


def test_the_papers_sign_ascends_and_its_search_finds_nothing():
    strategy = from_mean(sign="paper", rho_search="golden")
    assert directions(strategy) == pytest.approx([2.0, 1.0, -3.0])
    assert rhos(strategy) == [0.0, 0.0, 0.0]
    assert strategy.region_log()[0]["search_boundary"] == -1.0
    assert torch.equal(strategy.regional_models()[2], strategy.theta)


def test_search_with_alpha_compensates_the_weight():
    alone = from_mean(rho_search="golden", alpha_mode="paper")
    together = from_mean(rho_search="golden", alpha_mode="paper", search_with_alpha=True)
    assert rhos(alone) == pytest.approx([1.0] * 3, abs=1e-3)
    effective = [s.alpha * s.rho for s in together.regions.values()]
    assert effective == pytest.approx([1.0] * 3, abs=1e-3)


def test_regions_search_apart_though_they_share_the_exchanges():
    q = Quadratics([0, 1, 2], CENTRES, curvature=(1.0, 0.5, 1.0), start=[2.0])
    strategy = q.run("regionfed", rho_search="section-k", **EXACT)
    theta, centres = strategy.theta.item(), [c[0] for c in CENTRES]
    best = [(c - theta) / v if v else 0.0 for c, v in zip(centres, directions(strategy), strict=True)]
    expected = [min(max(b, 0.0), 2.0) for b in best]
    assert rhos(strategy) == pytest.approx(expected, abs=2e-3)
    assert len({round(x, 2) for x in rhos(strategy)}) > 1


def test_without_validation_data_nothing_is_adapted():
    q = Quadratics([0, 1], [[1.0], [3.0]], validate=False)
    strategy = q.run("regionfed", rho_search="section-k", evaluate_every=0)
    assert rhos(strategy) == [0.0, 0.0]


def test_on_device_choice_is_the_users_own_and_needs_no_exchange():
    records = Records()
    device = from_mean(rho_search="on-device", callbacks=[records])
    golden = Records()
    from_mean(rho_search="golden", callbacks=[golden])
    assert device.regions[0].search is None
    ours, theirs = (r.last.evaluation["regional"]["loss"] for r in (records, golden))
    assert ours == pytest.approx(theirs, abs=1e-6)  # one user a region: the same objective
    assert records.last.bytes_down < golden.last.bytes_down


class Records:
    """Keeps the last round's record."""

    last = None

    def on_phase(self, event, server_round, rounds, text):
        pass

    def on_round(self, record, strategy):
        self.last = record


def test_stale_order_attaches_the_previous_rounds_direction():
    q = Quadratics([0, 1], [[0.0], [4.0]], start=[1.0])
    first = q.run("regionfed", alpha_mode="one", stale=True)
    assert first.regional_models() == {}  # round 1 has no direction yet
    fresh, stale = q.run("regionfed", alpha_mode="one"), q.run("regionfed", rounds=2, alpha_mode="one", stale=True)
    assert directions(stale) == directions(fresh)
    assert stale.regional_models()[0].item() == pytest.approx(stale.theta.item() + directions(fresh)[0])


def test_direction_ema_blends_with_the_previous_direction():
    q = Quadratics([0, 1], [[0.0], [4.0]], start=[1.0], curvature=(1.0, 3.0))
    plain = [directions(q.run("regionfed", rounds=n, alpha_mode="one")) for n in (1, 2)]
    blended = directions(q.run("regionfed", rounds=2, alpha_mode="one", direction_ema=0.25))
    assert blended == pytest.approx([0.25 * a + 0.75 * b for a, b in zip(*plain, strict=True)], rel=1e-4)


def test_training_from_the_region_still_averages_all_users():
    q = Quadratics([0, 1], [[0.0], [4.0]], start=[1.0])
    keys = {"rounds": 2, "learning_rate": 0.5, "alpha_mode": "one"}
    strategy = q.run("regionfed", train_from="region", **keys)
    # Round 1 from 1: users end at .5 and 2.5, theta = 1.5, regional models .5 and 2.5. Round 2 from there:
    ends = [0.5 + 0.5 * (0.0 - 0.5), 2.5 + 0.5 * (4.0 - 2.5)]
    assert strategy.theta.item() == pytest.approx(sum(ends) / 2)
    assert [m.item() for m in strategy.regional_models().values()] == pytest.approx(ends)


@pytest.mark.parametrize("strategy", ["grad", "interp", "meta"])
def test_shared_model_does_not_depend_on_the_adaptation(strategy):
    q = Quadratics([0, 0, 1, 1], [[0.0], [2.0], [5.0], [9.0]])
    adapted = q.run("regionfed", rounds=3, strategy=strategy, rho_search="section-k", personal="always")
    assert torch.equal(adapted.theta, q.run("fedavg", rounds=3).theta)


@pytest.mark.parametrize(
    "keys",
    [
        {"strategy": "interp", "rho_search": "golden"},
        {"strategy": "meta", "rho_search": "section-k"},
        {"strategy": "dynamic", "router": "B"},
        {"train_from": "region", "personal": "always"},
        {"rho_search": "on-device", "alpha_mode": "scaled"},
    ],
)
def test_every_variant_has_the_same_bits_on_any_number_of_nodes(keys):
    centres = torch.randn(7, 3, generator=torch.Generator().manual_seed(5)).tolist()
    q = Quadratics([0, 0, 0, 1, 1, 2, 2], centres, examples=(3, 1, 4, 1, 5, 2, 2))
    one, many = (q.run("regionfed", rounds=3, num_nodes=n, batch_size=2, **keys) for n in (1, 5))
    assert torch.equal(one.theta, many.theta)
    for region, state in one.regions.items():
        assert torch.equal(state.direction, many.regions[region].direction)
        assert (state.alpha, state.rho, state.strategy) == (
            many.regions[region].alpha,
            many.regions[region].rho,
            many.regions[region].strategy,
        )


def test_personal_model_keeps_the_share_alpha_of_the_fine_tuning():
    """With a = 1 and step 1 fine-tuning ends at the user's centre; in the first round alpha_u is the midpoint."""
    records = Records()
    q = Quadratics([0, 0], [[0.0], [4.0]], start=[2.0])
    strategy = q.run("regionfed", learning_rate=1.0, alpha_min=0.2, personal="always", callbacks=[records])
    alpha = 0.2 + 0.8 * 0.5
    regional = strategy.regional_models()[0].item()
    losses = [0.5 * ((1 - alpha) * (c - regional)) ** 2 for c in (0.0, 4.0)]
    assert records.last.evaluation["personal"]["loss"] == pytest.approx(sum(losses) / 2)


def test_personal_weight_is_centred_on_the_users_own_first_distance():
    records = Records()
    q = Quadratics([0, 0], [[0.0], [4.0]], start=[2.0])
    strategy = q.run("regionfed", rounds=2, learning_rate=0.5, personal="always", callbacks=[records], tau=0.1)
    # The shared and regional model stay at 2, so the distances of both rounds are the same: the midpoint again.
    assert strategy.theta.item() == pytest.approx(2.0)
    ends = [2 + 0.75 * 0.5 * (c - 2) for c in (0.0, 4.0)]
    losses = [0.5 * (c - x) ** 2 for c, x in zip((0.0, 4.0), ends, strict=True)]
    assert records.last.evaluation["personal"]["loss"] == pytest.approx(sum(losses) / 2)


def test_users_memory_stays_on_the_node():
    q = Quadratics([0, 1], [[0.0], [4.0]], start=[2.0])
    grid, strategy = q.build("regionfed", 1, num_nodes=2, personal="end")
    from regionfed_flwr.strategies.base import THETA
    from regionfed_flwr.strategies.wire import encode_vectors

    strategy.start(grid, encode_vectors({THETA: q.start}), num_rounds=1)
    assert [sorted(c.state) for c in grid.contexts.values()] == [["user-0"], ["user-1"]]
    assert "personal" not in strategy.region_log()[0]


@pytest.mark.parametrize(("mode", "expected"), [("one", [1.0] * 3), ("james-stein", [1.0] * 3)])
def test_weights_that_are_one_without_noise(mode, expected):
    assert [s.alpha for s in from_mean(alpha_mode=mode).regions.values()] == expected


def test_theory_weight_is_the_same_for_all_regions_under_grad():
    strategy = from_mean(alpha_mode="theory", rho=0.5)
    assert [s.alpha for s in strategy.regions.values()] == pytest.approx([1 / (1 + 2 * 0.25)] * 3)


def test_scaled_weight_does_not_depend_on_the_scale_of_the_updates():
    small = Quadratics([0, 1, 2], [[0.0], [0.01], [0.05]], start=[0.02])
    big = Quadratics([0, 1, 2], CENTRES, start=[2.0])
    weights = [
        [s.alpha for s in q.run("regionfed", alpha_mode="scaled", learning_rate=1.0).regions.values()]
        for q in (small, big)
    ]
    assert weights[0] == pytest.approx(weights[1], rel=1e-4)
    assert len(set(weights[0])) == 3


@pytest.mark.parametrize("scale", [0.5, 0.75, 1.25, 1.5])
def test_perturbed_centre_moves_all_weights(scale):
    base, moved = from_mean(alpha_mode="paper"), from_mean(alpha_mode="paper", mu_scale=scale)
    distances = {r: s.conflict for r, s in base.regions.items()}
    centre = scale * sorted(distances.values())[1]
    expected = [personalization_weight(d, centre, 0.5, 1.0) for d in distances.values()]
    assert [s.alpha for s in moved.regions.values()] == pytest.approx(expected)


def test_dynamic_routes_by_rule_b():
    """Far from the optima all regions agree (interp); at the shared optimum they pull apart, strongly (grad)."""
    far = Quadratics([0, 1], [[100.0], [101.0]]).run("regionfed", strategy="dynamic", router="B", fallback=False)
    assert [s.strategy for s in far.regions.values()] == ["interp", "interp"]
    q = Quadratics([0, 1, 1], [[0.0, 0.0], [3.0, 0.2], [3.0, -0.2]], start=[1.4, 0.0])
    apart = q.run("regionfed", strategy="dynamic", router="B", fallback=False)
    assert apart.regions[0].strategy == "grad"


def test_without_hierarchy_all_users_are_one_region():
    q = Quadratics([0, 1, 2], CENTRES)
    strategy = q.run("regionfed", rounds=2, hierarchy=False)
    assert strategy.topology.region_names == ("All users",)
    assert torch.equal(strategy.regional_models()[0], strategy.theta)
    assert torch.equal(strategy.theta, q.run("fedavg", rounds=2).theta)


def test_adaptation_ratio_is_logged():
    log = from_mean(rho=0.5).region_log()
    assert log[0]["adaptation_ratio"] == pytest.approx(0.5 * 2.0 / 2.0)
