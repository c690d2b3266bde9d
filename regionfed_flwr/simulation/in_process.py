"""A Grid that calls the ClientApp directly: the same apps without processes, for tests and comparisons."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import Any
from uuid import uuid4

from flwr.app import Context, Error, Message, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.supercore.run import Run
from flwr.supercore.task_identity import TaskIdentity

_CLIENT_RAISED = 2  # Flower's code for a ClientApp that raised


class InProcessGrid(Grid):
    """Nodes that live in this process.

    Parameters
    ----------
    client_app : ClientApp
        Called for each message.
    num_nodes : int
        Number of nodes.
    run_config : dict
        The run configuration that every node's context holds.
    node_configs : list of dict, optional
        Node configurations; the default is what Flower's simulation gives (partition-id, num-partitions).
    """

    def __init__(
        self,
        client_app: ClientApp,
        num_nodes: int,
        run_config: dict[str, Any],
        node_configs: list[dict[str, Any]] | None = None,
    ) -> None:
        TaskIdentity.task_id, TaskIdentity.run_id, TaskIdentity.node_id = 1, 1, 1  # a Message cannot be made without
        self.client_app = client_app
        configs = node_configs or [{"partition-id": i, "num-partitions": num_nodes} for i in range(num_nodes)]
        self.contexts = {
            1000 + i: Context(
                run_id=1, node_id=1000 + i, node_config=dict(c), state=RecordDict(), run_config=dict(run_config)
            )
            for i, c in enumerate(configs)
        }
        self._replies: dict[str, Message] = {}

    def set_run(self, run: Run) -> None:
        """There is only one run."""

    @property
    def run(self) -> Run:
        """Not available: nothing here is a registered run."""
        raise NotImplementedError("an in-process grid has no registered run")

    def create_message(
        self, content: RecordDict, message_type: str, dst_node_id: int, group_id: str, ttl: float | None = None
    ) -> Message:
        """Return a message (Flower's deprecated way)."""
        return Message(content, dst_node_id, message_type, group_id=group_id, ttl=ttl)

    def get_node_ids(self) -> Iterable[int]:
        """Return the node ids, ascending."""
        return list(self.contexts)

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        """Run the ClientApp on each message at once and keep the replies."""
        ids = []
        for message in messages:
            message.metadata.__dict__["_message_id"] = str(uuid4())
            self._replies[message.metadata.message_id] = self._deliver(message)
            ids.append(message.metadata.message_id)
        return ids

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        """Return the replies, each once."""
        return [self._replies.pop(i) for i in message_ids if i in self._replies]

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """Push and pull."""
        return self.pull_messages(self.push_messages(messages))

    def _deliver(self, message: Message) -> Message:
        """Call the ClientApp as a node would: on records of its own, an exception becomes an error reply."""
        context = self.contexts[message.metadata.dst_node_id]
        records = RecordDict({k: copy.copy(v) for k, v in message.content.items()})
        received = Message(records, metadata=message.metadata)  # type: ignore[call-overload]
        try:
            return self.client_app(received, context)
        except Exception as error:
            return Message(Error(_CLIENT_RAISED, f"{type(error)}:<'{error}'>"), reply_to=message)


def run_in_process(
    server_app: ServerApp,
    client_app: ClientApp,
    run_config: dict[str, Any],
    num_nodes: int = 1,
    node_configs: list[dict[str, Any]] | None = None,
) -> None:
    """Run a ServerApp against nodes in this process.

    Parameters
    ----------
    server_app, client_app : ServerApp, ClientApp
        Any Flower app.
    run_config : dict
        The run configuration, all keys.
    num_nodes : int
        Number of nodes.
    node_configs : list of dict, optional
        Node configurations, as for a deployment.
    """
    grid = InProcessGrid(client_app, num_nodes, run_config, node_configs)
    context = Context(run_id=1, node_id=1, node_config={}, state=RecordDict(), run_config=dict(run_config))
    server_app(grid=grid, context=context)
