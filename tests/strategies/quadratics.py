"""A federation of quadratics, f_u(x) = a_u/2 |x - c_u|^2, behind the real node code and the in-process grid."""

from dataclasses import dataclass

import torch
from flwr.app import Message
from flwr.clientapp import ClientApp
from torch import nn

from regionfed_flwr.config import parse_config
from regionfed_flwr.core.param_space import FlatModule
from regionfed_flwr.simulation.in_process import InProcessGrid
from regionfed_flwr.strategies.base import THETA
from regionfed_flwr.strategies.node import evaluate_users, train_users
from regionfed_flwr.strategies.placement import describe_node, discover
from regionfed_flwr.strategies.registry import METHODS
from regionfed_flwr.strategies.wire import encode_vectors
from regionfed_flwr.strategies.workbench import EncodedUser


class Point(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.x = nn.Parameter(torch.zeros(size))


class QuadraticLearner:
    tasks = ("fit",)

    def __init__(self, size):
        self.module = Point(size)
        self.flat = FlatModule(self.module)

    def loss(self, rows):
        return (0.5 * rows["a"] * (self.module.x - rows["c"]).square().sum(1)).mean()

    def evaluate(self, rows):
        return {"fit.correct": 0.0, "fit.count": 1.0, "loss.sum": float(self.loss(rows).detach()), "loss.count": 1.0}


@dataclass(frozen=True)
class QuadraticFederation:
    region_of: tuple
    classes = ("only",)

    @property
    def region_names(self):
        return tuple(f"region {r}" for r in range(max(self.region_of) + 1))


class QuadraticBench:
    """Stands in for a Workbench: user u has ``n_u`` copies of the row (a_u, c_u)."""

    def __init__(self, config, region_of, centres, curvature, examples, validate):
        self.config, self.learner = config, QuadraticLearner(centres.shape[1])
        self.federation = QuadraticFederation(tuple(region_of))
        self.centres, self.curvature, self.examples, self.validate = centres, curvature, examples, validate

    def user(self, user):
        count = self.examples[user]
        rows = {"a": torch.full((count,), self.curvature[user]), "c": self.centres[user].repeat(count, 1)}
        kept = rows if self.validate else {name: values[:0] for name, values in rows.items()}
        sizes = {"train": count, "validation": count if self.validate else 0, "test": count}
        return EncodedUser(rows, kept, rows, sizes, (0,) * count)


def make_client_app(bench):
    app = ClientApp()

    @app.query("placement")
    def placement(message, context):
        return Message(describe_node(bench, context.node_config), reply_to=message)

    @app.train()
    def train(message, context):
        return Message(train_users(message, bench, context.state), reply_to=message)

    @app.evaluate()
    def evaluate(message, context):
        return Message(evaluate_users(message, bench, context.state), reply_to=message)

    return app


class Quadratics:
    """Region, centre, curvature and examples of each user, and a way to run a method on them."""

    def __init__(self, region_of, centres, curvature=None, examples=None, start=None, validate=True):
        count = len(region_of)
        self.region_of = list(region_of)
        self.centres = torch.tensor(centres, dtype=torch.float32).view(count, -1)
        self.curvature = [1.0] * count if curvature is None else list(curvature)
        self.examples = [1] * count if examples is None else list(examples)
        self.validate = validate
        self.start = torch.zeros(self.centres.shape[1]) if start is None else torch.tensor(start)

    def run(self, method="fedavg", rounds=1, **keys):
        """Run a method from ``start``; ``keys`` are configuration keys, or arguments of :meth:`build`."""
        grid, strategy = self.build(method, rounds, **keys)
        strategy.start(grid, encode_vectors({THETA: self.start}), num_rounds=rounds, timeout=5.0)
        return strategy

    def build(self, method, rounds, num_nodes=1, node_configs=None, client_app=make_client_app, callbacks=(), **keys):
        defaults = {"optimizer": "sgd", "learning_rate": 0.1, "local_epochs": 1, "batch_size": 1000, "strategy": "grad"}
        config = parse_config({}, **({"method": method, "num_server_rounds": rounds} | defaults | keys))
        bench = QuadraticBench(config, self.region_of, self.centres, self.curvature, self.examples, self.validate)
        grid = InProcessGrid(client_app(bench), num_nodes, config.to_flower(), node_configs)
        return grid, METHODS[method].load_server()(config, discover(grid, 1.0), callbacks)
