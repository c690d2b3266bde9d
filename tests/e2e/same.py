"""The same configuration run in this process, and whether two runs left the same models."""

from pathlib import Path

from safetensors.torch import load_file

from regionfed_flwr.client_app import app as client_app
from regionfed_flwr.config import parse_config
from regionfed_flwr.server_app import app as server_app
from regionfed_flwr.simulation.in_process import run_in_process


def run_here(output: Path, values: dict, num_nodes: int = 1) -> Path:
    config = parse_config(values, output_dir=str(output))
    run_in_process(server_app, client_app, config.to_flower(), num_nodes)
    return output


def assert_same_models(one: Path, other: Path) -> None:
    names = sorted(path.name for path in (one / "models").iterdir())
    assert names == sorted(path.name for path in (other / "models").iterdir())
    for name in names:
        ours, theirs = load_file(one / "models" / name), load_file(other / "models" / name)
        assert ours.keys() == theirs.keys()
        assert all(ours[key].equal(theirs[key]) for key in ours), name
