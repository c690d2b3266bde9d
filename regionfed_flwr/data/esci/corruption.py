"""Spelling mistakes (paper, appendix B.1.1): substitution 60 %, deletion 20 %, insertion 20 %."""

from __future__ import annotations

import string
from collections.abc import Collection

import numpy as np

_LETTERS = string.ascii_lowercase
SUBSTITUTION, DELETION = 0.6, 0.2


def misspell(word: str, generator: np.random.Generator, avoid: Collection[str] = ()) -> str:
    """Return the word with one letter changed, left out or put in.

    Parameters
    ----------
    word : str
        At least one letter, a to z.
    generator : numpy.random.Generator
    avoid : collection of str
        Words that must not come out either.

    Returns
    -------
    str
        Never empty, never ``word`` itself. A deletion in a word of one letter becomes a substitution.
    """
    while True:
        wrong = _edit(word, generator)
        if wrong not in avoid:
            return wrong


def _edit(word: str, generator: np.random.Generator) -> str:
    kind = generator.random()
    if kind >= SUBSTITUTION + DELETION:
        place = int(generator.integers(len(word) + 1))
        return word[:place] + _LETTERS[generator.integers(26)] + word[place:]
    place = int(generator.integers(len(word)))
    if kind >= SUBSTITUTION and len(word) > 1:
        return word[:place] + word[place + 1 :]
    others = _LETTERS.replace(word[place], "")
    return word[:place] + others[generator.integers(len(others))] + word[place + 1 :]
