"""How the server learns, in one query round, which nodes there are and which users in which regions."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from flwr.app import Message, RecordDict
from flwr.serverapp import Grid

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.strategies.replies import error_reason
from regionfed_flwr.strategies.wire import WireError, content, int_list, int_value, read_config, str_list
from regionfed_flwr.strategies.workbench import Workbench
from regionfed_flwr.topology import Placement, Topology, build_topology

_LOOK_EVERY = 0.2  # seconds between two looks for nodes that have not joined yet


def describe_node(bench: Workbench, node_config: Mapping[str, Any]) -> RecordDict:
    """Return a node's answer: its place among the nodes, its region if it names one, and all users' regions."""
    for key in ("partition-id", "num-partitions"):
        if not isinstance(node_config.get(key), int):
            raise RegionFedError(
                f"This node's configuration has no whole number '{key}'; start it with "
                "--node-config 'partition-id=0 num-partitions=2' (its place, and the number of nodes)."
            )
    names, region_of = bench.federation.region_names, bench.federation.region_of
    if not bench.config.hierarchy:
        names, region_of = ("All users",), (0,) * len(region_of)
    return content(
        config={
            "partition-id": node_config["partition-id"],
            "num-partitions": node_config["num-partitions"],
            "region": _region_number(node_config["region"], names) if "region" in node_config else -1,
            "region-names": list(names),
            "region-of": list(region_of),
        }
    )


def _region_number(region: Any, names: tuple[str, ...]) -> int:
    """Accept a region's name, its number, or ``r<number>``."""
    text = str(region)
    if text in names:
        return names.index(text)
    number = text.removeprefix("r")
    if number.isdigit() and int(number) < len(names):
        return int(number)
    raise RegionFedError(
        f"This node's configuration says region = '{region}'; allowed is one of {', '.join(names)}, or its number "
        f"from 0 to {len(names) - 1}."
    )


@dataclass(frozen=True)
class _Answer:
    placement: Placement
    num_nodes: int
    region_names: tuple[str, ...]
    region_of: tuple[int, ...]


def discover(grid: Grid, timeout: float) -> Topology:
    """Wait for all nodes, ask each for its place, and lay the users on them.

    Parameters
    ----------
    grid : Grid
        Flower's access to the nodes.
    timeout : float
        Seconds to wait for all nodes to join and answer.

    Raises
    ------
    RegionFedError
        When nodes are missing after the timeout, a node refuses, or the nodes contradict each other.
    """
    end, answers = time.monotonic() + timeout, dict[int, _Answer]()
    while True:
        new = [n for n in sorted(grid.get_node_ids()) if n not in answers]
        if new:
            asked = [Message(content(config={"round": 0}), n, "query.placement", group_id="0") for n in new]
            for reply in grid.send_and_receive(asked, timeout=max(1.0, end - time.monotonic())):
                if reply.has_error():
                    raise RegionFedError(f"A node cannot take part: {error_reason(reply)}")
                answers[reply.metadata.src_node_id] = _read(reply)
        expected = max((a.num_nodes for a in answers.values()), default=0)
        if answers and len(answers) >= expected:
            break
        if time.monotonic() >= end:
            what = f"{len(answers)} of {expected} nodes have" if answers else "no node has"
            raise RegionFedError(f"After {timeout:g} seconds {what} joined; start the missing ones and run again.")
        time.sleep(_LOOK_EVERY)
    return _agree(answers)


def _agree(answers: Mapping[int, _Answer]) -> Topology:
    first = next(iter(answers.values()))
    for node, answer in answers.items():
        if (answer.region_names, answer.region_of) != (first.region_names, first.region_of):
            raise RegionFedError(
                f"Node {node} knows other users or regions than the first node; give all the same data."
            )
        if answer.num_nodes != first.num_nodes or len(answers) != first.num_nodes:
            raise RegionFedError(
                f"{len(answers)} nodes have joined, but node {node} says num-partitions = {answer.num_nodes}; every "
                "node must give the number of nodes."
            )
    return build_topology(first.region_names, first.region_of, [a.placement for a in answers.values()])


def _read(reply: Message) -> _Answer:
    try:
        config = read_config(reply)
        numbers = [int_value(config, key) for key in ("partition-id", "num-partitions", "region")]
        names = tuple(str_list(config, "region-names"))
        region_of = tuple(int_list(config, "region-of"))
    except WireError as error:
        raise RegionFedError(
            f"Node {reply.metadata.src_node_id} gave an unreadable answer about itself: {error}"
        ) from None
    place = Placement(reply.metadata.src_node_id, numbers[0], numbers[2] if numbers[2] >= 0 else None)
    return _Answer(place, numbers[1], names, region_of)
