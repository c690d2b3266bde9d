"""How far a regional model has moved the neighbourhoods of a shared set of inputs (paper K.1)."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn.functional import normalize

_SMALLEST = 1e-12  # floor of a probability under a logarithm


def neighbour_distribution(embeddings: Tensor, temperature: float | None = None) -> Tensor:
    """Return p_{i|j}, how probably input i is the neighbour of input j, from cosine distances (Eq. 29).

    The weights of Eq. 29 lie in [0, 2], so each row is close to uniform whatever the model; a temperature of about
    0.1 tells near from far.

    Parameters
    ----------
    embeddings : Tensor
        One per input, shape ``(N, d)``.
    temperature : float, optional
        Use softmax(-(d_ij - rho_j) / temperature) in place of Eq. 29.

    Returns
    -------
    Tensor
        Shape ``(N, N)``, float64. Row j holds p_{.|j} and sums to 1, with 0 on the diagonal; a single input has no
        neighbour and a row of 0.

    Raises
    ------
    ValueError
        For a temperature that is not positive.
    """
    if temperature is not None and not temperature > 0:
        raise ValueError(f"the temperature {temperature} is not positive")
    if len(embeddings) < 2:
        return embeddings.new_zeros(len(embeddings), len(embeddings), dtype=torch.float64)
    unit = normalize(embeddings.to(torch.float64), dim=1)
    distance = 1 - unit @ unit.T
    own = torch.eye(len(unit), dtype=torch.bool, device=unit.device)
    nearest = distance.masked_fill(own, torch.inf).amin(1, keepdim=True)
    beyond = distance - nearest
    if temperature is not None:
        return (-beyond / temperature).masked_fill(own, -torch.inf).softmax(1)
    weights = (2 - beyond).clamp(min=0).masked_fill(own, 0)
    return weights / weights.sum(1, keepdim=True)


def topology_loss(
    global_embeddings: Tensor,
    regional_embeddings: Tensor,
    kind: Literal["kl", "bce"] = "kl",
    temperature: float | None = None,
) -> Tensor:
    """Compare the neighbourhoods of N shared inputs under the global and a regional model.

    Parameters
    ----------
    global_embeddings, regional_embeddings : Tensor
        The same N inputs as both models' encoders see them, shapes ``(N, d)`` and ``(N, d')``. The global side is
        the reference and receives no gradient.
    kind : str
        ``kl``: sum over j of KL(P_j || Q_j), Eq. 32. ``bce``: Eq. 31, which adds the same for 1 - p and 1 - q.
    temperature : float, optional
        As for :func:`neighbour_distribution`.

    Returns
    -------
    Tensor
        The loss divided by N, so that its weight lambda does not depend on N; a float64 scalar, at least 0.

    Raises
    ------
    ValueError
        When the numbers of inputs differ, or for another kind.
    """
    if len(global_embeddings) != len(regional_embeddings):
        raise ValueError(f"{len(global_embeddings)} inputs cannot be compared with {len(regional_embeddings)}")
    if kind not in ("kl", "bce"):
        raise ValueError(f"the topology loss is 'kl' or 'bce', not '{kind}'")
    p = neighbour_distribution(global_embeddings.detach(), temperature)
    q = neighbour_distribution(regional_embeddings, temperature)
    total = _relative_entropy(p, q)
    if kind == "bce":
        total = total + _relative_entropy(1 - p, 1 - q)
    return total / max(len(p), 1)


def _relative_entropy(p: Tensor, q: Tensor) -> Tensor:
    """Return the sum of p ln(p / q), with 0 ln 0 = 0 and a floor under both logarithms."""
    return (p * (p.clamp(min=_SMALLEST).log() - q.clamp(min=_SMALLEST).log())).sum()
