"""Replies of other people's nodes: how they are checked, and the arrays in them."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from logging import WARNING
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
from flwr.common.logger import log
from torch import Tensor

from regionfed_flwr.core.adaptation import compose, grad_direction
from regionfed_flwr.core.param_space import ParamSpace
from regionfed_flwr.strategies.replies import error_reason
from regionfed_flwr.strategies.wire import WireError

Arrays = dict[str, npt.NDArray[Any]]
LeftOut = list[tuple[int, str]]


@dataclass(frozen=True)
class Reply:
    """A well-formed reply: who sent it, its weight in means, its numbers and all its records."""

    node: int
    weight: float
    metrics: MetricRecord
    content: RecordDict


def read_reply(message: Message | None, weighted_by_key: str) -> Reply:
    """Check a reply for what every reply must hold.

    Raises
    ------
    WireError
        For none, an error, or when there is not exactly one MetricRecord with a weight from 0 upwards.
    """
    if message is None:
        raise WireError("no reply in time")
    if message.has_error():
        raise WireError(error_reason(message))
    records = list(message.content.metric_records.values())
    if len(records) != 1:
        raise WireError(f"it holds {len(records)} MetricRecords instead of one")
    weight = records[0].get(weighted_by_key)
    if not isinstance(weight, int | float) or not math.isfinite(weight) or weight < 0:
        raise WireError(f"its '{weighted_by_key}' is {weight!r} instead of a number from 0 upwards")
    return Reply(message.metadata.src_node_id, float(weight), records[0], message.content)


def read_replies(messages: Iterable[Message], weighted_by_key: str, finite: bool) -> tuple[list[Reply], LeftOut]:
    """Return the replies that can be averaged, by node id, and node and reason of the others.

    Metrics must have the keys that most replies have, and with ``finite`` no value that is not finite.
    """
    replies: list[Reply] = []
    left_out: LeftOut = []
    for message in sorted(messages, key=lambda m: m.metadata.src_node_id):
        try:
            reply = read_reply(message, weighted_by_key)
            if finite and not all(np.isfinite(np.asarray(value)).all() for value in reply.metrics.values()):
                raise WireError("its metrics hold a value that is not finite")
            replies.append(reply)
        except WireError as error:
            left_out.append((message.metadata.src_node_id, str(error)))
    usual = _most_common([frozenset(reply.metrics) for reply in replies])
    for reply in replies:
        if reply.metrics.keys() != usual:
            text = f"its metrics are {_list(reply.metrics)}, but those of most nodes are {_list(usual)}"
            left_out.append((reply.node, text))
    return [reply for reply in replies if reply.metrics.keys() == usual], left_out


def read_losses(messages: Iterable[Message | None], weighted_by_key: str, loss_key: str) -> tuple[float, list[float]]:
    """Return the weight and the losses of one node's replies; one that is not finite stays: it is the worst.

    Raises
    ------
    WireError
        When a reply is missing, malformed or without the loss.
    """
    replies = [read_reply(message, weighted_by_key) for message in messages]
    losses = [reply.metrics.get(loss_key) for reply in replies]
    numbers = [float(loss) for loss in losses if isinstance(loss, int | float)]
    if len(numbers) < len(losses):
        raise WireError(f"its metrics hold no number '{loss_key}', but {_list(replies[0].metrics)}")
    return replies[0].weight, numbers


def log_left_out(server_round: int, exchange: str, left_out: LeftOut) -> None:
    """Say in a sentence each who was left out of an exchange and why."""
    for node, reason in left_out:
        log(WARNING, "Round %s, %s: node %s is left out: %s", server_round, exchange, node, reason)


def usual_arrays(replies: Sequence[Reply]) -> ArrayRecord:
    """Return the first ArrayRecord whose names and shapes are those of most replies; an empty one without any."""
    records = [record for reply in replies for record in reply.content.array_records.values()]
    kinds = [frozenset((name, tuple(array.shape)) for name, array in record.items()) for record in records]
    return records[kinds.index(_most_common(kinds))] if records else ArrayRecord()


class Layout:
    """Names, shapes and types of a model's arrays, and which of them have a direction.

    Parameters
    ----------
    arrays : ArrayRecord
        The model.
    buffers : str
        Regular expression, searched in the names: arrays that stay the shared model's, as integers do.

    Attributes
    ----------
    space : ParamSpace
        The arrays that have a direction, as one vector of d coordinates.
    """

    def __init__(self, arrays: ArrayRecord, buffers: str) -> None:
        self.buffers = buffers
        self.dtypes = {name: np.dtype(array.dtype) for name, array in arrays.items()}
        self.shapes = {name: tuple(array.shape) for name, array in arrays.items()}
        moving = [n for n, dtype in self.dtypes.items() if dtype.kind == "f" and not re.search(buffers, n)]
        self.space = ParamSpace(tuple(moving), tuple(self.shapes[n] for n in moving))

    def decode(self, reply: Reply) -> Arrays:
        """Return the arrays of a reply.

        Raises
        ------
        WireError
            For no or several ArrayRecords, other names or shapes, what cannot be read, or a value that is not finite.
        """
        records = list(reply.content.array_records.values())
        if len(records) != 1:
            raise WireError(f"it holds {len(records)} ArrayRecords instead of one")
        if odd := sorted(records[0].keys() ^ self.shapes.keys()):
            raise WireError(f"its array names differ from the model's in '{odd[0]}'")
        arrays: Arrays = {}
        for name, shape in self.shapes.items():
            try:
                values = records[0][name].numpy()
                finite = bool(np.isfinite(values).all())
            except (TypeError, ValueError, EOFError, OSError) as error:
                raise WireError(f"its array '{name}' cannot be read: {error}") from None
            if values.shape != shape:
                raise WireError(f"its array '{name}' has shape {values.shape} instead of {shape}")
            if not finite:
                raise WireError(f"its array '{name}' holds a value that is not finite")
            arrays[name] = values
        return arrays

    def encode(self, arrays: Arrays) -> ArrayRecord:
        """Return a record with the model's own names and types; what is not a float is rounded."""
        kept = {n: np.rint(arrays[n]) if dtype.kind in "iub" else arrays[n] for n, dtype in self.dtypes.items()}
        return ArrayRecord({n: Array(np.asarray(values).astype(self.dtypes[n])) for n, values in kept.items()})

    def direction(self, regional: Arrays, origin: Arrays) -> Tensor:
        """Return what is added to ``origin`` to get ``regional``, shape ``(d,)``, float32.

        With the mean of all as origin this is u_r - u_bar, wherever both are counted from.
        """
        parts = {n: grad_direction(_tensor(regional[n]), _tensor(origin[n])) for n in self.space.names}
        return self.space.join(parts)

    def attach(self, shared: ArrayRecord, intensity: float, direction: Tensor) -> ArrayRecord:
        """Return ``shared + intensity * direction`` (paper Eq. 4); integers and buffers are the shared model's."""
        moved = dict(shared)
        for name, part in self.space.split(direction).items():
            values = compose(_tensor(shared[name].numpy()), intensity, part)
            moved[name] = Array(values.numpy().astype(self.dtypes[name]))
        return ArrayRecord(moved)


