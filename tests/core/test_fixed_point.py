import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.fixed_point import SCALE, FixedPointError, FixedPointSum, add_totals, mean, moved

finite = st.floats(-1e4, 1e4, width=32)


def summed(vectors, weights):
    total = FixedPointSum(vectors[0].numel())
    for vector, weight in zip(vectors, weights, strict=True):
        total.add(vector, weight)
    return total


@settings(max_examples=50, deadline=None)
@given(
    st.lists(st.tuples(st.lists(finite, min_size=3, max_size=3), st.integers(0, 500)), min_size=1, max_size=12),
    st.integers(1, 5),
    st.randoms(use_true_random=False),
)
def test_sum_has_the_same_bits_in_any_order_and_any_grouping(parts, groups, random):
    vectors = [torch.tensor(values, dtype=torch.float32) for values, _ in parts]
    weights = [weight for _, weight in parts]
    whole = summed(vectors, weights)
    order = list(range(len(parts)))
    random.shuffle(order)
    shards = [order[i::groups] for i in range(groups) if order[i::groups]]
    totals = [summed([vectors[i] for i in s], [weights[i] for i in s]).total for s in shards]
    assert torch.equal(add_totals(totals), whole.total)
    assert whole.weight == sum(weights)


@settings(max_examples=50, deadline=None)
@given(st.lists(finite, min_size=1, max_size=5), st.integers(1, 1000))
def test_mean_is_within_half_a_unit_of_the_exact_mean(values, weight):
    vector = torch.tensor(values, dtype=torch.float32)
    total = summed([vector, -0.5 * vector], [weight, 3])
    exact = (weight - 1.5) * vector.double() / (weight + 3)
    assert torch.allclose(mean(total.total, weight + 3), exact, rtol=0, atol=2 * 0.5 / SCALE / (weight + 3) + 1e-12)


def test_weighted_product_is_not_rounded_to_float32():
    total = FixedPointSum(1)
    total.add(torch.tensor([1.0000001]), 16_777_217)
    assert total.total.item() == int(torch.tensor([1.0000001]).double().item() * 16_777_217 * SCALE)


def test_blocks_cover_a_long_vector():
    vector = torch.arange(200_001, dtype=torch.float32)
    total = FixedPointSum(200_001)
    total.add(vector, 2)
    assert torch.equal(mean(total.total, 1), 2 * vector.double())


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf, 1e30])
def test_bad_vector_leaves_the_sum_unchanged(bad):
    total = FixedPointSum(2)
    total.add(torch.tensor([1.0, 2.0]), 3)
    before = total.total.clone()
    with pytest.raises(FixedPointError):
        total.add(torch.tensor([1.0, bad]), 3)
    with pytest.raises(FixedPointError, match="shape"):
        total.add(torch.ones(3), 1)
    assert torch.equal(total.total, before)
    assert total.weight == 3


def test_overflow_is_noticed_before_it_happens():
    total = FixedPointSum(1)
    for _ in range(60):
        total.add(torch.tensor([1e6]), 1)
    with pytest.raises(FixedPointError, match="overflow"):
        for _ in range(10):
            total.add(torch.tensor([1e6]), 1)
    big = torch.tensor([2**61], dtype=torch.int64)
    with pytest.raises(FixedPointError, match="overflow"):
        add_totals([big, big])


def test_the_most_negative_integer_counts_as_large():
    lowest = torch.tensor([-(2**63)], dtype=torch.int64)
    with pytest.raises(FixedPointError, match="overflow"):
        add_totals([lowest, torch.tensor([-5])])


def test_moved_is_the_step_in_float64():
    start, total = torch.randn(100_000), torch.randint(-(2**40), 2**40, (100_000,))
    expected = (start + 0.3 * mean(total, 7)).float()
    assert torch.equal(moved(start, total, 7, 0.3), expected)


def test_mean_without_examples_is_zero():
    assert torch.equal(mean(torch.zeros(3, dtype=torch.int64), 0), torch.zeros(3, dtype=torch.float64))
