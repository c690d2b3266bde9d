"""The ServerApp: a workload's model and nodes, and the package's own strategies."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context
from flwr.serverapp import Grid, ServerApp

from regionfed_flwr.experiments.artifacts import RunRecorder
from regionfed_flwr.strategies.base import THETA, RegionalStrategy
from regionfed_flwr.strategies.placement import discover
from regionfed_flwr.strategies.registry import METHODS
from regionfed_flwr.strategies.wire import encode_vectors
from regionfed_speed.memory import note_peak
from regionfed_speed.workloads import read_run, workload_named

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Run a workload's rounds and leave their log, the shared model and the peak memory."""
    name, config = read_run(context.run_config)
    if hasattr(grid, "pull_interval"):
        grid.pull_interval = 0.01  # as the package's own ServerApp does
    recorder = RunRecorder(Path(config.output_dir), config)
    topology = discover(grid, config.node_timeout)
    flat = workload_named(name).learner(config).flat
    strategy: RegionalStrategy = METHODS[config.method].load_server()(config, topology, [recorder])
    start = encode_vectors({THETA: flat.read()})
    strategy.start(grid, start, num_rounds=config.num_server_rounds, timeout=config.node_timeout)
    note_peak(recorder.folder, "server")
    recorder.save_models(flat.space, strategy.theta, {})
    recorder.finish(len(set(topology.node_of)))
    recorder.tell("done", config.num_server_rounds, config.num_server_rounds)
