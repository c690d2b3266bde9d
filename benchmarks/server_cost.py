"""What one round costs RegionFed's server: python benchmarks/server_cost.py [--sizes 60000000x8 6000000x64].

Aggregation, conflict, weights and grad directions for M regions and d parameters, without any exchange: seconds, and
the peak of the memory in floats of 4 bytes for each parameter, beyond the int64 sums that come in.
"""

from __future__ import annotations

import argparse
import resource
import time
from multiprocessing import get_context

import torch

from regionfed_flwr.config import parse_config
from regionfed_flwr.strategies.regionfed import RegionFed
from regionfed_flwr.strategies.replies import Collected
from regionfed_flwr.topology import Placement, build_topology


def peak_bytes() -> int:
    """Return the peak memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def one_round(size: int, regions: int) -> tuple[float, float]:
    """Return seconds and floats a parameter of one round."""
    torch.set_num_threads(1)
    config = parse_config({}, strategy="grad", regions=regions, users_per_region=1)
    names = [f"region {r}" for r in range(regions)]
    strategy = RegionFed(config, build_topology(names, list(range(regions)), [Placement(1, 0)]))
    strategy.theta = torch.randn(size)
    sums = {f"update/region-{r}": torch.randint(-(2**30), 2**30, (size,)) for r in range(regions)}
    replies = Collected(sums, dict.fromkeys(range(regions), 1), {}, (), 0)
    before, began = peak_bytes(), time.monotonic()
    strategy.step(1, replies)
    strategy.adapt(1)
    return time.monotonic() - began, (peak_bytes() - before) / 4 / size


def main() -> None:
    """Measure each size in a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sizes", nargs="+", default=["60000000x8", "6000000x64"], metavar="PARAMETERSxREGIONS")
    print("parameters  regions  seconds  floats a parameter beyond the sums")
    for text in parser.parse_args().sizes:
        size, regions = map(int, text.split("x"))
        with get_context("spawn").Pool(1) as pool:
            seconds, floats = pool.apply(one_round, (size, regions))
        print(f"{size:10d}  {regions:7d}  {seconds:7.2f}  {floats:.1f}")


if __name__ == "__main__":
    main()
