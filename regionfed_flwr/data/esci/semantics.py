"""What depends on the region: senses of words, intents of phrases, spellings.

The paper's generator makes nothing depend on a region but the mix of categories, so no regional model could beat a
good global one. Here a share of the queries holds an element whose answer differs between regions and whose text
does not tell the region.

Elements come in units with two states. ``region_state`` gives each region its state by a Walsh function of the
region's number: among eight regions each unit is split four to four, and any two regions differ in about half of the
units. Nothing here depends on a seed.

Ambiguous words and trigger phrases come as twins in opposite states, so that every region has as many words with
the first sense as with the second, and as many triggers for each intent: how often a word is seen tells nothing about
its sense.
"""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

# Twins stand side by side: the two words of a unit have the same two senses, always opposite.
_WORDS: dict[tuple[str, str], str] = {
    ("BRAND", "PRODUCT"): (
        "apple bench, fossil coach, shell jaguar, puma penguin, target diamond, blackberry mango, dove camel, "
        "anchor lotus, crown vans, galaxy oasis, pilot kindle"
    ),
    ("BRAND", "MODIFIER"): "express sharp, champion supreme, polo guess",
    ("PRODUCT", "CATEGORY"): "tablet thongs, football chips, pants boots",
}

# Pairs of intents form a ring: every intent is in two units, so every region has two triggers for every intent.
_TRIGGERS: dict[tuple[str, str], tuple[str, str]] = {
    ("product_search", "price_comparison"): ("compare {x}", "get {x}"),
    ("price_comparison", "deal_hunting"): ("{x} deal", "{x} value"),
    ("deal_hunting", "availability_check"): ("grab {x}", "check {x}"),
    ("availability_check", "specific_item"): ("order {x}", "reserve {x}"),
    ("specific_item", "brand_lookup"): ("authentic {x}", "genuine {x}"),
    ("brand_lookup", "review_reading"): ("regarding {x}", "trusted {x}"),
    ("review_reading", "category_browse"): ("best {x}", "top {x}"),
    ("category_browse", "product_search"): ("show {x}", "explore {x}"),
}

_SPELLINGS: dict[str, str] = {
    "PRODUCT": (
        "jewellery jewelry, tyre tire, pyjamas pajamas, yoghurt yogurt, doughnut donut, organiser organizer, "
        "catalogue catalog, aeroplane airplane, moulding molding, plough plow, whisky whiskey, omelette omelet"
    ),
    "MODIFIER": (
        "grey gray, coloured colored, aluminium aluminum, cosy cozy, fibre fiber, favourite favorite, "
        "flavoured flavored, theatre theater, draught draft, personalised personalized"
    ),
}


@dataclass(frozen=True)
class Spelling:
    """A word with two correct forms; the region says which one is meant.

    Attributes
    ----------
    forms : tuple of str
        The two forms.
    tag : str
        PRODUCT or MODIFIER.
    unit : int
        See :func:`region_state`.
    """

    forms: tuple[str, str]
    tag: str
    unit: int

    def correct(self, region: int) -> str:
        """Return the region's form."""
        return self.forms[region_state(self.unit, region)]


@functools.cache
def region_state(unit: int, region: int) -> int:
    """Return the state, 0 or 1, of a unit in a region.

    The parity of the common bits of the region's number and the unit's code, turned over for every other seven units
    so that no region has all its units in one state. A code's low three bits are never all zero.
    """
    high_bits = int.from_bytes(hashlib.blake2b(b"unit %d" % unit, digest_size=4).digest(), "big")
    code = high_bits << 3 | (unit % 7 + 1)
    return ((code & region).bit_count() + unit // 7) & 1


def _twins(text: str) -> list[tuple[str, str]]:
    pairs = [pair.split() for pair in text.split(",")]
    return [(first, second) for first, second in pairs]


_word_units = [(senses, twins) for senses, text in _WORDS.items() for twins in _twins(text)]
_spelling_units = [(tag, forms) for tag, text in _SPELLINGS.items() for forms in _twins(text)]

AMBIGUOUS_WORDS: dict[str, tuple[str, str]] = {word: senses for senses, twins in _word_units for word in twins}
"""Words with two senses: the entity types they may have."""

TRIGGERS: dict[str, tuple[str, str]] = {phrase: intents for intents, twins in _TRIGGERS.items() for phrase in twins}
"""Phrases with two intents."""

_UNIT_OF: dict[str, tuple[int, int]] = {
    text: (unit, side)
    for unit, twins in enumerate([*(twins for _, twins in _word_units), *_TRIGGERS.values()])
    for side, text in enumerate(twins)
}

SPELLINGS: tuple[Spelling, ...] = tuple(
    Spelling(forms, tag, unit) for unit, (tag, forms) in enumerate(_spelling_units, len(_word_units) + len(_TRIGGERS))
)
"""Words with two correct forms."""


def _state(text: str, region: int) -> int:
    unit, side = _UNIT_OF[text]
    return region_state(unit, region) ^ side


def word_sense(word: str, region: int) -> str:
    """Return the entity type of an ambiguous word in a region."""
    return AMBIGUOUS_WORDS[word][_state(word, region)]


def trigger_intent(phrase: str, region: int) -> str:
    """Return the intent of a trigger phrase in a region."""
    return TRIGGERS[phrase][_state(phrase, region)]


def words_with_sense(sense: str, region: int, senses: tuple[str, str]) -> tuple[str, ...]:
    """Return the words of one pair of senses that have the given sense in a region: half of them, in every region."""
    return tuple(w for w, both in AMBIGUOUS_WORDS.items() if both == senses and word_sense(w, region) == sense)


def triggers_of(intent: str, region: int) -> tuple[str, ...]:
    """Return the trigger phrases of an intent in a region: two, in every region."""
    return tuple(phrase for phrase in TRIGGERS if trigger_intent(phrase, region) == intent)
