"""Users, regions and nodes: who belongs where, and which node hosts whom.

Users are ordered by region (then by number) and laid on nodes in blocks, so that a node holds few regions. The same
federation runs on one node, on two, or with a node for each user.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.errors import RegionFedError


@dataclass(frozen=True)
class Placement:
    """What one node says about itself.

    Attributes
    ----------
    node_id : int
        Flower's id of the node.
    partition : int
        Its place among the nodes, from 0.
    region : int or None
        The only region whose users it hosts; None when it may host any.
    """

    node_id: int
    partition: int
    region: int | None = None


@dataclass(frozen=True)
class Topology:
    """Regions of users and their nodes.

    Attributes
    ----------
    region_names : tuple of str
        Names, one per region.
    region_of : tuple of int
        Region of each user.
    node_of : tuple of int
        Flower node id that hosts each user.
    """

    region_names: tuple[str, ...]
    region_of: tuple[int, ...]
    node_of: tuple[int, ...]

    def users_of_region(self, region: int) -> tuple[int, ...]:
        """Return a region's users, ascending."""
        return tuple(u for u, r in enumerate(self.region_of) if r == region)

    def by_node(self, users: Sequence[int]) -> dict[int, list[int]]:
        """Group users by hosting node; nodes and users ascending."""
        groups: dict[int, list[int]] = {}
        for user in sorted(users):
            groups.setdefault(self.node_of[user], []).append(user)
        return dict(sorted(groups.items()))

    def cohort(self, fraction: float, seed: int, server_round: int) -> tuple[int, ...]:
        """Draw the users of a round: ``round(fraction * n_r)``, at least one, of each region, without replacement."""
        chosen: list[int] = []
        for region in range(len(self.region_names)):
            users = self.users_of_region(region)
            count = max(1, round(fraction * len(users)))
            draw = numpy_generator(seed, "cohort", server_round, region).permutation(len(users))[:count]
            chosen.extend(users[i] for i in draw)
        return tuple(sorted(chosen))


def build_topology(region_names: Sequence[str], region_of: Sequence[int], placements: Sequence[Placement]) -> Topology:
    """Lay all users on the nodes.

    Parameters
    ----------
    region_names : sequence of str
        Names of the regions.
    region_of : sequence of int
        Region of each user.
    placements : sequence of Placement
        One per node.

    Raises
    ------
    RegionFedError
        For a region without users, two nodes with the same partition, or a region that no node hosts.
    """
    for region, name in enumerate(region_names):
        if region not in region_of:
            raise RegionFedError(
                f"Region '{name}' ({region}) has no users; every one of the {len(region_names)} regions needs at "
                "least one."
            )
    nodes = sorted(placements, key=lambda p: (p.partition, p.node_id))
    for left, right in itertools.pairwise(nodes):
        if left.partition == right.partition:
            raise RegionFedError(
                f"Two nodes ({left.node_id} and {right.node_id}) both say partition-id = {left.partition}; each node "
                "needs a partition-id of its own."
            )
    if any(node.region is None for node in nodes):
        if any(node.region is not None for node in nodes):
            raise RegionFedError("Some nodes name a region in their node-config and others do not; all or none must.")
        groups = [(list(range(len(region_of))), nodes)]
    else:
        groups = [
            ([u for u, r in enumerate(region_of) if r == region], [n for n in nodes if n.region == region])
            for region in range(len(region_names))
        ]
    node_of: dict[int, int] = {}
    for users, hosts in groups:
        if not hosts:
            missing = region_names[region_of[users[0]]]
            raise RegionFedError(
                f"No node hosts region '{missing}'; start a node with region=\"{missing}\" in its node-config."
            )
        node_of.update(_in_blocks(sorted(users, key=lambda u: (region_of[u], u)), hosts))
    return Topology(tuple(region_names), tuple(region_of), tuple(node_of[u] for u in range(len(region_of))))


def _in_blocks(users: Sequence[int], hosts: Sequence[Placement]) -> dict[int, int]:
    """Put the user at position k on host ``k * len(hosts) // len(users)``."""
    return {user: hosts[k * len(hosts) // len(users)].node_id for k, user in enumerate(users)}
