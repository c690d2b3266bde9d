"""Local training on one user's rows: the loop that every method's client half calls."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.models.base import Learner, Rows

GradientHook = Callable[[Tensor, Tensor], None]
"""Called as ``hook(parameters, gradient)`` before each step; changes the gradient in place."""


@dataclass(frozen=True)
class UserTask:
    """Everything a method's client half may read about one user in one round.

    Attributes
    ----------
    user, region, server_round : int
        Who, where and when.
    train, validation : Rows
        The user's encoded private samples.
    num_examples : int
        Number of training samples (a sample may have several rows).
    learner : Learner
        The model of this process; written over by the next user.
    config : RunConfig
        The run's configuration.
    generator : torch.Generator
        Draws for this user in this round.
    """

    user: int
    region: int
    server_round: int
    train: Rows
    validation: Rows
    num_examples: int
    learner: Learner
    config: RunConfig
    generator: torch.Generator


@dataclass(frozen=True)
class Update:
    """What one user sends: vectors to be summed with weight ``num_examples``, and metrics.

    Attributes
    ----------
    vectors : dict of str to Tensor
        Shape ``(d,)`` each, float32 on the CPU.
    num_examples : int
        The weight of the vectors.
    metrics : dict of str to float
        Numbers for the round's log.
    """

    vectors: dict[str, Tensor]
    num_examples: int
    metrics: dict[str, float]


@dataclass(frozen=True)
class LocalResult:
    """Outcome of local training: ``delta`` = end - start, shape ``(d,)``; mean loss over all steps; steps."""

    delta: Tensor
    loss: float
    steps: int


def num_rows(rows: Rows) -> int:
    """Return the number of encoded rows."""
    return next(iter(rows.values())).shape[0] if rows else 0


def make_optimizer(parameters: torch.nn.Parameter, config: RunConfig) -> torch.optim.Optimizer:
    """Return a fresh optimizer over the flat vector."""
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            [parameters], lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
        )
    return torch.optim.AdamW([parameters], lr=config.learning_rate, weight_decay=config.weight_decay)


def train_locally(task: UserTask, start: Tensor, hook: GradientHook | None = None) -> LocalResult:
    """Run ``local_epochs`` passes over the user's rows from ``start`` (FedAvg's ClientUpdate).

    Parameters
    ----------
    task : UserTask
        The user, the model and the settings.
    start : Tensor
        Parameters at the start, shape ``(d,)``.
    hook : callable, optional
        Changes the gradient before each step, e.g. a proximal term.

    Returns
    -------
    LocalResult
        With zero delta and zero steps when the user has no rows.
    """
    rows, learner, config = task.train, task.learner, task.config
    count = num_rows(rows)
    if count == 0:
        return LocalResult(torch.zeros_like(start), 0.0, 0)
    flat = learner.flat
    flat.write(start)
    gradient = flat.vector.grad
    assert gradient is not None
    optimizer = make_optimizer(flat.vector, config)
    learner.module.train()
    total, steps = torch.zeros((), device=flat.vector.device), 0
    for _ in range(config.local_epochs):
        order = torch.randperm(count, generator=task.generator)
        for batch in torch.split(order, config.batch_size):
            loss = learner.loss({name: values[batch] for name, values in rows.items()})
            flat.zero_grad()
            loss.backward()  # type: ignore[no-untyped-call]
            if hook is not None:
                hook(flat.vector.detach(), gradient)
            optimizer.step()
            total += loss.detach()
            steps += 1
    return LocalResult(flat.read().sub_(start), float(total) / steps, steps)
