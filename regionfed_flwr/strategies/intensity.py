"""The search for each region's intensity rho on its users' validation parts (paper Algorithm 3), by exchanges.

All regions search at once: one exchange measures every point that any region asks for. Users send loss sums.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.core.search import GoldenSection, KSection, Search, SearchResult
from regionfed_flwr.strategies.events import Judgement
from regionfed_flwr.topology import Topology

Measure = Callable[[Judgement, Sequence[int]], dict[str, dict[int, Counts]]]
"""Has users judge models on their validation parts: model name to user to counts."""


def new_search(config: RunConfig) -> Search:
    """Return a search for rho as configured; few exchanges with ``section-k``, few points with ``golden``."""
    if config.rho_search == "section-k":
        return KSection(0.0, config.rho_max, config.rho_tolerance)
    return GoldenSection(0.0, config.rho_max, config.rho_tolerance)


def search_intensities(
    config: RunConfig, topology: Topology, vectors: Mapping[str, Tensor], factors: Mapping[int, float], measure: Measure
) -> dict[int, SearchResult]:
    """Find rho_r of several regions.

    Parameters
    ----------
    config : RunConfig
        Kind, end and tolerance of the search.
    topology : Topology
        Users of the regions.
    vectors : mapping of str to Tensor
        What users need to build ``theta + intensity * direction`` of their region.
    factors : mapping of int to float
        Region to the factor between rho and the intensity that is measured (1, or alpha_r).
    measure : callable
        See ``Measure``.

    Returns
    -------
    dict of int to SearchResult
        rho is 0 where no point beats the shared model.
    """
    searches = {region: new_search(config) for region in factors}
    while points := {region: search.ask() for region, search in searches.items() if not search.done}:
        models = tuple(f"point-{i}" for i in range(max(map(len, points.values()))))
        intensities = {r: [factors[r] * x for x in xs] for r, xs in points.items()}
        numbers = {f"intensity/{r}": xs + xs[-1:] * (len(models) - len(xs)) for r, xs in intensities.items()}
        users = [u for u, r in enumerate(topology.region_of) if r in points]
        losses = measure(Judgement(models, vectors, numbers, measure="loss"), users)
        for region, xs in points.items():
            members = topology.users_of_region(region)
            searches[region].tell([_mean_loss(losses[models[i]], members) for i in range(len(xs))])
    return {region: search.result() for region, search in searches.items()}


def _mean_loss(counts: Mapping[int, Counts], members: Sequence[int]) -> float:
    """Return the mean validation loss of a region; without any validation sample every point is as good."""
    rows = [counts[u] for u in members if u in counts]
    weight = sum(row["loss.count"] for row in rows)
    return sum(row["loss.sum"] for row in rows) / weight if weight else 0.0