class RegionalSums:
    """Weighted sums in float64 of the arrays of each region's nodes.

    Attributes
    ----------
    weights : dict of str to float
        Sum of the weights of each region that replied.
    """

    def __init__(self) -> None:
        self.weights: dict[str, float] = {}
        self._totals: dict[str, Arrays] = {}

    @property
    def present(self) -> list[str]:
        """Regions with a mean."""
        return [region for region, weight in self.weights.items() if weight > 0]

    def add(self, region: str, arrays: Arrays, weight: float) -> None:
        """Add one node's arrays."""
        self.weights[region] = self.weights.get(region, 0.0) + weight
        totals = self._totals.setdefault(region, {})
        for name, values in arrays.items():
            part = np.multiply(values, weight, dtype=np.result_type(values.dtype, np.float64))
            if name in totals:
                totals[name] += part
            else:
                totals[name] = part

    def mean(self, regions: Sequence[str]) -> Arrays:
        """Return the weighted mean over some of the regions that are present."""
        weight = sum(self.weights[r] for r in regions)
        return {n: np.asarray(sum(self._totals[r][n] for r in regions) / weight) for n in self._totals[regions[0]]}


def _tensor(values: npt.NDArray[Any]) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64))


def _most_common(kinds: Sequence[frozenset[Any]]) -> frozenset[Any]:
    return Counter(kinds).most_common(1)[0][0] if kinds else frozenset()


def _list(items: Iterable[object]) -> str:
    return ", ".join(sorted(map(str, items))) or "none"
