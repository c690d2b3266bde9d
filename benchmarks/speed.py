"""Seconds per round of this package on Flower's simulation engine, beside the same work in bare PyTorch.

Example
-------
``python benchmarks/speed.py --workloads W1 W2 --rounds 8 --repeats 2``
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from typing import Any

import torch
from bare import BareRun, run_bare
from engine_run import run_on_engine, typical, write_results
from rich.console import Console
from rich.table import Table
from speed_app.regionfed_speed.workloads import WORKLOADS, workload_named
from torch import Tensor

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine.machine import count_cores

METHODS = ("fedavg", "regionfed")
NORMS_AGREE = 1e-4  # relative
# Distance between the two models in units of the way that they have moved. Rounding makes up to 2e-3 of it in eight
# rounds, another order of the batches 1e-2 and more, which the norms alone would not show.
MODELS_AGREE = 5e-3


@dataclass
class Measured:
    """Typical seconds per round of each repeat, and the last model."""

    seconds: list[float] = field(default_factory=list)
    theta: Tensor = field(default_factory=lambda: torch.zeros(0))

    def add(self, seconds: list[float], theta: Tensor) -> None:
        """Take in one repeat."""
        self.seconds.append(typical(seconds))
        self.theta = theta.double()

    @property
    def best(self) -> float:
        """The quietest repeat: other processes on the machine only add."""
        return min(self.seconds)


def measure(name: str, chosen: argparse.Namespace, processes: int, console: Console) -> list[dict[str, Any]]:
    """Run one workload in all ways, taking turns, and return one row for each method."""
    workload = workload_named(name)
    configs = {method: workload.config(method=method, num_server_rounds=chosen.rounds) for method in METHODS}
    bare, ours = Measured(), {method: Measured() for method in METHODS}
    for repeat in range(chosen.repeats):
        console.print(f"{name}, repeat {repeat + 1} of {chosen.repeats}: bare PyTorch")
        plain = run_bare(name, configs["fedavg"], processes, chosen.package_forward)
        bare.add(plain.seconds, plain.theta)
        for method, config in configs.items():
            console.print(f"{name}, repeat {repeat + 1} of {chosen.repeats}: {method}")
            run = run_on_engine(name, config, processes, console)
            ours[method].add(run.seconds, run.theta)
    return [_row(name, method, plain, bare, ours[method]) for method in METHODS]


def _row(name: str, method: str, plain: BareRun, bare: Measured, ours: Measured) -> dict[str, Any]:
    norms = [float(theta.norm()) for theta in (bare.theta, ours.theta)]
    moved = float((bare.theta - plain.start).norm())
    apart = float((bare.theta - ours.theta).norm()) / moved if moved else float("inf")
    return {
        "workload": name,
        "what": WORKLOADS[name].text,
        "method": method,
        "bare": bare.best,
        "engine": ours.best,
        "ratio": ours.best / bare.best,
        "extra": ours.best - bare.best,
        "bare_repeats": bare.seconds,
        "engine_repeats": ours.seconds,
        "norms": norms,
        "apart": apart,
        "same_work": abs(norms[0] - norms[1]) <= NORMS_AGREE * norms[0] and apart <= MODELS_AGREE,
    }


def show(rows: list[dict[str, Any]], console: Console) -> None:
    """Print the rows as a table."""
    table = Table(
        "workload", "method", "bare s", "engine s", "ratio", "extra s", "norm bare", "norm engine", "apart", ""
    )
    for row in rows:
        numbers = [f"{row['bare']:.3f}", f"{row['engine']:.3f}", f"{row['ratio']:.2f}", f"{row['extra']:+.3f}"]
        numbers += [f"{norm:.5f}" for norm in row["norms"]] + [f"{row['apart']:.1e}"]
        table.add_row(row["workload"], row["method"], *numbers, "" if row["same_work"] else "DIFFERENT WORK")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="NAME")
    parser.add_argument("--rounds", type=int, default=8, help="the median is over all but the first")
    parser.add_argument("--repeats", type=int, default=1, help="the quietest repeat counts")
    parser.add_argument(
        "--package-forward", action="store_true", help="let bare W1 use the package's channels-last forward pass too"
    )
    chosen = parser.parse_args()
    if chosen.rounds < 2 or chosen.repeats < 1:
        parser.error("--rounds must be at least 2 and --repeats at least 1")
    progress, processes, rows = Console(stderr=True), count_cores(), list[dict[str, Any]]()
    torch.set_num_threads(1)
    try:
        for name in chosen.workloads:
            rows += measure(name, chosen, processes, progress)
    except RegionFedError as error:
        sys.exit(f"speed.py: {error}")
    path = write_results("speed", rows, **vars(chosen), processes=processes)
    show(rows, Console(width=None if sys.stdout.isatty() else 140))
    print(f"Written to {path}")


if __name__ == "__main__":
    main()
