"""RegionFed (paper Algorithm 2), strategy grad with a fixed rho.

Round t, in directions (what is added to the parameters):

    u_u   = theta_u - theta^t after E local epochs                 (users)
    u_r   = sum_{u in r} n_u u_u / n_r                             (regional coordinators)
    u_bar = sum_r p_r u_r,  theta^{t+1} = theta^t + eta_s u_bar    (global server)
    v_r   = u_r - u_bar                                            (grad: regional minus global direction)
    alpha_r from d_r = ||u_r - u_bar||                             (Eq. 6)
    theta_region^r = theta^{t+1} + alpha_r rho_r v_r               (Eq. 4)
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.alpha import Centre, personalization_weight
from regionfed_flwr.core.conflict import measure_conflict
from regionfed_flwr.core.fixed_point import add_totals, mean
from regionfed_flwr.strategies.base import THETA, RegionalStrategy
from regionfed_flwr.strategies.events import Callback, Judgement
from regionfed_flwr.strategies.fedavg import FedAvgClient
from regionfed_flwr.strategies.local import UserTask
from regionfed_flwr.strategies.replies import Collected
from regionfed_flwr.topology import Topology


@dataclass(frozen=True)
class RegionState:
    """What a regional coordinator holds after a round.

    Attributes
    ----------
    direction : Tensor
        v_r, shape ``(d,)``, float32.
    alpha, rho : float
        Personalization weight and adaptation intensity.
    conflict, cosine : float
        d_r, and the cosine of u_r with the global direction.
    update_norm : float
        L2 norm of u_r.
    """

    direction: Tensor
    alpha: float
    rho: float
    conflict: float
    cosine: float
    update_norm: float


class RegionFed(RegionalStrategy):
    """Regional personalization from the conflict between regional and global update directions.

    Down theta (d numbers), and for judging the regional models d more for each region on the node; up one partial
    sum for each region on the node (d int64). State: one direction v_r for each region. The shared model never
    depends on the adaptation; with regions of equal size, or ``region-weight = size``, it is FedAvg's.
    """

    method = "regionfed"
    block = "region"

    def __init__(self, config: RunConfig, topology: Topology, callbacks: Sequence[Callback] = ()) -> None:
        super().__init__(config, topology, callbacks)
        self.regions: dict[int, RegionState] = {}
        self.centre = Centre(config.mu_mode)

    def step(self, server_round: int, replies: Collected) -> None:
        """Aggregate within regions, then globally, then renew the adaptation of the regions that replied."""
        sizes = {r: replies.weight(self.topology.users_of_region(r)) for r in range(len(self.topology.region_names))}
        present = [r for r, n in sizes.items() if n > 0]
        if not present:
            return
        updates = [mean(replies.sums[f"update/region-{r}"], sizes[r]).float() for r in present]
        by_size = self.config.region_weight == "size"
        weights = [float(sizes[r]) if by_size else 1.0 for r in present]
        update = self._global_update(replies, updates, weights, sizes)
        self.theta = (self.theta + self.config.server_learning_rate * update).float()
        self._adapt(present, updates, update, weights)

    def _global_update(
        self, replies: Collected, updates: Sequence[Tensor], weights: Sequence[float], sizes: dict[int, int]
    ) -> Tensor:
        """Return u_bar in float64; where it is FedAvg's mean, from the integer sums, so with FedAvg's bits."""
        present = {n for n in sizes.values() if n > 0}
        if self.config.region_weight == "size" or len(present) == 1:
            return mean(add_totals(replies.sums.values()), sum(sizes.values()))
        result = torch.zeros_like(updates[0], dtype=torch.float64)
        for weight, u in zip(weights, updates, strict=True):
            result += (weight / sum(weights)) * u
        return result

    def _adapt(self, present: list[int], updates: list[Tensor], update: Tensor, weights: list[float]) -> None:
        """Renew v_r, d_r and alpha_r (Eq. 6) of the regions that replied; the others keep theirs."""
        conflict, mean_update = measure_conflict(updates, weights), update.float()
        distances = {r: float(conflict.distance[i]) for i, r in enumerate(present)}
        self.centre = self.centre.observe(distances, len(self.topology.region_names))
        for i, region in enumerate(present):
            centre = self.centre.of(region, distances)
            self.regions[region] = RegionState(
                direction=updates[i] - mean_update,
                alpha=personalization_weight(distances[region], centre, self.config.alpha_min, self.config.tau),
                rho=self.config.rho,
                conflict=distances[region],
                cosine=float(conflict.cosine[i]),
                update_norm=float(conflict.norm[i]),
            )

    def judgement(self, server_round: int) -> Judgement:
        """Have users judge the shared model and, once there is a direction, their region's own."""
        vectors, numbers = {THETA: self.theta}, {}
        for region in range(len(self.topology.region_names)) if self.regions else ():
            state = self.regions.get(region)
            vectors[f"direction/{region}"] = state.direction if state else torch.zeros_like(self.theta)
            numbers[f"intensity/{region}"] = [state.alpha * state.rho if state else 0.0]
        return Judgement(("shared", "regional") if self.regions else ("shared",), vectors, numbers)

    def regional_models(self) -> dict[int, Tensor]:
        """Return theta + alpha_r rho_r v_r of each region that has a direction (Eq. 4)."""
        return {r: compose(self.theta, s.alpha * s.rho, s.direction) for r, s in sorted(self.regions.items())}

    def region_log(self) -> dict[int, dict[str, float]]:
        """Return conflict, cosine, weight, intensity and norms of each region."""
        return {
            region: {
                "conflict": state.conflict,
                "cosine": state.cosine,
                "alpha": state.alpha,
                "rho": state.rho,
                "update_norm": state.update_norm,
                "direction_norm": float(state.direction.norm()),
            }
            for region, state in sorted(self.regions.items())
        }


def compose(theta: Tensor, intensity: float, direction: Tensor) -> Tensor:
    """Return theta + intensity * direction (Eq. 4), the same bits on the server and on every node."""
    return theta + intensity * direction


class RegionFedClient(FedAvgClient):
    """The grad strategy asks users for nothing but FedAvg's update."""

    def model(self, name: str, task: UserTask, vectors: dict[str, Tensor], numbers: dict[str, list[float]]) -> Tensor:
        """Build the shared model, or the user's region's."""
        if name == "shared":
            return vectors[THETA]
        return compose(vectors[THETA], numbers[f"intensity/{task.region}"][0], vectors[f"direction/{task.region}"])
