"""RegionFed (paper Algorithms 1 to 3), in directions: everything is what is added to the parameters.

Round t:

    u_u   = theta_u - theta^t after E local epochs, or -grad L_u(theta^t)      (users)
    u_r   = sum_{u in r} n_u u_u / n_r                                         (regional coordinators)
    u_bar = sum_r p_r u_r,  theta^{t+1} = theta^t + eta_s u_bar                (global server)
    v_r   = u_r - u_bar                                                        (grad)
          | one more regional round from theta^{t+1}, minus theta^{t+1}        (interp)
          | -grad L_r(theta^t + lookahead eta_s u_bar)                         (meta)
    rho_r = argmin over [0, rho_max] of L_r^val(theta^{t+1} + rho v_r)         (Algorithm 3)
    alpha_r from d_r = ||u_r - u_bar||                                         (Eq. 6)
    theta_region^r = theta^{t+1} + alpha_r rho_r v_r                           (Eq. 4)
    theta_u = theta_region^r + alpha_u delta_u, on the device                  (Eqs. 5, 7)

The shared model never depends on the adaptation unless ``train-from = region``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.adaptation import compose, grad_direction, signed, smoothed
from regionfed_flwr.core.alpha import Centre, personalization_weight, shrinkage_weight, spread, theory_weight
from regionfed_flwr.core.conflict import Conflict, measure_conflict
from regionfed_flwr.core.fixed_point import add_totals, mean
from regionfed_flwr.core.search import GoldenSection, SearchResult, minimise
from regionfed_flwr.strategies.base import THETA, RegionalStrategy
from regionfed_flwr.strategies.events import Callback, Judgement
from regionfed_flwr.strategies.intensity import search_intensities
from regionfed_flwr.strategies.local import Update, UserTask, full_gradient, mean_loss, second_order, train_locally
from regionfed_flwr.strategies.replies import Collected
from regionfed_flwr.strategies.routing import Routing
from regionfed_flwr.topology import Topology

ADAPTATION, UPDATE, START = "direction", "regional-update", "start"


@dataclass(frozen=True)
class RegionState:
    """What a regional coordinator holds after a round.

    Attributes
    ----------
    strategy : str
        grad, interp or meta.
    direction : Tensor
        v_r, shape ``(d,)``, float32.
    update : Tensor
        u_r, shape ``(d,)``, float32.
    alpha, rho : float
        Personalization weight and adaptation intensity.
    conflict, cosine : float
        d_r, and the cosine of u_r with the global direction.
    search : SearchResult or None
        How rho was found.
    """

    strategy: str
    direction: Tensor
    update: Tensor
    alpha: float
    rho: float
    conflict: float
    cosine: float
    search: SearchResult | None = None


@dataclass(frozen=True)
class Aggregate:
    """What one round's sums say: examples of the regions present, u_r, u_bar, conflict; theta before the step."""

    sizes: dict[int, int]
    updates: dict[int, Tensor]
    mean: Tensor
    conflict: Conflict
    before: Tensor

    def distances(self) -> dict[int, float]:
        """Return d_r by region."""
        return {r: float(d) for r, d in zip(self.sizes, self.conflict.distance, strict=True)}


