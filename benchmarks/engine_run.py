"""A workload on Flower's simulation engine, and the facts about the machine that belong to every number."""

from __future__ import annotations

import json
import platform
import shutil
import tempfile
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import Any

import torch
from rich.console import Console
from safetensors.torch import load_file
from speed_app.regionfed_speed.memory import read_peaks
from speed_app.regionfed_speed.workloads import workload_named
from torch import Tensor

from regionfed_flwr.config import RunConfig, Value
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine import run_simulation
from regionfed_flwr.simulation.engine.machine import count_cores

APP = Path(__file__).parent / "speed_app"
RESULTS = Path(__file__).parent / "results"
PACKAGES = ("flwr", "ray", "torch", "numpy", "transformers")


@dataclass(frozen=True)
class EngineRun:
    """What a run left.

    Attributes
    ----------
    seconds : list of float
        Duration of each round.
    theta : Tensor
        The shared model at the end, shape ``(d,)``.
    server_mib, node_mib : float
        Peak resident memory of the server process, and of the largest node process.
    """

    seconds: list[float]
    theta: Tensor
    server_mib: float
    node_mib: float


def run_on_engine(name: str, config: RunConfig, nodes: int, console: Console) -> EngineRun:
    """Run a workload as a Flower app, with the package's client and strategies.

    Raises
    ------
    RegionFedError
        When the run fails; its folder, named in the sentence, is then kept.
    """
    output = Path(tempfile.mkdtemp(prefix="speed-"))
    chosen: dict[str, Value] = {
        "workload": name,
        "method": config.method,
        "num-server-rounds": config.num_server_rounds,
        "users-per-region": config.users_per_region,
    }
    outcome = run_simulation(config, output=output, nodes=nodes, app_dir=APP, app_values=chosen, console=console)
    if outcome.exit_code:
        raise RegionFedError(f"{outcome.reason} (logs: {outcome.logs})")
    lines = [json.loads(line) for line in (output / "rounds.jsonl").read_text().splitlines()]
    shared = load_file(output / "models" / "shared.safetensors")
    run = EngineRun(
        seconds=[line["seconds"] for line in lines if line["round"] > 0],
        theta=workload_named(name).learner(config).flat.space.join(shared),
        server_mib=max(read_peaks(output, "server")),
        node_mib=max(read_peaks(output, "node")),
    )
    shutil.rmtree(output)
    return run


def typical(seconds: list[float]) -> float:
    """Return the median over the rounds after the first, which pays for what a process does once."""
    return median(seconds[1:])


def machine_facts() -> dict[str, Any]:
    """Return date, cores and versions."""
    return {
        "date": time.strftime("%Y-%m-%d"),
        "cores": count_cores(),
        "cpu": torch.backends.cpu.get_cpu_capability(),
        "python": platform.python_version(),
        **{package: version(package) for package in PACKAGES},
    }


def write_results(name: str, rows: list[dict[str, Any]], **settings: Any) -> Path:
    """Write rows with the machine's facts to ``results/<name>.json`` and return its path."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": machine_facts(), **settings, "rows": rows}, indent=2) + "\n")
    return path
