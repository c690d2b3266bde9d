"""Model parameters as one flat vector, each tied tensor once, buffers apart."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import torch
from torch import Tensor, nn


@dataclass(frozen=True)
class ParamSpace:
    """Names and shapes of the trainable parameters, in the order in which they lie in the vector.

    Attributes
    ----------
    names : tuple of str
        Parameter names; a tensor that several modules share stands once, under its first name.
    shapes : tuple of tuple of int
        Their shapes.
    """

    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]

    @property
    def size(self) -> int:
        """Number of coordinates d."""
        return sum(prod(shape) for shape in self.shapes)

    def split(self, vector: Tensor) -> dict[str, Tensor]:
        """Return views of ``vector`` (shape ``(d,)``) by parameter name.

        Raises
        ------
        ValueError
            When the vector has another length.
        """
        if vector.shape != (self.size,):
            raise ValueError(f"a vector of shape {tuple(vector.shape)} does not fit a space of size {self.size}")
        parts, start = {}, 0
        for name, shape in zip(self.names, self.shapes, strict=True):
            stop = start + prod(shape)
            parts[name] = vector[start:stop].view(shape)
            start = stop
        return parts

    def join(self, parts: Mapping[str, Tensor]) -> Tensor:
        """Return the vector (float32) of named tensors; the inverse of :meth:`split`."""
        flat = [parts[name].detach().reshape(-1).to(torch.float32) for name in self.names]
        return torch.cat(flat) if flat else torch.zeros(0)


class FlatModule:
    """A module whose trainable parameters are views of one flat vector, and their gradients of another.

    Reading, writing and stepping are then single operations whatever the number of tensors.

    Parameters
    ----------
    module : nn.Module
        The model; its trainable parameters are moved into the flat vector.
    trainable : str
        Regular expression, matched from the start of a parameter's name; the others are frozen.

    Attributes
    ----------
    space : ParamSpace
        What lies where.
    vector : nn.Parameter
        The parameters, shape ``(d,)``, float32. Its ``grad`` holds the gradients.
    """

    def __init__(self, module: nn.Module, trainable: str = "") -> None:
        pattern = re.compile(trainable)
        chosen: dict[str, nn.Parameter] = {}
        for name, parameter in module.named_parameters():  # leaves out repeated (tied) tensors
            parameter.requires_grad_(pattern.match(name) is not None)
            if parameter.requires_grad:
                chosen[name] = parameter
        self.module = module
        self.space = ParamSpace(tuple(chosen), tuple(tuple(p.shape) for p in chosen.values()))
        self.vector = nn.Parameter(self.space.join(chosen))
        if chosen:
            self.vector.data = self.vector.data.to(next(iter(chosen.values())).device)
        self.vector.grad = torch.zeros_like(self.vector)
        values, grads = self.space.split(self.vector.data), self.space.split(self.vector.grad)
        for name, parameter in chosen.items():
            parameter.data = values[name]
            parameter.grad = grads[name]

    def read(self) -> Tensor:
        """Return a copy of the parameters, shape ``(d,)``, on the CPU."""
        return self.vector.detach().cpu().clone()

    def write(self, vector: Tensor) -> None:
        """Overwrite the parameters with ``vector``, shape ``(d,)``."""
        if vector.shape != self.vector.shape:
            raise ValueError(f"a vector of shape {tuple(vector.shape)} does not fit {tuple(self.vector.shape)}")
        with torch.no_grad():
            self.vector.copy_(vector)

    def zero_grad(self) -> None:
        """Set all gradients to zero, in place: the views must stay attached."""
        assert self.vector.grad is not None
        self.vector.grad.zero_()
