"""The small interface between a model and the federation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from torch import Tensor, nn

from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.core.param_space import FlatModule

Rows = dict[str, Tensor]
"""Encoded samples: tensors that share their first dimension, the rows."""


class Learner(Protocol):
    """A model that can be trained on encoded samples and judged on them.

    One learner serves all users of a process in turn: the caller writes a parameter vector into ``flat`` and then
    trains or evaluates.
    """

    module: nn.Module
    flat: FlatModule
    tasks: tuple[str, ...]

    def encode(self, samples: Sequence[Any]) -> Rows:
        """Turn samples into rows, once; an empty sequence gives rows of length 0."""
        ...

    def loss(self, rows: Rows) -> Tensor:
        """Return the task-weighted mean loss of a batch of at least one row (a scalar with a graph)."""
        ...

    def evaluate(self, rows: Rows) -> Counts:
        """Return sums and counts over the rows (see :mod:`regionfed_flwr.core.metrics`), without a graph."""
        ...
