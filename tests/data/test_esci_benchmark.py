"""The ESCI-like federation: populations, users, parts."""

from __future__ import annotations

import itertools
import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regionfed_flwr.config import parse_config
from regionfed_flwr.data.base import Query
from regionfed_flwr.data.esci import (
    CATEGORIES,
    INTENTS,
    EsciFederation,
    EsciSpec,
    category_probabilities,
    lexicon,
    population_names,
    preferred_categories,
)
from regionfed_flwr.errors import RegionFedError


def everything(federation: EsciFederation, user: int) -> list[Query]:
    splits = federation.user(user)
    return [*splits.train, *splits.validation, *splits.test]


def test_the_paper_has_twenty_thousand_samples_in_eighty_users() -> None:
    spec = EsciSpec()
    federation = EsciFederation(spec)
    assert len(federation.region_of) == 80
    assert len(federation.region_of) * spec.samples_per_user == 20_000
    assert federation.region_names[:2] == ("Urban Tech", "Young Demo.")
    assert federation.classes == INTENTS
    splits = federation.user(79)
    assert (len(splits.train), len(splits.validation), len(splits.test)) == (150, 38, 62)


def test_table_5_and_appendix_g() -> None:
    assert preferred_categories(8)[2] == ("Fashion", "Electronics")
    for count, size in ((4, 5), (16, 2)):
        assert {len(own) for own in preferred_categories(count)} == {size}


@pytest.mark.parametrize("count", [*range(1, 41), 100])
def test_preferred_sets_are_distinct_and_cover(count: int) -> None:
    sets = preferred_categories(count)
    assert len(sets) == count
    assert all(len(set(own)) == len(own) and set(own) <= set(CATEGORIES) for own in sets)
    assert len({frozenset(own) for own in sets}) == count
    names = population_names(count)
    assert len(set(names)) == count
    if count >= 12:
        assert {category for own in sets for category in own} == set(CATEGORIES)


@pytest.mark.parametrize("bias", [0.0, 0.7, 1.0])
def test_equation_8(bias: float) -> None:
    own = ("Grocery", "Food")
    shares = dict(zip(CATEGORIES, category_probabilities(own, bias), strict=True))
    assert sum(shares.values()) == pytest.approx(1)
    assert shares["Food"] == pytest.approx(bias / 2)
    assert shares["Toys"] == pytest.approx((1 - bias) / 22)


def test_regions_keep_to_equation_8() -> None:
    federation = EsciFederation(EsciSpec(samples_per_user=250))
    for region, own in enumerate(preferred_categories(8)):
        users = [user for user, home in enumerate(federation.home_of) if home == region]
        mean = np.mean([federation.category_distribution(user) for user in users], axis=0)
        expected = category_probabilities(own, 0.7)
        count = 250 * len(users)
        inside = mean[[CATEGORIES.index(category) for category in own]].sum()
        assert inside == pytest.approx(0.7, abs=3 * np.sqrt(0.7 * 0.3 / count))
        errors = np.sqrt(expected * (1 - expected) / count)
        assert np.mean(np.abs(mean - expected) < 3 * errors) > 0.95


def test_distributions_count_the_users_own_queries() -> None:
    federation = EsciFederation(EsciSpec(samples_per_user=40))
    queries = everything(federation, 13)
    for shares, kinds, name in (
        (federation.intent_distribution(13), INTENTS, "intent"),
        (federation.category_distribution(13), CATEGORIES, "category"),
    ):
        assert shares.tolist() == [np.mean([getattr(query, name) == kind for query in queries]) for kind in kinds]


def test_dirichlet_skews_users() -> None:
    def largest(alpha: float) -> float:
        federation = EsciFederation(EsciSpec(dirichlet_alpha=alpha, samples_per_user=80))
        return float(np.mean([federation.intent_distribution(user).max() for user in range(80)]))

    skewed, even = largest(0.05), largest(100.0)
    assert skewed > 0.7
    assert even < 0.3


def test_a_user_alone_equals_the_user_after_others() -> None:
    spec = EsciSpec(seed=9, samples_per_user=30)
    federation = EsciFederation(spec)
    after = [federation.user(user) for user in (0, 41, 3, 17)][-1]
    assert EsciFederation(spec).user(17) == after
    assert federation.user(17) == after
    assert federation.user(16) != after
    assert EsciFederation(EsciSpec(seed=10, samples_per_user=30)).user(17) != after


def test_data_do_not_depend_on_the_region_scheme() -> None:
    federations = [EsciFederation(EsciSpec(samples_per_user=20, region_scheme=s)) for s in ("semantic", "random")]
    assert federations[0].region_of != federations[1].region_of
    assert federations[0].home_of == federations[1].home_of
    assert all(federations[0].user(user) == federations[1].user(user) for user in range(0, 80, 9))


