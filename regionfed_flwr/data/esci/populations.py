"""Populations: which categories the users of a region prefer (paper, Table 5, equation 8 and appendix G)."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from regionfed_flwr.data.esci.vocabulary import CATEGORIES

_TABLE_5: dict[str, tuple[str, ...]] = {
    "Urban Tech": ("Electronics", "Gaming"),
    "Young Demo.": ("Fashion", "Apparel"),
    "High-Income": ("Fashion", "Electronics"),
    "Price-Conscious": ("Grocery", "Food"),
    "Active Lifestyle": ("Sports", "Fitness"),
    "Business Prof.": ("Apparel", "Books"),
    "Suburban": ("Home", "Garden"),
    "Premium Markets": ("Beauty", "Health"),
}


def population_names(count: int) -> tuple[str, ...]:
    """Return the names of the populations: those of Table 5 for eight, else a number and the first category."""
    if count == len(_TABLE_5):
        return tuple(_TABLE_5)
    return tuple(f"Region {i} {preferred[0]}" for i, preferred in enumerate(preferred_categories(count)))


def preferred_categories(count: int) -> tuple[tuple[str, ...], ...]:
    """Return each population's preferred categories.

    Eight populations have those of Table 5. Any other number M has k = 20 / M categories each, rounded and kept
    within 2 and 5 (five each for M = 4, two each for M = 16, as in appendix G). Population r takes k neighbours of
    the 24 categories from place r k on; once the list is used up, it starts again one place later and with wider
    steps, so that sets repeat only after more than a hundred populations.

    Parameters
    ----------
    count : int
        Number of populations M, at least 1.
    """
    if count == len(_TABLE_5):
        return tuple(_TABLE_5.values())
    size = min(5, max(2, round(20 / count)))
    sets = []
    for population in range(count):
        lap = population * size // len(CATEGORIES)
        start, step = population * size + lap, 1 + lap % 11
        sets.append(tuple(CATEGORIES[(start + j * step) % len(CATEGORIES)] for j in range(size)))
    return tuple(sets)


def category_probabilities(preferred: tuple[str, ...], bias: float) -> npt.NDArray[np.float64]:
    """Return P(category | region) of equation 8, in the order of ``CATEGORIES``.

    Parameters
    ----------
    preferred : tuple of str
        The region's preferred categories C_r.
    bias : float
        Probability of C_r as a whole (0.7 in the paper).

    Returns
    -------
    ndarray of float64, shape (24,)
    """
    inside = np.array([category in preferred for category in CATEGORIES])
    probabilities: npt.NDArray[np.float64] = np.where(inside, bias / inside.sum(), (1 - bias) / (~inside).sum())
    return probabilities
