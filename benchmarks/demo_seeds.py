"""The demo's gains over several seeds: python benchmarks/demo_seeds.py [--seeds 0 1 2 3 4] [-c key=value ...].

Runs the same apps as `make demo` in process (the model has the same bits on every engine), one process a core, and
prints mean and 95 % interval over seeds of the shared model's gain over its start and the regional model's gain over
the shared one. Finished seeds are kept in the folder and not run again.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import statistics
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

from scipy.stats import t as student

from regionfed_flwr.cli import parse_assignment
from regionfed_flwr.config import parse_config

Point = tuple[float, float, float]


def run_seed(seed: int, folder: Path, values: dict[str, Any]) -> Point:
    """Return Overall (%) at the start, of the shared and of the regional model."""
    results = folder / f"seed-{seed}" / "results.json"
    if not results.is_file():
        from regionfed_flwr.client_app import app as client_app
        from regionfed_flwr.server_app import app as server_app
        from regionfed_flwr.simulation.in_process import run_in_process

        config = parse_config(values, seed=seed, output_dir=str(results.parent))
        run_in_process(server_app, client_app, config.to_flower(), num_nodes=2)
    found = json.loads(results.read_text())
    scores = found["start"], found["metrics"]["shared"], found["metrics"]["regional"]
    return tuple(100 * s["overall"] for s in scores)  # type: ignore[return-value]


def interval(values: list[float]) -> str:
    """Return mean and 95 % interval (Student)."""
    mean, count = statistics.mean(values), len(values)
    if count < 2:
        return f"{mean:+.2f}"
    half = student.ppf(0.975, count - 1) * statistics.stdev(values) / math.sqrt(count)
    return f"{mean:+.2f} [{mean - half:+.2f}, {mean + half:+.2f}]"


def main() -> None:
    """Run the seeds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2, 3, 4])
    parser.add_argument("--folder", type=Path, default=Path("runs/demo-seeds"))
    parser.add_argument("-c", dest="values", action="append", default=[], metavar="KEY=VALUE")
    given = parser.parse_args()
    values = {"evaluate-every": 100} | dict(map(parse_assignment, given.values))
    os.environ["OMP_NUM_THREADS"] = "1"
    with ProcessPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        jobs = [pool.submit(run_seed, seed, given.folder, values) for seed in given.seeds]
        points = [job.result() for job in jobs]
    print("seed   start  shared  regional")
    for seed, point in zip(given.seeds, points, strict=True):
        print(f"{seed:4d}  {point[0]:6.2f}  {point[1]:6.2f}  {point[2]:8.2f}")
    print(f"shared - start:    {interval([p[1] - p[0] for p in points])} points")
    print(f"regional - shared: {interval([p[2] - p[1] for p in points])} points")


if __name__ == "__main__":
    main()
