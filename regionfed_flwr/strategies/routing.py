"""Which strategy each region uses: fixed, or routed from conflict, divergence and size (paper Algorithm 1, D.6)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.conflict import Conflict
from regionfed_flwr.core.metrics import add_counts, scores
from regionfed_flwr.core.router import RouterSettings, RouterState, Signals, observe_accuracy, route
from regionfed_flwr.privacy.local_dp import estimate_histogram, kl_divergence, randomize
from regionfed_flwr.strategies.exchange import Exchange
from regionfed_flwr.strategies.local import Update, UserTask
from regionfed_flwr.topology import Topology

if TYPE_CHECKING:
    from regionfed_flwr.strategies.regionfed import RegionFed


class Routing:
    """The router of all regions and what it remembers.

    Parameters
    ----------
    config : RunConfig
        ``strategy`` other than ``dynamic`` is used by every region, without any exchange.
    topology : Topology
        Users and regions.
    """

    def __init__(self, config: RunConfig, topology: Topology) -> None:
        self.config, self.topology = config, topology
        self.states: dict[int, RouterState] = {}
        self.reasons: dict[int, str] = {}
        self._divergence: dict[int, float] | None = None
        self.settings = RouterSettings(
            rule="A_rel" if config.router == "A-rel" else config.router,  # type: ignore[arg-type]
            conflict=config.tau_conflict,
            divergence=config.tau_heterogeneity,
            size=config.size_ratio,
            hysteresis=config.hysteresis,
            conflict_decay=0.9,
            fallback=config.fallback,
            cooldown=config.cooldown,
            patience=2 if config.fallback else 0,
        )

    def choose(
        self, server_round: int, conflict: Conflict, sizes: Mapping[int, int], exchange: Exchange
    ) -> dict[int, str]:
        """Return the strategy of each region that is present in this round, given its number of examples."""
        regions = tuple(sizes)
        if self.config.strategy != "dynamic":
            return dict.fromkeys(regions, self.config.strategy)
        if self._divergence is None:
            self._divergence = self._measure_divergence(server_round, exchange)
        signals = self._signals(conflict, sizes, self._divergence)
        chosen: dict[int, str] = {}
        for region in regions:
            state = self.states.get(region, RouterState())
            everyone = list(signals.values())
            chosen[region], self.states[region], self.reasons[region] = route(
                state, signals[region], self.settings, everyone
            )
        return chosen

    def observe(self, server_round: int, strategy: RegionFed) -> None:
        """Remember each region's validation accuracy after a round, for the fallback."""
        if self.config.strategy != "dynamic" or not self.config.fallback:
            return
        judgement = strategy.judgement(server_round)
        users = range(len(self.topology.region_of))
        counts = strategy.exchange.evaluate(server_round, judgement, users, "validation").get("regional", {})
        for region, state in self.states.items():
            members = [counts[u] for u in self.topology.users_of_region(region) if u in counts]
            accuracy = scores(add_counts(members)).get("overall")
            if accuracy is not None:
                self.states[region] = observe_accuracy(state, accuracy)

    @staticmethod
    def report(task: UserTask) -> Update:
        """Return the user's one report: the label of a random own sample by randomized response (local privacy)."""
        if not task.labels:
            return Update({}, 0, {"report": -1.0, "classes": float(task.num_classes)})
        generator = np.random.default_rng(task.generator.initial_seed())
        label = int(task.labels[int(generator.integers(len(task.labels)))])
        report = randomize(label, task.num_classes, task.config.ldp_epsilon, generator)
        return Update({}, 0, {"report": float(report), "classes": float(task.num_classes)})

    def _measure_divergence(self, server_round: int, exchange: Exchange) -> dict[int, float]:
        """Ask every user once for a randomized label and return h_r = KL(P_r || P_global) by region, in nats."""
        replies = exchange.train(server_round, "histogram", range(len(self.topology.region_of)), {}, 0)
        reports = {u: int(m["report"]) for u, m in replies.metrics.items() if m.get("report", -1.0) >= 0}
        classes = int(max((m.get("classes", 1.0) for m in replies.metrics.values()), default=1))

        def histogram(region: int) -> npt.NDArray[np.float64]:
            mine = [reports[u] for u in self.topology.users_of_region(region) if u in reports]
            return estimate_histogram(np.bincount(mine, minlength=classes), self.config.ldp_epsilon)

        estimates = [histogram(r) for r in range(len(self.topology.region_names))]
        # The mean of the estimates, not the pooled estimate: else a third of the regions diverges by noise alone.
        everyone = np.mean(estimates, axis=0)
        return {r: kl_divergence(estimate, everyone) for r, estimate in enumerate(estimates)}

    def _signals(
        self, conflict: Conflict, sizes: Mapping[int, int], divergence: dict[int, float]
    ) -> dict[int, Signals]:
        global_norm = float((conflict.weights @ conflict.gram @ conflict.weights).clamp(min=0).sqrt())
        return {
            r: Signals(
                conflict_l2=float(conflict.distance[i]),
                conflict_cosine=1 - float(conflict.cosine[i]),
                update_norm=float(conflict.norm[i]),
                global_norm=global_norm,
                divergence=divergence[r],
                num_examples=sizes[r],
                mean_examples=sum(sizes.values()) / len(sizes),
            )
            for i, r in enumerate(sizes)
        }
