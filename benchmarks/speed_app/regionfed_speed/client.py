"""The ClientApp: the package's own handlers on a workload's data and model."""

from __future__ import annotations

from pathlib import Path

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from regionfed_flwr.strategies.node import train_users
from regionfed_flwr.strategies.placement import describe_node
from regionfed_speed.memory import note_peak
from regionfed_speed.workloads import SpeedBench, read_run, speed_bench

app = ClientApp()


def _bench(context: Context) -> SpeedBench:
    return speed_bench(*read_run(context.run_config))


@app.query("placement")
def placement(message: Message, context: Context) -> Message:
    """Say where this node stands and which users there are."""
    return Message(describe_node(_bench(context), context.node_config), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the users that the message names."""
    reply = Message(train_users(message, _bench(context), context.state), reply_to=message)
    note_peak(Path(str(context.run_config["output-dir"])), "node")
    return reply
