import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.privacy.local_dp import (
    estimate_histogram,
    kl_divergence,
    project_to_simplex,
    randomize,
    response_probabilities,
    unbiased_histogram,
)

epsilons = st.floats(1e-3, 50)
sizes = st.integers(2, 40)
counts = st.lists(st.integers(0, 30), min_size=1, max_size=12)


def test_probabilities_by_hand():
    assert response_probabilities(8, 2.0) == pytest.approx((0.5135, 0.0695), abs=5e-5)
    assert response_probabilities(2, math.log(3)) == pytest.approx((0.75, 0.25))


@settings(deadline=None)
@given(sizes, epsilons)
def test_no_report_is_more_than_exp_epsilon_likelier_under_another_label(k, epsilon):
    p, q = response_probabilities(k, epsilon)
    channel = np.full((k, k), q)
    np.fill_diagonal(channel, p)
    np.testing.assert_allclose(channel.sum(1), 1, rtol=1e-12)
    ratio = (channel[:, None, :] / channel[None, :, :]).max()
    assert ratio == pytest.approx(math.exp(epsilon), rel=1e-12)  # reached, not exceeded


def test_reports_follow_the_probabilities():
    generator, n, k, epsilon = numpy_generator(0, "test"), 20_000, 5, 1.0
    p, q = response_probabilities(k, epsilon)
    share = np.bincount([randomize(2, k, epsilon, generator) for _ in range(n)], minlength=k) / n
    expected = np.array([q, q, p, q, q])
    assert (abs(share - expected) < 3.5 * np.sqrt(expected * (1 - expected) / n)).all()


def test_estimate_is_unbiased():
    generator, repeats, epsilon = numpy_generator(1, "test"), 4000, 2.0
    labels = [0, 0, 0, 0, 0, 1, 1, 1, 2, 5]
    truth = np.bincount(labels, minlength=8) / 10
    estimates = np.array(
        [
            unbiased_histogram(np.bincount([randomize(x, 8, epsilon, generator) for x in labels], minlength=8), epsilon)
            for _ in range(repeats)
        ]
    )
    error = estimates.std(0) / math.sqrt(repeats)
    assert (abs(estimates.mean(0) - truth) < 3 * error).all()
    # Ten users: the standard deviation of an empty cell is large enough to mislead a router.
    assert estimates[:, 7].std() == pytest.approx(0.18, abs=0.01)


@settings(deadline=None)
@given(counts, epsilons, st.sampled_from(["project", "clip"]), st.floats(1e-6, 0.1))
def test_estimate_is_a_positive_distribution(reports, epsilon, method, smoothing):
    estimate = estimate_histogram(reports, epsilon, smoothing, method)
    assert estimate.shape == (len(reports),)
    assert estimate.sum() == pytest.approx(1)
    assert (estimate > 0).all()


def test_a_sharp_channel_returns_the_shares():
    for method in ("project", "clip"):
        np.testing.assert_allclose(estimate_histogram([1, 0, 3], 60.0, 0.0, method), [0.25, 0, 0.75], atol=1e-12)


def test_clipping_by_hand():
    # k = 2, epsilon = ln 3: p = 3/4, q = 1/4, so shares (0.9, 0.1) invert to (1.3, -0.3).
    np.testing.assert_allclose(unbiased_histogram([9, 1], math.log(3)), [1.3, -0.3])
    np.testing.assert_allclose(estimate_histogram([9, 1], math.log(3), 0.1, "clip"), [1.1 / 1.2, 0.1 / 1.2])


@settings(deadline=None)
@given(st.lists(st.floats(-3, 3), min_size=1, max_size=10))
def test_projection_satisfies_the_optimality_conditions(values):
    vector = np.array(values)
    point = project_to_simplex(vector)
    assert point.sum() == pytest.approx(1)
    shift = vector - point  # constant on the support, and no larger off it
    inside = point > 1e-12
    assert np.ptp(shift[inside]) < 1e-9
    assert (shift[~inside] <= shift[inside].max() + 1e-9).all()


def test_projection_equals_a_general_solver():
    vector = np.array([0.9, 0.4, -0.3, 0.1])
    solved = minimize(
        lambda x: ((x - vector) ** 2).sum(),
        np.full(4, 0.25),
        bounds=[(0, 1)] * 4,
        constraints={"type": "eq", "fun": lambda x: x.sum() - 1},
    )
    np.testing.assert_allclose(project_to_simplex(vector), solved.x, atol=1e-6)
    np.testing.assert_allclose(project_to_simplex(np.array([0.2, 0.3, 0.5])), [0.2, 0.3, 0.5])


def test_edge_cases():
    np.testing.assert_array_equal(estimate_histogram([0, 0, 0, 0], 2.0), [0.25] * 4)
    assert randomize(0, 1, 2.0, numpy_generator(0, "test")) == 0
    assert estimate_histogram([5], 2.0).tolist() == [1.0]
    with pytest.raises(ValueError, match="no report"):
        unbiased_histogram([0, 0], 2.0)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan])
def test_bad_epsilon_is_refused(epsilon):
    with pytest.raises(RegionFedError, match="positive"):
        response_probabilities(8, epsilon)


def test_bad_labels_are_refused():
    with pytest.raises(ValueError, match="not one of 8"):
        randomize(8, 8, 2.0, numpy_generator(0, "test"))
    with pytest.raises(RegionFedError, match="1 or more"):
        response_probabilities(0, 2.0)


def test_divergence_by_hand():
    assert kl_divergence([0.5, 0.5], [0.25, 0.75]) == pytest.approx(0.5 * math.log(4 / 3))
    assert kl_divergence([0.0, 1.0], [0.5, 0.5]) == pytest.approx(math.log(2))
    assert kl_divergence([0.5, 0.5], [0.0, 1.0]) == math.inf


def test_noise_alone_makes_regions_look_divergent():
    """8 regions of 10 users with Dirichlet(0.3) intents: the true divergences are small, the estimated ones are not."""
    generator, k, epsilon = numpy_generator(0, "regions"), 8, 2.0
    divergences = {"true": [], "project": [], "clip": []}
    for _ in range(150):
        users = generator.dirichlet([0.3] * k, size=(8, 10))
        labels = (users.cumsum(-1) < generator.random((8, 10, 1))).sum(-1).clip(max=k - 1)
        reports = [np.bincount([randomize(int(x), k, epsilon, generator) for x in r], minlength=k) for r in labels]
        found = {"true": users.mean(1)}
        found |= {m: np.array([estimate_histogram(r, epsilon, method=m) for r in reports]) for m in ("project", "clip")}
        for name, regions in found.items():
            divergences[name] += [kl_divergence(p, regions.mean(0)) for p in regions]
    mean = {name: np.mean(values) for name, values in divergences.items()}
    above = {name: np.mean(np.array(values) > 1.0) for name, values in divergences.items()}
    assert mean["true"] == pytest.approx(0.09, abs=0.02)
    assert mean["project"] == pytest.approx(0.71, abs=0.05)
    assert above["true"] == 0
    assert above["project"] == pytest.approx(0.14, abs=0.04)
    assert above["clip"] < 0.03
