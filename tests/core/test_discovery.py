import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import normalize

from regionfed_flwr.core.discovery import (
    adjusted_rand,
    discover,
    match_labels,
    merge_small,
    migrate,
    similarity,
    sketch,
)
from regionfed_flwr.errors import RegionFedError


def planted(groups, members, noise, seed=0, common=0.0, dimension=400):
    """Directions of users around unit centres, noise of the given norm, a common drift, and the true groups."""
    generator = torch.Generator().manual_seed(seed)
    centres = normalize(torch.randn(groups, dimension, generator=generator))
    truth = np.repeat(np.arange(groups), members)
    drift = common * normalize(torch.randn(1, dimension, generator=generator))
    scatter = noise * normalize(torch.randn(len(truth), dimension, generator=generator))
    return centres[torch.from_numpy(truth)] + drift + scatter, truth


def sketched(directions, size=256):
    return torch.stack([sketch(u, size, seed=7) for u in directions])


def test_sketch_is_linear_and_repeatable():
    x, y = planted(2, 1, 0.0)[0]
    torch.testing.assert_close(sketch(2 * x - y, 64, 3), 2 * sketch(x, 64, 3) - sketch(y, 64, 3))
    assert torch.equal(sketch(x, 64, 3), sketch(x, 64, 3))
    assert not torch.equal(sketch(x, 64, 3), sketch(x, 64, 4))


def test_inner_products_of_sketches_are_unbiased():
    x, y = planted(2, 1, 0.0, common=1.0)[0].double()
    products = np.array([float(sketch(x, 32, s) @ sketch(y, 32, s)) for s in range(2000)])
    assert abs(products.mean() - float(x @ y)) < 3 * products.std() / len(products) ** 0.5
    assert products.var() < 1.2 * 2 * float(x @ x) * float(y @ y) / 32


def test_sketch_of_blocks_is_a_sketch(monkeypatch):
    x, y = planted(2, 1, 0.0, common=1.0)[0].double()
    monkeypatch.setattr("regionfed_flwr.core.discovery._BLOCK", 37)
    products = np.array([float(sketch(x, 32, s) @ sketch(y, 32, s)) for s in range(500)])
    assert abs(products.mean() - float(x @ y)) < 3 * products.std() / len(products) ** 0.5


def test_similarity_is_the_cosine():
    cosines = similarity(torch.tensor([[1.0, 0.0], [3.0, 3.0], [-2.0, 0.0], [0.0, 0.0]]))
    root = 0.5**0.5
    expected = [[1, root, -1, 0], [root, 1, -root, 0], [-1, -root, 1, 0], [0, 0, 0, 1]]
    np.testing.assert_allclose(cosines, expected, atol=1e-12)


@pytest.mark.parametrize("affinity", ["positive", "shifted"])
@pytest.mark.parametrize("num_groups", [2, None])
def test_two_groups_with_opposite_optima_are_recovered(affinity, num_groups):
    centre = torch.randn(500, generator=torch.Generator().manual_seed(1))
    truth = np.array([0, 1, 0, 1, 1, 0, 0, 1])
    noise = 0.8 * torch.randn(8, 500, generator=torch.Generator().manual_seed(2))
    directions = torch.from_numpy(1 - 2 * truth)[:, None] * centre + noise
    labels = discover(similarity(sketched(directions)), num_groups, 4, seed=0, affinity=affinity)
    assert adjusted_rand(labels, truth) == 1.0
    assert labels.tolist() == truth.tolist()  # named in order of the groups' first users


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("num_groups", [4, None])
def test_four_groups_with_noise_are_recovered(num_groups, seed):
    directions, truth = planted(4, 8, noise=1.2, seed=seed)
    labels = discover(similarity(sketched(directions, 512)), num_groups, 10, seed=0)
    assert adjusted_rand(labels, truth) == 1.0


def test_centring_uncovers_groups_below_a_common_drift():
    directions, truth = planted(4, 8, noise=0.8, common=2.0)
    assert adjusted_rand(discover(similarity(directions), None, 10, seed=0), truth) == 0.0
    assert adjusted_rand(discover(similarity(directions, centred=True), None, 10, seed=0), truth) == 1.0


def test_users_without_groups_form_one():
    directions, _ = planted(1, 20, noise=1.0)
    assert discover(similarity(directions), None, 6, seed=0).tolist() == [0] * 20


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(16)))
def test_order_of_the_users_does_not_matter(order):
    directions, truth = planted(4, 4, noise=0.7)
    labels = discover(similarity(directions[order]), None, 8, seed=0)
    assert adjusted_rand(labels, truth[order]) == 1.0


def test_a_loner_joins_the_nearest_group():
    directions, truth = planted(2, 5, noise=0.3)
    loner = normalize(directions[9:].clone()) + 2 * normalize(
        torch.randn(1, 400, generator=torch.Generator().manual_seed(3))
    )
    cosines = similarity(torch.cat([directions, loner]))
    assert discover(cosines, 3, 3, seed=0, min_size=1).tolist() == [*truth, 2]
    assert discover(cosines, 3, 3, seed=0, min_size=2).tolist() == [*truth, 1]


