"""The ServerApp: configuration, nodes, model, strategy, run, artifacts. No algorithm."""

from __future__ import annotations

import time
from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from regionfed_flwr.config import RunConfig, parse_config
from regionfed_flwr.experiments.artifacts import RunRecorder
from regionfed_flwr.strategies.base import THETA, RegionalStrategy
from regionfed_flwr.strategies.placement import discover
from regionfed_flwr.strategies.registry import METHODS
from regionfed_flwr.strategies.wire import encode_vectors

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run one federation from the run configuration to its artifacts."""
    config = parse_config(context.run_config)
    if hasattr(grid, "pull_interval"):
        grid.pull_interval = 0.01  # Flower's simulation looks for replies every 0.1 s, a third of a small round
    recorder = RunRecorder(_folder(config), config)
    try:
        _run(grid, config, recorder)
    except Exception as error:
        recorder.tell("failed", text=str(error))
        raise


def _run(grid: Grid, config: RunConfig, recorder: RunRecorder) -> None:
    from regionfed_flwr.models.load import load_learner

    recorder.tell("waiting", rounds=config.num_server_rounds, text="waiting for the nodes")
    topology = discover(grid, config.node_timeout)
    flat = load_learner(config).flat
    strategy: RegionalStrategy = METHODS[config.method].load_server()(config, topology, [recorder])
    nodes = len(set(topology.node_of))
    users, regions = len(topology.region_of), len(topology.region_names)
    text = f"{users} users in {regions} regions on {nodes} nodes, {flat.space.size:,} parameters"
    recorder.tell("start", rounds=config.num_server_rounds, text=text)
    strategy.start(
        grid, encode_vectors({THETA: flat.read()}), num_rounds=config.num_server_rounds, timeout=config.node_timeout
    )
    regional = {topology.region_names[r]: model for r, model in strategy.regional_models().items()}
    recorder.save_models(flat.space, strategy.theta, regional)
    recorder.finish(nodes)
    from regionfed_flwr.experiments.report import write_report

    write_report(recorder.folder)
    recorder.tell("done", config.num_server_rounds, config.num_server_rounds, text=str(recorder.folder))


def _folder(config: RunConfig) -> Path:
    """Return the run's folder, absolute: the daemon's working directory is not the user's."""
    name = time.strftime("%Y%m%d-%H%M%S") + f"-{config.run_name}"
    return Path(config.output_dir).absolute() if config.output_dir else Path("runs").absolute() / name
