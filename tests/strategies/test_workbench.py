import pytest
import torch

from regionfed_flwr.config import parse_config
from regionfed_flwr.strategies import workbench
from regionfed_flwr.strategies.workbench import Workbench

SMALL = parse_config({}, model="encoder-tiny", samples_per_user=20, regions=2, users_per_region=3)


def test_users_are_encoded_once_while_they_fit(monkeypatch):
    bench = Workbench(SMALL)
    first = bench.user(0)
    assert bench.user(0) is first
    assert first.num_examples == first.counts["train"] == len(first.labels) == len(first.train["intent"])
    monkeypatch.setattr(workbench, "_CACHED_BYTES", 2 * first.num_bytes + first.num_bytes // 2)
    for user in (1, 2, 3):
        bench.user(user)
    assert 0 not in bench._users  # the longest unused went first
    assert torch.equal(bench.user(0).train["word"], first.train["word"])
    assert sum(u.num_bytes for u in bench._users.values()) == bench._bytes


@pytest.mark.parametrize("limit", [0, 1])
def test_a_user_larger_than_the_memory_is_still_served(monkeypatch, limit):
    monkeypatch.setattr(workbench, "_CACHED_BYTES", limit)
    bench = Workbench(SMALL)
    assert [bench.user(u).num_examples for u in (0, 1, 0)] == [12, 12, 12]
    assert len(bench._users) == 1
