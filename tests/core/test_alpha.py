import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regionfed_flwr.core.alpha import Centre, personalization_weight

distance = st.floats(0, 1e6)
share = st.floats(0, 1)
temperature = st.floats(1e-3, 1e3)


@given(distance, distance, share, temperature)
def test_alpha_lies_between_its_floor_and_one(d, mu, alpha_min, tau):
    assert alpha_min <= personalization_weight(d, mu, alpha_min, tau) <= 1


@given(distance, distance, distance, share, temperature)
def test_alpha_grows_with_conflict(d, more, mu, alpha_min, tau):
    low, high = sorted((d, more))
    assert personalization_weight(low, mu, alpha_min, tau) <= personalization_weight(high, mu, alpha_min, tau)


def test_alpha_is_the_midpoint_at_the_centre():
    assert personalization_weight(0.3, 0.3, 0.5, 1.0) == 0.75
    # Clipped noiseless directions have d in [0, 2] (the paper claims a range of [0.53, 0.88] there).
    assert personalization_weight(2.0, 1.0, 0.5, 1.0) == pytest.approx(0.8655, abs=1e-4)


def test_shared_median_is_frozen_once_all_regions_were_there():
    centre = Centre("shared-median").observe({0: 1.0, 2: 9.0}, 3)
    assert centre.shared is None
    assert centre.of(0, {0: 1.0, 2: 9.0}) == 5.0
    centre = centre.observe({0: 1.0, 1: 2.0, 2: 9.0}, 3)
    assert centre.observe({0: 50.0, 1: 50.0, 2: 50.0}, 3).of(1, {}) == 2.0


def test_per_region_starts_everybody_at_the_midpoint():
    first = {0: 1.0, 1: 7.0}
    centre = Centre("per-region").observe(first, 2)
    assert [personalization_weight(d, centre.of(r, first), 0.5, 1.0) for r, d in first.items()] == [0.75, 0.75]
    assert centre.observe({0: 3.0, 1: 3.0}, 2).own == first


def test_running_and_zero():
    centre = Centre("running").observe({0: 1.0, 1: 3.0}, 2)
    assert centre.shared == pytest.approx(2.0)
    assert centre.observe({0: 12.0, 1: 12.0}, 2).shared == pytest.approx(0.9 * 2 + 0.1 * 12)
    assert Centre("zero").observe({0: 5.0}, 1).of(0, {0: 5.0}) == 0.0


@given(st.dictionaries(st.integers(0, 9), distance, min_size=1))
def test_before_calibration_the_median_at_hand_stands_in(distances):
    assert Centre("shared-median").of(min(distances), distances) == statistics.median(distances.values())
