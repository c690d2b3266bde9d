"""Gains of regional adaptation beside its placebos.

``python -m regionfed_flwr.experiments.placebo [--seeds 0 1 2 3 4]`` trains the small encoder on the embedded benchmark
and prints, in points of Overall on the users' test parts, the gain over the shared model of grad, meta and interp with
searched intensity, and of three placebos: the shared model after one more round (interp trains once more), users put
into regions at random, and the paper's fixed intensity 0.0344. With ``--train-from`` it compares instead the two places
where users may start, at equal amounts of local training: 10 rounds of grad, 5 of interp (fixed intensities).
"""

from __future__ import annotations

import argparse
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from regionfed_flwr.config import Value, parse_config
from regionfed_flwr.strategies.events import RoundRecord

ROUNDS = 5
SETTINGS: dict[str, Value] = {
    "model": "encoder-tiny",
    "samples_per_user": 120,
    "local_epochs": 4,
    "learning_rate": 3e-3,
    "alpha_mode": "one",
    "rho_search": "section-k",
}
METHODS: dict[str, dict[str, Value]] = {
    "grad": {"strategy": "grad"},
    "meta": {"strategy": "meta"},
    "interp": {"strategy": "interp"},
}
PLACEBOS: dict[str, dict[str, Value]] = {
    "random regions, grad": {"strategy": "grad", "region_scheme": "random"},
    "random regions, meta": {"strategy": "meta", "region_scheme": "random"},
    "random regions, interp": {"strategy": "interp", "region_scheme": "random"},
    "fixed 0.0344, grad": {"strategy": "grad", "rho_search": "fixed", "rho": 0.0344},
    "fixed 0.0344, meta": {"strategy": "meta", "rho_search": "fixed", "rho": 0.0344},
    "fixed 0.0344, interp": {"strategy": "interp", "rho_search": "fixed", "rho": 0.0344},
}
ONE_MORE = "one more shared round"


@dataclass
class _Last:
    """Keeps the last evaluation's Overall by model, in points."""

    overall: dict[str, float]

    def on_phase(self, event: str, server_round: int, rounds: int, text: str) -> None:
        """Nothing is shown."""

    def on_round(self, record: RoundRecord, strategy: Any) -> None:
        """Take the scores, where there are any."""
        if record.evaluation:
            self.overall = {model: 100 * scores["overall"] for model, scores in record.evaluation.items()}


def advance(
    seed: int, keys: dict[str, Value], first_round: int, last_round: int, start: Tensor | None = None
) -> tuple[Tensor, dict[str, float]]:
    """Run some rounds in this process; return theta and Overall (%) by model after the last one."""
    from regionfed_flwr.client_app import app as client_app
    from regionfed_flwr.models.load import load_learner
    from regionfed_flwr.simulation.in_process import InProcessGrid
    from regionfed_flwr.strategies.base import THETA
    from regionfed_flwr.strategies.placement import discover
    from regionfed_flwr.strategies.registry import METHODS as STRATEGIES
    from regionfed_flwr.strategies.wire import encode_vectors

    own: dict[str, Value] = {"seed": seed, "num_server_rounds": last_round, "evaluate_every": last_round}
    config = parse_config({}, **(SETTINGS | keys | own))
    grid, last = InProcessGrid(client_app, 1, config.to_flower()), _Last({})
    strategy = STRATEGIES[config.method].load_server()(config, discover(grid, 10.0), [last])
    theta = load_learner(config).flat.read() if start is None else start
    strategy.start(grid, encode_vectors({THETA: theta}), num_rounds=last_round, first_round=first_round)
    return strategy.theta, last.overall


def gains(seed: int) -> dict[str, float]:
    """Return the gain over the shared model of every method and placebo, in points of Overall.

    The shared trajectory does not depend on the adaptation, so the rounds before the last are run once.
    """
    fedavg: dict[str, Value] = {"method": "fedavg"}
    before, _ = advance(seed, fedavg, 1, ROUNDS - 1)
    after, scores = advance(seed, fedavg, ROUNDS, ROUNDS, before)
    shared = scores["shared"]
    result = {
        name: advance(seed, keys, ROUNDS, ROUNDS, before)[1]["regional"] - shared
        for name, keys in (METHODS | PLACEBOS).items()
    }
    result[ONE_MORE] = advance(seed, fedavg, ROUNDS + 1, ROUNDS + 1, after)[1]["shared"] - shared
    return result


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """Return mean, lower and upper end of the 95 % interval (Student)."""
    from scipy.stats import t as student

    mean, count = statistics.mean(values), len(values)
    half = float(student.ppf(0.975, count - 1)) * statistics.stdev(values) / math.sqrt(count) if count > 1 else math.inf
    return mean, mean - half, mean + half


def placebo_of(method: str) -> list[str]:
    """Return the placebos that a method must beat."""
    extra = [ONE_MORE] if method == "interp" else []  # meta takes one gradient more, not a round of local steps
    return [f"random regions, {method}", f"fixed 0.0344, {method}", *extra]


def compare_starts(seeds: Sequence[int]) -> None:
    """Print Overall of the shared and regional model when users start from either."""
    print("| strategy | rounds | users start from | shared, % | regional, % |\n|---|---|---|---|---|")
    for strategy, rho, rounds in (("grad", 0.7, 5), ("grad", 0.7, 10), ("interp", 1.0, 5)):
        for start in ("shared", "region"):
            keys: dict[str, Value] = {"strategy": strategy, "train_from": start, "rho_search": "fixed", "rho": rho}
            found = [advance(seed, keys, 1, rounds)[1] for seed in seeds]
            shared, regional = (statistics.mean(scores[model] for scores in found) for model in ("shared", "regional"))
            print(f"| {strategy} | {rounds} | {start} | {shared:.2f} | {regional:.2f} |", flush=True)


def main() -> None:
    """Run the seeds and print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--train-from", action="store_true", help="compare where users start")
    chosen = parser.parse_args()
    seeds = chosen.seeds
    if chosen.train_from:
        compare_starts(seeds)
        return
    found: dict[str, list[float]] = {}
    for seed in seeds:
        for name, gain in gains(seed).items():
            found.setdefault(name, []).append(gain)
        print(f"seed {seed} done", flush=True)
    print("\n| | gain over the shared model, points | less than the method by |\n|---|---|---|")
    for name, values in found.items():
        mean, low, high = interval(values)
        against = [m for m in METHODS if name in placebo_of(m)]
        less = []
        for method in against:
            d, a, b = interval([x - y for x, y in zip(found[method], values, strict=True)])
            less.append(f"{method}: {d:.2f} [{a:.2f}, {b:.2f}]")
        print(f"| {name} | {mean:+.2f} [{low:+.2f}, {high:+.2f}] | {'; '.join(less)} |")


if __name__ == "__main__":
    main()
