import json

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from regionfed_flwr.core.param_space import ParamSpace
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.models.weights import TINY_WEIGHTS, load_weights, save_weights, tiny_start

SPACE = ParamSpace(("a", "b.weight"), ((2,), (2, 3)))
ABOUT = {"seed": 3, "command": "regionfed pretrain"}


def _file(tmp_path, vector=None, dtype="float16"):
    path = tmp_path / "weights.json"
    save_weights(path, SPACE, torch.arange(8.0) if vector is None else vector, ABOUT, dtype)
    return path


@given(
    values=hnp.arrays(np.float32, 8, elements=st.floats(-60000, 60000, width=32)),
    dtype=st.sampled_from(["float16", "float32"]),
)
def test_round_trip_is_the_nearest_stored_number(tmp_path_factory, values, dtype):
    path = _file(tmp_path_factory.mktemp("w"), torch.from_numpy(values), dtype)
    space, vector, about = load_weights(path)
    assert (space, about) == (SPACE, ABOUT)
    assert vector.dtype == torch.float32
    assert vector.numpy().tobytes() == values.astype(dtype).astype(np.float32).tobytes()


def test_storing_what_was_loaded_changes_nothing(tmp_path):
    path = _file(tmp_path, torch.linspace(-1, 1, 8) / 3)
    before = path.read_bytes()
    space, vector, about = load_weights(path)
    save_weights(path, space, vector, about)
    assert path.read_bytes() == before


def test_loaded_vector_can_be_written_to(tmp_path):
    load_weights(_file(tmp_path))[1].add_(1)


def test_numbers_that_overflow_are_refused(tmp_path):
    for bad in (1e6, float("nan")):
        with pytest.raises(RegionFedError, match="not all finite in float16"):
            _file(tmp_path, torch.full((8,), bad))
    assert not (tmp_path / "weights.json").exists()


def test_vector_of_another_length_is_refused(tmp_path):
    with pytest.raises(ValueError, match="does not fit"):
        _file(tmp_path, torch.zeros(7))


@pytest.mark.parametrize(
    "change",
    [
        {"sha256": "0" * 64},
        {"data": ["AAAA", "AAAA"]},
        {"parameters": [["a", [2]], ["b.weight", [2, 2]]]},
        {"dtype": "float32"},
    ],
)
def test_damage_is_noticed(tmp_path, change):
    path = _file(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RegionFedError, match="is damaged"):
        load_weights(path)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "other"}'])
def test_another_format_is_refused(tmp_path, text):
    path = tmp_path / "weights.json"
    path.write_text(text)
    with pytest.raises(RegionFedError, match="not a weights file"):
        load_weights(path)


@pytest.mark.parametrize(
    "change",
    [{"data": ["!"]}, {"data": [1]}, {"data": None}, {"dtype": "int8"}, {"parameters": [["a"]]}, {"about": None}],
)
def test_malformed_fields_are_refused(tmp_path, change):
    path = _file(tmp_path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(RegionFedError, match="not a weights file"):
        load_weights(path)


def test_missing_file_is_one_sentence(tmp_path):
    with pytest.raises(RegionFedError, match="cannot be read"):
        load_weights(tmp_path / "none.json")


def test_packaged_start_is_small_and_sound():
    space, vector = tiny_start()
    assert vector.shape == (space.size,)
    assert 200_000 < space.size < 300_000
    assert TINY_WEIGHTS.stat().st_size < 2_000_000
    assert len(set(space.names)) == len(space.names)
