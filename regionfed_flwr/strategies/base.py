"""What all methods share on the server: cohorts, the round loop, evaluation and the round's record.

A method subclasses :class:`RegionalStrategy`, says which sums it needs (``block``), and implements ``step``.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from logging import INFO
from typing import Any, ClassVar

import torch
from flwr.app import ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.metrics import Counts, add_counts, scores
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.strategies.events import Callback, Judgement, RoundRecord
from regionfed_flwr.strategies.exchange import Exchange
from regionfed_flwr.strategies.replies import Collected, Rejection
from regionfed_flwr.strategies.wire import decode_array, encode_array
from regionfed_flwr.topology import Topology

THETA = "theta"


class RegionalStrategy(Strategy):
    """Base of all strategies: a global server with one coordinator per region inside.

    Parameters
    ----------
    config : RunConfig
        The run's configuration.
    topology : Topology
        Users, regions and the nodes that host them.
    callbacks : sequence of Callback, optional
        Called at each phase and after each round.
    """

    method: ClassVar[str]
    block: ClassVar[str] = "all"
    vectors: ClassVar[tuple[str, ...]] = ("update",)

    def __init__(self, config: RunConfig, topology: Topology, callbacks: Sequence[Callback] = ()) -> None:
        self.config = config
        self.topology = topology
        self.callbacks = tuple(callbacks)
        self.theta = torch.zeros(0)
        self.exchange = Exchange(topology, self.method, self.block, self.vectors, self._tell_rejected)
        self._collected: Collected | None = None
        self._judged: tuple[str, ...] = ()
        self._evaluation: dict[str, Any] | None = None

    # --- what a method defines -----------------------------------------------------------------------------------

    @abstractmethod
    def step(self, server_round: int, replies: Collected) -> None:
        """Update ``self.theta`` from the sums of one round."""

    def adapt(self, server_round: int) -> None:
        """Make further exchanges after the step."""

    def train_vectors(self) -> dict[str, Tensor]:
        """Return what the users of a round are sent: ``<name>`` to all, ``<name>/<region>`` to a region's."""
        return {THETA: self.theta}

    def judgement(self, server_round: int) -> Judgement:
        """Return what users need to judge this method's models; the default is the shared model alone."""
        return Judgement(("shared",), {THETA: self.theta})

    def regional_models(self) -> dict[int, Tensor]:
        """Return each region's own model, shape ``(d,)``; empty for a method without one."""
        return {}

    def region_log(self) -> dict[int, dict[str, float]]:
        """Return numbers of each region for the round's log."""
        return {}

    # --- Flower's Strategy interface -----------------------------------------------------------------------------

    @property
    def rejections(self) -> list[Rejection]:
        """Everything that was left out so far."""
        return self.exchange.rejections

    def cohort(self, server_round: int) -> tuple[int, ...]:
        """Draw the users of a round."""
        return self.topology.cohort(self.config.fraction, self.config.seed, server_round)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask each node to train those of its users that take part in this round."""
        return self.exchange.train_messages(server_round, "train", self.cohort(server_round), self.train_vectors())

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add the partial sums, reject what is malformed, and let the method take its step."""
        collected = self.exchange.read_sums(server_round, replies, self.theta.numel())
        if not collected.num_examples:
            reason = collected.rejections[0].reason if collected.rejections else "no node was asked"
            raise RegionFedError(
                f"Round {server_round} brought no usable reply from any node; the first said: {reason}"
            )
        self._collected = collected
        self.step(server_round, collected)
        metrics = MetricRecord({"num-examples": collected.weight(collected.num_examples)})
        return ArrayRecord({THETA: encode_array(self.theta)}), metrics

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask every node to judge the method's models on its users' test parts."""
        if not self._evaluates(server_round):
            return []
        judgement = self.judgement(server_round)
        self._judged = judgement.models
        return self.exchange.judge_messages(server_round, judgement, range(len(self.topology.region_of)), "test")

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Add the counts over users and regions."""
        self._evaluation = None
        if not self._evaluates(server_round):
            return None
        counts = self.exchange.read_counts(server_round, replies, self._judged)
        if not counts["shared"]:
            reason = self.rejections[-1].reason if self.rejections else "no node was asked"
            raise RegionFedError(f"No node could evaluate round {server_round}; the last said: {reason}")
        self._evaluation = {name: self._scores(by_user) for name, by_user in counts.items() if by_user}
        record = MetricRecord()
        for name, scored in self._evaluation.items():
            record.update({f"{name}/{key}": value for key, value in scored.items() if key != "per_region"})
        return record

    def summary(self) -> None:
        """Log what runs where."""
        nodes = len(set(self.topology.node_of))
        regions, users = len(self.topology.region_names), len(self.topology.region_of)
        log(INFO, "\t%s: %d users in %d regions on %d nodes", self.method, users, regions, nodes)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        first_round: int = 1,
    ) -> Result:
        """Run rounds ``first_round`` to ``num_rounds`` from the given parameters.

        Parameters
        ----------
        grid : Grid
            Flower's access to the nodes.
        initial_arrays : ArrayRecord
            One flat float32 Array ``theta`` of shape ``(d,)``.
        num_rounds : int
            The last round's number.
        timeout : float
            Seconds to wait in one exchange.
        train_config, evaluate_config : ConfigRecord, optional
            Accepted for Flower's interface; the methods read the run's configuration instead.
        evaluate_fn : callable, optional
            Central evaluation, called before the first round and after each round.
        first_round : int
            The first round's number; above 1 the strategy goes on from a state restored before.

        Returns
        -------
        Result
            Final arrays and metrics by round.
        """
        self.summary()
        self.exchange.open(grid, timeout)
        self.theta = decode_array(initial_arrays[THETA]).clone()
        result = Result()
        result.arrays = ArrayRecord({THETA: initial_arrays[THETA]})
        config = ConfigRecord()
        for server_round in range(0 if first_round == 1 else first_round, num_rounds + 1):
            began, rejected = time.monotonic(), len(self.rejections)
            self.exchange.bytes_down = self.exchange.bytes_up = 0
            self._collected = None
            if server_round >= first_round:
                self._tell("train", server_round, num_rounds)
                messages = self.configure_train(server_round, result.arrays, config, grid)
                arrays, metrics = self.aggregate_train(server_round, self.exchange.send(messages))
                result.arrays = arrays or result.arrays
                result.train_metrics_clientapp[server_round] = metrics or MetricRecord()
                self.adapt(server_round)
            if self._evaluates(server_round):
                self._tell("evaluate", server_round, num_rounds)
                messages = self.configure_evaluate(server_round, result.arrays, config, grid)
                scored = self.aggregate_evaluate(server_round, self.exchange.send(messages))
                result.evaluate_metrics_clientapp[server_round] = scored or MetricRecord()
            if evaluate_fn and (central := evaluate_fn(server_round, result.arrays)) is not None:
                result.evaluate_metrics_serverapp[server_round] = central
            record = self._record(server_round, time.monotonic() - began, self.rejections[rejected:])
            for callback in self.callbacks:
                callback.on_round(record, self)
        return result

    # --- parts ---------------------------------------------------------------------------------------------------

    def _evaluates(self, server_round: int) -> bool:
        every = self.config.evaluate_every
        return every > 0 and (server_round % every == 0 or server_round == self.config.num_server_rounds)

    def _scores(self, by_user: dict[int, Counts]) -> dict[str, Any]:
        """Return scores over all users and, under ``per_region``, of each region."""
        result: dict[str, Any] = dict(scores(add_counts(by_user.values())))
        result["per_region"] = {
            name: scores(add_counts(by_user[u] for u in self.topology.users_of_region(r) if u in by_user))
            for r, name in enumerate(self.topology.region_names)
        }
        return result

    def _record(self, server_round: int, seconds: float, rejections: Sequence[Rejection]) -> RoundRecord:
        replies = self._collected or Collected({}, {}, {}, (), 0)
        regions = {}
        for region, numbers in self.region_log().items() if self._collected else ():
            users = self.topology.users_of_region(region)
            regions[self.topology.region_names[region]] = {
                **numbers,
                "num_examples": replies.weight(users),
                **({"train_loss": loss} if (loss := replies.mean_metric("train-loss", users)) is not None else {}),
            }
        return RoundRecord(
            round=server_round,
            seconds=seconds,
            bytes_down=self.exchange.bytes_down,
            bytes_up=self.exchange.bytes_up,
            users=len(replies.num_examples),
            rejected=sum(len(r.users) for r in rejections),
            train_loss=replies.mean_metric("train-loss", replies.num_examples),
            regions=regions,
            evaluation=self._evaluation if self._evaluates(server_round) else None,
        )

    def _tell_rejected(self, server_round: int, text: str) -> None:
        self._tell("rejected", server_round, self.config.num_server_rounds, text)

    def _tell(self, event: str, server_round: int, rounds: int, text: str = "") -> None:
        for callback in self.callbacks:
            callback.on_phase(event, server_round, rounds, text)
