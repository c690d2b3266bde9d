"""After five rounds regional adaptation with searched intensity pays, and what only looks like it does not."""

import statistics

import pytest

from regionfed_flwr.experiments.placebo import METHODS, gains, interval, placebo_of


@pytest.fixture(scope="module")
def found():
    rows = [gains(seed) for seed in range(5)]
    return {name: [row[name] for row in rows] for name in rows[0]}


@pytest.mark.parametrize("method", METHODS)
def test_each_strategy_beats_the_shared_model_by_a_point_and_a_half(found, method):
    assert statistics.mean(found[method]) >= 1.5


@pytest.mark.parametrize(("method", "placebo"), [(m, p) for m in METHODS for p in placebo_of(m)])
def test_placebos_gain_less(found, method, placebo):
    """The intervals in docs/regionfed.md are clear of zero for all; here only where they are far from it.

    Another processor rounds otherwise, and with five seeds a bound moves by a few tenths of a point.
    """
    differences = [a - b for a, b in zip(found[method], found[placebo], strict=True)]
    assert statistics.mean(differences) > 0
    if not placebo.startswith("random"):
        assert interval(differences)[1] > 0


def test_interval_by_hand():
    mean, low, high = interval([1.0, 2.0, 3.0])
    assert (mean, low, high) == pytest.approx((2.0, 2 - 4.30265 / 3**0.5, 2 + 4.30265 / 3**0.5), abs=1e-4)
