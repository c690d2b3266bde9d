"""The personalization weight alpha_r from conflict (paper Eq. 6; centring: Table 16)."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

_RUNNING_DECAY = 0.9


@dataclass(frozen=True)
class Centre:
    """The centring threshold mu of the sigmoid and what it remembers.

    Attributes
    ----------
    mode : str
        ``shared-median``: the median of d_r over regions in the first round in which all are present, then frozen;
        ``per-region``: each region's own first d_r (the paper's text to the letter: every region starts at the
        midpoint and only change since then matters); ``running``: a moving average (decay 0.9) of the median;
        ``zero``.
    scale : float
        Factor on the threshold (the perturbations of Table 16).
    shared : float or None
        The shared threshold, None until it is calibrated.
    own : mapping of int to float
        Thresholds by region.
    """

    mode: str
    scale: float = 1.0
    shared: float | None = None
    own: Mapping[int, float] = field(default_factory=dict)

    def observe(self, distances: Mapping[int, float], num_regions: int) -> Centre:
        """Return the centre after a round in which the given regions had these distances d_r."""
        if not distances or self.mode == "zero":
            return self
        if self.mode == "per-region":
            return replace(self, own={**distances, **self.own})
        median = statistics.median(distances.values())
        if self.mode == "running":
            old = median if self.shared is None else self.shared
            return replace(self, shared=_RUNNING_DECAY * old + (1 - _RUNNING_DECAY) * median)
        if self.shared is None and len(distances) == num_regions:
            return replace(self, shared=median)
        return self

    def of(self, region: int, distances: Mapping[int, float]) -> float:
        """Return mu of a region; before calibration the median of the distances at hand stands in."""
        if self.mode == "zero":
            return 0.0
        if self.mode == "per-region":
            return self.scale * self.own[region]
        return self.scale * (statistics.median(distances.values()) if self.shared is None else self.shared)


def personalization_weight(distance: float, centre: float, alpha_min: float, tau: float) -> float:
    """Return alpha = alpha_min + (1 - alpha_min) * sigmoid((distance - centre) / tau), Eq. 6.

    It lies in [alpha_min, 1], grows with the distance, and is the midpoint at ``distance == centre``.
    """
    x = (distance - centre) / tau
    sigmoid = 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))
    return alpha_min + (1 - alpha_min) * sigmoid


def spread(distances: Mapping[int, float]) -> tuple[float, float]:
    """Return the median over regions and a robust standard deviation (1.4826 times the median absolute deviation).

    ``(d - median) / deviation`` is free of the scale that clipping and step size give to d_r (inconsistency of a
    fixed tau); the deviation is never 0.
    """
    median = statistics.median(distances.values())
    deviation = statistics.median(abs(d - median) for d in distances.values())
    return median, 1.4826 * deviation + 1e-12


def shrinkage_weight(distance: float, noise_variance: float, size: int) -> float:
    """Return the positive-part James-Stein factor: the share of an observed difference that is signal.

    Parameters
    ----------
    distance : float
        Norm of the observed difference of ``size`` coordinates.
    noise_variance : float
        Variance of the noise in each of its coordinates; 0 gives weight 1.
    size : int
        Number of coordinates; below 3 there is nothing to shrink by.
    """
    if noise_variance == 0 or size < 3:
        return 1.0
    return max(0.0, 1 - (size - 2) * noise_variance / distance**2) if distance > 0 else 0.0


def theory_weight(distance: float, adaptation_norm: float) -> float:
    """Return D^2 / (D^2 + 2 B^2), the paper's Eq. 27, with what can be observed: D = d_r and B the norm of theta_r.

    For grad with intensity rho this is 1 / (1 + 2 rho^2) for every region. It is the minimiser of a bound whose
    derivation does not hold; it is here to be compared.
    """
    total = distance**2 + 2 * adaptation_norm**2
    return distance**2 / total if total > 0 else 1.0
