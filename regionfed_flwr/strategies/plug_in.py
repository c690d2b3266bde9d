"""RegionFed in place of Flower's FedAvg, for an app whose ClientApp stays as it is (paper Algorithms 1 to 3).

The shared model is FedAvg's, to the rounding of a sum. Beside it every region gets

    theta_region^r = theta^{t+1} + alpha_r rho_r v_r                           (Eq. 4)

with a direction v_r that is made of what ordinary train messages return, an intensity rho_r that is fixed or found by
ordinary evaluate messages, and the weight alpha_r from the conflict between the regions (Eq. 6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO
from typing import Any

from flwr.app import ArrayRecord, ConfigRecord, Message, MessageType, MetricRecord
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import FedAvg, Result
from torch import Tensor

from regionfed_flwr.config import RunConfig, parse_config
from regionfed_flwr.core.alpha import Centre, personalization_weight
from regionfed_flwr.core.conflict import measure_conflict
from regionfed_flwr.core.search import SearchResult
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.strategies.intensity import new_search
from regionfed_flwr.strategies.plug_in_regions import Exchange, RegionOf, Regions, RegionState
from regionfed_flwr.strategies.plug_in_replies import Layout, RegionalSums, Reply, log_left_out, read_replies

BUFFERS = r"(^|\.)(running_mean|running_var|num_batches_tracked)$"
"""Names of the arrays that PyTorch's batch normalisation counts instead of learning."""

_OFFERED = {
    "strategy": ("grad", "interp", "meta"),
    "rho_search": ("fixed", "section-k", "golden"),
    "alpha_mode": ("paper", "one"),
}


