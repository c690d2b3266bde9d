"""The ClientApp: a message is decoded, handed to the method's client half, and the reply encoded. No algorithm."""

from __future__ import annotations

from flwr.app import Context, Message
from flwr.clientapp import ClientApp

from regionfed_flwr.config import parse_config
from regionfed_flwr.strategies.node import evaluate_users, train_users
from regionfed_flwr.strategies.placement import describe_node
from regionfed_flwr.strategies.workbench import Workbench, workbench

app = ClientApp()


def _bench(context: Context) -> Workbench:
    return workbench(parse_config(context.run_config, output_dir=""))


@app.query("placement")
def placement(message: Message, context: Context) -> Message:
    """Say where this node stands and which users there are."""
    return Message(describe_node(_bench(context), context.node_config), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the users that the message names."""
    return Message(train_users(message, _bench(context), context.state), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Judge models on the data of the users that the message names."""
    return Message(evaluate_users(message, _bench(context), context.state), reply_to=message)
