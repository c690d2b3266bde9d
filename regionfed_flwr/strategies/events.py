"""What a strategy tells its callbacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from torch import Tensor


@dataclass(frozen=True)
class RoundRecord:
    """One round's line in the log. Round 0 is the start, before any training.

    Attributes
    ----------
    round : int
    seconds : float
        Training and evaluation together.
    bytes_down, bytes_up : int
        Bytes of arrays sent to and received from all nodes.
    users, rejected : int
        Users whose update was used, and those left out.
    train_loss : float or None
        Mean over users of the mean loss of their local steps.
    regions : dict
        Region name to its numbers: conflict, alpha, rho and so on.
    evaluation : dict or None
        Model name (shared, regional) to scores, with ``per_region`` inside.
    """

    round: int
    seconds: float
    bytes_down: int
    bytes_up: int
    users: int
    rejected: int
    train_loss: float | None
    regions: dict[str, dict[str, float]]
    evaluation: dict[str, Any] | None


@dataclass(frozen=True)
class Judgement:
    """Which models users judge and what they need to build them.

    Attributes
    ----------
    models : tuple of str
        Names that the method's client half can build: shared, regional, personal and so on.
    vectors : mapping of str to Tensor
        ``<name>`` for all users or ``<name>/<region>`` for a region's, besides theta.
    numbers : mapping of str to sequence of float
        Likewise.
    measure : str
        ``scores`` (task metrics and loss) or ``loss`` (forward passes only).
    """

    models: tuple[str, ...]
    vectors: Mapping[str, Tensor] = field(default_factory=dict)
    numbers: Mapping[str, Sequence[float]] = field(default_factory=dict)
    measure: str = "scores"


class Callback(Protocol):
    """Something that follows a run."""

    def on_phase(self, event: str, server_round: int, rounds: int, text: str) -> None:
        """Take note of ``train``, ``evaluate`` or ``rejected`` in a round."""
        ...

    def on_round(self, record: RoundRecord, strategy: Any) -> None:
        """Take note of a finished round."""
        ...
