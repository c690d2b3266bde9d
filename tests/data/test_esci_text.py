"""The text of the ESCI-like benchmark: words, tags, mistakes and what depends on the region."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2_contingency

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.base import Query
from regionfed_flwr.data.esci import (
    CATEGORIES,
    ENTITY_TYPES,
    INTENTS,
    lexicon,
    neutral_queries,
    tag_names,
    templates,
    vocabulary,
)
from regionfed_flwr.data.esci import semantics as sem
from regionfed_flwr.data.esci.composer import Composer
from regionfed_flwr.data.esci.corruption import misspell

FORMS = {form for spelling in sem.SPELLINGS for form in spelling.forms}
TRIGGER_WORDS = {word for phrase in sem.TRIGGERS for word in phrase.replace("{x}", "").split()}


def compose_many(region: int, count: int, semantics: float = 1.0, typo_rate: float = 0.0) -> list[Query]:
    """Write queries of all categories and intents in turn, with the same draws in every region."""
    composer = Composer(semantics, typo_rate, "io")
    generator = numpy_generator(5, "test text")
    kinds = [(category, intent) for intent in INTENTS for category in CATEGORIES]
    return [composer.compose(*kinds[i % len(kinds)], region, generator) for i in range(count)]


def is_edit(word: str, wrong: str) -> str:
    """Name the single edit that leads from one word to the other."""
    if len(wrong) == len(word):
        assert sum(a != b for a, b in zip(word, wrong, strict=True)) == 1
        return "substitution"
    short, long = sorted((word, wrong), key=len)
    assert any(long[:i] + long[i + 1 :] == short for i in range(len(long)))
    return "deletion" if short == wrong else "insertion"


def test_lexicon_is_large_bounded_and_plain() -> None:
    words = lexicon()
    assert 500 <= len(words) <= 800
    assert list(words) == sorted(set(words))
    assert all(word.isascii() and word.isalpha() and word.islower() for word in words)


def test_counts_of_the_tables() -> None:
    assert len(CATEGORIES) == 24
    assert len(INTENTS) == 8
    assert all(len(templates.TEMPLATES[intent]) >= 5 for intent in INTENTS)
    assert len(sem.AMBIGUOUS_WORDS) >= 24
    assert len(sem.TRIGGERS) >= 8
    assert len(sem.SPELLINGS) >= 16
    for intent in INTENTS:
        assert any("{modifier}" in frame for frame in templates.FRAMES[intent])


def test_no_template_belongs_to_two_intents() -> None:
    counts = Counter(template for intent in INTENTS for template in templates.TEMPLATES[intent])
    assert max(counts.values()) == 1


def test_every_ordinary_word_has_one_entity_type() -> None:
    shelves = {
        "PRODUCT": [*vocabulary.PRODUCTS.values(), vocabulary.GENERIC_PRODUCTS],
        "BRAND": vocabulary.BRANDS.values(),
        "CATEGORY": vocabulary.CATEGORY_NAMES.values(),
        "MODIFIER": [vocabulary.MODIFIERS, vocabulary.PRICE_MODIFIERS],
        "LOCATION": [vocabulary.LOCATIONS],
    }
    types: dict[str, set[str]] = defaultdict(set)
    for entity, pools in shelves.items():
        for phrase in (phrase for pool in pools for phrase in pool):
            for word in phrase.split():
                types[word].add(entity)
    for word in templates.literals() | TRIGGER_WORDS:
        types[word].add("O")
    several = {word: kinds for word, kinds in types.items() if len(kinds) > 1}
    assert not several
    assert not types.keys() & (FORMS | sem.AMBIGUOUS_WORDS.keys())


@given(st.text("abcdefghijklmnopqrstuvwxyz", min_size=1, max_size=12), st.integers(0, 2**32))
def test_misspelling_is_one_edit_and_never_the_word_itself(word: str, seed: int) -> None:
    wrong = misspell(word, np.random.default_rng(seed))
    assert wrong and wrong != word
    is_edit(word, wrong)
    assert wrong.isascii() and wrong.isalpha() and wrong.islower()


def test_misspelling_avoids_words() -> None:
    generator = np.random.default_rng(0)
    drawn = {misspell("grey", generator) for _ in range(5000)}
    assert "gray" in drawn
    assert "gray" not in {misspell("grey", generator, avoid=("grey", "gray")) for _ in range(5000)}


def test_corruption_rates() -> None:
    queries = neutral_queries(8000, numpy_generator(1, "test"), typo_rate=0.15)
    pairs = [pair for query in queries for pair in zip(query.tokens, query.typed, strict=True)]
    wrong = [(word, typed) for word, typed in pairs if word != typed]
    assert len(wrong) / len(pairs) == pytest.approx(0.15, abs=3 * np.sqrt(0.15 * 0.85 / len(pairs)))
    # Words of one letter cannot lose it, so they are left out.
    kinds = Counter(is_edit(word, typed) for word, typed in wrong if len(word) > 1)
    total = kinds.total()
    for kind, share in {"substitution": 0.6, "deletion": 0.2, "insertion": 0.2}.items():
        assert kinds[kind] / total == pytest.approx(share, abs=3 * np.sqrt(share * (1 - share) / total))


@pytest.mark.parametrize("rate", [0.0, 1.0])
def test_corruption_at_the_ends(rate: float) -> None:
    for query in neutral_queries(300, numpy_generator(2, "test"), typo_rate=rate):
        assert all((a != b) == (rate == 1.0) for a, b in zip(query.tokens, query.typed, strict=True))


def test_neutral_queries_hold_nothing_regional() -> None:
    queries = neutral_queries(6000, numpy_generator(3, "test"), typo_rate=0.0)
    words = {word for query in queries for word in query.tokens}
    regional = FORMS | sem.AMBIGUOUS_WORDS.keys() | TRIGGER_WORDS
    assert not words & regional
    assert words <= set(lexicon())
    assert len(words) > 0.98 * (len(lexicon()) - len(regional))
    for name, kinds in (("intent", INTENTS), ("category", CATEGORIES)):
        counts = Counter(getattr(query, name) for query in queries)
        expected = 6000 / len(kinds)
        assert all(abs(counts[kind] - expected) < 4 * np.sqrt(expected) for kind in kinds)


def test_neutral_text_tells_the_intent() -> None:
    intents: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for query in neutral_queries(6000, numpy_generator(4, "test"), typo_rate=0.0):
        intents[query.tokens].add(query.intent)
    assert all(len(seen) == 1 for seen in intents.values())


@pytest.mark.parametrize("scheme", ["io", "bio"])
def test_tags_are_aligned_and_of_the_scheme(scheme: str) -> None:
    for query in neutral_queries(500, numpy_generator(6, "test"), tag_scheme=scheme):
        assert len(query.tokens) == len(query.typed) == len(query.tags)
        assert set(query.tags) <= set(tag_names(scheme))


def test_bio_is_io_with_borders() -> None:
    plain = neutral_queries(500, numpy_generator(7, "test"), tag_scheme="io")
    marked = neutral_queries(500, numpy_generator(7, "test"), tag_scheme="bio")
    inner = 0
    for io, bio in zip(plain, marked, strict=True):
        assert io.tokens == bio.tokens
        assert io.tags == tuple(tag.split("-")[-1] for tag in bio.tags)
        for before, tag in zip(("O", *bio.tags), bio.tags, strict=False):
            if tag.startswith("I-"):
                inner += 1
                assert before in (tag, f"B-{tag[2:]}")
    assert inner > 50
    assert tag_names("bio")[0] == "O"
    assert len(tag_names("bio")) == 1 + 2 * len(ENTITY_TYPES)


def test_without_semantics_the_region_changes_nothing() -> None:
    assert compose_many(0, 500, semantics=0.0, typo_rate=0.15) == compose_many(5, 500, semantics=0.0, typo_rate=0.15)


def test_share_of_ambiguous_queries() -> None:
    queries = compose_many(3, 6000, semantics=0.3)
    regional = FORMS | sem.AMBIGUOUS_WORDS.keys()
    share = np.mean([bool(regional & set(query.tokens)) for query in queries])
    assert share == pytest.approx(0.3, abs=3 * np.sqrt(0.3 * 0.7 / 6000))


def test_ambiguous_text_names_no_category() -> None:
    shelves = (*vocabulary.PRODUCTS.values(), *vocabulary.BRANDS.values(), *vocabulary.CATEGORY_NAMES.values())
    telling = {word for shelf in shelves for phrase in shelf for word in phrase.split()}
    assert not telling & {word for query in compose_many(2, 3000) for word in query.tokens}


def test_typed_spelling_is_blind_to_the_region_and_tokens_are_not() -> None:
    """With the same draws, users of two regions type the same, and only the correct form differs."""
    differing = agreeing = 0
    for one, other in zip(compose_many(1, 3000), compose_many(6, 3000), strict=True):
        if not FORMS & set(one.tokens):
            continue
        assert one.typed == other.typed
        assert (one.intent, one.tags) == (other.intent, other.tags)
        differing += one.tokens != other.tokens
        agreeing += one.tokens == other.tokens
    assert differing > 200
    assert agreeing > 200


def test_typed_spelling_is_either_form_evenly_and_tokens_the_regions() -> None:
    region = 4
    first = []
    for query in compose_many(region, 6000):
        for spelling in sem.SPELLINGS:
            for token, typed in zip(query.tokens, query.typed, strict=True):
                if token in spelling.forms:
                    assert token == spelling.correct(region)
                    first.append(typed == spelling.forms[0])
    assert np.mean(first) == pytest.approx(0.5, abs=3 * 0.5 / np.sqrt(len(first)))


def test_words_and_triggers_follow_the_regions_table() -> None:
    for region in (0, 7):
        for query in compose_many(region, 3000):
            for token, tag in zip(query.tokens, query.tags, strict=True):
                if token in sem.AMBIGUOUS_WORDS:
                    assert tag == sem.word_sense(token, region)
            text = f" {' '.join(query.tokens)} "
            for phrase in sem.TRIGGERS:
                if f" {phrase.replace('{x}', '').strip()} " in text:
                    assert query.intent == sem.trigger_intent(phrase, region)


def test_same_text_has_different_answers_in_different_regions() -> None:
    answers: dict[tuple[str, ...], list[dict[tuple[object, ...], int]]] = {}
    for region in (0, 1):
        for query in compose_many(region, 8000):
            seen = answers.setdefault(query.typed, [Counter(), Counter()])
            seen[region][(query.intent, query.tags, query.tokens)] += 1
    both = [seen for seen in answers.values() if seen[0] and seen[1]]
    conflicting = [seen for seen in both if not seen[0].keys() & seen[1].keys()]
    assert len(both) > 200
    assert 0.3 < len(conflicting) / len(both) < 0.9


@pytest.mark.parametrize("kinds", [sorted(sem.AMBIGUOUS_WORDS), sorted(TRIGGER_WORDS)], ids=["words", "triggers"])
def test_how_often_a_word_is_seen_does_not_tell_the_region(kinds: list[str]) -> None:
    table = []
    for region in range(8):
        counts = Counter(word for query in compose_many(region, 4000) for word in query.tokens)
        table.append([counts[kind] for kind in kinds])
    assert chi2_contingency(np.array(table)).pvalue > 1e-3


@pytest.mark.parametrize("region", range(0, 40, 3))
def test_every_region_has_both_senses_equally_often(region: int) -> None:
    for senses in set(sem.AMBIGUOUS_WORDS.values()):
        first, second = (sem.words_with_sense(sense, region, senses) for sense in senses)
        assert len(first) == len(second) > 0
    assert all(len(sem.triggers_of(intent, region)) == 2 for intent in INTENTS)


@pytest.mark.parametrize(("regions", "least"), [(4, 0.5), (8, 0.5), (16, 0.35), (40, 0.3)])
def test_any_two_regions_disagree(regions: int, least: float) -> None:
    units = range(sem.SPELLINGS[-1].unit + 1)
    states = np.array([[sem.region_state(unit, region) for unit in units] for region in range(regions)])
    assert min(np.mean(states[a] != states[b]) for a, b in combinations(range(regions), 2)) >= least
    assert 0.3 < states.mean(axis=1).min() <= states.mean(axis=1).max() < 0.7
    if regions % 8 == 0:
        np.testing.assert_array_equal(states.mean(axis=0), 0.5)
