"""The workloads: which data, which model, which settings."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regionfed_flwr.config import RunConfig, Value, parse_config
from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.core.param_space import FlatModule
from regionfed_flwr.core.seeding import numpy_generator, torch_generator
from regionfed_flwr.data.base import Federation, Glyph, UserSplits
from regionfed_flwr.data.load import load_federation
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.base import Learner, Rows
from regionfed_flwr.models.cnn import CnnLearner
from regionfed_flwr.models.load import load_learner
from regionfed_flwr.strategies.workbench import Workbench

SMALL_MLP = (64, 128, 80, 10)  # 19,450 parameters
LARGE_MLP = (784, 3072, 3072, 62)  # 12,042,302 parameters
IMAGE_CLASSES = 62


@dataclass(frozen=True)
class Labelled:
    """A row of features, float32, shape ``(width,)``, and its class."""

    features: npt.NDArray[np.float32]
    label: int


class MlpLearner:
    """A multilayer perceptron behind the package's interface of a model.

    Parameters
    ----------
    widths : sequence of int
        Input, hidden layers and classes.
    seed : int
        The initial weights depend on it alone.
    """

    tasks: tuple[str, ...] = ("class",)

    def __init__(self, widths: Sequence[int], seed: int) -> None:
        generator, layers = torch_generator(seed, "mlp-weights"), list[nn.Module]()
        for fan_in, fan_out in itertools.pairwise(widths):
            layer = nn.Linear(fan_in, fan_out)
            nn.init.kaiming_uniform_(layer.weight, nonlinearity="relu", generator=generator)
            nn.init.zeros_(layer.bias)
            layers += [layer, nn.ReLU()]
        self._width = widths[0]
        self.module: nn.Module = nn.Sequential(*layers[:-1])
        self.flat = FlatModule(self.module)

    def encode(self, samples: Sequence[Labelled]) -> Rows:
        """Return features (rows, width) and labels (rows,)."""
        features = np.array([s.features for s in samples], dtype=np.float32).reshape(-1, self._width)
        return {"x": torch.from_numpy(features), "label": torch.tensor([s.label for s in samples], dtype=torch.long)}

    def loss(self, rows: Rows) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(self.module(rows["x"]), rows["label"])

    @torch.no_grad()
    def evaluate(self, rows: Rows) -> Counts:
        """Return the sum of the rows' losses."""
        count = len(rows["label"])
        return {"loss.sum": float(self.loss(rows)) * count if count else 0.0, "loss.count": float(count)}


