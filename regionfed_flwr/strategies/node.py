"""The node's side of an exchange: train or judge the users asked for, and sum what they send.

Nothing here knows a method: the client half is found by the name in the message.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from flwr.app import ConfigRecord, Message, RecordDict
from torch import Tensor

from regionfed_flwr.core.fixed_point import FixedPointError, FixedPointSum
from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.strategies.local import Update, UserTask
from regionfed_flwr.strategies.registry import METHODS
from regionfed_flwr.strategies.wire import (
    WireError,
    content,
    decode_vectors,
    int_list,
    int_value,
    read_config,
    str_list,
)
from regionfed_flwr.strategies.workbench import Workbench


class ClientHalf(Protocol):
    """A method's client half."""

    def train(self, task: UserTask, vectors: dict[str, Tensor], phase: str) -> Update:
        """Train one user from the vectors that the server sent."""
        ...


def block_name(vector: str, block: str, user: int, region: int) -> str:
    """Return the name of the sum that a user's vector goes into.

    ``block`` is ``all`` (one sum a node), ``region`` (one per region on the node) or ``user``.
    """
    suffix = {"all": "all", "region": f"region-{region}", "user": f"user-{user}"}[block]
    return f"{vector}/{suffix}"


def train_users(message: Message, bench: Workbench) -> RecordDict:
    """Train the users of a ``train`` message in ascending order and return their partial sums.

    A user whose update is not finite or too large is left out and named under ``rejected``.
    """
    config = read_config(message)
    vectors = decode_vectors(message.content)
    client: ClientHalf = METHODS[str(config["method"])].load_client()
    server_round = int_value(config, "round")
    sums: dict[str, FixedPointSum] = {}
    accepted: list[tuple[int, Update]] = []
    rejected: list[int] = []
    for user, region in _asked(config):
        encoded = bench.user(user)
        task = UserTask(
            user=user,
            region=region,
            server_round=server_round,
            train=encoded.train,
            validation=encoded.validation,
            num_examples=encoded.num_examples,
            learner=bench.learner,
            config=bench.config,
            generator=torch_generator(bench.config.seed, "train", server_round, user),
        )
        update = client.train(task, vectors, str(config["phase"]))
        try:
            _add(sums, update, str(config["block"]), user, region)
            accepted.append((user, update))
        except FixedPointError:
            rejected.append(user)
    totals = {name: part.total for name, part in sums.items()}
    return content(vectors=totals, metrics=_user_metrics(accepted) | {"rejected": rejected})


def evaluate_users(message: Message, bench: Workbench) -> RecordDict:
    """Judge each named model on one part of each user's data; sums and counts per user come back.

    The models in the message are ``<name>`` for all users or ``<name>/<region>`` for a region's users.
    """
    config = read_config(message)
    vectors = decode_vectors(message.content)
    names = str_list(config, "models")
    asked = _asked(config)
    metrics: dict[str, list[int] | list[float]] = {"users": [user for user, _ in asked]}
    for name in names:
        loaded = None
        for user, region in asked:
            key = name if name in vectors else f"{name}/{region}"
            if key not in vectors:
                raise WireError(f"the model '{key}' is missing")
            if loaded != key:
                bench.learner.flat.write(vectors[key])
                bench.learner.module.eval()
                loaded = key
            rows = getattr(bench.user(user), str(config["split"]))
            for metric, value in bench.learner.evaluate(rows).items():
                metrics.setdefault(f"{name}/{metric}", []).append(float(value))  # type: ignore[arg-type]
    return content(metrics=metrics)


def _asked(config: ConfigRecord) -> list[tuple[int, int]]:
    users, regions = int_list(config, "users"), int_list(config, "user-regions")
    if len(users) != len(regions):
        raise WireError("'users' and 'user-regions' have different lengths")
    return sorted(zip(users, regions, strict=True))


def _add(sums: dict[str, FixedPointSum], update: Update, block: str, user: int, region: int) -> None:
    """Add all vectors of one user, or none."""
    checked = []
    for name, vector in update.vectors.items():
        total = sums.setdefault(block_name(name, block, user, region), FixedPointSum(vector.numel()))
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
