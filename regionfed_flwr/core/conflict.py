"""Conflict between regional update directions and their mean (paper Eq. 6, section 3.2)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

_BLOCK = 1 << 16  # coordinates per step, so that M regions never need M further copies


@dataclass(frozen=True)
class Conflict:
    """How M regional directions disagree.

    Attributes
    ----------
    distance : Tensor
        d_r, the L2 norm of u_r minus the weighted mean direction, shape ``(M,)``, float64.
    gram : Tensor
        Inner products of the directions, shape ``(M, M)``, float64.
    weights : Tensor
        Weights p_r of the mean, shape ``(M,)``, float64, sum 1.
    """

    distance: Tensor
    gram: Tensor
    weights: Tensor

    @property
    def norm(self) -> Tensor:
        """L2 norm of each direction, shape ``(M,)``."""
        return self.gram.diagonal().clamp(min=0).sqrt()

    @property
    def cosine(self) -> Tensor:
        """Cosine of each direction with the mean, shape ``(M,)``; 0 where one of them is zero."""
        mean_norm = (self.weights @ self.gram @ self.weights).clamp(min=0).sqrt()
        scale = self.norm * mean_norm
        inner = self.gram @ self.weights
        return torch.where(scale > 0, inner / scale.clamp(min=1e-300), torch.zeros_like(inner)).clamp(-1, 1)


def measure_conflict(directions: Sequence[Tensor], weights: Sequence[float]) -> Conflict:
    """Compare M directions with their weighted mean in O(M d) memory traffic and no copy of the directions.

    Parameters
    ----------
    directions : sequence of Tensor
        One update direction per region, shape ``(d,)`` each.
    weights : sequence of float
        Their weights in the mean; normalised here.

    Returns
    -------
    Conflict
    """
    p = torch.tensor(list(weights), dtype=torch.float64)
    p = p / p.sum()
    count = len(directions)
    square = torch.zeros(count, dtype=torch.float64)
    gram = torch.zeros(count, count, dtype=torch.float64)
    for start in range(0, directions[0].numel(), _BLOCK):
        block = torch.stack([u[start : start + _BLOCK].to(torch.float64) for u in directions])
        gram += block @ block.T
        block -= (p[:, None] * block).sum(0)
        square += block.square().sum(1)
    return Conflict(square.sqrt(), gram, p)
