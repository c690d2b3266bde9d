import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.topology_loss import neighbour_distribution, topology_loss

KINDS = pytest.mark.parametrize("kind", ["kl", "bce"])
TEMPERATURES = pytest.mark.parametrize("temperature", [None, 0.1])
seeds = st.integers(0, 10_000)


def cloud(n, d, seed):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def test_distribution_by_hand():
    # Cosine distances: d_01 = 1 (right angle), d_02 = 2 (opposite), d_12 = 1.
    points = torch.tensor([[1.0, 0.0], [0.0, 3.0], [-2.0, 0.0]])
    # Row 0: weights 2 - (1 - 1) = 2 and 2 - (2 - 1) = 1. Row 1: both neighbours are nearest.
    expected = torch.tensor([[0, 2 / 3, 1 / 3], [1 / 2, 0, 1 / 2], [1 / 3, 2 / 3, 0]], dtype=torch.float64)
    torch.testing.assert_close(neighbour_distribution(points), expected)
    near, far = 1 / (1 + math.exp(-2)), 1 / (1 + math.exp(2))  # softmax of 0 and -1 / 0.5
    torch.testing.assert_close(neighbour_distribution(points, 0.5)[0], torch.tensor([0, near, far]).double())


def test_loss_by_hand():
    right = torch.tensor([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0]])
    equal = torch.tensor([[1.0, 0.0], [-0.5, 3**0.5 / 2], [-0.5, -(3**0.5) / 2]])  # 120 degrees: all rows (1/2, 1/2)
    row = 2 / 3 * math.log(4 / 3) + 1 / 3 * math.log(2 / 3)
    assert float(topology_loss(right, equal)) == pytest.approx(2 * row / 3)
    assert float(topology_loss(right, equal, "bce")) == pytest.approx(4 * row / 3)  # two neighbours: 1 - p mirrors p


@TEMPERATURES
@settings(deadline=None)
@given(seeds, st.integers(2, 12))
def test_rows_are_distributions_over_the_others(temperature, seed, n):
    p = neighbour_distribution(cloud(n, 4, seed), temperature)
    assert (p >= 0).all()
    assert (p.diagonal() == 0).all()
    torch.testing.assert_close(p.sum(1), torch.ones(n, dtype=torch.float64))


@KINDS
@TEMPERATURES
@settings(deadline=None)
@given(seeds, st.integers(2, 12))
def test_loss_is_not_negative(kind, temperature, seed, n):
    assert float(topology_loss(cloud(n, 4, seed), cloud(n, 6, seed + 1), kind, temperature)) >= -1e-12


@KINDS
@TEMPERATURES
def test_equal_models_have_no_loss(kind, temperature):
    points = cloud(20, 5, 0)
    assert float(topology_loss(points, points, kind, temperature)) == 0.0
    assert float(topology_loss(points, cloud(20, 5, 1), kind, temperature)) > 1e-4


@KINDS
@TEMPERATURES
@settings(deadline=None)
@given(seeds, st.floats(1e-3, 1e3))
def test_loss_ignores_scale_and_rotation(kind, temperature, seed, scale):
    first, second = cloud(8, 5, seed), cloud(8, 5, seed + 1)
    rotation = torch.linalg.qr(cloud(5, 5, seed + 2)).Q
    moved = topology_loss(scale * first, second @ rotation, kind, temperature)
    torch.testing.assert_close(moved, topology_loss(first, second, kind, temperature), rtol=1e-8, atol=1e-12)


@KINDS
@TEMPERATURES
def test_loss_is_a_mean_over_the_inputs(kind, temperature):
    # A sum would double with the number of inputs.
    first, second = cloud(40, 5, 0), cloud(40, 5, 1)
    small = float(topology_loss(first[:20], second[:20], kind, temperature))
    assert float(topology_loss(first, second, kind, temperature)) < 1.7 * small


@KINDS
@TEMPERATURES
@pytest.mark.parametrize("points", [cloud(6, 3, 1), torch.eye(6, 3), torch.ones(6, 3), torch.zeros(6, 3)])
def test_gradient_is_finite(kind, temperature, points):
    reference = cloud(6, 3, 0).requires_grad_()
    regional = points.clone().requires_grad_()
    topology_loss(reference, regional, kind, temperature).backward()
    assert regional.grad is not None
    assert regional.grad.isfinite().all()
    assert reference.grad is None


@TEMPERATURES
def test_gradient_is_the_slope(temperature):
    reference, regional = cloud(6, 3, 0), cloud(6, 3, 1).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: topology_loss(reference, x, "bce", temperature), regional)


@KINDS
@TEMPERATURES
@pytest.mark.parametrize("n", [0, 1, 2])
def test_few_inputs_have_no_topology(kind, temperature, n):
    assert float(topology_loss(cloud(n, 3, 0), cloud(n, 3, 1), kind, temperature)) == 0.0


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="cannot be compared"):
        topology_loss(cloud(3, 2, 0), cloud(4, 2, 0))
    with pytest.raises(ValueError, match="'kl' or 'bce'"):
        topology_loss(cloud(3, 2, 0), cloud(3, 2, 0), "js")
    with pytest.raises(ValueError, match="positive"):
        neighbour_distribution(cloud(3, 2, 0), 0.0)
