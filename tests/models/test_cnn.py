import numpy as np
import pytest
import torch
import torch.nn.functional as F

from regionfed_flwr.core.metrics import add_counts, scores
from regionfed_flwr.data.base import Glyph
from regionfed_flwr.models.base import Learner, Rows
from regionfed_flwr.models.cnn import CnnLearner


def glyphs(count: int, classes: int = 62, seed: int = 0) -> list[Glyph]:
    rng = np.random.default_rng(seed)
    images = rng.integers(0, 256, (count, 28, 28), dtype=np.uint8)
    return [Glyph(image, int(label)) for image, label in zip(images, rng.integers(0, classes, count), strict=True)]


def part(rows: Rows, *index: int) -> Rows:
    return {name: tensor[list(index)] for name, tensor in rows.items()}


def test_sizes_follow_from_the_image() -> None:
    learner: Learner = CnnLearner(62, seed=0)
    convolutions = (25 * 1 * 32 + 32) + (25 * 32 * 64 + 64)
    assert learner.flat.space.size == convolutions + (1024 * 512 + 512) + (512 * 62 + 62)
    wider = CnnLearner(62, seed=0, image_size=32)  # the paper's 1600 inputs belong to 32x32 pixels
    assert wider.flat.space.size - learner.flat.space.size == (1600 - 1024) * 512


def test_rows_are_compact_and_may_be_empty() -> None:
    samples = glyphs(3)
    rows = CnnLearner(62, seed=0).encode(samples)
    assert rows["image"].shape == (3, 1, 28, 28) and rows["image"].dtype == torch.uint8
    assert rows["label"].tolist() == [sample.label for sample in samples]
    np.testing.assert_array_equal(rows["image"][1, 0].numpy(), samples[1].image)
    assert [len(tensor) for tensor in CnnLearner(62, seed=0).encode([]).values()] == [0, 0]


def test_same_loss_and_gradient_as_plain_layers_on_images_from_0_to_1() -> None:
    learner = CnnLearner(62, seed=3)
    rows = learner.encode(glyphs(5))
    vector = learner.flat.read().requires_grad_()
    w1, b1, w2, b2, w3, b3, w4, b4 = learner.flat.space.split(vector).values()
    x = rows["image"].float() / 255
    x = F.max_pool2d(F.relu(F.conv2d(x, w1, b1)), 2)
    x = F.max_pool2d(F.relu(F.conv2d(x, w2, b2)), 2)
    logits = F.linear(F.relu(F.linear(x.flatten(1), w3, b3)), w4, b4)
    expected = F.cross_entropy(logits, rows["label"])
    expected.backward()
    loss = learner.loss(rows)
    learner.flat.zero_grad()
    loss.backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(learner.flat.vector.grad, vector.grad)


def test_weights_depend_on_the_seed_alone() -> None:
    torch.manual_seed(0)
    state = torch.get_rng_state()
    first = CnnLearner(62, seed=1).flat.read()
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert torch.equal(CnnLearner(62, seed=1).flat.read(), first)
    assert not torch.equal(CnnLearner(62, seed=2).flat.read(), first)


def test_counts_add_up_over_parts_and_match_the_loss(monkeypatch: pytest.MonkeyPatch) -> None:
    learner = CnnLearner(62, seed=0)
    rows = learner.encode(glyphs(10))
    whole = learner.evaluate(rows)
    halves = add_counts([learner.evaluate(part(rows, *range(4))), learner.evaluate(part(rows, *range(4, 10)))])
    assert halves == pytest.approx(whole)
    assert whole["loss.sum"] / whole["loss.count"] == pytest.approx(float(learner.loss(rows).detach()), rel=1e-5)
    monkeypatch.setattr("regionfed_flwr.models.cnn.EVALUATION_ROWS", 3)
    assert learner.evaluate(rows) == pytest.approx(whole)
    assert learner.evaluate(learner.encode([])) == dict.fromkeys(whole, 0.0)


def test_learns_to_tell_samples_apart() -> None:
    learner = CnnLearner(62, seed=0)
    rows = learner.encode(glyphs(20))
    optimizer = torch.optim.SGD([learner.flat.vector], lr=0.01, momentum=0.9)
    for _ in range(60):
        learner.flat.zero_grad()
        learner.loss(rows).backward()
        optimizer.step()
    assert scores(learner.evaluate(rows))["character"] == 1.0
