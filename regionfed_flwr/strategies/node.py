"""The node's side of an exchange: train or judge the users asked for, and sum what they send.

Nothing here knows a method: the client half is found by the name in the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from flwr.app import ArrayRecord, Message, RecordDict
from torch import Tensor

from regionfed_flwr.core.fixed_point import FixedPointError, FixedPointSum
from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.strategies.local import Update, UserTask, mean_loss
from regionfed_flwr.strategies.registry import METHODS
from regionfed_flwr.strategies.wire import (
    WireError,
    content,
    decode_vectors,
    encode_vectors,
    int_list,
    int_value,
    read_config,
    str_list,
)
from regionfed_flwr.strategies.workbench import EncodedUser, Workbench


class ClientHalf(Protocol):
    """A method's client half."""

    def train(self, task: UserTask, vectors: dict[str, Tensor], phase: str) -> Update:
        """Train one user from the vectors that the server sent."""
        ...

    def model(self, name: str, task: UserTask, vectors: dict[str, Tensor], numbers: dict[str, list[float]]) -> Tensor:
        """Build one of the models that the user judges."""
        ...


def block_name(vector: str, block: str, user: int, region: int) -> str:
    """Return the name of the sum that a user's vector goes into.

    ``block`` is ``all`` (one sum a node), ``region`` (one for each region on the node) or ``user``.
    """
    suffix = {"all": "all", "region": f"region-{region}", "user": f"user-{user}"}[block]
    return f"{vector}/{suffix}"


class Session:
    """One message's work: whom it concerns, and how their tasks are made.

    Parameters
    ----------
    message : Message
        Of type ``train`` or ``evaluate``.
    bench : Workbench
        This process's model and data.
    state : RecordDict
        The node's memory, where users' states lie.
    """

    def __init__(self, message: Message, bench: Workbench, state: RecordDict) -> None:
        self.config = read_config(message)
        self.vectors = decode_vectors(message.content)
        self.client: ClientHalf = METHODS[str(self.config["method"])].load_client()
        self.bench, self._state = bench, state
        users, regions = int_list(self.config, "users"), int_list(self.config, "user-regions")
        if len(users) != len(regions):
            raise WireError("'users' and 'user-regions' have different lengths")
        self.asked = sorted(zip(users, regions, strict=True))

    def task(self, user: int, region: int, purpose: str) -> tuple[UserTask, EncodedUser]:
        """Return a user's task, with draws for this purpose, and the encoded data."""
        encoded, seed, server_round = self.bench.user(user), self.bench.config.seed, int_value(self.config, "round")
        task = UserTask(
            user=user,
            region=region,
            server_round=server_round,
            train=encoded.train,
            validation=encoded.validation,
            num_examples=encoded.num_examples,
            labels=encoded.labels,
            num_classes=len(self.bench.federation.classes),
            learner=self.bench.learner,
            config=self.bench.config,
            generator=torch_generator(seed, purpose, server_round, user),
            state=self._recall(user),
        )
        return task, encoded

    def keep(self, task: UserTask) -> None:
        """Store what the client half left in the user's state."""
        if task.state:
            self._state[f"user-{task.user}"] = encode_vectors(task.state)

    def _recall(self, user: int) -> dict[str, Tensor]:
        record = self._state.get(f"user-{user}")
        return decode_vectors(RecordDict({"arrays": record})) if isinstance(record, ArrayRecord) else {}


def train_users(message: Message, bench: Workbench, state: RecordDict) -> RecordDict:
    """Train the users of a ``train`` message in ascending order and return their partial sums.

    A user whose update is not finite or too large is left out and named under ``rejected``.
    """
    session = Session(message, bench, state)
    phase, block = str(session.config["phase"]), str(session.config["block"])
    sums: dict[str, FixedPointSum] = {}
    accepted: list[tuple[int, Update]] = []
    rejected: list[int] = []
    for user, region in session.asked:
        task, _ = session.task(user, region, phase)
        update = session.client.train(task, session.vectors, phase)
        try:
            _add(sums, update, block, user, region)
        except FixedPointError:
            rejected.append(user)
        else:
            accepted.append((user, replace(update, vectors={})))  # kept, the vectors would fill the memory
            session.keep(task)
    totals = {name: part.total for name, part in sums.items()}
    return content(vectors=totals, metrics=_user_metrics(accepted) | {"rejected": rejected})


def evaluate_users(message: Message, bench: Workbench, state: RecordDict) -> RecordDict:
    """Judge each named model on one part of each user's data; sums and counts for each user come back."""
    session = Session(message, bench, state)
    names, split, measure = str_list(session.config, "models"), str(session.config["split"]), session.config["measure"]
    numbers = {
        key.removeprefix("number/"): [float(x) for x in value]
        for key, value in session.config.items()
        if key.startswith("number/") and isinstance(value, list)
    }
    metrics: dict[str, list[int] | list[float]] = {"users": [user for user, _ in session.asked]}
    for name in names:
        for user, region in session.asked:
            task, encoded = session.task(user, region, name)
            bench.learner.flat.write(session.client.model(name, task, session.vectors, numbers))
            bench.learner.module.eval()
            session.keep(task)
            for metric, value in _judge(bench, encoded, split, loss_only=measure == "loss").items():
                metrics.setdefault(f"{name}/{metric}", []).append(float(value))  # type: ignore[arg-type]
    return content(metrics=metrics)


def _judge(bench: Workbench, encoded: EncodedUser, split: str, loss_only: bool) -> Counts:
    rows = {"train": encoded.train, "validation": encoded.validation, "test": encoded.test}[split]
    if not loss_only:
        return bench.learner.evaluate(rows)
    count = float(encoded.counts[split])
    return {"loss.sum": count * mean_loss(bench.learner, rows), "loss.count": count}


def _add(sums: dict[str, FixedPointSum], update: Update, block: str, user: int, region: int) -> None:
    """Add all vectors of one user, or none."""
    checked = []
    for name, vector in update.vectors.items():
        key = block_name(name, block, user, region)
        if key not in sums:
            sums[key] = FixedPointSum(vector.numel())
        total = sums[key]
        checked.append((total, vector, total.check(vector, update.num_examples)))
    for total, vector, bound in checked:
        total.accumulate(vector, update.num_examples, bound)


def _user_metrics(accepted: Sequence[tuple[int, Update]]) -> dict[str, list[int] | list[float]]:
    metrics: dict[str, list[int] | list[float]] = {
        "users": [user for user, _ in accepted],
        "num-examples": [update.num_examples for _, update in accepted],
    }
    for name in sorted({name for _, update in accepted for name in update.metrics}):
        metrics[name] = [update.metrics[name] for _, update in accepted]
    return metrics