@dataclass(frozen=True)
class RandomFederation:
    """Users with random samples, drawn when a user is asked for.

    Regions have 6/5 and 4/5 of the mean number of users in turn: every workload's fraction of either is a whole
    number, and two nodes get the same work.

    Attributes
    ----------
    config : RunConfig
        Regions, users and samples of each user; all samples are training samples.
    draw : callable
        Makes a number of samples with a generator.
    """

    config: RunConfig
    draw: Callable[[np.random.Generator, int], list[Any]]

    @property
    def region_names(self) -> tuple[str, ...]:
        """Name of each region."""
        return tuple(f"region {r}" for r in range(self.config.regions))

    @property
    def region_of(self) -> tuple[int, ...]:
        """Region of each user."""
        sizes = [self.config.users_per_region * (4 if r % 2 else 6) // 5 for r in range(self.config.regions)]
        return tuple(r for r, size in enumerate(sizes) for _ in range(size))

    @property
    def classes(self) -> tuple[str, ...]:
        """No labels that mean anything."""
        return ()

    def user(self, user: int) -> UserSplits[Any]:
        """Return the samples of one user."""
        generator = numpy_generator(self.config.seed, "speed-samples", user)
        return UserSplits(self.draw(generator, self.config.samples_per_user), (), ())


def _images(generator: np.random.Generator, count: int) -> list[Glyph]:
    images = generator.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    labels = generator.integers(0, IMAGE_CLASSES, count).tolist()
    return [Glyph(image, label) for image, label in zip(images, labels, strict=True)]


def _rows_for(widths: Sequence[int]) -> Callable[[np.random.Generator, int], list[Labelled]]:
    def draw(generator: np.random.Generator, count: int) -> list[Labelled]:
        features = generator.standard_normal((count, widths[0]), dtype=np.float32)
        labels = generator.integers(0, widths[-1], count).tolist()
        return [Labelled(x, label) for x, label in zip(features, labels, strict=True)]

    return draw


@dataclass(frozen=True)
class Workload:
    """A piece of work whose duration is compared.

    Attributes
    ----------
    text : str
        What it is, for the table.
    values : dict
        Configuration keys that differ from the package's defaults.
    federation, learner : callable
        Make its data and its model from a configuration.
    plain_loss : callable or None
        Mean loss of a batch as it would be written without this package, where that differs from the learner's.
    """

    text: str
    values: dict[str, Value]
    federation: Callable[[RunConfig], Federation[Any]]
    learner: Callable[[RunConfig], Learner]
    plain_loss: Callable[[nn.Module, Rows], Tensor] | None = None

    def config(self, **values: Value) -> RunConfig:
        """Return the workload's configuration with some more keys (underscores) set."""
        return parse_config({}, **(_COMMON | self.values | values))


# RegionFed's grad strategy trains its users once a round, as FedAvg does; others train or judge once more.
_COMMON: dict[str, Value] = {
    "evaluate_every": 0,
    "device": "cpu",
    "local_epochs": 1,
    "strategy": "grad",
    "rho_search": "fixed",
    "region_weight": "size",
}
_SGD: dict[str, Value] = {"optimizer": "sgd", "regions": 8, "users_per_region": 25}

# Learning rates are low: two float summations then stay close enough for other batches to be told from other rounding.
WORKLOADS: dict[str, Workload] = {
    "W1": Workload(
        "CNN, 609 k parameters; 40 of 200 users a round, 100 images, batch 20",
        _SGD
        | {"model": "cnn", "data": "femnist", "fraction": 0.2}
        | {"samples_per_user": 100, "batch_size": 20, "learning_rate": 0.001},
        lambda config: RandomFederation(config, _images),
        lambda config: CnnLearner(IMAGE_CLASSES, seed=config.seed),
        lambda module, rows: F.cross_entropy(module(rows["image"].float() / 255), rows["label"]),
    ),
    "W2": Workload(
        "MLP, 19 k parameters; 100 of 200 users a round, 32 rows, batch 16",
        _SGD | {"fraction": 0.5, "samples_per_user": 32, "batch_size": 16, "learning_rate": 0.1},
        lambda config: RandomFederation(config, _rows_for(SMALL_MLP)),
        lambda config: MlpLearner(SMALL_MLP, config.seed),
    ),
    "W3": Workload(
        "MLP, 12 M parameters; 20 of 200 users a round, 16 rows, one step",
        _SGD | {"fraction": 0.1, "samples_per_user": 16, "batch_size": 16, "learning_rate": 0.01},
        lambda config: RandomFederation(config, _rows_for(LARGE_MLP)),
        lambda config: MlpLearner(LARGE_MLP, config.seed),
    ),
    "T5": Workload(
        "t5-tiny on its queries, all of 32 users a round, batch 32, AdamW",
        {"regions": 8, "users_per_region": 4, "batch_size": 32, "learning_rate": 3e-4},
        load_federation,
        load_learner,
    ),
}


def workload_named(name: str) -> Workload:
    """Return a workload, or say which there are."""
    if name not in WORKLOADS:
        raise RegionFedError(f"There is no workload '{name}'; allowed is one of {', '.join(WORKLOADS)}.")
    return WORKLOADS[name]


def read_run(values: Mapping[str, Any]) -> tuple[str, RunConfig]:
    """Return the workload's name and the configuration that the app's own run configuration asks for."""
    name = str(values["workload"])
    return name, workload_named(name).config(
        **{key.replace("-", "_"): value for key, value in values.items() if key != "workload"}
    )


class SpeedBench(Workbench):
    """The package's workbench, with its cache of users, over a workload's data and model."""

    def __init__(self, config: RunConfig, workload: Workload) -> None:
        super().__init__(config, workload.federation(config), workload.learner(config))


@lru_cache(maxsize=1)
def speed_bench(name: str, config: RunConfig) -> SpeedBench:
    """Return this process's workbench for a workload."""
    return SpeedBench(config, workload_named(name))