class RegionFed(RegionalStrategy):
    """Regional personalization from the conflict between regional and global update directions.

    Down theta (d numbers); interp and meta send one more point to their regions' users, and judging or searching
    sends v_r. Up one partial sum for each region on the node (d int64), for interp and meta twice. State: one
    direction and one update for each region; users keep one number (mu_u). With regions of equal size, or
    ``region-weight = size``, the shared model is FedAvg's.
    """

    method = "regionfed"
    block = "region"

    def __init__(self, config: RunConfig, topology: Topology, callbacks: Sequence[Callback] = ()) -> None:
        super().__init__(config, topology, callbacks)
        self.regions: dict[int, RegionState] = {}
        self.centre = Centre(config.mu_mode, config.mu_scale)
        self.routing = Routing(config, topology)
        self._fresh: dict[int, RegionState] = {}
        self._aggregate: Aggregate | None = None

    # --- the global server ---------------------------------------------------------------------------------------

    def train_vectors(self) -> dict[str, Tensor]:
        """Send theta, and with ``train-from = region`` each region's own starting point besides."""
        vectors = {THETA: self.theta}
        if self.config.train_from == "region":
            vectors |= {f"{START}/{r}": model for r, model in self.regional_models().items()}
        return vectors

    def step(self, server_round: int, replies: Collected) -> None:
        """Aggregate within regions, then globally."""
        sizes = {r: replies.weight(self.topology.users_of_region(r)) for r in range(len(self.topology.region_names))}
        present = tuple(r for r, n in sizes.items() if n > 0)
        self._aggregate = None
        if not present:
            return
        by_size = self.config.region_weight == "size"
        weights = {r: float(sizes[r]) if by_size else 1.0 for r in present}
        update = torch.zeros_like(self.theta, dtype=torch.float64)
        as_fedavg = by_size or len({sizes[r] for r in present}) == 1
        if as_fedavg:  # FedAvg's mean: take it from the same integers, for the same bits
            update = mean(add_totals(replies.sums[f"update/region-{r}"] for r in present), sum(sizes.values()))
        updates: dict[int, Tensor] = {}
        for r in present:  # each sum is let go when it has been divided
            updates[r] = mean(replies.sums.pop(f"update/region-{r}"), sizes[r]).float()
            if not as_fedavg:
                update += (weights[r] / sum(weights.values())) * updates[r]
        conflict = measure_conflict(list(updates.values()), list(weights.values()))
        self._aggregate = Aggregate({r: sizes[r] for r in present}, updates, update.float(), conflict, self.theta)
        self.theta = (self.theta + self.config.server_learning_rate * update).float()

    # --- the regional coordinators -------------------------------------------------------------------------------

    def adapt(self, server_round: int) -> None:
        """Renew direction, intensity and weight of the regions that replied; the others keep theirs."""
        aggregate = self._aggregate
        if aggregate is None:
            return
        strategies = self.routing.choose(server_round, aggregate.conflict, aggregate.sizes, self.exchange)
        directions = self._directions(server_round, aggregate, strategies)
        distances = aggregate.distances()
        self.centre = self.centre.observe(distances, len(self.topology.region_names))
        alphas = {r: self._alpha(r, distances, self.config.rho * float(v.norm())) for r, v in directions.items()}
        found = self._search(server_round, directions, alphas)
        renewed: dict[int, RegionState] = {}
        for i, r in enumerate(aggregate.sizes):
            rho = found[r].rho if r in found else self.config.rho
            if self.config.alpha_mode == "theory":
                alphas[r] = self._alpha(r, distances, rho * float(directions[r].norm()))
            cosine = float(aggregate.conflict.cosine[i])
            renewed[r] = RegionState(
                strategies[r], directions[r], aggregate.updates[r], alphas[r], rho, distances[r], cosine, found.get(r)
            )
        previous, self._fresh = self._fresh, {**self._fresh, **renewed}
        self.regions = previous if self.config.stale else self._fresh
        self.routing.observe(server_round, self)

    def _directions(self, server_round: int, aggregate: Aggregate, strategies: dict[int, str]) -> dict[int, Tensor]:
        """Return v_r of each region, by one more exchange where the strategy needs one."""
        lookahead = compose(aggregate.before, self.config.lookahead * self.config.server_learning_rate, aggregate.mean)
        points = {"interp": {THETA: self.theta}, "meta": {THETA: aggregate.before, "lookahead": lookahead}}
        result: dict[int, Tensor] = {}
        for strategy, vectors in points.items():
            regions = [r for r in aggregate.sizes if strategies[r] == strategy]
            if regions:
                users = [u for u in self.cohort(server_round) if self.topology.region_of[u] in regions]
                replies = self.exchange.train(server_round, strategy, users, vectors, self.theta.numel())
                sizes = {r: replies.weight(self.topology.users_of_region(r)) for r in regions}
                result |= {r: mean(replies.sums[f"update/region-{r}"], n).float() for r, n in sizes.items() if n > 0}
        for r in aggregate.sizes:
            if r not in result:  # grad, or nobody answered the second exchange
                strategies[r] = "grad"
                result[r] = grad_direction(aggregate.updates[r], aggregate.mean)
            old = self._fresh.get(r)
            result[r] = smoothed(
                old.direction if old else None,
                signed(result[r], strategies[r], self.config.sign),
                self.config.direction_ema,
            )
        return result

    def _search(
        self, server_round: int, directions: dict[int, Tensor], alphas: dict[int, float]
    ) -> dict[int, SearchResult]:
        """Find rho_r for all regions; nothing when it is fixed or chosen on the device."""
        if self.config.rho_search not in ("golden", "section-k"):
            return {}
        vectors = {THETA: self.theta, **{f"{ADAPTATION}/{r}": v for r, v in directions.items()}}
        factors = {r: alphas[r] if self.config.search_with_alpha else 1.0 for r in directions}
        return search_intensities(
            self.config,
            self.topology,
            vectors,
            factors,
            lambda judgement, users: self.exchange.evaluate(server_round, judgement, users, "validation"),
        )

    def _alpha(self, region: int, distances: dict[int, float], adaptation_norm: float) -> float:
        """Return alpha_r in the configured mode."""
        config, distance = self.config, distances[region]
        if config.alpha_mode == "one":
            return 1.0
        if config.alpha_mode == "theory":
            return theory_weight(distance, adaptation_norm)
        if config.alpha_mode == "james-stein":
            return shrinkage_weight(distance, 0.0, self.theta.numel())  # no noise is added in this mode of privacy
        if config.alpha_mode == "scaled":
            centre, unit = spread(distances)
            return personalization_weight(distance, centre, config.alpha_min, config.tau * unit)
        return personalization_weight(distance, self.centre.of(region, distances), config.alpha_min, config.tau)

    # --- what is judged and logged -------------------------------------------------------------------------------

    def judgement(self, server_round: int) -> Judgement:
        """Have users judge the shared model, their region's own, and when asked for their personal one."""
        vectors, numbers = {THETA: self.theta}, {}
        if not self.regions:
            return Judgement(("shared",), vectors)
        ends = server_round == self.config.num_server_rounds
        personal = self.config.personal == "always" or (self.config.personal == "end" and ends)
        for r in range(len(self.topology.region_names)):
            state = self.regions.get(r)
            vectors[f"{ADAPTATION}/{r}"] = state.direction if state else torch.zeros_like(self.theta)
            numbers[f"intensity/{r}"] = [state.alpha * state.rho if state else 0.0]
            numbers[f"alpha/{r}"] = [state.alpha if state else 0.0]
            if personal:
                vectors[f"{UPDATE}/{r}"] = state.update if state else torch.zeros_like(self.theta)
        return Judgement(("shared", "regional", *(("personal",) if personal else ())), vectors, numbers)

    def regional_models(self) -> dict[int, Tensor]:
        """Return theta + alpha_r rho_r v_r of each region that has a direction (Eq. 4)."""
        return {r: compose(self.theta, s.alpha * s.rho, s.direction) for r, s in sorted(self.regions.items())}

    def region_log(self) -> dict[int, dict[str, float]]:
        """Return conflict, weight, intensity, norms and the search's cost of each region."""
        norm = float(self.theta.norm())
        return {r: _numbers(state, norm) for r, state in sorted(self.regions.items())}


