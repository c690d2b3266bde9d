"""The ESCI-like federation: populations of users with their own queries (paper, appendix B.1)."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from regionfed_flwr.config import RunConfig, parse_config
from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.base import Query, UserSplits
from regionfed_flwr.data.esci import semantics, templates, vocabulary
from regionfed_flwr.data.esci.composer import Composer
from regionfed_flwr.data.esci.populations import category_probabilities, population_names, preferred_categories
from regionfed_flwr.data.esci.templates import INTENTS
from regionfed_flwr.data.esci.vocabulary import CATEGORIES
from regionfed_flwr.data.regions import assign_regions
from regionfed_flwr.errors import RegionFedError

if TYPE_CHECKING:
    import datasets


@dataclass(frozen=True)
class EsciSpec:
    """What the benchmark is made of; the defaults are the paper's size (20,000 samples).

    The fields are the keys of the same names in :class:`regionfed_flwr.config.RunConfig`. With
    ``regional_semantics = 0`` it is the paper's generator: nothing but the mix of categories depends on the region.

    Raises
    ------
    RegionFedError
        If a field is not what the run configuration allows for its key.
    """

    seed: int = 0
    regions: int = 8
    users_per_region: int = 10
    samples_per_user: int = 250
    validation_fraction: float = 0.15
    test_fraction: float = 0.25
    dirichlet_alpha: float = 0.3
    category_bias: float = 0.7
    regional_semantics: float = 0.3
    typo_rate: float = 0.15
    tag_scheme: str = "io"
    region_scheme: str = "semantic"

    def __post_init__(self) -> None:
        parse_config({}, **dataclasses.asdict(self))

    @classmethod
    def from_config(cls, config: RunConfig) -> EsciSpec:
        """Take the fields from a run configuration."""
        return cls(**{field.name: getattr(config, field.name) for field in dataclasses.fields(cls)})


class EsciFederation:
    """Users of several populations, each with queries of its own.

    User u belongs to population u // users_per_region. Its queries depend on the specification, the population and
    u, and are written anew at each call, so that nothing but the specification is kept in memory.

    Parameters
    ----------
    spec : EsciSpec
    """

    def __init__(self, spec: EsciSpec) -> None:
        self.spec = spec
        self.home_of = tuple(np.repeat(np.arange(spec.regions), spec.users_per_region).tolist())
        """Population of each user; its region, too, under the semantic scheme."""
        self._region_of = assign_regions(
            spec.region_scheme, self.home_of, None, spec.regions, numpy_generator(spec.seed, "esci regions")
        )
        self._preferred = preferred_categories(spec.regions)
        self._composer = Composer(spec.regional_semantics, spec.typo_rate, spec.tag_scheme)

    @property
    def region_names(self) -> tuple[str, ...]:
        """Names of the populations under the semantic scheme, else the scheme's name and a number."""
        scheme = self.spec.region_scheme
        if scheme == "semantic":
            return population_names(self.spec.regions)
        return tuple(f"{scheme.capitalize()} {i}" for i in range(self.spec.regions))

    @property
    def region_of(self) -> tuple[int, ...]:
        """Region of each user under the specification's scheme."""
        return self._region_of

    @property
    def classes(self) -> tuple[str, ...]:
        """The eight intents."""
        return INTENTS

    def user(self, user: int) -> UserSplits[Query]:
        """Return the user's queries; the parts' sizes are the fractions of all, rounded.

        Raises
        ------
        RegionFedError
            If there is no such user.
        """
        queries = self._queries(user)
        validation = round(len(queries) * self.spec.validation_fraction)
        train = len(queries) - validation - round(len(queries) * self.spec.test_fraction)
        return UserSplits(queries[:train], queries[train : train + validation], queries[train + validation :])

    def intent_distribution(self, user: int) -> npt.NDArray[np.float64]:
        """Return the shares of the intents in all the user's queries, shape (8,)."""
        return _shares([INTENTS.index(query.intent) for query in self._queries(user)], len(INTENTS))

    def category_distribution(self, user: int) -> npt.NDArray[np.float64]:
        """Return the shares of the categories in all the user's queries, shape (24,)."""
        return _shares([CATEGORIES.index(query.category) for query in self._queries(user)], len(CATEGORIES))

    def to_dataset(self) -> datasets.Dataset:
        """Return all users' queries in one table: query, typed, intent, tags, category, user and region."""
        import datasets

        rows = [
            {
                "query": " ".join(query.tokens),
                "typed": " ".join(query.typed),
                "intent": query.intent,
                "tags": list(query.tags),
                "category": query.category,
                "user": user,
                "region": region,
            }
            for user, region in enumerate(self.region_of)
            for query in self._queries(user)
        ]
        return datasets.Dataset.from_list(rows)

    def _queries(self, user: int) -> tuple[Query, ...]:
        if not 0 <= user < len(self.home_of):
            raise RegionFedError(f"The federation has no user {user}; its users are 0 to {len(self.home_of) - 1}.")
        spec, home = self.spec, self.home_of[user]
        generator = numpy_generator(spec.seed, "esci queries", user)
        tastes = category_probabilities(self._preferred[home], spec.category_bias)
        habits = generator.dirichlet(np.full(len(INTENTS), spec.dirichlet_alpha))
        return _compose(self._composer, tastes, habits, home, spec.samples_per_user, generator)


def neutral_queries(
    count: int, generator: np.random.Generator, *, typo_rate: float = 0.15, tag_scheme: str = "io"
) -> list[Query]:
    """Return queries that mean the same everywhere, with all categories and intents equally likely.

    They are public text to start a model from, and hold no ambiguous word and no word with two spellings.

    Parameters
    ----------
    count : int
    generator : numpy.random.Generator
    typo_rate : float
        Probability that a word is misspelt.
    tag_scheme : str
        ``"io"`` or ``"bio"``.
    """
    composer = Composer(0.0, typo_rate, tag_scheme)
    categories, intents = (np.full(len(names), 1 / len(names)) for names in (CATEGORIES, INTENTS))
    return list(_compose(composer, categories, intents, 0, count, generator))


def lexicon() -> tuple[str, ...]:
    """Return all words that correctly spelt queries can hold, sorted."""
    pools = [
        *vocabulary.CATEGORY_NAMES.values(),
        *vocabulary.PRODUCTS.values(),
        *vocabulary.BRANDS.values(),
        vocabulary.GENERIC_PRODUCTS,
        vocabulary.MODIFIERS,
        vocabulary.PRICE_MODIFIERS,
        vocabulary.LOCATIONS,
        semantics.AMBIGUOUS_WORDS,
        [phrase.replace("{x}", "") for phrase in semantics.TRIGGERS],
        *(spelling.forms for spelling in semantics.SPELLINGS),
        templates.literals(),
    ]
    return tuple(sorted({word for pool in pools for phrase in pool for word in phrase.split()}))


def _compose(
    composer: Composer,
    categories: npt.NDArray[np.float64],
    intents: npt.NDArray[np.float64],
    home: int,
    count: int,
    generator: np.random.Generator,
) -> tuple[Query, ...]:
    drawn_categories = generator.choice(len(CATEGORIES), size=count, p=categories)
    drawn_intents = generator.choice(len(INTENTS), size=count, p=intents)
    return tuple(
        composer.compose(CATEGORIES[c], INTENTS[i], home, generator)
        for c, i in zip(drawn_categories, drawn_intents, strict=True)
    )


def _shares(values: list[int], kinds: int) -> npt.NDArray[np.float64]:
    return np.bincount(values, minlength=kinds) / len(values)
