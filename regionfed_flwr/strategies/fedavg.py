"""FedAvg (McMahan et al., 2017): one model, the mean of the users' updates weighted by their examples."""

from __future__ import annotations

from torch import Tensor

from regionfed_flwr.core.fixed_point import moved
from regionfed_flwr.strategies.base import THETA, RegionalStrategy
from regionfed_flwr.strategies.local import Update, UserTask, train_locally
from regionfed_flwr.strategies.replies import Collected


class FedAvg(RegionalStrategy):
    """theta <- theta + eta_s * sum_u n_u Delta_u / sum_u n_u over the users that replied.

    Down theta (d numbers), up one partial sum a node (d int64); no state.
    """

    method = "fedavg"
    block = "all"

    def step(self, server_round: int, replies: Collected) -> None:
        """Take the server step on the mean update; without any example nothing moves."""
        if "update/all" in replies.sums:
            weight = replies.weight(replies.num_examples)
            self.theta = moved(self.theta, replies.sums["update/all"], weight, self.config.server_learning_rate)


class FedAvgClient:
    """Delta_u = theta_u - theta after E local epochs."""

    def train(self, task: UserTask, vectors: dict[str, Tensor], phase: str) -> Update:
        """Train from theta and return the difference."""
        result = train_locally(task, vectors[THETA])
        metrics = {"train-loss": result.loss, "steps": float(result.steps)}
        return Update({"update": result.delta}, task.num_examples, metrics)

    def model(self, name: str, task: UserTask, vectors: dict[str, Tensor], numbers: dict[str, list[float]]) -> Tensor:
        """Return the model to be judged: there is only the shared one."""
        return vectors[THETA]
