"""The ESCI-like benchmark of shopping queries (paper, appendix B.1)."""

from regionfed_flwr.data.esci.benchmark import EsciFederation, EsciSpec, lexicon, neutral_queries
from regionfed_flwr.data.esci.composer import ENTITY_TYPES, tag_names
from regionfed_flwr.data.esci.populations import category_probabilities, population_names, preferred_categories
from regionfed_flwr.data.esci.templates import INTENTS
from regionfed_flwr.data.esci.vocabulary import CATEGORIES

__all__ = [
    "CATEGORIES",
    "ENTITY_TYPES",
    "INTENTS",
    "EsciFederation",
    "EsciSpec",
    "category_probabilities",
    "lexicon",
    "neutral_queries",
    "population_names",
    "preferred_categories",
    "tag_names",
]