def test_merging_starts_with_the_smallest_group():
    cosines = similarity(torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0], [0.3, 1.0]]))
    assert merge_small(np.array([5, 5, 3, 3, 8]), cosines, 2).tolist() == [0, 0, 1, 1, 1]
    assert merge_small(np.array([5, 5, 3, 3, 8]), cosines, 1).tolist() == [0, 0, 1, 1, 2]
    assert merge_small(np.array([0, 1, 2, 3, 4]), cosines, 9).tolist() == [0] * 5


@pytest.mark.parametrize("users", [1, 2, 3])
def test_very_few_users(users):
    cosines = similarity(torch.eye(3)[:users])
    assert discover(cosines, None, 5, seed=0).max() == 0
    assert discover(cosines, users, 5, seed=0, min_size=1).tolist() == list(range(users))


@pytest.mark.parametrize(("num_groups", "max_groups"), [(0, 4), (9, 4), (None, 0)])
def test_impossible_numbers_of_groups_are_refused(num_groups, max_groups):
    with pytest.raises(RegionFedError, match="from 1 to 8"):
        discover(np.eye(8), num_groups, max_groups, seed=0)


def test_matched_labels_keep_their_names():
    old = np.array([4, 4, 4, 7, 7, 7, 2, 2])
    assert match_labels(np.array([0, 0, 0, 1, 1, 1, 2, 2]), old).tolist() == old.tolist()
    assert match_labels(np.array([1, 1, 1, 0, 0, 1, 5, 5]), old).tolist() == [4, 4, 4, 7, 7, 4, 2, 2]


def test_a_new_group_gets_an_unused_name():
    old = np.array([0, 0, 0, 0, 1, 1])
    assert match_labels(np.array([5, 5, 3, 3, 4, 4]), old).tolist() in ([0, 0, 2, 2, 1, 1], [2, 2, 0, 0, 1, 1])
    assert match_labels(np.zeros(6, dtype=np.int64), old).tolist() == [0] * 6


def test_a_name_does_not_pass_to_users_who_never_had_it():
    # Old group 0 splits and old groups 1 and 2 merge: the name 2 is free, but it is not the new group's.
    old, new = np.array([0, 0, 0, 1, 1, 2]), np.array([5, 5, 6, 7, 7, 7])
    assert match_labels(new, old).tolist() == [0, 0, 3, 1, 1, 1]


@settings(deadline=None)
@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=20))
def test_matching_renames_and_nothing_else(pairs):
    new, old = (np.array(column) for column in zip(*pairs, strict=True))
    matched = match_labels(new, old)
    assert adjusted_rand(matched, new) == 1.0
    assert match_labels(matched, matched).tolist() == matched.tolist()
    assert np.sum(matched == old) >= np.sum(new == old)


def test_labels_of_other_users_cannot_be_matched():
    with pytest.raises(ValueError, match="cannot be matched"):
        match_labels(np.zeros(3, dtype=np.int64), np.zeros(4, dtype=np.int64))


def unit_vectors(*degrees):
    angles = torch.tensor(degrees, dtype=torch.float64).deg2rad()
    return torch.stack([angles.cos(), angles.sin()], 1)


def test_a_borderline_user_stays_and_a_clear_one_moves():
    old, new = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    # Groups at 0 and 90 degrees; at 46 degrees the gain of moving is cos 44 - cos 46 = 0.025, at 50 it is 0.123.
    assert migrate(new, old, unit_vectors(0, 0, 46, 90, 90)).tolist() == old.tolist()
    assert migrate(new, old, unit_vectors(0, 0, 50, 90, 90)).tolist() == new.tolist()
    assert migrate(new, old, unit_vectors(0, 0, 46, 90, 90), margin=0.02).tolist() == new.tolist()
    assert migrate(new, old, unit_vectors(0, 0, 50, 90, 90), margin=0.2).tolist() == old.tolist()


def test_a_large_direction_does_not_rule_its_group():
    old, new = np.array([0, 0, 0, 1, 1]), np.array([0, 0, 1, 1, 1])
    lengths = torch.tensor([[1.0], [100.0], [1.0], [1.0], [1.0]], dtype=torch.float64)
    points = unit_vectors(-20, 20, 46, 90, 90)
    assert migrate(new, old, lengths * points).tolist() == migrate(new, old, points).tolist()


def test_users_of_a_dissolved_group_all_move():
    old, new = np.array([0, 0, 1, 1]), np.array([0, 0, 0, 0])
    assert migrate(new, old, unit_vectors(0, 1, 3, 3)).tolist() == new.tolist()


def test_a_group_that_splits_is_left_by_those_who_differ():
    old, new = np.array([0, 0, 0, 0]), np.array([0, 0, 1, 1])
    assert migrate(new, old, unit_vectors(0, 0, 90, 90)).tolist() == new.tolist()
    assert migrate(new, old, unit_vectors(0, 0, 2, 2)).tolist() == old.tolist()
