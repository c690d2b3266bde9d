"""Seconds per round and memory as the federation grows: workload W2 with 200, 2,000 and 20,000 users.

Half of the users take part in each round. Time should grow in proportion, the server's memory not at all.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from typing import Any

import torch
from engine_run import run_on_engine, typical, write_results
from rich.console import Console
from rich.table import Table
from speed_app.regionfed_speed.workloads import RandomFederation, workload_named

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine.machine import count_cores

WORKLOAD = "W2"
SCALES = (1, 10, 100)
# How far a size's cost of a further user may lie above the size before: data that no longer fit the cache cost more.
LINEAR = 1.5
FLAT = 1.15  # how far the largest server may lie above the smallest


def measure(scale: int, method: str, rounds: int, nodes: int, console: Console) -> dict[str, Any]:
    """Run one size and return its row."""
    workload = workload_named(WORKLOAD)
    users = int(workload.values["users_per_region"]) * scale
    config = workload.config(method=method, num_server_rounds=rounds, users_per_region=users)
    total = len(RandomFederation(config, lambda *_: []).region_of)
    console.print(f"{total:,} users")
    run = run_on_engine(WORKLOAD, config, nodes, console)
    return {
        "users": total,
        "cohort": round(total * config.fraction),
        "seconds": typical(run.seconds),
        "server_mib": run.server_mib,
        "node_mib": run.node_mib,
    }


def judge(rows: list[dict[str, Any]]) -> list[str]:
    """Add each size's milliseconds for a further user to its row; return what is not as it should be."""
    complaints = []
    for smaller, larger in itertools.pairwise(rows):
        further = larger["cohort"] - smaller["cohort"]
        larger["ms_per_further_user"] = 1000 * (larger["seconds"] - smaller["seconds"]) / further
        before = smaller.get("ms_per_further_user")
        if before is not None and larger["ms_per_further_user"] > LINEAR * before:
            complaints.append(f"NOT LINEAR: a further user costs more with {larger['users']:,} users")
    server = [row["server_mib"] for row in rows]
    if max(server) > FLAT * min(server):
        complaints.append("NOT FLAT: the server's memory grows with the users")
    return complaints


def show(rows: list[dict[str, Any]]) -> None:
    """Print the rows as a table."""
    table = Table("users", "a round", "s a round", "ms a further user", "server peak MiB", "node peak MiB")
    for row in rows:
        further = f"{row['ms_per_further_user']:.3f}" if "ms_per_further_user" in row else ""
        numbers = [f"{row['seconds']:.3f}", further, f"{row['server_mib']:.0f}", f"{row['node_mib']:.0f}"]
        table.add_row(f"{row['users']:,}", f"{row['cohort']:,}", *numbers)
    Console(width=None if sys.stdout.isatty() else 120).print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--scales", nargs="+", type=int, default=SCALES, help="multiples of 200 users, ascending")
    parser.add_argument("--rounds", type=int, default=4, help="the median is over all but the first")
    parser.add_argument("--method", choices=("fedavg", "regionfed"), default="fedavg")
    chosen = parser.parse_args()
    if chosen.rounds < 2:
        parser.error("--rounds must be at least 2")
    torch.set_num_threads(1)
    nodes, progress = count_cores(), Console(stderr=True)
    try:
        rows = [measure(scale, chosen.method, chosen.rounds, nodes, progress) for scale in chosen.scales]
    except RegionFedError as error:
        sys.exit(f"growth.py: {error}")
    complaints = judge(rows)
    path = write_results("growth", rows, **vars(chosen), nodes=nodes, complaints=complaints)
    show(rows)
    print("\n".join([*complaints, f"Written to {path}"]))


if __name__ == "__main__":
    main()
