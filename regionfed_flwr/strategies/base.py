"""What all methods share on the server: nodes, cohorts, exchanges, rejected replies, evaluation and the round loop.

A method subclasses :class:`RegionalStrategy`, says which sums it needs (``block``), and implements ``step``.
"""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from logging import INFO, WARNING
from typing import Any, ClassVar

import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.metrics import add_counts, scores
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.strategies.events import Callback, RoundRecord
from regionfed_flwr.strategies.node import block_name
from regionfed_flwr.strategies.replies import Collected, Rejection, collect_evaluate, collect_train
from regionfed_flwr.strategies.wire import content, decode_array, encode_array, num_bytes
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
        self.rejections: list[Rejection] = []
        self._asked: dict[int, list[int]] = {}
        self._judged: list[str] = ["shared"]
        self._bytes_down = 0
        self._collected: Collected | None = None
        self._evaluation: dict[str, Any] | None = None

    # --- what a method defines -----------------------------------------------------------------------------------

    @abstractmethod
    def step(self, server_round: int, replies: Collected) -> None:
        """Update ``self.theta`` and the regions' states from the sums of one round."""

    def regional_models(self) -> dict[int, Tensor]:
        """Return each region's own model, shape ``(d,)``; empty for a method without one."""
        return {}

    def region_log(self) -> dict[int, dict[str, float]]:
        """Return numbers of each region for the round's log."""
        return {}

    # --- Flower's Strategy interface -----------------------------------------------------------------------------

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Ask each node to train those of its users that take part in this round."""
        cohort = self.topology.cohort(self.config.fraction, self.config.seed, server_round)
        return self._messages("train", cohort, lambda _: {THETA: arrays[THETA]}, server_round, {
            "method": self.method,
            "phase": "train",
            "block": self.block,
        })  # fmt: skip

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Add the partial sums, reject what is malformed, and let the method take its step."""
        collected = collect_train(replies, self._asked, self.theta.numel(), self._block_names())
        self._note_rejections(server_round, collected.rejections)
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
        """Ask every node to judge the shared model and its users' regional models on their test parts."""
        if not self._evaluates(server_round):
            return []
        regional = {region: encode_array(model) for region, model in self.regional_models().items()}
        self._judged = ["shared", "regional"] if regional else ["shared"]

        def vectors(regions: set[int]) -> dict[str, Array]:
            own = {f"regional/{r}": regional.get(r, arrays[THETA]) for r in sorted(regions)} if regional else {}
            return {"shared": arrays[THETA], **own}

        users = range(len(self.topology.region_of))
        return self._messages("evaluate", users, vectors, server_round, {"models": self._judged, "split": "test"})

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Add the counts over users and regions."""
        self._evaluation = None
        if not self._evaluates(server_round):
            return None
        counts, rejections = collect_evaluate(replies, self._asked, self._judged)
        self._note_rejections(server_round, rejections)
        if rejections and not counts["shared"]:
            raise RegionFedError(f"No node could evaluate round {server_round}; the first said: {rejections[0].reason}")
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
        train_config, evaluate_config = train_config or ConfigRecord(), evaluate_config or ConfigRecord()
        self.theta = decode_array(initial_arrays[THETA]).clone()
        result, arrays = Result(), ArrayRecord({THETA: initial_arrays[THETA]})
        result.arrays = arrays
        for server_round in range(first_round - 1, num_rounds + 1):
            began, self._bytes_down, self._collected, rejected = time.monotonic(), 0, None, len(self.rejections)
            if server_round >= first_round:
                self._tell("train", server_round, num_rounds)
                replies = self._exchange(grid, self.configure_train(server_round, arrays, train_config, grid), timeout)
                new, train_metrics = self.aggregate_train(server_round, replies)
                arrays = result.arrays = new or arrays
                if train_metrics is not None:
                    result.train_metrics_clientapp[server_round] = train_metrics
            if server_round >= first_round or first_round == 1:
                if self._evaluates(server_round):
                    self._tell("evaluate", server_round, num_rounds)
                messages = self.configure_evaluate(server_round, arrays, evaluate_config, grid)
                metrics = self.aggregate_evaluate(server_round, self._exchange(grid, messages, timeout))
                if metrics is not None:
                    result.evaluate_metrics_clientapp[server_round] = metrics
                if evaluate_fn and (central := evaluate_fn(server_round, arrays)) is not None:
                    result.evaluate_metrics_serverapp[server_round] = central
                record = self._record(server_round, time.monotonic() - began, self.rejections[rejected:])
                for callback in self.callbacks:
                    callback.on_round(record, self)
        return result

    # --- parts ---------------------------------------------------------------------------------------------------

    def _messages(
        self,
        message_type: str,
        users: Iterable[int],
        vectors: Callable[[set[int]], dict[str, Array]],
        server_round: int,
        config: dict[str, Any],
    ) -> list[Message]:
        self._asked = self.topology.by_node(list(users))
        messages = []
        for node, hosted in self._asked.items():
            regions = [self.topology.region_of[u] for u in hosted]
            body = config | {"round": server_round, "users": hosted, "user-regions": regions}
            records = content(vectors=vectors(set(regions)), config=body)
            messages.append(Message(records, node, message_type, group_id=str(server_round)))
        return messages

    def _exchange(self, grid: Grid, messages: Iterable[Message], timeout: float) -> list[Message]:
        pending = list(messages)
        self._bytes_down += sum(num_bytes(m) for m in pending)
        return list(grid.send_and_receive(pending, timeout=timeout)) if pending else []

    def _block_names(self) -> set[str]:
        users = [(u, self.topology.region_of[u]) for hosted in self._asked.values() for u in hosted]
        return {block_name(name, self.block, u, r) for name in self.vectors for u, r in users}

    def _evaluates(self, server_round: int) -> bool:
        every = self.config.evaluate_every
        return every > 0 and (server_round % every == 0 or server_round == self.config.num_server_rounds)

    def _scores(self, by_user: dict[int, dict[str, float]]) -> dict[str, Any]:
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
            bytes_down=self._bytes_down,
            bytes_up=replies.bytes_up,
            users=len(replies.num_examples),
            rejected=sum(len(r.users) for r in rejections),
            train_loss=replies.mean_metric("train-loss", replies.num_examples),
            regions=regions,
            evaluation=self._evaluation,
        )

    def _note_rejections(self, server_round: int, rejections: Sequence[Rejection]) -> None:
        self.rejections.extend(rejections)
        for rejection in rejections:
            users = ", ".join(map(str, rejection.users[:8])) + (", ..." if len(rejection.users) > 8 else "")
            text = f"round {server_round}: node {rejection.node_id}, user(s) {users} left out: {rejection.reason}"
            log(WARNING, text)
            self._tell("rejected", server_round, self.config.num_server_rounds, text)

    def _tell(self, event: str, server_round: int, rounds: int, text: str = "") -> None:
        for callback in self.callbacks:
            callback.on_phase(event, server_round, rounds, text)
