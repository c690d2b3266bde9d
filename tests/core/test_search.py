import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.core.search import (
    DIAGNOSTIC_GRID,
    PHI,
    GoldenSection,
    KSection,
    is_unimodal,
    local_minima,
    minimise,
)
from regionfed_flwr.errors import RegionFedError

FORMS = [lambda tolerance: GoldenSection(0, 2, tolerance), lambda tolerance: KSection(0, 2, tolerance)]


@pytest.mark.parametrize("form", FORMS)
def test_finds_the_minimum_of_a_parabola(form):
    found = minimise(form(0.01), lambda rho: (rho - 0.7) ** 2)
    assert found.rho == pytest.approx(0.7, abs=0.01)
    assert found.value == (found.rho - 0.7) ** 2
    assert found.baseline == pytest.approx(0.49)
    assert found.at_boundary == "none"


def test_cost_of_golden_section():
    found = minimise(GoldenSection(0, 2, 0.01), lambda rho: (rho - 0.7) ** 2)
    assert (found.exchanges, found.evaluations) == (13, 15)  # 14 points and J(0); the first three go together
    found = minimise(GoldenSection(0, 2, 0.01, literal=True), lambda rho: (rho - 0.7) ** 2)
    assert (found.exchanges, found.evaluations) == (13, 14)


def test_golden_section_measures_the_midpoint_that_algorithm_3_returns():
    asked = []
    minimise(GoldenSection(0, 2, 0.01), lambda rho: asked.append(rho) or (rho - 0.7) ** 2)
    literal = minimise(GoldenSection(0, 2, 0.01, literal=True), lambda rho: (rho - 0.7) ** 2)
    assert asked[-1] == literal.rho


def test_cost_of_k_section():
    asked = []
    search = KSection(0, 2, 0.01)
    while not search.done:
        asked.append(search.ask())
        search.tell([(rho - 0.7) ** 2 for rho in search.ask()])
    assert asked[0] == pytest.approx((0, 1 / 3, 2 / 3, 1, 4 / 3, 5 / 3))
    assert [len(points) for points in asked] == [6, 4, 4, 4, 4]  # the best point is the next middle
    assert search.result().exchanges == 5
    last = sorted((*asked[-1], search.result().rho))
    assert last[1] - last[0] == pytest.approx(2 / 3**5 / 2)  # the bracket around the best point is 0.0082 wide


@pytest.mark.parametrize("form", FORMS)
def test_increasing_objective_returns_exactly_zero(form):
    found = minimise(form(0.01), lambda rho: 1 + rho)
    assert (found.rho, found.value, found.baseline, found.at_boundary) == (0.0, 1.0, 1.0, "low")


@pytest.mark.parametrize("form", FORMS)
def test_constant_objective_returns_zero(form):
    assert minimise(form(0.01), lambda rho: 3.0).rho == 0.0


@pytest.mark.parametrize("form", FORMS)
def test_decreasing_objective_ends_at_the_upper_end(form):
    found = minimise(form(0.01), lambda rho: -rho)
    assert found.rho == pytest.approx(2, abs=0.01)
    assert found.at_boundary == "high"


@pytest.mark.parametrize("form", FORMS)
def test_zero_wins_over_a_local_minimum_that_is_worse(form):
    assert minimise(form(0.01), lambda rho: 1 + (rho - 1.2) ** 2 if rho else 0.5).rho == 0.0


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("form", FORMS)
def test_values_that_are_not_finite_are_the_worst(form, bad):
    found = minimise(form(0.01), lambda rho: bad if rho > 0.3 else (rho - 0.2) ** 2)
    assert found.rho == pytest.approx(0.2, abs=0.01)
    assert minimise(form(0.01), lambda rho: bad).rho == 0.0


def test_literal_algorithm_returns_the_papers_constant():
    found = minimise(GoldenSection(0, 2, 0.1, literal=True), lambda rho: rho)
    assert found.rho == pytest.approx(PHI**7, abs=1e-12)
    assert found.rho == pytest.approx(0.034442, abs=5e-7)
    assert (found.value, found.baseline, found.at_boundary) == (None, None, "low")


def test_literal_algorithm_at_the_stated_tolerances_gives_other_values():
    values = [minimise(GoldenSection(0, 2, t, literal=True), lambda rho: rho).rho for t in (0.02, 0.01)]
    assert values == pytest.approx([0.0081, 0.0031], abs=5e-5)


@settings(deadline=None)
@given(st.floats(0.02, 1.98), st.floats(1e-3, 0.5), st.integers(2, 9), st.sampled_from([1.0, 2.0, 0.5]), st.booleans())
def test_unimodal_minima_are_found_within_the_tolerance(optimum, tolerance, points, power, literal):
    for search in (GoldenSection(0, 2, tolerance, literal=literal), KSection(0, 2, tolerance, points)):
        found = minimise(search, lambda rho: abs(rho - optimum) ** power)
        assert abs(found.rho - optimum) <= tolerance * (1 + 1e-9)


@settings(deadline=None)
@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=40, max_size=40))
def test_never_worse_than_no_adaptation_whatever_was_measured(values):
    for search in (GoldenSection(0, 2, 0.01), KSection(0, 2, 0.01)):
        told = iter(values)
        found = minimise(search, lambda rho, told=told: next(told))
        assert found.value <= found.baseline
        assert 0 <= found.rho < 2


def test_misuse_is_refused():
    search = GoldenSection(0, 2, 0.01)
    with pytest.raises(ValueError, match="do not fit"):
        search.tell([1.0])
    with pytest.raises(ValueError, match="not done"):
        search.result()
    minimise(search, abs)
    with pytest.raises(ValueError, match="do not fit"):
        search.tell([])


@pytest.mark.parametrize(("low", "high", "tolerance"), [(2, 0, 0.1), (0, math.inf, 0.1), (0, 2, 0), (0, 2, math.nan)])
def test_bad_intervals_are_refused(low, high, tolerance):
    with pytest.raises(RegionFedError, match="search"):
        GoldenSection(low, high, tolerance)


def test_k_section_needs_two_points():
    with pytest.raises(RegionFedError, match="2 or more"):
        KSection(0, 2, 0.1, points=1)


@pytest.mark.parametrize(
    ("values", "minima"),
    [
        ([3, 2, 1, 2, 3], 1),
        ([1, 2, 3], 1),
        ([3, 2, 1], 1),
        ([3, 2, 2, 1, 1, 2], 1),
        ([1, 2, 1], 2),
        ([2, 1, 1, 3, 0], 2),
        ([5, 5, 5], 1),
        ([1, math.nan, 0.5, math.inf], 2),
        ([math.nan, math.inf], 0),
        ([], 0),
    ],
)
def test_local_minima(values, minima):
    assert local_minima(values) == minima
    assert is_unimodal(values) == (minima == 1)


def test_diagnostic_grid_separates_one_well_from_two():
    assert DIAGNOSTIC_GRID[:2] == (0.0, 0.05)
    assert DIAGNOSTIC_GRID[-1] == 2.0
    assert is_unimodal([(rho - 0.7) ** 2 for rho in DIAGNOSTIC_GRID])
    assert local_minima([math.cos(2 * math.pi * rho) for rho in DIAGNOSTIC_GRID]) == 2
