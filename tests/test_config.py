import math
import tomllib
from pathlib import Path

import pytest

from regionfed_flwr.config import RunConfig, keys, parse_config
from regionfed_flwr.errors import RegionFedError

ROOT = Path(__file__).parent.parent


def test_defaults_are_valid_and_survive_the_round_trip():
    assert parse_config(RunConfig().to_flower()) == RunConfig()
    assert parse_config({}, local_epochs=7).local_epochs == 7


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"local-epoch": 3}, "Unknown configuration key 'local-epoch'. Did you mean 'local-epochs'?"),
        ({"local-epochs": 0}, "'local-epochs' is 0, but allowed is: whole number from 1"),
        ({"local-epochs": 1.5}, "'local-epochs' is 1.5, but allowed is: whole number"),
        ({"local-epochs": True}, "'local-epochs' is True"),
        ({"learning-rate": "fast"}, "'learning-rate' is 'fast', but allowed is: number above 0"),
        ({"learning-rate": math.nan}, "'learning-rate' is nan"),
        ({"learning-rate": math.inf}, "'learning-rate' is inf"),
        ({"dirichlet-alpha": 0}, "'dirichlet-alpha' is 0, but allowed is: number above 0"),
        ({"method": "fedsgd"}, "'method' is 'fedsgd', but allowed is: 'regionfed', 'fedavg'"),
        ({"test-fraction": 0.6, "validation-fraction": 0.5}, "leave no training data"),
        ({"model": "cnn"}, "does not fit data = 'esci'"),
        ({"data": "femnist"}, "does not fit data = 'femnist'"),
    ],
)
def test_mistakes_are_named_with_what_is_allowed(values, sentence):
    with pytest.raises(RegionFedError) as caught:
        parse_config(values)
    assert sentence in str(caught.value)


def test_whole_numbers_are_numbers():
    assert parse_config({"learning-rate": 1}).learning_rate == 1.0


def test_every_key_has_help_and_a_group():
    assert all(key.help and key.group and key.allowed for key in keys())


def test_manifest_holds_the_declared_defaults():
    manifest = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert manifest["tool"]["flwr"]["app"]["config"] == RunConfig().to_flower()


def test_paper_configuration_holds_known_keys_with_valid_values():
    values = tomllib.loads((ROOT / "pyproject-flwr.toml").read_text())
    config = parse_config(values)
    assert (config.num_server_rounds, config.local_epochs, config.batch_size) == (50, 40, 32)
    assert (config.optimizer, config.learning_rate, config.model) == ("adamw", 1e-3, "google-t5/t5-small")
    assert config.num_users * config.samples_per_user == 20_000
