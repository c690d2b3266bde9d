"""How a run is laid out on this machine: nodes, the processes that host them, and their share of it."""

from __future__ import annotations

import math
import os
import shutil
import subprocess
from dataclasses import dataclass

from regionfed_flwr.config import RunConfig
from regionfed_flwr.errors import RegionFedError


@dataclass(frozen=True)
class Layout:
    """Resources of a run.

    Attributes
    ----------
    nodes : int
        SuperNodes; users are spread over them.
    processes : int
        Worker processes, each of which serves one node at a time.
    cpus : int
        Cores of a process.
    gpus : float
        Share of a GPU, or number of GPUs, of a process.
    """

    nodes: int
    processes: int
    cpus: int
    gpus: float

    def federation_config(self) -> str:
        """Return the value of ``flwr run --federation-config``."""
        parts = [
            f"num-supernodes={self.nodes}",
            f"client-resources-num-cpus={self.cpus}",
            f"client-resources-num-gpus={self.gpus:f}",
            f"init-args-num-cpus={self.processes * self.cpus}",
        ]
        return " ".join(parts)


def count_cores() -> int:
    """Return the cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def count_gpus() -> int:
    """Return the NVIDIA GPUs that child processes will see; asks ``nvidia-smi``, as importing torch takes seconds."""
    command = shutil.which("nvidia-smi")
    if command is None:
        return 0
    try:
        listing = subprocess.run([command, "-L"], capture_output=True, text=True, timeout=30, check=False).stdout
    except subprocess.TimeoutExpired:
        return 0
    present = sum(line.startswith("GPU ") for line in listing.splitlines())
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    chosen = [part for part in visible.split(",") if part.strip() not in ("", "-1")]
    return min(present, len(chosen))


def plan_layout(
    config: RunConfig,
    *,
    cores: int,
    visible_gpus: int,
    nodes: int | None = None,
    cpus_per_node: int = 1,
    gpus_per_node: float | None = None,
) -> Layout:
    """Fit a run to the machine.

    Parameters
    ----------
    config : RunConfig
        Its number of users bounds the default number of nodes; its device says whether a GPU is asked for.
    cores, visible_gpus : int
        What the machine has.
    nodes : int, optional
        SuperNodes; by default one per process that fits, and no more than users.
    cpus_per_node : int
        Cores a node needs while it works.
    gpus_per_node : float, optional
        GPUs a node needs while it works; by default the visible ones are shared, unless ``device = "cpu"``.

    Returns
    -------
    Layout

    Raises
    ------
    RegionFedError
        When the machine cannot hold a single node.
    """
    if nodes is not None and nodes < 1:
        raise RegionFedError(f"--nodes is {nodes}, but a run needs at least 1 node.")
    if not 1 <= cpus_per_node <= cores:
        raise RegionFedError(
            f"--cpus-per-node is {cpus_per_node}, but allowed is a whole number from 1 to this machine's {cores} cores."
        )
    nodes = nodes or min(cores // cpus_per_node, config.num_users)
    processes = min(nodes, cores // cpus_per_node)
    gpus = _gpu_share(config, visible_gpus, processes, gpus_per_node)
    if gpus_per_node:
        processes = min(processes, math.floor(visible_gpus / gpus_per_node))
    return Layout(nodes, processes, cpus_per_node, gpus)


def _gpu_share(config: RunConfig, visible: int, processes: int, asked: float | None) -> float:
    if asked is None and (config.device == "cpu" or (config.device == "auto" and visible == 0)):
        return 0.0
    if visible == 0 and (config.device == "cuda" or asked):
        raise RegionFedError("A GPU was asked for (device = 'cuda' or --gpus-per-node), but this machine shows none.")
    if asked is not None:
        if not 0 <= asked <= visible or (asked > 1 and asked != int(asked)):
            raise RegionFedError(
                f"--gpus-per-node is {asked:g}, but allowed is a share from 0 to 1, or a whole number up to {visible}."
            )
        return asked
    share = visible / processes
    return float(int(share)) if share > 1 else math.floor(share * 10_000) / 10_000
