"""The pictures draw the numbers of the files, without covering them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import matplotlib
import numpy as np
import pytest
from matplotlib.figure import Figure

from regionfed_flwr.experiments import figures
from tests.experiments import fakes


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with matplotlib.rc_context(figures.STYLE):
        yield


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def assert_legend_is_apart(figure: Figure) -> None:
    figure.draw_without_rendering()
    legend = figure.legends[0].get_window_extent()
    assert figure.bbox.contains(*legend.min) and figure.bbox.contains(*legend.max)
    assert not any(legend.overlaps(axes.get_tightbbox()) for axes in figure.axes)


def test_convergence_draws_the_evaluated_rounds() -> None:
    result, rounds = fakes.results(), fakes.rounds(9, every=3)
    figure = figures.convergence(result, rounds)
    assert figure is not None
    left, right = figure.axes
    judged = [entry for entry in rounds if entry["evaluation"]]
    last = judged[-1]["evaluation"]
    drawn = lines(left)
    shared = drawn[f"shared (at the end {100 * last['shared']['overall']:.1f} %)"]
    regional = drawn[f"regional (at the end {100 * last['regional']['overall']:.1f} %)"]
    np.testing.assert_allclose(shared.get_xdata(), [0, 3, 6, 9])
    np.testing.assert_allclose(shared.get_ydata(), [100 * e["evaluation"]["shared"]["overall"] for e in judged])
    np.testing.assert_allclose(regional.get_xdata(), [3, 6, 9])
    start = drawn[f"start ({100 * result['start']['overall']:.1f} %)"]
    np.testing.assert_allclose(start.get_xydata(), [[0, 100 * result["start"]["overall"]]])
    np.testing.assert_allclose(right.get_lines()[0].get_ydata(), [e["evaluation"]["shared"]["loss"] for e in judged])
    assert_legend_is_apart(figure)


def test_convergence_needs_an_evaluation() -> None:
    rounds = [{"round": 0, "evaluation": None}, {"round": 1}]
    assert figures.convergence({}, rounds) is None


def test_convergence_of_fedavg_has_one_model_and_no_training_loss_if_none_was_told() -> None:
    rounds = [entry | {"train_loss": None} for entry in fakes.rounds(4, regional=False)]
    figure = figures.convergence(fakes.results(regional=False), rounds)
    assert figure is not None
    labels = [text.get_text().split(" (")[0] for text in figure.legends[0].get_texts()]
    assert labels == ["shared", "start"]


@pytest.mark.parametrize(("regions", "regional"), [(8, True), (1, True), (40, True), (8, False)])
def test_bars_are_the_scores_in_the_regions_order(regions: int, regional: bool) -> None:
    names = fakes.names(regions)
    result = fakes.results(names, regional=regional)
    figure = figures.accuracy_by_region(result, names)
    assert figure is not None
    (axes,) = figure.axes
    models = [result["start"], *result["metrics"].values()]
    assert len(axes.containers) == len(models)
    for bars, scores in zip(axes.containers, models, strict=True):
        wanted = [*(scores["per_region"][name]["overall"] for name in names), scores["overall"]]
        np.testing.assert_allclose([bar.get_height() for bar in bars], 100 * np.array(wanted))
    shown = [label.get_text().replace("\n", " ").replace("- ", "-") for label in axes.get_xticklabels()]
    assert shown == [*names, "All regions"]
    assert_legend_is_apart(figure)


def test_bars_of_a_region_without_score_are_left_out() -> None:
    result = fakes.results()
    del result["metrics"]["regional"]["per_region"]["Suburban"]
    figure = figures.accuracy_by_region(result, fakes.NAMES)
    assert figure is not None
    heights = [bar.get_height() for bar in figure.axes[0].containers[2]]
    assert [i for i, height in enumerate(heights) if np.isnan(height)] == [fakes.NAMES.index("Suburban")]
    assert figures.accuracy_by_region({}, []) is None


@pytest.mark.parametrize("regions", [1, 8, 40])
def test_alpha_and_conflict_lines(regions: int) -> None:
    names = fakes.names(regions)
    rounds = fakes.rounds(5, names)
    figure = figures.alpha_by_round(rounds, names)
    assert figure is not None
    for axes, key in zip(figure.axes, ("alpha", "conflict"), strict=True):
        for line, name in zip(axes.get_lines(), names, strict=True):
            np.testing.assert_array_equal(line.get_xdata(), [1, 2, 3, 4, 5])
            np.testing.assert_array_equal(line.get_ydata(), [entry["regions"][name][key] for entry in rounds[1:]])
    looks = {(line.get_color(), line.get_marker(), line.get_linestyle()) for line in figure.axes[0].get_lines()}
    assert len(looks) == regions
    assert_legend_is_apart(figure)


def test_alpha_picture_applies_only_with_alpha() -> None:
    assert figures.alpha_by_round(fakes.rounds(3, regional=False), fakes.NAMES) is None
    rounds = [{"round": 1, "regions": {"a": {"alpha": 0.7}}}, {"round": 2, "regions": {"a": {}}}]
    figure = figures.alpha_by_round(rounds, ["a"])
    assert figure is not None and len(figure.axes) == 1


@pytest.mark.parametrize("glyphs", [False, True])
def test_counts_are_those_of_the_users_in_the_regions_order(glyphs: bool) -> None:
    federation = fakes.federation(4, 3, glyphs)
    data = figures.count_data(federation)
    order = [user for region in range(4) for user in range(12) if federation.region_of[user] == region]
    for row, user in enumerate(order):
        splits = federation.user(user)
        samples = [*splits.train, *splits.validation, *splits.test]
        labels = Counter(s.label if glyphs else federation.classes.index(s.intent) for s in samples)
        assert {i: int(n) for i, n in enumerate(data.by_class[row]) if n} == dict(labels)
        if not glyphs:
            wanted = Counter(s.category for s in samples)
            assert {c: int(n) for c, n in zip(data.categories, data.by_category[row], strict=True) if n} == wanted
    assert data.users == (3, 3, 3, 3)
    assert data.regional(data.by_class).sum() == data.by_class.sum() == 12 * federation.samples


def test_preferred_categories_come_in_the_order_of_the_regions() -> None:
    data = figures.count_data(fakes.federation(8, 4))
    blocks = [sorted(data.categories[3 * region : 3 * region + 3]) for region in range(8)]
    assert blocks == [list(fakes.CATEGORIES[3 * region : 3 * region + 3]) for region in range(8)]


def test_categories_that_no_region_prefers_come_last() -> None:
    data = figures.count_data(fakes.federation(2, 20))
    assert set(data.categories[:3]) == set(fakes.CATEGORIES[:3])
    assert set(data.categories[3:6]) == set(fakes.CATEGORIES[3:6])
    assert len(data.categories) == 24


def test_intent_picture_shows_shares_and_samples() -> None:
    data = figures.count_data(fakes.federation(8, 4))
    top, bottom = figures.intent_distribution(data).axes[:2]
    shown = top.get_images()[0].get_array()
    assert shown.shape == (8, 32)
    np.testing.assert_allclose(shown, 100 * data.by_class.T / data.by_class.sum(axis=1))
    assert [bar.get_height() for bar in bottom.patches] == [400] * 8
    separators = [line.get_xdata()[0] for line in top.get_lines()]
    assert separators == [4 * region - 0.5 for region in range(1, 8)]


def test_users_without_samples_are_white() -> None:
    data = figures.count_data(fakes.FakeFederation(("a",), (0, 0), samples=0))
    assert (figures.intent_distribution(data).axes[0].get_images()[0].get_array() == 0).all()
    assert figures.category_distribution(data) is None


def test_category_picture_shows_users_and_regions() -> None:
    data = figures.count_data(fakes.federation(8, 4))
    figure = figures.category_distribution(data)
    assert figure is not None
    users, regions = (axes.get_images()[0].get_array() for axes in figure.axes[:2])
    assert users.shape == (32, 24) and regions.shape == (8, 24)
    np.testing.assert_allclose(regions.sum(axis=1), 100)
    np.testing.assert_allclose(regions, users.reshape(8, 4, 24).mean(axis=1))
    written = [text.get_text() for text in figure.axes[1].texts]
    assert written == [f"{share:.0f}" for share in np.asarray(regions).ravel()]
    own = regions[np.arange(24) // 3, np.arange(24)].reshape(8, 3).sum(axis=1)
    assert (own > 60).all()


@pytest.mark.parametrize(("regions", "users_per_region", "glyphs"), [(8, 10, False), (10, 20, True), (40, 4, False)])
def test_names_of_regions_do_not_overlap(regions: int, users_per_region: int, glyphs: bool) -> None:
    data = figures.count_data(fakes.federation(regions, users_per_region, glyphs))
    figure = figures.intent_distribution(data)
    figure.draw_without_rendering()
    labels = figure.axes[1].get_xticklabels()
    if labels[0].get_rotation():
        steps = np.diff([label.get_position()[0] for label in labels])
        per_user = figure.axes[1].get_window_extent().width / sum(data.users)
        height = max(label.get_fontsize() for label in labels) * figure.dpi / 72
        assert (steps * per_user * np.sin(np.deg2rad(50)) >= height).all()
    else:
        boxes = [label.get_window_extent() for label in labels]
        assert all(a.x1 < b.x0 for a, b in pairwise(boxes))
