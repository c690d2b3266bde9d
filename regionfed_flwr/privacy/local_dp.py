"""Label histograms from randomized response: each user reports one label, perturbed on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from regionfed_flwr.errors import RegionFedError

Histogram = NDArray[np.float64]


def response_probabilities(num_categories: int, epsilon: float) -> tuple[float, float]:
    """Return the probability p of reporting the true label and q of each other one; p / q = exp(epsilon).

    Raises
    ------
    RegionFedError
        When epsilon is not a positive number, or there is no category.
    """
    if not 0 < epsilon < math.inf:
        raise RegionFedError(f"The epsilon of randomized response is {epsilon:g}, but must be a positive number.")
    if num_categories < 1:
        raise RegionFedError(f"Randomized response over {num_categories} categories is impossible; use 1 or more.")
    p = 1 / (1 + (num_categories - 1) * math.exp(-epsilon))
    return p, p * math.exp(-epsilon)


def randomize(label: int, num_categories: int, epsilon: float, generator: np.random.Generator) -> int:
    """Return a user's report of its label, which is epsilon-LDP for that one label.

    A user who reports n times has spent n epsilon. The guarantee needs a generator that nobody else can repeat; one
    derived from a run's public seed gives none.

    Raises
    ------
    ValueError
        When the label is not one of the categories.
    """
    if not 0 <= label < num_categories:
        raise ValueError(f"label {label} is not one of {num_categories} categories")
    p, _ = response_probabilities(num_categories, epsilon)
    if num_categories == 1 or generator.random() < p:
        return label
    other = int(generator.integers(num_categories - 1))
    return other + (other >= label)


def unbiased_histogram(counts: ArrayLike, epsilon: float) -> Histogram:
    """Return (c / n - q) / (p - q): unbiased for the labels' distribution, sums to 1, may have negative entries.

    Parameters
    ----------
    counts : array_like
        Reports of each category, shape ``(k,)``, with at least one report.
    epsilon : float
        Parameter with which the labels were randomized.

    Raises
    ------
    ValueError
        When there is no report.
    """
    reports = np.asarray(counts, dtype=np.float64)
    if not reports.sum() > 0:
        raise ValueError("no report to estimate a histogram from")
    p, q = response_probabilities(len(reports), epsilon)
    if len(reports) == 1:
        return np.ones(1)
    histogram: Histogram = (reports / reports.sum() - q) / (p - q)
    return histogram


def estimate_histogram(
    counts: ArrayLike, epsilon: float, smoothing: float = 1e-3, method: Literal["project", "clip"] = "project"
) -> Histogram:
    """Return an estimate of the labels' distribution that is a distribution.

    Parameters
    ----------
    counts : array_like
        Reports of each category, shape ``(k,)``; without any report the result is uniform.
    epsilon : float
        Parameter with which the labels were randomized.
    smoothing : float
        Added to each entry before the final normalisation, so that divergences stay finite.
    method : str
        ``project``: the nearest distribution in the Euclidean norm. ``clip``: negative entries to 0, then normalise,
        which pulls the estimate towards uniform.

    Returns
    -------
    ndarray
        Shape ``(k,)``, sum 1.
    """
    reports = np.asarray(counts, dtype=np.float64)
    if not reports.any():
        return np.full(len(reports), 1 / len(reports))
    raw = unbiased_histogram(reports, epsilon)
    inside = project_to_simplex(raw) if method == "project" else np.maximum(raw, 0)
    smoothed: Histogram = (inside / inside.sum() + smoothing) / (1 + smoothing * len(inside))
    return smoothed


def project_to_simplex(vector: Histogram) -> Histogram:
    """Return the distribution nearest to ``vector`` (shape ``(k,)``): max(v - t, 0), with t such that it sums to 1."""
    descending = np.sort(vector)[::-1]
    shifts = (np.cumsum(descending) - 1) / np.arange(1, len(vector) + 1)
    support = np.flatnonzero(descending > shifts)[-1]
    projected: Histogram = np.maximum(vector - shifts[support], 0)
    return projected


def kl_divergence(p: Sequence[float] | Histogram, q: Sequence[float] | Histogram) -> float:
    """Return KL(p || q) in nats; infinite where p has mass and q has none."""
    from scipy.special import rel_entr

    return float(rel_entr(np.asarray(p), np.asarray(q)).sum())
