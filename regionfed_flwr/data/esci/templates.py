"""Intents and the templates of their queries (paper, appendices B.1.4 and B.1.6).

A template is a row of words and slots: ``{product}``, ``{brand}``, ``{category}``, ``{modifier}``, ``{price}`` (a
modifier about money) and ``{location}``. ``{x}`` stands for the thing that is asked for, whatever its entity type.
"""

from __future__ import annotations

HEADS = ("{product}", "{brand}", "{category}")
"""Slots that name the thing that is asked for."""

BARE: tuple[str, ...] = (
    "{x}",
    "find {x}",
    "search {x}",
    "{x} {location}",
    "{modifier} {x}",
    "find {modifier} {x} {location}",
)
"""Contexts in which only the thing itself tells a brand lookup from a product search."""

_OWN: dict[str, tuple[str, ...]] = {
    "product_search": (
        "looking for {product}",
        "i need {modifier} {product}",
        "buy {product} {location}",
        "{product} by {brand}",
    ),
    "price_comparison": (
        "how much is {product}",
        "{price} {product}",
        "price of {brand} {product}",
        "{product} cost {location}",
        "what does {modifier} {product} cost",
        "{product} prices",
    ),
    "brand_lookup": (
        "{brand} official store",
        "who makes {brand}",
        "all {brand} products",
        "{brand} {category} line",
        "{modifier} range from {brand}",
    ),
    "category_browse": (
        "browse {category}",
        "all kinds of {category}",
        "{category} section",
        "{category} department {location}",
        "what is trending among {category}",
        "browse {modifier} {category} ideas",
    ),
    "specific_item": (
        "{brand} {modifier} {product}",
        "{brand} {product} model",
        "exact {product}",
        "exact {modifier} {product} model",
        "same {product} again",
        "that {modifier} {product} {location}",
    ),
    "deal_hunting": (
        "{product} on sale",
        "{product} discount {location}",
        "coupon for {brand} {product}",
        "{category} clearance",
        "bargain {modifier} {product}",
        "promo code {brand}",
        "half price {product}",
    ),
    "review_reading": (
        "{product} reviews",
        "is {brand} {product} any good",
        "reviews of {modifier} {product}",
        "{product} ratings",
        "opinions on {brand}",
        "what do people say of {product}",
    ),
    "availability_check": (
        "is {product} in stock",
        "{brand} {product} available {location}",
        "when is {product} back",
        "{modifier} {product} in stock {location}",
        "do you have {product}",
        "{category} availability",
    ),
}

INTENTS: tuple[str, ...] = tuple(_OWN)
"""The eight intents."""

BARE_INTENT = {"PRODUCT": "product_search", "BRAND": "brand_lookup"}
"""Intent of a bare context by the entity type of the thing."""

TEMPLATES: dict[str, tuple[str, ...]] = dict(_OWN)
for _tag, _intent in BARE_INTENT.items():
    TEMPLATES[_intent] += tuple(bare.replace("{x}", f"{{{_tag.lower()}}}") for bare in BARE)
"""All templates of each intent."""


def _frame(template: str) -> str | None:
    """Return a template with its only head as ``{x}``, or None if it has none or several."""
    heads = [word for word in template.split() if word in HEADS]
    return template.replace(heads[0], "{x}") if len(heads) == 1 else None


FRAMES: dict[str, tuple[str, ...]] = {
    intent: tuple(frame for frame in map(_frame, templates) if frame) for intent, templates in _OWN.items()
}
"""Contexts whose own words tell the intent, whatever is asked for."""

TRIGGERED: tuple[str, ...] = ("{x}", "{modifier} {x}", "{x} {location}")
"""What a trigger phrase may be about."""


def literals() -> set[str]:
    """Return the words of all templates that are not slots."""
    words = {word for templates in TEMPLATES.values() for template in templates for word in template.split()}
    return {word for word in words if not word.startswith("{")}
