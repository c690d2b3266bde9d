"""Bare PyTorch: one process a core, one thread each, and a plain PyTorch loop that trains the same users.

Same cohorts, same batches in the same order; ordinary module parameters, ``torch.optim``, and weighted sums in float32
in shared memory. Nothing is sent, checked or logged.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any

import torch
from speed_app.regionfed_speed.workloads import SpeedBench, workload_named
from torch import Tensor, nn
from torch.multiprocessing.spawn import spawn

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.models.base import Rows
from regionfed_flwr.strategies.local import num_rows
from regionfed_flwr.topology import Placement, Topology, build_topology


@dataclass(frozen=True)
class BareRun:
    """Seconds of each round, and the parameters at the start and the end, shape ``(d,)``."""

    seconds: list[float]
    start: Tensor
    theta: Tensor


@dataclass(frozen=True)
class _Shared:
    """Memory of all processes.

    Attributes
    ----------
    theta : Tensor
        The model, shape ``(d,)``.
    sums : Tensor
        Each process's weighted sum of its users' models, shape ``(processes, d)``.
    weights : Tensor
        Examples in each sum, shape ``(processes,)``.
    seconds : Tensor
        Duration of each round, shape ``(rounds,)``.
    """

    theta: Tensor
    sums: Tensor
    weights: Tensor
    seconds: Tensor


def run_bare(name: str, config: RunConfig, processes: int, package_forward: bool = False) -> BareRun:
    """Train a workload with nothing but PyTorch.

    Parameters
    ----------
    name : str
        The workload.
    config : RunConfig
        Its configuration.
    processes : int
        Processes, one thread each; the users are laid on them as on nodes.
    package_forward : bool
        Use the package's forward pass also where a plain one would be written otherwise.
    """
    start = workload_named(name).learner(config).flat.read()
    shared = _Shared(
        _in_shared_memory(start.clone()),
        _in_shared_memory(torch.zeros(processes, start.numel())),
        _in_shared_memory(torch.zeros(processes, dtype=torch.float64)),
        _in_shared_memory(torch.zeros(config.num_server_rounds, dtype=torch.float64)),
    )
    barrier = get_context("spawn").Barrier(processes)
    spawn(_work, (processes, name, config, package_forward, shared, barrier), nprocs=processes)  # type: ignore[no-untyped-call]
    return BareRun(shared.seconds.tolist(), start, shared.theta.clone())


def _in_shared_memory(tensor: Tensor) -> Tensor:
    return tensor.share_memory_()  # type: ignore[no-any-return, no-untyped-call]


def _work(
    rank: int, processes: int, name: str, config: RunConfig, package_forward: bool, shared: _Shared, barrier: Any
) -> None:
    """Train this process's users in every round and average its share of the coordinates."""
    workload = workload_named(name)
    bench = SpeedBench(config, workload)
    plain_loss = None if package_forward else workload.plain_loss
    federation = bench.federation
    placements = [Placement(i, i) for i in range(processes)]
    topology = build_topology(federation.region_names, federation.region_of, placements)
    cohorts = [_cohort(topology, config, t, rank) for t in range(1, config.num_server_rounds + 1)]
    for user in sorted({u for cohort in cohorts for u in cohort}):
        bench.user(user)  # data is ready before the clock starts
    trainer = _Trainer(bench, plain_loss, shared.theta, shared.sums[rank])
    size = shared.theta.numel()
    mine = slice(rank * size // processes, (rank + 1) * size // processes)
    for t, cohort in enumerate(cohorts, 1):
        barrier.wait()
        began = time.monotonic()
        shared.sums[rank].zero_()
        shared.weights[rank] = sum(trainer.train(user, t) for user in cohort)
        barrier.wait()
        torch.sum(shared.sums[:, mine], 0, out=shared.theta[mine])
        shared.theta[mine] /= float(shared.weights.sum())
        barrier.wait()
        if rank == 0:
            shared.seconds[t - 1] = time.monotonic() - began


def _cohort(topology: Topology, config: RunConfig, server_round: int, rank: int) -> list[int]:
    return topology.by_node(topology.cohort(config.fraction, config.seed, server_round)).get(rank, [])


class _Trainer:
    """One process's model as ordinary parameters, loaded from and added to shared memory tensor by tensor."""

    def __init__(
        self,
        bench: SpeedBench,
        plain_loss: Callable[[nn.Module, Rows], Tensor] | None,
        theta: Tensor,
        total: Tensor,
    ) -> None:
        self.bench, self.plain_loss = bench, plain_loss
        module, space = bench.learner.module, bench.learner.flat.space
        named = dict(module.named_parameters())
        self.parameters = [named[name] for name in space.names]
        for parameter in self.parameters:
            parameter.data, parameter.grad = parameter.data.clone(), None
        self.start = list(space.split(theta).values())
        self.total = list(space.split(total).values())

    def train(self, user: int, server_round: int) -> int:
        """Train one user from the shared model, add the outcome to the sum and return the weight."""
        config, encoded = self.bench.config, self.bench.user(user)
        with torch.no_grad():
            for parameter, value in zip(self.parameters, self.start, strict=True):
                parameter.copy_(value)
        generator = torch_generator(config.seed, "train", server_round, user)
        self._epochs(encoded.train, generator)
        with torch.no_grad():
            for total, parameter in zip(self.total, self.parameters, strict=True):
                total.add_(parameter, alpha=encoded.num_examples)
        return encoded.num_examples

    def _epochs(self, rows: Rows, generator: torch.Generator) -> None:
        config, count = self.bench.config, num_rows(rows)
        optimizer = _optimizer(self.parameters, config)
        self.bench.learner.module.train()
        for _ in range(config.local_epochs):
            for batch in torch.split(torch.randperm(count, generator=generator), config.batch_size):
                optimizer.zero_grad()
                self._loss({name: values[batch] for name, values in rows.items()}).backward()  # type: ignore[no-untyped-call]
                optimizer.step()

    def _loss(self, rows: Rows) -> Tensor:
        learner = self.bench.learner
        return self.plain_loss(learner.module, rows) if self.plain_loss else learner.loss(rows)


def _optimizer(parameters: list[nn.Parameter], config: RunConfig) -> torch.optim.Optimizer:
    if config.optimizer == "sgd":
        return torch.optim.SGD(
            parameters, lr=config.learning_rate, momentum=config.momentum, weight_decay=config.weight_decay
        )
    return torch.optim.AdamW(parameters, lr=config.learning_rate, weight_decay=config.weight_decay)
