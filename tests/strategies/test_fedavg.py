import pytest
import torch

from tests.strategies.quadratics import Quadratics


def test_one_full_batch_step_is_gradient_descent_on_the_pooled_objective():
    q = Quadratics([0, 0, 1], [[0.0], [1.0], [5.0]], curvature=(1, 3, 0.5), examples=(2, 1, 3))
    theta = q.run(learning_rate=0.1).theta
    gradient = sum(n * a * (0.0 - c) for n, a, c in zip((2, 1, 3), (1, 3, 0.5), (0, 1, 5), strict=True)) / 6
    assert theta.item() == pytest.approx(-0.1 * gradient, rel=1e-6)


def test_converges_to_the_weighted_mean_of_the_centres():
    q = Quadratics([0, 0, 1], [[0.0], [1.0], [5.0]], curvature=(1, 3, 0.5))
    assert q.run(rounds=200, learning_rate=0.1).theta.item() == pytest.approx(1.2222, abs=1e-4)


def test_unequal_local_steps_move_the_fixed_point():
    """Users with n_u batches take n_u steps and weigh n_u: with small steps n^2 a weighs the centres, not n a."""
    examples, curvature, centres = (1, 10, 3), (1, 3, 0.5), (0, 1, 5)
    weight = [n * n * a for n, a in zip(examples, curvature, strict=True)]
    fixed = sum(w * c for w, c in zip(weight, centres, strict=True)) / sum(weight)
    q = Quadratics([0, 0, 1], [[float(c)] for c in centres], curvature, examples, start=[fixed])
    keys = {"rounds": 30, "learning_rate": 1e-3, "batch_size": 1, "evaluate_every": 0}
    assert q.run(**keys).theta.item() == pytest.approx(fixed, abs=5e-3)
    q.start = q.start + 1.0
    assert q.run(**keys).theta.item() - fixed == pytest.approx((1 - 1e-3 * sum(weight) / 14) ** 30, rel=0.05)


def test_toy_gradients_of_three_users():
    """Three rounds of one step on users with 2, 1 and 4 examples whose update is linear: worked out by hand."""
    q = Quadratics([0, 0, 0], [[1.0], [2.0], [4.0]], examples=(2, 1, 4))
    mean = (2 * 1 + 1 * 2 + 4 * 4) / 7
    theta = 0.0
    for _ in range(3):
        theta += 0.1 * (mean - theta)
    assert q.run(rounds=3).theta.item() == pytest.approx(theta, rel=1e-6)


def test_server_learning_rate_scales_the_step():
    q = Quadratics([0, 0], [[1.0, 2.0], [3.0, 0.0]])
    assert torch.allclose(q.run(server_learning_rate=0.5).theta, 0.5 * q.run().theta)


@pytest.mark.parametrize("num_nodes", [2, 3, 7])
def test_any_number_of_nodes_gives_the_same_bits(num_nodes):
    generator = torch.Generator().manual_seed(3)
    centres = torch.randn(7, 5, generator=generator).tolist()
    q = Quadratics([0, 0, 0, 1, 1, 1, 1], centres, examples=(3, 1, 4, 1, 5, 9, 2))
    for method in ("fedavg", "regionfed"):
        keys = {"rounds": 4, "local_epochs": 3, "batch_size": 2, "optimizer": "adamw"}
        one, many = q.run(method, **keys), q.run(method, num_nodes=num_nodes, **keys)
        assert torch.equal(one.theta, many.theta)
        for region, model in one.regional_models().items():
            assert torch.equal(model, many.regional_models()[region])


def test_partial_participation_is_reproducible_and_partial():
    q = Quadratics([0] * 4 + [1] * 4, [[float(i)] for i in range(8)])
    strategy = q.run(rounds=3, fraction=0.5)
    assert torch.equal(strategy.theta, q.run(rounds=3, fraction=0.5, num_nodes=4).theta)
    assert not torch.equal(strategy.theta, q.run(rounds=3, fraction=0.5, seed=1).theta)


def test_users_without_examples_simply_do_not_count():
    with_empty = Quadratics([0, 0, 1], [[1.0], [100.0], [3.0]], examples=(1, 0, 1))
    without = Quadratics([0, 1], [[1.0], [3.0]])
    assert torch.equal(with_empty.run(evaluate_every=0).theta, without.run(evaluate_every=0).theta)


def test_zero_total_examples_leave_the_model_where_it_was():
    q = Quadratics([0, 1], [[1.0], [3.0]], examples=(0, 0), start=[7.0])
    for method in ("fedavg", "regionfed"):
        assert q.run(method, evaluate_every=0, rounds=2).theta.item() == 7.0
