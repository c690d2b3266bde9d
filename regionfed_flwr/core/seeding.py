"""Generators derived from (seed, purpose, numbers): no draw depends on another's order."""

from __future__ import annotations

import zlib

import numpy as np
import torch


def _sequence(seed: int, purpose: str, numbers: tuple[int, ...]) -> np.random.SeedSequence:
    return np.random.SeedSequence([seed, zlib.crc32(purpose.encode()), *numbers])


def numpy_generator(seed: int, purpose: str, *numbers: int) -> np.random.Generator:
    """Return a NumPy generator for one purpose, e.g. ``numpy_generator(seed, "queries", user)``."""
    return np.random.default_rng(_sequence(seed, purpose, numbers))


def torch_generator(seed: int, purpose: str, *numbers: int) -> torch.Generator:
    """Return a PyTorch CPU generator for one purpose."""
    state = int(_sequence(seed, purpose, numbers).generate_state(1, np.uint64)[0])
    return torch.Generator().manual_seed(state & (2**63 - 1))
