"""Reading the nodes' replies: what is malformed is rejected and counted, the round goes on."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from flwr.app import Message
from torch import Tensor

from regionfed_flwr.core.fixed_point import FixedPointError, add_totals
from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.strategies.wire import WireError, decode_vectors, float_list, int_list, num_bytes, read_metrics

_FLOWER_WRAP = re.compile(r"<class '[^']*'>:<'(.*)'>\s*$", re.DOTALL)
_RAY_WRAP = re.compile(r"^\s*Exception \w+ occurred\. Message:\s*")
_NODE_DOWN = {2: "its client raised", 5: "the node is unavailable", 8: "its client process died"}


@dataclass(frozen=True)
class Rejection:
    """Work that was asked for and cannot be used: the node, the users concerned, and why."""

    node_id: int
    users: tuple[int, ...]
    reason: str


@dataclass(frozen=True)
class Collected:
    """The usable replies of a training exchange.

    Attributes
    ----------
    sums : dict
        ``<vector>/<block>`` to the int64 total over all nodes, shape ``(d,)``.
    num_examples : dict of int to int
        Training samples of each accepted user.
    metrics : dict of int to dict
        Further numbers of each accepted user, e.g. ``train-loss``.
    rejections : tuple of Rejection
        What was left out.
    bytes_up : int
        Bytes of all arrays received.
    """

    sums: dict[str, Tensor]
    num_examples: dict[int, int]
    metrics: dict[int, dict[str, float]]
    rejections: tuple[Rejection, ...]
    bytes_up: int

    def weight(self, users: Iterable[int]) -> int:
        """Return the training samples of those of the users that were accepted."""
        return sum(self.num_examples.get(user, 0) for user in users)

    def mean_metric(self, name: str, users: Iterable[int]) -> float | None:
        """Return the plain mean of a number over those of the users that sent it; None when none did."""
        values = [self.metrics[u][name] for u in users if name in self.metrics.get(u, {})]
        return sum(values) / len(values) if values else None


def error_reason(message: Message) -> str:
    """Say in one sentence why a node's reply is an error."""
    known = _NODE_DOWN.get(message.error.code, f"error code {message.error.code}")
    text = message.error.reason or ""
    inner = _FLOWER_WRAP.match(text)  # "<class 'X'>:<'text'>", and "Exception X occurred. Message: text" inside
    said = " ".join(_RAY_WRAP.sub("", inner.group(1) if inner else text).split())
    return f"{known}: {said}" if said else known


def collect_train(
    replies: Iterable[Message], asked: Mapping[int, Sequence[int]], size: int, blocks: set[str]
) -> Collected:
    """Check and add the replies of a training exchange.

    Parameters
    ----------
    replies : iterable of Message
        In any order.
    asked : mapping of int to sequence of int
        Node id to the users it was asked to train.
    size : int
        Coordinates d of every vector.
    blocks : set of str
        Names that may occur.
    """
    totals: dict[str, list[Tensor]] = {}
    num_examples: dict[int, int] = {}
    metrics: dict[int, dict[str, float]] = {}
    rejections: list[Rejection] = []
    answered: set[int] = set()
    received = 0
    for reply in sorted(replies, key=lambda m: m.metadata.src_node_id):
        node = _node_of(reply, asked, answered)
        if node is None:
            continue
        answered.add(node)
        received += num_bytes(reply)
        try:
            sums, users, numbers, left_out = _read_train(reply, asked[node], size, blocks)
        except WireError as error:
            rejections.append(Rejection(node, tuple(asked[node]), str(error)))
            continue
        if left_out:
            rejections.append(Rejection(node, tuple(left_out), "the update is not finite or too large"))
        for name, total in sums.items():
            totals.setdefault(name, []).append(total)
        for user, row in zip(users, numbers, strict=True):
            num_examples[user] = int(row.pop("num-examples"))
            metrics[user] = row
    rejections += [Rejection(n, tuple(u), "no reply in time") for n, u in asked.items() if n not in answered]
    try:
        added = {name: add_totals(parts) for name, parts in sorted(totals.items())}
    except FixedPointError as error:
        everyone = tuple(sorted(num_examples))
        return Collected({}, {}, {}, (*rejections, Rejection(-1, everyone, str(error))), received)
    return Collected(added, num_examples, metrics, tuple(rejections), received)


def collect_evaluate(
    replies: Iterable[Message], asked: Mapping[int, Sequence[int]], models: Sequence[str]
) -> tuple[dict[str, dict[int, Counts]], tuple[Rejection, ...]]:
    """Return model name to user to counts, and what was left out."""
    counts: dict[str, dict[int, Counts]] = {name: {} for name in models}
    rejections: list[Rejection] = []
    answered: set[int] = set()
    for reply in sorted(replies, key=lambda m: m.metadata.src_node_id):
        node = _node_of(reply, asked, answered)
        if node is None:
            continue
        answered.add(node)
        try:
            for name, by_user in _read_evaluate(reply, asked[node], models).items():
                counts[name].update(by_user)
        except WireError as error:
            rejections.append(Rejection(node, tuple(asked[node]), str(error)))
    rejections += [Rejection(n, tuple(u), "no reply in time") for n, u in asked.items() if n not in answered]
    return {name: dict(sorted(by_user.items())) for name, by_user in counts.items()}, tuple(rejections)


def _node_of(reply: Message, asked: Mapping[int, Sequence[int]], answered: set[int]) -> int | None:
    """Return the node a reply counts for; None for a stranger's or a second one.

    An error that the link makes up for a dead node carries the link's own id: it is left to "no reply in time".
    """
    node = reply.metadata.src_node_id
    return node if node in asked and node not in answered else None


def _read_train(
    reply: Message, asked: Sequence[int], size: int, blocks: set[str]
) -> tuple[dict[str, Tensor], list[int], list[dict[str, float]], list[int]]:
    if reply.has_error():
        raise WireError(error_reason(reply))
    record = read_metrics(reply)
    users, left_out = int_list(record, "users"), int_list(record, "rejected")
    if sorted(users + left_out) != sorted(asked):
        raise WireError("it does not answer for the users that were asked for")
    names = [key for key in record if key not in ("users", "rejected")] if users else []
    columns = {name: float_list(record, name, len(users)) for name in names}
    if users and (min(columns.get("num-examples", [-1.0])) < 0):
        raise WireError("'num-examples' is missing or negative")
    sums = decode_vectors(reply.content)
    if unknown := set(sums) - blocks:
        raise WireError(f"it holds the unexpected vector '{sorted(unknown)[0]}'")
    for name, total in sums.items():
        if total.dtype != torch.int64 or total.shape != (size,):
            raise WireError(f"the vector '{name}' is {total.dtype} of shape {tuple(total.shape)}, not int64 ({size},)")
    if any(columns.get("num-examples", [])) and not sums:
        raise WireError("it holds no vector")
    return sums, users, [{name: columns[name][i] for name in names} for i in range(len(users))], left_out


def _read_evaluate(reply: Message, asked: Sequence[int], models: Sequence[str]) -> dict[str, dict[int, Counts]]:
    if reply.has_error():
        raise WireError(error_reason(reply))
    record = read_metrics(reply)
    users = int_list(record, "users")
    if sorted(users) != sorted(asked):
        raise WireError("it does not answer for the users that were asked for")
    result: dict[str, dict[int, Counts]] = {name: {user: {} for user in users} for name in models}
    for key in record:
        name, _, metric = key.partition("/")
        if name not in result:
            continue
        for user, value in zip(users, float_list(record, key, len(users)), strict=True):
            result[name][user][metric] = value
    return result
