"""The model and the data: what the app had before it knew of regions."""

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES = 10, 4
REGIONS = ("north", "south")


class Net(nn.Module):
    """A small classifier, with a BatchNorm layer and so with arrays that are no parameters."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(FEATURES, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Linear(32, CLASSES))

    def forward(self, x: Tensor) -> Tensor:
        """Return logits, shape ``(batch, CLASSES)``."""
        return self.layers(x)


def region_of(partition_id: int) -> str:
    """Return the region in which a partition's users live."""
    return REGIONS[partition_id % len(REGIONS)]


def make_examples(count: int, region: str, generator: torch.Generator) -> TensorDataset:
    """Draw inputs, and label them as a region does: for about two fifths of them the two regions disagree."""
    rule = torch.randn(FEATURES, CLASSES, generator=torch.Generator().manual_seed(0))
    x = torch.randn(count, FEATURES, generator=generator)
    y = (x @ rule).argmax(1)
    if region == "south":
        y = torch.where(x[:, 0] > 0.25, (y + 1) % CLASSES, y)
    return TensorDataset(x, y)


def load_data(partition_id: int, batch_size: int) -> tuple[DataLoader, DataLoader]:
    """Return a node's own training and test examples."""
    generator = torch.Generator().manual_seed(1000 + partition_id)
    region = region_of(partition_id)
    train, test = make_examples(400, region, generator), make_examples(400, region, generator)
    return DataLoader(train, batch_size, shuffle=True, generator=generator), DataLoader(test, 200)


def train(net: Net, loader: DataLoader, epochs: int, learning_rate: float) -> float:
    """Train in place and return the mean loss of the steps."""
    optimizer = torch.optim.SGD(net.parameters(), lr=learning_rate, momentum=0.9)
    net.train()
    total = 0.0
    for _ in range(epochs):
        for x, y in loader:
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(net(x), y)
            loss.backward()
            optimizer.step()
            total += loss.item()
    return total / (epochs * len(loader))


def test(net: Net, loader: DataLoader) -> tuple[float, float]:
    """Return mean loss and accuracy."""
    net.eval()
    loss, correct, count = 0.0, 0, 0
    with torch.no_grad():
        for x, y in loader:
            logits = net(x)
            loss += nn.functional.cross_entropy(logits, y, reduction="sum").item()
            correct += int((logits.argmax(1) == y).sum())
            count += len(y)
    return loss / count, correct / count
