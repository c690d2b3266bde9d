"""Voting over the models of several strategies (paper Eq. 17)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def vote(probabilities: Tensor, accuracies: Sequence[float]) -> Tensor:
    """Average the strategies' predictions, weighted by validation accuracy.

    Parameters
    ----------
    probabilities : Tensor
        P_s(y | x), shape ``(S, ..., classes)``.
    accuracies : sequence of float
        Validation accuracy of each of the S strategies; all zero means equal weights.

    Returns
    -------
    Tensor
        Shape ``(..., classes)``; the predicted class is its argmax.

    Raises
    ------
    ValueError
        When the accuracies are not S finite numbers of at least 0.
    """
    if len(accuracies) != len(probabilities) or not all(0 <= a < math.inf for a in accuracies):
        raise ValueError(f"{list(accuracies)} are not the accuracies of {len(probabilities)} strategies")
    weights = torch.tensor(list(accuracies), dtype=probabilities.dtype, device=probabilities.device)
    if not weights.any():
        weights = torch.ones_like(weights)
    return (probabilities.movedim(0, -1) * (weights / weights.sum())).sum(-1)
