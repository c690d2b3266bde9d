"""The server's end of the wire: messages to the nodes that host the users concerned, and their checked replies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import WARNING
from typing import Any

from flwr.app import Message
from flwr.common.logger import log
from flwr.serverapp import Grid
from torch import Tensor

from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.strategies.events import Judgement
from regionfed_flwr.strategies.node import block_name
from regionfed_flwr.strategies.replies import Collected, Rejection, collect_evaluate, collect_train
from regionfed_flwr.strategies.wire import content, encode_array, for_regions, num_bytes
from regionfed_flwr.topology import Topology


class Exchange:
    """Asks users, wherever they are hosted, and keeps count of bytes and rejections.

    Parameters
    ----------
    topology : Topology
        Which node hosts whom.
    method, block : str
        The method's name and the sums that it needs.
    vectors : tuple of str
        Names of the vectors that users send.
    tell : callable
        Called as ``tell(server_round, text)`` for every rejection.
    """

    def __init__(
        self, topology: Topology, method: str, block: str, vectors: tuple[str, ...], tell: Callable[[int, str], None]
    ) -> None:
        self.topology = topology
        self._body = {"method": method, "block": block}
        self._vectors = vectors
        self._tell = tell
        self._asked: dict[int, list[int]] = {}
        self._grid: Grid | None = None
        self._timeout = 0.0
        self.bytes_down = self.bytes_up = 0
        self.rejections: list[Rejection] = []

    def open(self, grid: Grid, timeout: float) -> None:
        """Use this grid from now on; ``timeout`` seconds are waited in one exchange."""
        self._grid, self._timeout = grid, timeout

    def train(
        self, server_round: int, phase: str, users: Iterable[int], vectors: Mapping[str, Tensor], size: int
    ) -> Collected:
        """Have users carry out a phase of the client half and return their sums of ``size`` coordinates."""
        return self.read_sums(server_round, self.send(self.train_messages(server_round, phase, users, vectors)), size)

    def evaluate(
        self, server_round: int, judgement: Judgement, users: Iterable[int], split: str
    ) -> dict[str, dict[int, Counts]]:
        """Have users judge models on a part of their data; return counts by model and user."""
        messages = self.judge_messages(server_round, judgement, users, split)
        return self.read_counts(server_round, self.send(messages), judgement.models)

    def train_messages(
        self, server_round: int, phase: str, users: Iterable[int], vectors: Mapping[str, Tensor]
    ) -> list[Message]:
        """Make the messages of a training exchange: ``<name>`` goes to all, ``<name>/<region>`` to a region's users."""
        return self._messages("train", server_round, users, vectors, {"phase": phase})

    def judge_messages(
        self, server_round: int, judgement: Judgement, users: Iterable[int], split: str
    ) -> list[Message]:
        """Make the messages of an evaluation."""
        numbers = {f"number/{name}": list(values) for name, values in judgement.numbers.items()}
        body = {"models": list(judgement.models), "measure": judgement.measure, "split": split, **numbers}
        return self._messages("evaluate", server_round, users, judgement.vectors, body)

    def send(self, messages: Iterable[Message]) -> list[Message]:
        """Send and wait for the replies."""
        pending = list(messages)
        self.bytes_down += sum(num_bytes(m) for m in pending)
        if not pending:
            return []
        assert self._grid is not None  # set by open
        return list(self._grid.send_and_receive(pending, timeout=self._timeout))

    def read_sums(self, server_round: int, replies: Iterable[Message], size: int) -> Collected:
        """Check and add the replies to the last training messages."""
        users = [(u, self.topology.region_of[u]) for hosted in self._asked.values() for u in hosted]
        blocks = {block_name(name, self._body["block"], u, r) for name in self._vectors for u, r in users}
        collected = collect_train(replies, self._asked, size, blocks)
        self.bytes_up += collected.bytes_up
        self._note(server_round, collected.rejections)
        return collected

    def read_counts(
        self, server_round: int, replies: Iterable[Message], models: Sequence[str]
    ) -> dict[str, dict[int, Counts]]:
        """Check the replies to the last evaluation messages."""
        counts, rejections = collect_evaluate(replies, self._asked, models)
        self._note(server_round, rejections)
        return counts

    def _messages(
        self,
        message_type: str,
        server_round: int,
        users: Iterable[int],
        vectors: Mapping[str, Tensor],
        config: Mapping[str, Any],
    ) -> list[Message]:
        """Make one message a node, with what is for its users' regions."""
        self._asked = self.topology.by_node(list(users))
        arrays = {name: encode_array(vector) for name, vector in vectors.items()}
        messages = []
        for node, hosted in self._asked.items():
            regions = [self.topology.region_of[u] for u in hosted]
            body = for_regions({**config, **self._body}, set(regions))
            body |= {"round": server_round, "users": hosted, "user-regions": regions}
            records = content(vectors=for_regions(arrays, set(regions)), config=body)
            messages.append(Message(records, node, message_type, group_id=str(server_round)))
        return messages

    def _note(self, server_round: int, rejections: Sequence[Rejection]) -> None:
        self.rejections.extend(rejections)
        for rejection in rejections:
            users = ", ".join(map(str, rejection.users[:8])) + (", ..." if len(rejection.users) > 8 else "")
            text = f"round {server_round}: node {rejection.node_id}, user(s) {users} left out: {rejection.reason}"
            log(WARNING, text)
            self._tell(server_round, text)
