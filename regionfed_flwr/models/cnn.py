"""The convolutional network of the character benchmark (paper appendix B.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regionfed_flwr.core.metrics import Counts
from regionfed_flwr.core.param_space import FlatModule
from regionfed_flwr.core.seeding import torch_generator
from regionfed_flwr.data.base import Glyph
from regionfed_flwr.models.base import Rows

IMAGE_SIZE = 28
KERNEL = 5
HIDDEN = 512
EVALUATION_ROWS = 512  # bounds the memory of the feature maps


def _side_after_convolutions(image_size: int) -> int:
    """Return the side of the feature map: two unpadded convolutions, each followed by a halving."""
    side = image_size
    for _ in range(2):
        side = (side - KERNEL + 1) // 2
    return side


def _network(num_classes: int, image_size: int) -> nn.Sequential:
    # The paper prints FC(1600 -> 512), which fits 32x32 images; 28x28 give 4 * 4 * 64 = 1024.
    features = 64 * _side_after_convolutions(image_size) ** 2
    return nn.Sequential(
        nn.Conv2d(1, 32, KERNEL),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(32, 64, KERNEL),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(features, HIDDEN),
        nn.ReLU(inplace=True),
        nn.Linear(HIDDEN, num_classes),
    )


def _initialise(module: nn.Module, generator: torch.Generator) -> None:
    for parameter in module.parameters():
        if parameter.dim() == 1:
            nn.init.zeros_(parameter)
        else:
            nn.init.kaiming_uniform_(parameter, nonlinearity="relu", generator=generator)


class CnnLearner:
    """Character recognition with two convolutions and two fully connected layers (paper appendix B.3).

    Parameters
    ----------
    num_classes : int
        Characters to tell apart.
    seed : int
        The initial weights depend on it alone.
    device : str
        Where the module lives.
    image_size : int
        Side of the square images, in pixels; the width of the first fully connected layer follows from it.
    """

    tasks: tuple[str, ...] = ("character",)

    def __init__(self, num_classes: int, *, seed: int, device: str = "cpu", image_size: int = IMAGE_SIZE) -> None:
        with torch.device("meta"):  # draws nothing from the global generator
            module = _network(num_classes, image_size)
        module.to_empty(device="cpu")
        _initialise(module, torch_generator(seed, "cnn-weights"))
        self._shape = (image_size, image_size)
        self._device = torch.device(device)
        self.module: nn.Module = module.to(self._device)
        self.flat = FlatModule(self.module)

    def encode(self, samples: Sequence[Glyph]) -> Rows:
        """Return images as uint8, shape (rows, 1, side, side), scaled only when used, and labels (rows,)."""
        images = np.zeros((len(samples), 1, *self._shape), dtype=np.uint8)
        for row, sample in enumerate(samples):
            images[row, 0] = sample.image
        labels = torch.tensor([sample.label for sample in samples], dtype=torch.long)
        return {"image": torch.from_numpy(images).to(self._device), "label": labels.to(self._device)}

    def _forward(self, rows: Rows) -> Tensor:
        # The view has the strides of a channels-last image, with which convolutions on the CPU are a third faster.
        image = rows["image"].reshape(-1, *self._shape, 1).permute(0, 3, 1, 2)
        logits: Tensor = self.module(image.to(torch.float32) / 255)
        return logits

    def loss(self, rows: Rows) -> Tensor:
        """Return the mean cross-entropy."""
        return F.cross_entropy(self._forward(rows), rows["label"])

    @torch.no_grad()
    def evaluate(self, rows: Rows) -> Counts:
        """Return the counts of right characters and the sum of the rows' losses."""
        right, loss = 0, 0.0
        for start in range(0, len(rows["label"]), EVALUATION_ROWS):
            part = {name: tensor[start : start + EVALUATION_ROWS] for name, tensor in rows.items()}
            logits, labels = self._forward(part), part["label"]
            right += int((logits.argmax(1) == labels).sum())
            loss += float(F.cross_entropy(logits, labels, reduction="none").double().sum())
        count = float(len(rows["label"]))
        return {"character.correct": float(right), "character.count": count, "loss.sum": loss, "loss.count": count}
