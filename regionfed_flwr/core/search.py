"""Searches for the adaptation intensity rho on an interval (paper K.2, Algorithm 3).

The objective J is measured by users, so a search is an object that is asked for points and told their values; one
``ask`` and ``tell`` is one exchange with the users.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from regionfed_flwr.errors import RegionFedError

PHI = (math.sqrt(5) - 1) / 2
DIAGNOSTIC_GRID = tuple(k / 20 for k in range(41))  # step 0.05 on [0, 2], K.2
_FINEST = 1e-6  # narrower brackets would compare rounding errors


@dataclass(frozen=True)
class SearchResult:
    """What a search found.

    Attributes
    ----------
    rho : float
        The chosen point.
    value : float or None
        J(rho) as measured; None for the paper's literal form, which returns a midpoint that nobody measured.
    at_boundary : str
        ``low`` or ``high`` when rho lies within the tolerance of (or beyond) that end of the interval, else ``none``.
    exchanges : int
        Round trips to the users.
    evaluations : int
        Points measured, J(0) included.
    baseline : float or None
        J(0); None for the literal form.
    """

    rho: float
    value: float | None
    at_boundary: Literal["none", "low", "high"]
    exchanges: int
    evaluations: int
    baseline: float | None


class Search(ABC):
    """A bracket that shrinks with every exchange; values that are not finite count as the worst.

    Parameters
    ----------
    low, high : float
        Ends of the interval.
    tolerance : float
        Width of the bracket at which the search ends.

    Raises
    ------
    RegionFedError
        For an empty interval, or a tolerance below a millionth of it.
    """

    def __init__(self, low: float, high: float, tolerance: float) -> None:
        if not (-math.inf < low < high < math.inf):
            raise RegionFedError(f"The search interval [{low:g}, {high:g}] must have finite ends, the lower one first.")
        if not _FINEST * (high - low) <= tolerance < math.inf:
            raise RegionFedError(
                f"The search tolerance {tolerance:g} must be at least {_FINEST * (high - low):g}, a millionth of the "
                "interval."
            )
        self._low, self._high, self._tolerance = low, high, tolerance
        self._left, self._right = low, high
        self._measured: dict[float, float] = {}
        self._pending: tuple[float, ...] = ()
        self._exchanges = 0

    @property
    def done(self) -> bool:
        """Whether no point is left to measure."""
        return not self._pending

    def ask(self) -> tuple[float, ...]:
        """Return the points to measure in this exchange; empty when the search is done."""
        return self._pending

    def tell(self, values: Sequence[float]) -> None:
        """Take J at the points of the last :meth:`ask`, in their order.

        Raises
        ------
        ValueError
            When there are not as many values as points.
        """
        if len(values) != len(self._pending) or self.done:
            raise ValueError(f"{len(values)} values do not fit the {len(self._pending)} points asked for")
        finite = (float(v) if math.isfinite(v) else math.inf for v in values)
        self._measured.update(zip(self._pending, finite, strict=True))
        self._exchanges += 1
        self._request(self._narrow())

    def result(self) -> SearchResult:
        """Return the best point measured; rho = 0 unless another point is strictly better.

        Raises
        ------
        ValueError
            While points are still to be measured.
        """
        if not self.done:
            raise ValueError("the search is not done")
        rho, value = min(self._measured.items(), key=lambda item: (item[1], abs(item[0])))
        return self._summary(rho, value, self._measured[0.0])

    @abstractmethod
    def _narrow(self) -> Iterable[float]:
        """Shrink the bracket by the values at hand and return the points to measure next."""

    def _request(self, points: Iterable[float]) -> None:
        self._pending = tuple(x for x in dict.fromkeys(points) if x not in self._measured)

    def _wide(self) -> bool:
        return self._right - self._left > self._tolerance

    def _summary(self, rho: float, value: float | None, baseline: float | None) -> SearchResult:
        end: Literal["none", "low", "high"] = "none"
        if rho - self._low <= self._tolerance:
            end = "low"
        elif self._high - rho <= self._tolerance:
            end = "high"
        return SearchResult(rho, value, end, self._exchanges, len(self._measured), baseline)


class GoldenSection(Search):
    """Golden section search, Algorithm 3, with one new point per exchange.

    Algorithm 3 ends with a point that no decision reads and returns a midpoint that nobody measured. Here the last
    point *is* that midpoint, at the same cost, so that what is compared with J(0) has been measured.

    Parameters
    ----------
    low, high, tolerance : float
        As for :class:`Search`. On [0, 2] a tolerance of 0.01 takes 12 iterations: 14 points, J(0) besides.
    literal : bool
        Follow Algorithm 3 to the letter: no J(0), and the midpoint of the last bracket is returned. On an increasing
        J with tolerance 0.1 on [0, 2] this is the 7th power of the golden ratio's conjugate, 0.0344, the value that
        the paper reports for every region.
    """

    def __init__(self, low: float, high: float, tolerance: float, *, literal: bool = False) -> None:
        super().__init__(low, high, tolerance)
        self._literal = literal
        self._c = high - PHI * (high - low)
        self._d = low + PHI * (high - low)
        self._request((self._c, self._d) if literal else (0.0, self._c, self._d))

    def _narrow(self) -> Iterable[float]:
        if not self._wide():
            return ()
        f_c, f_d = self._measured[self._c], self._measured[self._d]
        if f_c < f_d or (f_c == f_d and not self._literal):  # a tie, e.g. two overflows: prefer to adapt less
            self._right, self._d = self._d, self._c
            self._c = new = self._right - PHI * (self._right - self._left)
        else:
            self._left, self._c = self._c, self._d
            self._d = new = self._left + PHI * (self._right - self._left)
        return (new if self._literal or self._wide() else self._middle(),)

    def result(self) -> SearchResult:
        """Return the best point measured, or, in the literal form, the last bracket's midpoint."""
        if self._literal and self.done:
            return self._summary(self._middle(), None, None)
        return super().result()

    def _middle(self) -> float:
        return (self._left + self._right) / 2


