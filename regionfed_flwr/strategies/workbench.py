"""What a node's process keeps between messages: the model and its users' encoded data."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch

from regionfed_flwr.config import RunConfig
from regionfed_flwr.data.base import Federation, UserSplits
from regionfed_flwr.data.load import load_federation
from regionfed_flwr.models.base import Learner, Rows
from regionfed_flwr.models.load import load_learner

_CACHED_USERS = 4096


@dataclass(frozen=True)
class EncodedUser:
    """One user's encoded parts and the number of training samples."""

    train: Rows
    validation: Rows
    test: Rows
    num_examples: int


class Workbench:
    """The federation's data and one model, built once in a process.

    Parameters
    ----------
    config : RunConfig
        The run's configuration; it decides all data and the model.
    """

    def __init__(self, config: RunConfig) -> None:
        torch.set_num_threads(1)  # two threads beside a busy process are slower than one, and change the bits
        self.config = config
        self.federation: Federation[Any] = load_federation(config)
        self._learner: Learner | None = None
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
            encode = self.learner.encode
            self._users[user] = EncodedUser(
                encode(splits.train), encode(splits.validation), encode(splits.test), len(splits.train)
            )
            if len(self._users) > _CACHED_USERS:
                self._users.popitem(last=False)
        self._users.move_to_end(user)
        return self._users[user]


@lru_cache(maxsize=2)
def workbench(config: RunConfig) -> Workbench:
    """Return this process's workbench for a configuration."""
    return Workbench(config)
