"""Weighted sums of update directions in int64 fixed point.

Floating-point addition is not associative: a sum over users would depend on how they lie on nodes. A coordinate is
therefore written as ``round(weight * value * 2**36)``; integer sums have the same bits on 1, 2 or 200 nodes, and
secure aggregation wants integers anyway. A coordinate of a sum may reach 2**26, that is 67 million.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch
from torch import Tensor

SCALE = 2.0**36
_LIMIT = 2**62
_BLOCK = 1 << 16  # coordinates per step: the float64 intermediate stays in the cache


class FixedPointError(ValueError):
    """A vector that cannot be added: not finite, too large, or of another shape."""


class FixedPointSum:
    """The sum of ``weight * vector`` over users, shape ``(size,)``, int64.

    Attributes
    ----------
    total : Tensor
        The sum in units of 2**-36.
    weight : int
        Sum of the weights added so far.
    """

    def __init__(self, size: int) -> None:
        self.total = torch.zeros(size, dtype=torch.int64)
        self.weight = 0
        self._bound = 0.0

    def check(self, vector: Tensor, weight: int) -> float:
        """Return the bound on the sum's coordinates after adding ``weight * vector``.

        Raises
        ------
        FixedPointError
            When the vector has another shape, holds a value that is not finite, or would overflow the sum.
        """
        if vector.shape != self.total.shape:
            raise FixedPointError(f"it has shape {tuple(vector.shape)} instead of {tuple(self.total.shape)}")
        bound = self._bound + _largest(vector) * weight * SCALE
        if bound >= _LIMIT:
            raise FixedPointError(f"its largest coordinate times {weight} examples overflows the fixed-point sum")
        return bound

    def add(self, vector: Tensor, weight: int) -> None:
        """Add ``weight * vector`` in place; the sum is unchanged when :meth:`check` raises.

        Parameters
        ----------
        vector : Tensor
            Shape ``(size,)``, float32 on the CPU.
        weight : int
            Number of examples behind the vector, at least 0.
        """
        self.accumulate(vector, weight, self.check(vector, weight))

    def accumulate(self, vector: Tensor, weight: int, bound: float) -> None:
        """Add a vector whose ``bound`` :meth:`check` has returned."""
        buffer = torch.empty(min(_BLOCK, vector.numel()), dtype=torch.float64)
        for start in range(0, vector.numel() if weight else 0, _BLOCK):
            part = vector[start : start + _BLOCK]
            scaled = buffer[: part.numel()].copy_(part).mul_(weight * SCALE)  # the product in float64, not float32
            self.total[start : start + _BLOCK] += scaled.round_().to(torch.int64)
        self._bound = bound
        self.weight += weight


def add_totals(totals: Iterable[Tensor]) -> Tensor:
    """Add integer totals of several nodes, shape ``(size,)`` each.

    Raises
    ------
    FixedPointError
        When the sum could overflow.
    """
    parts = list(totals)
    if len(parts) == 1:
        return parts[0]
    bound = sum(max(-int(low), int(high)) for low, high in (torch.aminmax(p) for p in parts if p.numel()))
    if bound >= _LIMIT:
        raise FixedPointError("the nodes' partial sums overflow the fixed-point sum")
    result = parts[0].clone()
    for part in parts[1:]:
        result += part
    return result


def moved(start: Tensor, total: Tensor, weight: float, rate: float) -> Tensor:
    """Return ``start + rate * total / weight`` in float32, computed in float64, shape ``(size,)``."""
    result = torch.empty_like(start)
    for at in range(0, start.numel(), _BLOCK):
        part = slice(at, at + _BLOCK)
        result[part] = mean(total[part], weight).mul_(rate).add_(start[part])
    return result


def mean(total: Tensor, weight: float) -> Tensor:
    """Return ``total / weight`` in float64, shape ``(size,)``; zeros when the weight is 0."""
    if weight == 0:
        return torch.zeros(total.shape, dtype=torch.float64)
    return total.to(torch.float64).div_(weight * SCALE)


def _largest(vector: Tensor) -> float:
    """Return the largest absolute coordinate of a finite vector."""
    if vector.numel() == 0:
        return 0.0
    low, high = (float(x) for x in torch.aminmax(vector))
    if not (math.isfinite(low) and math.isfinite(high)):
        raise FixedPointError("it holds values that are not finite")
    return max(abs(low), abs(high))
