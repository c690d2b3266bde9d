"""Which nodes are in which region, and the messages between them and the drop-in strategy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from logging import WARNING
from typing import Any

import numpy as np
from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid
from torch import Tensor

from regionfed_flwr.core.search import SearchResult
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.strategies.plug_in_replies import (
    Layout,
    LeftOut,
    RegionalSums,
    Reply,
    log_left_out,
    read_losses,
    read_replies,
    usual_arrays,
)
from regionfed_flwr.strategies.replies import error_reason
from regionfed_flwr.strategies.wire import WireError

RegionOf = Mapping[int, str] | Callable[[int], str | None]
_CLIENT_RAISED = 2  # Flower's code for a ClientApp that raised; the others are the node's or the network's


@dataclass(frozen=True)
class RegionState:
    """What a region's model is made of.

    Attributes
    ----------
    alpha, rho : float
        Personalization weight and adaptation intensity.
    conflict : float
        d_r, the distance of the region's update from the mean update.
    direction : Tensor
        v_r, shape ``(d,)``, float32.
    search : SearchResult or None
        How rho was found; None when it is fixed or nobody measured.
    """

    alpha: float
    rho: float
    conflict: float
    direction: Tensor
    search: SearchResult | None = None


class Regions:
    """Which region each node is in. A node is asked once, when it is first seen.

    Parameters
    ----------
    region_of, region_query, region_from
        The source, exactly one; see ``RegionFed``.

    Attributes
    ----------
    names : dict of str to int
        Region names and their numbers, in the order in which they were met.
    """

    def __init__(self, region_of: RegionOf | None, region_query: str | None, region_from: str | None) -> None:
        usable = region_of is None or callable(region_of) or isinstance(region_of, Mapping)
        if not usable or sum(source is not None for source in (region_of, region_query, region_from)) != 1:
            raise RegionFedError(
                "RegionFed needs exactly one source of regions: region_of (a mapping or a function from node id to "
                "region), region_query (the name of a query that the ClientApp answers) or region_from='location'."
            )
        if region_from not in (None, "location"):
            raise RegionFedError(f"region_from is {region_from!r}, but allowed is: 'location'.")
        self._region_of, self._query = region_of, region_query
        self.names: dict[str, int] = {}
        self._known: dict[int, str] = {}

    def __contains__(self, node: int) -> bool:
        return node in self._known

    def of(self, node: int) -> str:
        """Return a node's region; a WireError says that it is not known."""
        if node not in self._known:
            raise WireError("its region is not known")
        return self._known[node]

    def learn(self, nodes: Iterable[int], grid: Grid | None, timeout: float) -> None:
        """Find out the regions of the nodes that are new; one that cannot be reached stays unknown.

        Raises
        ------
        RegionFedError
            For a node without a region, or a ClientApp that cannot answer the query.
        """
        new = sorted(set(nodes) - self._known.keys())
        if not new:
            return
        if self._region_of is not None:
            answers, lack = self._look_up(new, self._region_of), "region_of has none for its id"
        elif grid is None:
            raise RegionFedError("Nodes can only be asked for their regions in a run: call start or configure_train.")
        elif self._query is not None:
            answers = self._ask(new, grid, timeout)
            lack = f"its answer to the query '{self._query}' holds no 'region' in a ConfigRecord"
        else:
            answers = {info.node_id: info.location for info in grid.get_nodes() if info.node_id in new}
            lack = "it was registered without one (flwr supernode register KEY --location LATITUDE,LONGITUDE)"
        for node, region in answers.items():
            if region is None or region == "":
                raise RegionFedError(f"Node {node} has no region: {lack}.")
            self._known[node] = str(region)
        for name in sorted(set(map(str, answers.values())) - self.names.keys()):
            self.names[name] = len(self.names)

    @staticmethod
    def _look_up(nodes: Sequence[int], region_of: RegionOf) -> dict[int, Any]:
        find = region_of.__getitem__ if isinstance(region_of, Mapping) else region_of
        answers: dict[int, Any] = {}
        for node in nodes:
            try:
                answers[node] = find(node)
            except LookupError:
                answers[node] = None
        return answers

    def _ask(self, nodes: Sequence[int], grid: Grid, timeout: float) -> dict[int, Any]:
        action = f"{MessageType.QUERY}.{self._query}"
        asked = [Message(RecordDict({"config": ConfigRecord()}), node, action) for node in nodes]
        answers: dict[int, Any] = {}
        for reply in grid.send_and_receive(asked, timeout=timeout):
            if not reply.has_error():
                records = reply.content.config_records.values()
                answers[reply.metadata.src_node_id] = next((r["region"] for r in records if "region" in r), None)
            elif reply.error.code == _CLIENT_RAISED:
                raise RegionFedError(
                    f"Node {reply.metadata.src_node_id} could not answer the query '{self._query}' for its region "
                    f'({error_reason(reply)}); its ClientApp needs a function under @app.query("{self._query}"), or '
                    "the strategy another source: region_of or region_from='location'."
                )
        if silent := [node for node in nodes if node not in answers]:
            log(
                WARNING,
                "No answer about the region from node(s) %s: left out until there is one.",
                ", ".join(map(str, silent)),
            )
        return answers