class KSection(Search):
    """Search with several equally spaced interior points per exchange, for when round trips are dear.

    Parameters
    ----------
    low, high, tolerance : float
        As for :class:`Search`. On [0, 2] five points reach a tolerance of 0.01 in 5 exchanges (width 0.0082).
    points : int
        Interior points per exchange, at least 2; the bracket shrinks to ``2 / (points + 1)`` of its width. An odd
        number is the better choice: the best point is the next bracket's middle and is not measured again.

    Raises
    ------
    RegionFedError
        Also for fewer than 2 points.
    """

    def __init__(self, low: float, high: float, tolerance: float, points: int = 5) -> None:
        super().__init__(low, high, tolerance)
        if points < 2:
            raise RegionFedError(
                f"A search with {points} points per exchange cannot narrow its bracket; use 2 or more."
            )
        self._points = points
        self._grid = self._spread()
        self._request((0.0, *self._grid))

    def _narrow(self) -> Iterable[float]:
        edges = [self._left, *self._grid, self._right]
        best = min(range(1, len(edges) - 1), key=lambda i: self._measured[edges[i]])
        self._left, self._right = edges[best - 1], edges[best + 1]
        if not self._wide():
            return ()
        self._grid = self._spread()
        if self._points % 2:
            self._grid[self._points // 2] = edges[best]  # equal but for rounding
        return self._grid

    def _spread(self) -> list[float]:
        step = (self._right - self._left) / (self._points + 1)
        return [self._left + k * step for k in range(1, self._points + 1)]


def minimise(search: Search, function: Callable[[float], float]) -> SearchResult:
    """Run a search to its end on a function that can be called here."""
    while not search.done:
        search.tell([function(x) for x in search.ask()])
    return search.result()


def local_minima(values: Sequence[float]) -> int:
    """Count the strict local minima of J on a grid, ends included; a flat valley is one, a non-finite one none."""
    heights = [v if math.isfinite(v) else math.inf for v in values]
    runs = [v for i, v in enumerate(heights) if i == 0 or v != heights[i - 1]]
    walled = [math.inf, *runs, math.inf]
    return sum(walled[i - 1] > walled[i] < walled[i + 1] for i in range(1, len(walled) - 1))


def is_unimodal(values: Sequence[float]) -> bool:
    """Return whether J has exactly one local minimum on a grid, e.g. :data:`DIAGNOSTIC_GRID` (K.2)."""
    return local_minima(values) == 1
