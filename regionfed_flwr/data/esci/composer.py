"""Writes single queries: fills templates, tags words, adds spelling mistakes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from regionfed_flwr.data.base import Query
from regionfed_flwr.data.esci import semantics, templates, vocabulary
from regionfed_flwr.data.esci.corruption import misspell

ENTITY_TYPES = ("PRODUCT", "BRAND", "CATEGORY", "MODIFIER", "LOCATION")

Chunk = tuple[str, str]  # one or more words, and their entity type or "O"

_COMMON_POOLS = {
    "modifier": vocabulary.MODIFIERS,
    "price": vocabulary.PRICE_MODIFIERS,
    "location": vocabulary.LOCATIONS,
    "product": vocabulary.GENERIC_PRODUCTS,
}
_SHELF_POOLS = {
    "product": vocabulary.PRODUCTS,
    "brand": vocabulary.BRANDS,
    "category": vocabulary.CATEGORY_NAMES,
}
_GENERIC_SHARE = 0.15  # of the product slots of ordinary queries


def tag_names(tag_scheme: str) -> tuple[str, ...]:
    """Return the entity tags of a scheme, ``"io"`` or ``"bio"``; the first is ``"O"``."""
    if tag_scheme == "io":
        return ("O", *ENTITY_TYPES)
    return ("O", *(f"{prefix}-{entity}" for entity in ENTITY_TYPES for prefix in "BI"))


@dataclass(frozen=True)
class Composer:
    """Writes queries from a generator.

    Attributes
    ----------
    regional_semantics : float
        Share of queries with a regionally ambiguous element: a third of them has a word with two spellings, a third
        an ambiguous word, a third an ambiguous word in a trigger phrase.
    typo_rate : float
        Probability that a word is misspelt.
    tag_scheme : str
        ``"io"`` or ``"bio"``.
    """

    regional_semantics: float
    typo_rate: float
    tag_scheme: str

    def compose(self, category: str, intent: str, region: int, generator: np.random.Generator) -> Query:
        """Write a query of a user of a population.

        An ambiguous query says nothing about its category, since a category would betray the region.
        """
        chunks, variants = self._chunks(category, intent, region, generator)
        tokens, tags = self._tagged(chunks)
        typed = tuple(self._typed(token, variants, generator) for token in tokens)
        return Query(tokens, typed, intent, tags, category)

    def _chunks(
        self, category: str, intent: str, region: int, generator: np.random.Generator
    ) -> tuple[list[Chunk], Sequence[str]]:
        """Return the query as it should be, and the forms of the one word that has two."""
        if generator.random() >= self.regional_semantics:
            return _fill(_pick(templates.TEMPLATES[intent], generator), {}, category, generator), ()
        kind = generator.integers(3)
        if kind == 0:
            spelling = semantics.SPELLINGS[generator.integers(len(semantics.SPELLINGS))]
            return _spelling_chunks(spelling, intent, region, generator), spelling.forms
        if kind == 1:
            return _word_chunks(intent, region, generator), ()
        return _trigger_chunks(intent, region, generator), ()

    def _tagged(self, chunks: Sequence[Chunk]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        tokens: list[str] = []
        tags: list[str] = []
        for text, entity in chunks:
            words = text.split()
            tokens += words
            if self.tag_scheme == "io" or entity == "O":
                tags += [entity] * len(words)
            else:
                tags += [f"B-{entity}", *[f"I-{entity}"] * (len(words) - 1)]
        return tuple(tokens), tuple(tags)

    def _typed(self, token: str, variants: Sequence[str], generator: np.random.Generator) -> str:
        """Return the word as typed: either form of a word that has two, whatever the region, and maybe a mistake."""
        forms: Sequence[str] = variants if token in variants else (token,)
        typed = _pick(forms, generator)
        return misspell(typed, generator, avoid=forms) if generator.random() < self.typo_rate else typed


def _spelling_chunks(
    spelling: semantics.Spelling, intent: str, region: int, generator: np.random.Generator
) -> list[Chunk]:
    """Write a query with a word that has two spellings, in a context that tells the intent."""
    chunk = (spelling.correct(region), spelling.tag)
    frames = templates.FRAMES[intent]
    if spelling.tag == "PRODUCT":
        return _fill(_pick(frames, generator), {"x": chunk}, None, generator)
    thing = (_pick(vocabulary.GENERIC_PRODUCTS, generator), "PRODUCT")
    frame = _pick([frame for frame in frames if "{modifier}" in frame], generator)
    return _fill(frame, {"x": thing, "modifier": chunk}, None, generator)


def _word_chunks(intent: str, region: int, generator: np.random.Generator) -> list[Chunk]:
    """Write a query with an ambiguous word, whose sense tells the intent where the context does not."""
    for sense, bare_intent in templates.BARE_INTENT.items():
        if intent == bare_intent:
            words = semantics.words_with_sense(sense, region, ("BRAND", "PRODUCT"))
            return _fill(_pick(templates.BARE, generator), {"x": (_pick(words, generator), sense)}, None, generator)
    return _fill(_pick(templates.FRAMES[intent], generator), {"x": _any_word(region, generator)}, None, generator)


def _trigger_chunks(intent: str, region: int, generator: np.random.Generator) -> list[Chunk]:
    """Write a query with a trigger phrase for an ambiguous word."""
    phrase = _pick(semantics.triggers_of(intent, region), generator)
    template = phrase.replace("{x}", _pick(templates.TRIGGERED, generator))
    return _fill(template, {"x": _any_word(region, generator)}, None, generator)


def _any_word(region: int, generator: np.random.Generator) -> Chunk:
    word = _pick(tuple(semantics.AMBIGUOUS_WORDS), generator)
    return word, semantics.word_sense(word, region)


def _fill(
    template: str, given: Mapping[str, Chunk], category: str | None, generator: np.random.Generator
) -> list[Chunk]:
    """Fill a template's slots with the given chunks, or with random ones of the category."""
    chunks: list[Chunk] = []
    for word in template.split():
        slot = word.strip("{}")
        if slot == word:
            chunks.append((word, "O"))
        elif slot in given:
            chunks.append(given[slot])
        else:
            entity = "MODIFIER" if slot == "price" else slot.upper()
            chunks.append((_pick(_pool(slot, category, generator), generator), entity))
    return chunks


def _pool(slot: str, category: str | None, generator: np.random.Generator) -> Sequence[str]:
    if slot not in _SHELF_POOLS or category is None:
        return _COMMON_POOLS[slot]
    if slot == "product" and generator.random() < _GENERIC_SHARE:
        return vocabulary.GENERIC_PRODUCTS
    return _SHELF_POOLS[slot][category]


def _pick(pool: Sequence[str], generator: np.random.Generator) -> str:
    return pool[int(generator.integers(len(pool)))]
