"""Adaptation directions and how they are attached to the shared model (paper section 3.3, Eq. 4).

Everything is a direction: what is added to the parameters.
"""

from __future__ import annotations

from torch import Tensor


def grad_direction(regional: Tensor, mean: Tensor) -> Tensor:
    """Return u_r - u_bar: what the region would do beyond what all do."""
    return regional - mean


def signed(direction: Tensor, strategy: str, sign: str) -> Tensor:
    """Return the direction, turned round where the paper's printed sign ascends.

    The paper adds ``g_r - g`` and ``grad L_r`` with g a gradient while its server subtracts g: for grad and meta its
    sign is the opposite of descent. Interp is a difference of parameters and has the right sign in print.
    """
    return -direction if sign == "paper" and strategy in ("grad", "meta") else direction


def smoothed(previous: Tensor | None, direction: Tensor, decay: float) -> Tensor:
    """Return ``decay * previous + (1 - decay) * direction``; the direction itself where there is no previous one."""
    return direction if previous is None or decay == 0 else decay * previous + (1 - decay) * direction


def compose(theta: Tensor, intensity: float, direction: Tensor) -> Tensor:
    """Return theta + intensity * direction (Eq. 4), the same bits on the server and on every node."""
    return theta + intensity * direction
