"""The ClientApp. It is the same with FedAvg and with RegionFed."""

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from quickstart import task

app = ClientApp()


@app.query("region")
def region(message: Message, context: Context) -> Message:
    """Say where this node is: in a simulation the server has no other way to know."""
    name = task.region_of(int(context.node_config["partition-id"]))
    return Message(RecordDict({"config": ConfigRecord({"region": name})}), reply_to=message)


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train the received model on the node's own examples and return it."""
    net = task.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    loader, _ = task.load_data(int(context.node_config["partition-id"]), int(context.run_config["batch-size"]))
    learning_rate = float(message.content["config"]["lr"])
    loss = task.train(net, loader, int(context.run_config["local-epochs"]), learning_rate)
    metrics = MetricRecord({"train_loss": loss, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"arrays": ArrayRecord(net.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Judge the received model on the node's own test examples."""
    net = task.Net()
    net.load_state_dict(message.content["arrays"].to_torch_state_dict())
    _, loader = task.load_data(int(context.node_config["partition-id"]), int(context.run_config["batch-size"]))
    loss, accuracy = task.test(net, loader)
    metrics = MetricRecord({"eval_loss": loss, "eval_acc": accuracy, "num-examples": len(loader.dataset)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
