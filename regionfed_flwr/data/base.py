"""What every federated benchmark offers to the rest of the package."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

Sample = TypeVar("Sample", covariant=True)


@dataclass(frozen=True)
class Query:
    """A search query with the answers of the three tasks.

    Attributes
    ----------
    tokens : tuple of str
        The query as it should be spelt, lower case, one word each.
    typed : tuple of str
        The query as the user typed it; the same number of words.
    intent : str
        One of the eight intents.
    tags : tuple of str
        One entity tag for each word.
    category : str
        Product category of the query.
    """

    tokens: tuple[str, ...]
    typed: tuple[str, ...]
    intent: str
    tags: tuple[str, ...]
    category: str


@dataclass(frozen=True)
class Glyph:
    """A character image.

    Attributes
    ----------
    image : ndarray of uint8, shape (28, 28)
        White (255) on black (0).
    label : int
        Index into the data set's classes.
    """

    image: npt.NDArray[np.uint8]
    label: int


def label_of(sample: Query | Glyph, classes: tuple[str, ...]) -> int:
    """Return a sample's class: the place of its intent among the classes, or its character."""
    return classes.index(sample.intent) if isinstance(sample, Query) else sample.label


@dataclass(frozen=True)
class UserSplits(Generic[Sample]):
    """One user's private samples. Any part may be empty."""

    train: Sequence[Sample]
    validation: Sequence[Sample]
    test: Sequence[Sample]


class Federation(Protocol[Sample]):
    """Users, their regions and their private data.

    A user's samples depend only on the configuration and the user's number, never on the other users that are
    asked for: a node builds the users it hosts and nothing else.
    """

    @property
    def region_names(self) -> tuple[str, ...]:
        """Name of each region; its length is the number of regions."""
        ...

    @property
    def region_of(self) -> tuple[int, ...]:
        """Region of each user; its length is the number of users."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """Labels whose distribution tells users apart: intents, or characters."""
        ...

    def user(self, user: int) -> UserSplits[Sample]:
        """Return the samples of one user."""
        ...