class RegionFed(FedAvg):
    """FedAvg with a model for each region besides.

    Takes every parameter of Flower's FedAvg, and those below. Train messages carry the shared model, evaluate messages
    the model of the node's region: what would be deployed there. With a single region it does what FedAvg does. A
    reply that is an error, is not finite, or has other keys or shapes than the rest is left out and logged. With
    ``interp``, ``meta`` or a search, nodes are sent further train or evaluate messages in the same round.

    Parameters
    ----------
    region_of : Optional[Mapping[int, str] | Callable[[int], str]] (default: None)
        Node id to region. Exactly one of `region_of`, `region_query` and `region_from` must be given.
    region_query : Optional[str] (default: None)
        Name of a query, such as "region": each node is asked once, and the ConfigRecord in its reply holds "region".
    region_from : Optional[str] (default: None)
        "location": the coordinates with which the node was registered at the SuperLink; equal ones are a region.
    strategy : str (default: "grad")
        Direction of a region. "grad": its update minus the mean update, at no cost. "interp": what one more round of
        its nodes, from the new shared model, adds to that model. "meta": the gradient at the new shared model. A
        client that only returns trained arrays cannot return a gradient: "meta" takes the difference that it returns
        and so is the same as "interp", unless `meta_config` tells the client to take a single step.
    meta_config : Optional[dict] (default: None)
        Keys added to the ConfigRecord of the second train message of "meta", for example `{"local-steps": 1}`.
    rho : float (default: 1.0)
        Intensity when it is fixed. With "grad" and alpha * rho = 1 a region gets the mean of its own nodes.
    rho_search : str (default: "fixed")
        "section-k" (few exchanges) or "golden" (few messages) find each region's intensity: candidates are evaluated
        by the region's nodes of the round. They are judged alone, without alpha, on whatever the ClientApp evaluates,
        so the losses reported afterwards are the best of several.
    rho_max, rho_tolerance : float (defaults: 2.0, 0.01)
        Upper end and tolerance of the search.
    loss_key : str (default: "eval_loss")
        The key of the loss within the MetricRecord of an evaluate reply, for the search.
    alpha_mode : str (default: "paper")
        "paper": the weight of Eq. 6; "one": always 1.
    alpha_min, tau : float (defaults: 0.5, 1.0)
        Smallest weight, and the temperature by which the distance between updates is divided.
    mu_mode : str (default: "shared-median")
        Centre of the weight: "shared-median", "per-region", "running" or "zero".
    evaluate_shared : bool (default: False)
        Send the shared model too. Its metrics come back with the prefix "shared-".
    buffers : str
        Regular expression for the names of arrays without a direction; by default those of batch normalisation.
        These and integer arrays are always the shared model's.

    Attributes
    ----------
    regional_arrays : dict[str, ArrayRecord]
        Each region's model.
    region_states : dict[str, RegionState]
        alpha, rho and conflict of each region that has taken part.

    Raises
    ------
    RegionFedError
        For a parameter that is not allowed, a node without a region, a round in which no node could train, or a
        search without the loss.
    """

    def __init__(
        self,
        *args: Any,
        region_of: RegionOf | None = None,
        region_query: str | None = None,
        region_from: str | None = None,
        strategy: str = "grad",
        meta_config: Mapping[str, Any] | None = None,
        rho: float = 1.0,
        rho_search: str = "fixed",
        rho_max: float = 2.0,
        rho_tolerance: float = 0.01,
        loss_key: str = "eval_loss",
        alpha_mode: str = "paper",
        alpha_min: float = 0.5,
        tau: float = 1.0,
        mu_mode: str = "shared-median",
        evaluate_shared: bool = False,
        buffers: str = BUFFERS,
        **kwargs: Any,
    ) -> None:
        super().__init__(*args, **kwargs)
        self.settings = _check(
            strategy=strategy,
            rho=rho,
            rho_search=rho_search,
            rho_max=rho_max,
            rho_tolerance=rho_tolerance,
            alpha_mode=alpha_mode,
            alpha_min=alpha_min,
            tau=tau,
            mu_mode=mu_mode,
        )
        if meta_config and strategy != "meta":
            raise RegionFedError(f"meta_config is only for strategy = 'meta', but strategy is '{strategy}'.")
        self.meta_config, self.loss_key = ConfigRecord(dict(meta_config or {})), loss_key
        self.evaluate_shared, self.buffers = evaluate_shared, buffers
        self._sources = (region_of, region_query, region_from)
        self._reset()

    def _reset(self) -> None:
        self.regional_arrays: dict[str, ArrayRecord] = {}
        self.region_states: dict[str, RegionState] = {}
        self._centre = Centre(self.settings.mu_mode)
        self._asked: list[int] = []
        self._shared_requests: list[Message] = []
        layout, keys = Layout(ArrayRecord(), self.buffers), (self.arrayrecord_key, self.configrecord_key)
        self._exchange = Exchange(Regions(*self._sources), layout, keys, self.weighted_by_key, self.loss_key)

    # --- Flower's Strategy interface -----------------------------------------------------------------------------

    def summary(self) -> None:
        """Log summary configuration of the strategy."""
        super().summary()
        log(INFO, "\t└──> Regions: strategy '%s', rho_search '%s'", self.settings.strategy, self.settings.rho_search)

    def start(
        self,
        grid: Grid,
        initial_arrays: ArrayRecord,
        num_rounds: int = 3,
        timeout: float = 3600,
        train_config: ConfigRecord | None = None,
        evaluate_config: ConfigRecord | None = None,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
    ) -> Result:
        """Execute the federated learning strategy, as FedAvg does; the regions' models are attributes afterwards."""
        self._reset()
        self._exchange.timeout, self._exchange.evaluate_config = timeout, evaluate_config or ConfigRecord()
        return super().start(grid, initial_arrays, num_rounds, timeout, train_config, evaluate_config, evaluate_fn)

    def configure_train(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the next round of federated training."""
        exchange = self._exchange
        exchange.grid, exchange.layout, exchange.train_config = grid, Layout(arrays, self.buffers), config
        messages = list(super().configure_train(server_round, arrays, config, grid))
        sampled = [message.metadata.dst_node_id for message in messages]
        exchange.regions.learn({*grid.get_node_ids(), *sampled}, grid, exchange.timeout)
        self._asked = [node for node in sampled if node in exchange.regions]
        if sampled and not self._asked:
            raise RegionFedError(f"In round {server_round} no sampled node could be reached and asked for its region.")
        return [message for message in messages if message.metadata.dst_node_id in self._asked]

    def aggregate_train(
        self, server_round: int, replies: Iterable[Message]
    ) -> tuple[ArrayRecord | None, MetricRecord | None]:
        """Aggregate all replies as FedAvg does, then renew the models of the regions that replied."""
        received = list(replies)
        if not received and not self._asked:
            return None, None
        sums, used, left_out = self._exchange.read_train(server_round, received, self._asked)
        if not sums.present:
            reason = left_out[0][1] if left_out else f"its '{self.weighted_by_key}' is 0"
            raise RegionFedError(f"Round {server_round} brought no usable reply from any node; the first: {reason}.")
        shared = self._adapt(server_round, sums, used)
        return shared, self.train_metrics_aggr_fn([reply.content for reply in used], self.weighted_by_key)

    def configure_evaluate(
        self, server_round: int, arrays: ArrayRecord, config: ConfigRecord, grid: Grid
    ) -> Iterable[Message]:
        """Configure the next round of federated evaluation: each node judges its region's model."""
        messages = super().configure_evaluate(server_round, arrays, config, grid)
        nodes = [message.metadata.dst_node_id for message in messages]
        regions, request = self._exchange.regions, self._exchange.request
        regions.learn(nodes, grid, self._exchange.timeout)
        nodes = [node for node in nodes if node in regions]
        models = {node: self.regional_arrays.get(regions.of(node), arrays) for node in nodes}
        regional = [request(MessageType.EVALUATE, "regional", node, models[node], config) for node in nodes]
        judges = nodes if self.evaluate_shared else []
        self._shared_requests = [request(MessageType.EVALUATE, "shared", node, arrays, config) for node in judges]
        return [*regional, *self._shared_requests]

    def aggregate_evaluate(self, server_round: int, replies: Iterable[Message]) -> MetricRecord | None:
        """Aggregate MetricRecords in the received Messages."""
        asked = {message.metadata.message_id for message in self._shared_requests}
        received = list(replies)
        record = MetricRecord()
        for prefix in ("", "shared-"):
            mine = [m for m in received if (m.metadata.reply_to_message_id in asked) == bool(prefix)]
            used, left_out = read_replies(mine, self.weighted_by_key, finite=True)
            log_left_out(server_round, "evaluate", left_out)
            if sum(reply.weight for reply in used) > 0:
                metrics = self.evaluate_metrics_aggr_fn([reply.content for reply in used], self.weighted_by_key)
                record.update({prefix + key: value for key, value in metrics.items()})
        return record if record else None

    # --- the regions ---------------------------------------------------------------------------------------------

    def _adapt(self, server_round: int, sums: RegionalSums, used: Sequence[Reply]) -> ArrayRecord:
        """Renew the states of the regions that replied and all regions' models; return the shared model."""
        regions, layout, mean = self._exchange.regions, self._exchange.layout, sums.mean(sums.present)
        names = regions.names
        shared = layout.encode(mean)
        directions = {region: layout.direction(sums.mean([region]), mean) for region in sums.present}
        conflict = measure_conflict(list(directions.values()), [sums.weights[region] for region in directions])
        distances = {names[r]: float(d) for r, d in zip(directions, conflict.distance, strict=True)}
        self._centre = self._centre.observe(distances, len(names))
        found: dict[str, SearchResult] = {}
        if len(names) > 1:  # a single region is FedAvg
            nodes = {r: [reply.node for reply in used if regions.of(reply.node) == r] for r in directions}
            if self.settings.strategy != "grad":
                directions |= self._exchange.train_again(server_round, shared, nodes, self.meta_config)
            found = self._search(server_round, shared, directions, nodes)
        for region, direction in directions.items():
            alpha, old = self._alpha(names[region], distances), self.region_states.get(region)
            rho = found[region].rho if region in found else old.rho if old else self.settings.rho
            distance = distances[names[region]]
            self.region_states[region] = RegionState(alpha, rho, distance, direction, found.get(region))
            log(INFO, "\t> Region %s: conflict %.4g, alpha %.4g, rho %.4g", region, distance, alpha, rho)
        models = {r: layout.attach(shared, s.alpha * s.rho, s.direction) for r, s in self.region_states.items()}
        self.regional_arrays = {region: models.get(region, shared) for region in names}
        return shared

    def _alpha(self, region: int, distances: dict[int, float]) -> float:
        if self.settings.alpha_mode == "one":
            return 1.0
        centre = self._centre.of(region, distances)
        return personalization_weight(distances[region], centre, self.settings.alpha_min, self.settings.tau)

    def _search(
        self, server_round: int, shared: ArrayRecord, directions: dict[str, Tensor], nodes: dict[str, list[int]]
    ) -> dict[str, SearchResult]:
        """Find rho_r of all regions at once; a region whose nodes do not answer is not in the result."""
        if self.settings.rho_search == "fixed":
            return {}
        layout = self._exchange.layout
        searches = {region: new_search(self.settings) for region in directions}
        while points := {region: search.ask() for region, search in searches.items() if not search.done}:
            models = {r: [layout.attach(shared, x, directions[r]) for x in xs] for r, xs in points.items()}
            losses = self._exchange.losses(server_round, models, nodes)
            for region in points:
                if region in losses:
                    searches[region].tell(losses[region])
                else:
                    del searches[region]
        return {region: search.result() for region, search in searches.items()}


def _check(**values: str | float) -> RunConfig:
    """Return the checked parameters, under the names that they have in a run configuration."""
    for name, choices in _OFFERED.items():
        if values[name] not in choices:
            allowed = ", ".join(f"'{choice}'" for choice in choices)
            raise RegionFedError(f"RegionFed's {name} is {values[name]!r}, but allowed is: {allowed}.")
    settings = parse_config({}, **values)
    if settings.rho_search != "fixed":
        new_search(settings)  # refuses a tolerance that cannot be reached
    return settings
