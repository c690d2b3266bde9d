import pytest
import torch
from torch import nn

from regionfed_flwr.core.param_space import FlatModule, ParamSpace


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 3)
        self.body = nn.Linear(3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 5, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, tokens):
        return self.head(self.norm(self.body(self.embed(tokens))))


def test_tied_tensors_stand_once_and_stay_tied():
    flat = FlatModule(Tied())
    assert flat.space.names == ("embed.weight", "body.weight", "body.bias", "norm.weight", "norm.bias")
    assert flat.space.size == 15 + 9 + 3 + 3 + 3
    flat.write(torch.arange(flat.space.size, dtype=torch.float32))
    assert torch.equal(flat.module.head.weight, torch.arange(15.0).view(5, 3))
    assert flat.module.head.weight is flat.module.embed.weight


def test_buffers_stay_apart_and_integers_stay_integers():
    flat = FlatModule(Tied())
    flat.write(torch.zeros(flat.space.size))
    assert flat.module.norm.running_var.tolist() == [1, 1, 1]
    assert flat.module.norm.num_batches_tracked.dtype == torch.int64


def test_a_step_on_the_flat_vector_is_a_step_on_the_model():
    torch.manual_seed(0)
    one, two = Tied(), Tied()
    two.load_state_dict(one.state_dict())
    flat = FlatModule(one)
    ours = torch.optim.AdamW([flat.vector], lr=0.01)
    theirs = torch.optim.AdamW(two.parameters(), lr=0.01)
    tokens, labels = torch.tensor([0, 1, 2, 3]), torch.tensor([1, 2, 3, 4])
    for _ in range(3):
        flat.zero_grad()
        nn.functional.cross_entropy(one(tokens), labels).backward()
        ours.step()
        theirs.zero_grad()
        nn.functional.cross_entropy(two(tokens), labels).backward()
        theirs.step()
    for (name, p), (_, q) in zip(one.named_parameters(), two.named_parameters(), strict=True):
        assert torch.allclose(p, q, atol=1e-6), name


def test_split_and_join_are_inverse():
    space = ParamSpace(("a", "b"), ((2, 3), ()))
    vector = torch.arange(7.0)
    parts = space.split(vector)
    assert parts["a"].shape == (2, 3)
    assert torch.equal(space.join(parts), vector)
    with pytest.raises(ValueError, match="size 7"):
        space.split(torch.zeros(6))


def test_a_subset_freezes_the_rest():
    flat = FlatModule(Tied(), trainable="body")
    assert flat.space.names == ("body.weight", "body.bias")
    flat.module(torch.tensor([0, 1])).sum().backward()
    assert flat.module.embed.weight.grad is None


def test_write_refuses_another_length_and_read_is_a_copy():
    flat = FlatModule(nn.Linear(2, 2))
    copy = flat.read()
    flat.write(torch.ones(6))
    assert not torch.equal(copy, flat.read())
    with pytest.raises(ValueError, match="fit"):
        flat.write(torch.ones(5))