class Exchange:
    """The server's end of the messages of one run.

    Parameters
    ----------
    regions : Regions
        Where nodes are.
    layout : Layout
        What the model's arrays are; empty until it is known.
    keys : tuple of str
        Where messages hold arrays and configuration.
    weighted_by_key, loss_key : str
        Where metrics hold a reply's weight, and its loss.
    """

    def __init__(
        self, regions: Regions, layout: Layout, keys: tuple[str, str], weighted_by_key: str, loss_key: str
    ) -> None:
        self.regions, self.layout = regions, layout
        self._keys, self._weighted_by, self._loss_key = keys, weighted_by_key, loss_key
        self.grid: Grid | None = None
        self.timeout = 3600.0
        self.train_config, self.evaluate_config = ConfigRecord(), ConfigRecord()

    def request(self, kind: str, group: str, node: int, arrays: ArrayRecord, config: ConfigRecord) -> Message:
        """Make a message; a SuperLink tells messages apart by their hash, and ``group`` tells equal ones apart."""
        content = RecordDict({self._keys[0]: arrays, self._keys[1]: config})
        return Message(content, node, kind, group_id=group)

    def read_train(
        self, server_round: int, messages: Iterable[Message], asked: Iterable[int]
    ) -> tuple[RegionalSums, list[Reply], LeftOut]:
        """Add the usable replies to train messages by region; return sums, these replies, and who was left out."""
        replies, left_out = read_replies(messages, self._weighted_by, finite=False)
        self.regions.learn((reply.node for reply in replies), self.grid, self.timeout)
        if not self.layout.shapes:  # aggregate_train without configure_train
            self.layout = Layout(usual_arrays(replies), self.layout.buffers)
        sums = RegionalSums()
        used: list[Reply] = []
        for reply in replies:
            try:
                sums.add(self.regions.of(reply.node), self.layout.decode(reply), reply.weight)
                used.append(reply)
            except WireError as error:
                left_out.append((reply.node, str(error)))
        heard = {reply.node for reply in used} | {node for node, _ in left_out}
        left_out += [(node, "no reply in time") for node in asked if node not in heard]
        log_left_out(server_round, "train", left_out)
        return sums, used, left_out

    def train_again(
        self, server_round: int, shared: ArrayRecord, nodes: Mapping[str, list[int]], extra: ConfigRecord
    ) -> dict[str, Tensor]:
        """Return what one more round of each region's nodes adds to the new shared model."""
        config = ConfigRecord({**self.train_config, **extra})
        asked = [node for members in nodes.values() for node in members]
        requests = [self.request(MessageType.TRAIN, "again", node, shared, config) for node in asked]
        sums, _, _ = self.read_train(server_round, self._send(requests), asked)
        for region in nodes.keys() - set(sums.present):
            log(WARNING, "Round %s: region %s could not train on and gets the direction 'grad'.", server_round, region)
        origin = {name: array.numpy() for name, array in shared.items()}
        return {region: self.layout.direction(sums.mean([region]), origin) for region in sums.present}

    def losses(
        self, server_round: int, models: Mapping[str, list[ArrayRecord]], nodes: Mapping[str, list[int]]
    ) -> dict[str, list[float]]:
        """Have each region's nodes evaluate its models; return the mean losses over nodes that judged all of them."""
        config = ConfigRecord({**self.evaluate_config, "server-round": server_round})
        requests = {
            node: [self.request(MessageType.EVALUATE, f"rho-{i}", node, m, config) for i, m in enumerate(candidates)]
            for region, candidates in models.items()
            for node in nodes[region]
        }
        replies = {m.metadata.reply_to_message_id: m for m in self._send(list(chain(*requests.values())))}
        rows: dict[int, tuple[float, list[float]]] = {}
        left_out: LeftOut = []
        for node, asked in requests.items():
            try:
                answers = [replies.get(request.metadata.message_id) for request in asked]
                rows[node] = read_losses(answers, self._weighted_by, self._loss_key)
            except WireError as error:
                left_out.append((node, str(error)))
        log_left_out(server_round, "search", left_out)
        if not rows:
            reason = f"the first: {left_out[0][1]}; loss_key names the loss in the metrics of an evaluate reply."
            raise RegionFedError(f"The search for rho in round {server_round} got no loss from any node; {reason}")
        means: dict[str, list[float]] = {}
        for region in models:
            judged = [rows[node] for node in nodes[region] if node in rows]
            weights = [weight for weight, _ in judged]
            if sum(weights) > 0:
                means[region] = np.average([losses for _, losses in judged], axis=0, weights=weights).tolist()
        return means

    def _send(self, requests: list[Message]) -> list[Message]:
        assert self.grid is not None  # set by configure_train
        return list(self.grid.send_and_receive(requests, timeout=self.timeout))
