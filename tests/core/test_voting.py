import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.voting import vote


def distributions(*shape, seed=0):
    return torch.rand(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).softmax(-1)


def test_weights_are_proportional_to_accuracy():
    probabilities = torch.tensor([[[0.9, 0.1]], [[0.2, 0.8]]], dtype=torch.float64)
    assert vote(probabilities, [0.75, 0.25]).tolist() == [pytest.approx([0.725, 0.275])]
    assert vote(probabilities, [0.3, 0.9]).argmax(-1).tolist() == [1]


@settings(deadline=None)
@given(st.lists(st.floats(0, 1), min_size=3, max_size=3))
def test_result_is_a_distribution(accuracies):
    result = vote(distributions(3, 5, 2, 4), accuracies)
    assert result.shape == (5, 2, 4)
    torch.testing.assert_close(result.sum(-1), torch.ones(5, 2, dtype=torch.float64))


@settings(deadline=None)
@given(st.floats(0.01, 1))
def test_identical_models_and_equal_weights_change_nothing(accuracy):
    one = distributions(50, 6)
    result = vote(one.expand(3, 50, 6), [accuracy] * 3)
    torch.testing.assert_close(result, one, rtol=1e-14, atol=0)
    assert torch.equal(result.argmax(-1), one.argmax(-1))


def test_all_zero_accuracies_count_equally():
    probabilities = distributions(3, 7, 4)
    torch.testing.assert_close(vote(probabilities, [0.0] * 3), probabilities.mean(0))


def test_a_strategy_of_accuracy_zero_has_no_say():
    probabilities = distributions(2, 7, 4)
    torch.testing.assert_close(vote(probabilities, [0.0, 0.4]), probabilities[1])


@pytest.mark.parametrize("accuracies", [[0.5], [0.5, -0.1], [0.5, float("nan")]])
def test_bad_accuracies_are_refused(accuracies):
    with pytest.raises(ValueError, match="accuracies"):
        vote(distributions(2, 3), accuracies)
