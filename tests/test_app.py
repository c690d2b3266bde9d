"""The whole app in this process: artifacts, equal models on any layout, and input at the edges."""

import json

import pytest
from safetensors.torch import load_file

from regionfed_flwr.client_app import app as client_app
from regionfed_flwr.config import parse_config
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.server_app import app as server_app
from regionfed_flwr.simulation.in_process import run_in_process

SMALL = {
    "model": "encoder-tiny",
    "regions": 2,
    "users_per_region": 3,
    "samples_per_user": 20,
    "num_server_rounds": 2,
    "local_epochs": 1,
    "batch_size": 8,
}


def run(folder, num_nodes=1, **keys):
    config = parse_config({}, **(SMALL | keys | {"output_dir": str(folder)}))
    run_in_process(server_app, client_app, config.to_flower(), num_nodes)
    return json.loads((folder / "results.json").read_text())


def test_a_run_leaves_its_artifacts(tmp_path):
    results = run(tmp_path)
    assert {"method", "seed", "seconds", "metrics", "start", "rounds"} <= results.keys()
    for model in ("shared", "regional"):
        scored = results["metrics"][model]
        assert 0 <= scored["overall"] <= 1
        assert {"rrs_mean", "rrs_min", "rrs_sd"} <= scored.keys()
        assert len(scored["per_region"]) == 2
    assert "rrs_uplift" in results["metrics"]["regional"]
    rounds = [json.loads(line) for line in (tmp_path / "rounds.jsonl").read_text().splitlines()]
    assert [r["round"] for r in rounds] == [0, 1, 2]
    assert rounds[1]["bytes_down"] > 0 < rounds[1]["bytes_up"]
    assert all({"conflict", "alpha", "rho"} <= numbers.keys() for numbers in rounds[2]["regions"].values())
    names = {path.name for path in (tmp_path / "models").iterdir()}
    assert names == {f"{n}.safetensors" for n in ("shared", "region-region-0-electronics", "region-region-1-office")}
    assert (tmp_path / "table.txt").is_file()
    assert {path.stem for path in (tmp_path / "figures").iterdir()} >= {"convergence", "accuracy_by_region"}


def test_two_nodes_and_a_node_a_user_give_the_same_models(tmp_path):
    for name, nodes in (("two", 2), ("six", 6)):
        run(tmp_path / name, nodes, evaluate_every=0)
    for path in (tmp_path / "two" / "models").iterdir():
        one, other = load_file(path), load_file(tmp_path / "six" / "models" / path.name)
        assert all(one[key].equal(other[key]) for key in one)


@pytest.mark.parametrize(
    "keys",
    [
        {"samples_per_user": 1, "validation_fraction": 0.0, "test_fraction": 0.0},  # no test part anywhere
        {"samples_per_user": 2, "validation_fraction": 0.5, "test_fraction": 0.4},  # nothing left to train on
        {"samples_per_user": 5, "batch_size": 1},
        {"validation_fraction": 0.0, "rho_search": "section-k"},
        {"dirichlet_alpha": 1e-3},  # each user has one intent, the other classes are absent
        {"regions": 5, "users_per_region": 1},
        {"method": "fedavg", "fraction": 0.4},
        {"strategy": "dynamic", "personal": "end"},
        {"data": "femnist", "model": "cnn", "optimizer": "sgd", "learning_rate": 0.05},
    ],
)
def test_edges_simply_work(tmp_path, keys):
    assert run(tmp_path, **keys)["rounds"] == 2


def test_learning_rate_that_makes_every_update_useless_ends_with_a_sentence(tmp_path):
    with pytest.raises(RegionFedError, match="Round 1 brought no usable reply"):
        run(tmp_path, optimizer="sgd", learning_rate=1e30)
    events = [json.loads(line) for line in (tmp_path / "events.jsonl").read_text().splitlines()]
    assert events[-1]["event"] == "failed"
    assert "not finite or too large" in events[-1]["text"]
    assert not (tmp_path / "results.json").exists()


def test_server_validates_before_anything_else():
    values = parse_config({}, **SMALL).to_flower() | {"local-epochs": 0}
    with pytest.raises(RegionFedError, match="'local-epochs' is 0, but allowed is"):
        run_in_process(server_app, client_app, values)


def test_missing_model_is_said_in_a_sentence(tmp_path):
    with pytest.raises(RegionFedError, match="model = 'no-such-model' cannot be loaded"):
        run(tmp_path, model="no-such-model")


def test_seeds_differ_and_repeat(tmp_path):
    first, again, other = (run(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1)))
    assert first["metrics"] == again["metrics"]
    assert first["metrics"] != other["metrics"]
