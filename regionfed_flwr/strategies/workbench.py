"""What a node's process keeps between messages: the model and its users' encoded data."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from regionfed_flwr.config import RunConfig
from regionfed_flwr.data.base import Federation, UserSplits, label_of
from regionfed_flwr.data.load import load_federation
from regionfed_flwr.models.base import Learner, Rows
from regionfed_flwr.models.load import load_learner

_CACHED_BYTES = 1 << 30  # encoded data that a process keeps; the rest is made again when it is asked for


@dataclass(frozen=True)
class EncodedUser:
    """One user's encoded parts, the number of samples in each (a sample may have several rows), training labels."""

    train: Rows
    validation: Rows
    test: Rows
    counts: dict[str, int]
    labels: tuple[int, ...]

    @property
    def num_bytes(self) -> int:
        """Memory of the encoded rows."""
        return sum(t.nbytes for rows in (self.train, self.validation, self.test) for t in rows.values())

    @property
    def num_examples(self) -> int:
        """Number of training samples."""
        return self.counts["train"]


class Workbench:
    """The federation's data and one model, built once in a process.

    Parameters
    ----------
    config : RunConfig
        The run's configuration; it decides all data and the model.
    federation, learner : optional
        Others than those that the configuration names.
    """

    def __init__(
        self, config: RunConfig, federation: Federation[Any] | None = None, learner: Learner | None = None
    ) -> None:
        torch.set_num_threads(1)  # two threads beside a busy process are slower than one, and change the bits
        self.config = config
        self.federation = federation or load_federation(config)
        self._learner = learner
        self._bytes = 0
        self._users: OrderedDict[int, EncodedUser] = OrderedDict()

    @property
    def learner(self) -> Learner:
        """The model, built at the first use."""
        if self._learner is None:
            self._learner = load_learner(self.config)
        return self._learner

    def user(self, user: int) -> EncodedUser:
        """Return a user's encoded data; the most recently used users are kept."""
        if user not in self._users:
            splits: UserSplits[Any] = self.federation.user(user)
            parts = {"train": splits.train, "validation": splits.validation, "test": splits.test}
            rows = {name: self.learner.encode(samples) for name, samples in parts.items()}
            counts = {name: len(samples) for name, samples in parts.items()}
            labels = tuple(label_of(sample, self.federation.classes) for sample in splits.train)
            self._users[user] = EncodedUser(**rows, counts=counts, labels=labels)
            self._bytes += self._users[user].num_bytes
            while self._bytes > _CACHED_BYTES and len(self._users) > 1:
                self._bytes -= self._users.popitem(last=False)[1].num_bytes
        self._users.move_to_end(user)
        return self._users[user]


@lru_cache(maxsize=2)
def workbench(config: RunConfig) -> Workbench:
    """Return this process's workbench for a configuration."""
    return Workbench(config)