@pytest.mark.parametrize("scheme", ["geographic", "random", "adversarial"])
def test_other_schemes_have_names_of_their_own(scheme: str) -> None:
    federation = EsciFederation(EsciSpec(region_scheme=scheme))
    assert len(set(federation.region_names)) == 8
    assert not set(federation.region_names) & set(population_names(8))


@settings(max_examples=40, deadline=None)
@given(
    alpha=st.floats(0.01, 100),
    samples=st.integers(1, 60),
    regions=st.integers(1, 40),
    users=st.integers(1, 4),
    parts=st.tuples(st.floats(0, 0.9), st.floats(0, 0.9)).filter(lambda parts: sum(parts) < 1),
    semantics=st.floats(0, 1),
    scheme=st.sampled_from(["io", "bio"]),
    data=st.data(),
)
def test_any_specification_gives_whole_users(
    alpha: float,
    samples: int,
    regions: int,
    users: int,
    parts: tuple[float, float],
    semantics: float,
    scheme: str,
    data: st.DataObject,
) -> None:
    spec = EsciSpec(
        seed=1,
        regions=regions,
        users_per_region=users,
        samples_per_user=samples,
        validation_fraction=parts[0],
        test_fraction=parts[1],
        dirichlet_alpha=alpha,
        regional_semantics=semantics,
        typo_rate=0.0,
        tag_scheme=scheme,
    )
    federation = EsciFederation(spec)
    assert np.bincount(federation.region_of).tolist() == [users] * regions
    user = data.draw(st.integers(0, regions * users - 1))
    splits = federation.user(user)
    assert len(splits.validation) == round(samples * parts[0])
    assert len(splits.test) == round(samples * parts[1])
    queries = everything(federation, user)
    assert len(queries) == samples
    assert federation.intent_distribution(user).sum() == pytest.approx(1)
    assert {word for query in queries for word in query.tokens} <= set(lexicon())
    assert all(len(query.tokens) == len(query.typed) == len(query.tags) <= 20 for query in queries)


def test_parts_are_disjoint() -> None:
    splits = EsciFederation(EsciSpec(samples_per_user=100)).user(5)
    ids = [id(query) for part in (splits.train, splits.validation, splits.test) for query in part]
    assert len(ids) == len(set(ids)) == 100


def test_to_dataset_has_every_query_once() -> None:
    federation = EsciFederation(EsciSpec(regions=3, users_per_region=2, samples_per_user=7))
    table = federation.to_dataset()
    assert table.column_names == ["query", "typed", "intent", "tags", "category", "user", "region"]
    expected = [(user, query) for user in range(6) for query in everything(federation, user)]
    for row, (user, query) in zip(table, expected, strict=True):
        assert row["user"] == user
        assert row["region"] == federation.region_of[user]
        assert tuple(row["query"].split()) == query.tokens
        assert tuple(row["typed"].split()) == query.typed
        assert tuple(row["tags"]) == query.tags
        assert (row["intent"], row["category"]) == (query.intent, query.category)


def test_spec_takes_the_run_configuration() -> None:
    config = parse_config({"regions": 5, "tag-scheme": "bio", "typo-rate": 0.25, "region-scheme": "random"})
    spec = EsciSpec.from_config(config)
    assert (spec.regions, spec.tag_scheme, spec.typo_rate, spec.region_scheme) == (5, "bio", 0.25, "random")
    assert spec.samples_per_user == config.samples_per_user


@pytest.mark.parametrize(
    ("wrong", "word"),
    [
        ({"regions": 0}, "regions"),
        ({"dirichlet_alpha": 0.0}, "dirichlet-alpha"),
        ({"tag_scheme": "iob"}, "tag-scheme"),
        ({"validation_fraction": 0.5, "test_fraction": 0.5}, "training"),
    ],
)
def test_wrong_specifications_are_refused(wrong: dict[str, Any], word: str) -> None:
    with pytest.raises(RegionFedError, match=word):
        EsciSpec(**wrong)


@pytest.mark.parametrize("user", [-1, 80])
def test_unknown_users_are_refused(user: int) -> None:
    with pytest.raises(RegionFedError, match="0 to 79"):
        EsciFederation(EsciSpec()).user(user)


def test_import_is_light() -> None:
    heavy = ("transformers", "ray", "datasets", "matplotlib", "sklearn")
    code = f"import sys, regionfed_flwr.data.esci; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_ambiguous_queries_make_neighbours_disagree_on_intents() -> None:
    """Users of two regions with the same habits answer the same trigger phrases differently."""
    federation = EsciFederation(EsciSpec(regional_semantics=1.0, typo_rate=0.0, samples_per_user=250))
    answers: list[dict[str, str]] = []
    for home in (0, 1):
        users = [user for user, other in enumerate(federation.home_of) if other == home]
        queries = itertools.chain.from_iterable(everything(federation, user) for user in users)
        answers.append({q.tokens[0]: q.intent for q in queries if q.tokens[0] in ("compare", "check", "best", "show")})
    assert answers[0].keys() == answers[1].keys()
    assert any(answers[0][word] != answers[1][word] for word in answers[0])
