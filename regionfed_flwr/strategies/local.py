"""Local training on one user's rows: the loop that every method's client half calls."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.models.base import Learner, Rows

T = TypeVar("T")
GradientHook = Callable[[Tensor, Tensor], None]
"""Called as ``hook(parameters, gradient)`` before each step; changes the gradient in place."""
GRADIENT_ROWS = 1024  # rows at once where no optimizer step asks for batches


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
    labels : tuple of int
        Class (intent, character) of each training sample.
    num_classes : int
        Number of classes.
    learner : Learner
        The model of this process; written over by the next user.
    config : RunConfig
        The run's configuration.
    generator : torch.Generator
        Draws for this user in this round and phase.
    state : dict of str to Tensor
        What this user keeps from round to round, on its node only; the client half may change it.
    """

    user: int
    region: int
    server_round: int
    train: Rows
    validation: Rows
    num_examples: int
    labels: tuple[int, ...]
    num_classes: int
    learner: Learner
    config: RunConfig
    generator: torch.Generator
    state: dict[str, Tensor]

    def of_region(self, values: Mapping[str, T], name: str) -> T:
        """Return what was sent as ``name`` for this user's region."""
        return values[f"{name}/{self.region}"]


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
    """Return a fresh optimizer over the flat vector; one fused kernel is several times faster on small models."""
    common = {"lr": config.learning_rate, "weight_decay": config.weight_decay, "fused": True}
    if config.optimizer == "sgd":
        return torch.optim.SGD([parameters], momentum=config.momentum, **common)  # type: ignore[arg-type]
    return torch.optim.AdamW([parameters], **common)  # type: ignore[arg-type]


def full_gradient(task: UserTask, at: Tensor) -> tuple[Tensor, float]:
    """Return the gradient of the user's mean loss at a point, shape ``(d,)``, and the loss; zeros without rows."""
    count = num_rows(task.train)
    flat = task.learner.flat
    flat.write(at)
    flat.zero_grad()
    task.learner.module.train()
    total = 0.0
    for batch in torch.split(torch.arange(count), GRADIENT_ROWS):
        loss = task.learner.loss({name: values[batch] for name, values in task.train.items()}) * (len(batch) / count)
        loss.backward()  # type: ignore[no-untyped-call]
        total += float(loss.detach())
    assert flat.vector.grad is not None
    return flat.vector.grad.detach().cpu().clone(), total


def second_order(task: UserTask, at: Tensor, vector: Tensor) -> Tensor:
    """Return the Hessian of the user's mean loss at a point times a vector, shape ``(d,)`` (small models)."""
    learner = task.learner
    learner.flat.write(at)
    learner.module.train()
    if num_rows(task.train) == 0:
        return torch.zeros_like(vector)
    parameters = [p for p in learner.module.parameters() if p.requires_grad]
    names = learner.flat.space.names
    along = learner.flat.space.split(vector.to(learner.flat.vector.device))
    slopes = torch.autograd.grad(learner.loss(task.train), parameters, create_graph=True)
    slope = torch.stack([(g * along[name]).sum() for name, g in zip(names, slopes, strict=True)]).sum()
    curvature = torch.autograd.grad(slope, parameters, materialize_grads=True)
    return learner.flat.space.join(dict(zip(names, curvature, strict=True))).cpu()


@torch.no_grad()
def mean_loss(learner: Learner, rows: Rows) -> float:
    """Return the mean loss over rows, by forward passes only; 0 without rows."""
    count = num_rows(rows)
    parts = torch.split(torch.arange(count), GRADIENT_ROWS)
    losses = [float(learner.loss({name: v[b] for name, v in rows.items()})) * len(b) / count for b in parts]
    return math.fsum(losses)


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
    return LocalResult(flat.vector.detach().cpu() - start, float(total) / steps, steps)
