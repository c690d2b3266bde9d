import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.conflict import measure_conflict


def random_directions(count, size, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(size, generator=generator) for _ in range(count)]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 9), st.integers(1, 300), st.integers(0, 100))
def test_agrees_with_the_dense_formula(count, size, seed):
    directions = random_directions(count, size, seed)
    weights = [1.0 + i for i in range(count)]
    dense = torch.stack(directions).double()
    p = torch.tensor(weights, dtype=torch.float64) / sum(weights)
    mean = (p[:, None] * dense).sum(0)
    conflict = measure_conflict(directions, weights)
    assert torch.allclose(conflict.distance, (dense - mean).norm(dim=1), atol=1e-10)
    assert torch.allclose(conflict.gram, dense @ dense.T)
    cosine = torch.nn.functional.cosine_similarity(dense, mean[None])
    assert torch.allclose(conflict.cosine, cosine, atol=1e-9)


def test_more_coordinates_than_a_block():
    directions = random_directions(3, 150_000)
    conflict = measure_conflict(directions, [1, 1, 1])
    assert torch.allclose(conflict.norm, torch.stack(directions).double().norm(dim=1))


def test_identical_regions_have_no_conflict():
    direction = random_directions(1, 1000)[0]
    for count in (1, 2, 8, 16):
        assert torch.equal(measure_conflict([direction] * count, [1] * count).distance, torch.zeros(count).double())


def test_opposed_regions():
    u = torch.tensor([3.0, 4.0])
    conflict = measure_conflict([u, -u], [1, 1])
    assert conflict.distance.tolist() == [5.0, 5.0]
    assert conflict.cosine.tolist() == [0.0, 0.0]  # the mean is zero


@settings(max_examples=20, deadline=None)
@given(st.floats(0.01, 100), st.permutations(list(range(4))))
def test_scales_linearly_and_follows_permutations(factor, order):
    directions = random_directions(4, 50)
    base = measure_conflict(directions, [1] * 4)
    scaled = measure_conflict([factor * u for u in directions], [1] * 4)
    assert torch.allclose(scaled.distance, factor * base.distance, rtol=1e-5)
    permuted = measure_conflict([directions[i] for i in order], [1] * 4)
    assert torch.allclose(permuted.distance, base.distance[list(order)])


def test_single_region_agrees_with_itself():
    conflict = measure_conflict(random_directions(1, 10), [1.0])
    assert conflict.distance.item() == 0
    assert conflict.cosine.item() == pytest.approx(1)