def _numbers(state: RegionState, theta_norm: float) -> dict[str, float]:
    direction_norm = float(state.direction.norm())
    numbers = {
        "conflict": state.conflict,
        "cosine": state.cosine,
        "alpha": state.alpha,
        "rho": state.rho,
        "update_norm": float(state.update.norm()),
        "direction_norm": direction_norm,
        "adaptation_ratio": state.rho * direction_norm / theta_norm if theta_norm else 0.0,  # Assumption I.4
        "strategy": float(("grad", "interp", "meta").index(state.strategy)),
    }
    if state.search is not None:
        numbers["search_exchanges"] = float(state.search.exchanges)
        numbers["search_evaluations"] = float(state.search.evaluations)
        numbers["search_boundary"] = float(("low", "none", "high").index(state.search.at_boundary) - 1)
    return numbers


class RegionFedClient:
    """The user's half: train, train on, look ahead, and adapt on the device."""

    def train(self, task: UserTask, vectors: dict[str, Tensor], phase: str) -> Update:
        """Return the direction that a phase asks for.

        ``train`` and ``interp``: the difference to theta after E local epochs; ``meta``: the descent direction at
        the looked-ahead point.
        """
        theta = vectors[THETA]
        if phase == "histogram":
            return Routing.report(task)
        if phase == "meta":
            direction, loss = self._meta(task, theta, vectors["lookahead"])
        elif task.config.update == "gradient" and phase == "train":
            gradient, loss = full_gradient(task, theta)
            direction = -gradient
        else:
            start = vectors.get(f"{START}/{task.region}", theta)
            result = train_locally(task, start)
            direction, loss = result.delta if start is theta else result.delta + (start - theta), result.loss
        return Update({"update": direction}, task.num_examples, {"train-loss": loss})

    def _meta(self, task: UserTask, theta: Tensor, lookahead: Tensor) -> tuple[Tensor, float]:
        """Return -g at the looked-ahead point, or -(g - eta H g) with the user's own H at theta for order 2."""
        gradient, loss = full_gradient(task, lookahead)
        if task.config.meta_order == 2:
            step = task.config.lookahead * task.config.server_learning_rate
            gradient = gradient - step * second_order(task, theta, gradient)
        return -gradient, loss

    def model(self, name: str, task: UserTask, vectors: dict[str, Tensor], numbers: dict[str, list[float]]) -> Tensor:
        """Build the shared model, the region's, a point of the search, or the user's own (Eqs. 4, 5)."""
        theta = vectors[THETA]
        if name == "shared":
            return theta
        direction, intensities = task.of_region(vectors, ADAPTATION), task.of_region(numbers, "intensity")
        if name.startswith("point-"):
            return compose(theta, intensities[int(name.removeprefix("point-"))], direction)
        intensity = intensities[0]
        if task.config.rho_search == "on-device":
            intensity = task.of_region(numbers, "alpha")[0] * self._own_rho(task, theta, direction)
        regional = compose(theta, intensity, direction)
        return regional if name == "regional" else self._personal(task, regional, task.of_region(vectors, UPDATE))

    def _own_rho(self, task: UserTask, theta: Tensor, direction: Tensor) -> float:
        """Choose rho on the user's own validation part; it is never reported."""

        def loss(rho: float) -> float:
            task.learner.flat.write(compose(theta, rho, direction))
            task.learner.module.eval()
            return mean_loss(task.learner, task.validation)

        return minimise(GoldenSection(0.0, task.config.rho_max, task.config.rho_tolerance), loss).rho

    def _personal(self, task: UserTask, regional: Tensor, regional_update: Tensor) -> Tensor:
        """Fine-tune the regional model and keep the share alpha_u of the difference (Eqs. 5, 7); nothing is sent."""
        delta = train_locally(task, regional).delta
        distance = float((delta - regional_update).norm())
        centre = float(task.state.setdefault("mu", torch.tensor([distance], dtype=torch.float64)))
        alpha = personalization_weight(distance, centre, task.config.alpha_min, task.config.tau)
        return compose(regional, alpha, delta)
