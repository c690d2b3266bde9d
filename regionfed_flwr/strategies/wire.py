"""What lies in a message: one flat Array per vector, lists per user, and how they are read back."""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MetricRecord, RecordDict
from torch import Tensor

T = TypeVar("T")
ARRAYS, CONFIG, METRICS = "arrays", "config", "metrics"
_STYPE = "numpy.ndarray"


class WireError(ValueError):
    """A message without what was agreed."""


def encode_array(vector: Tensor) -> Array:
    """Return a vector as a Flower Array (NumPy's file format)."""
    data = vector.detach().cpu().contiguous().numpy()
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, np.lib.format.header_data_from_array_1_0(data))
    payload = b"".join((header.getbuffer(), data.reshape(-1).view(np.uint8).data))
    return Array(dtype=str(data.dtype), shape=tuple(data.shape), stype=_STYPE, data=payload)


def decode_array(array: Array) -> Tensor:
    """Return a Flower Array as a tensor over its own bytes: read it, never write into it."""
    if array.stype != _STYPE:
        raise WireError(f"an array is serialised as '{array.stype}' instead of '{_STYPE}'")
    stream = io.BytesIO(array.data)
    version = np.lib.format.read_magic(stream)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, fortran, dtype = read(stream)
    if dtype.hasobject or fortran:
        raise WireError("an array is not a plain C-ordered array")
    count = int(np.prod(shape))
    values = np.frombuffer(bytearray(array.data) if count == 0 else array.data, dtype, count, stream.tell())
    values = values.reshape(shape)
    values.flags.writeable = False
    return _as_tensor(values)


def _as_tensor(values: np.ndarray) -> Tensor:
    # torch warns about memory that cannot be written; all readers here copy before they write
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return torch.from_numpy(values)


def encode_vectors(vectors: Mapping[str, Tensor]) -> ArrayRecord:
    """Return named vectors as a record; Arrays already made may be passed in and are shared."""
    return ArrayRecord({name: v if isinstance(v, Array) else encode_array(v) for name, v in vectors.items()})


def decode_vectors(content: RecordDict) -> dict[str, Tensor]:
    """Return the named vectors of a message."""
    record = content.get(ARRAYS)
    if not isinstance(record, ArrayRecord):
        raise WireError(f"the record '{ARRAYS}' is missing")
    return {name: decode_array(array) for name, array in record.items()}


def content(
    vectors: Mapping[str, Tensor | Array] | None = None,
    config: Mapping[str, bool | int | float | str | Sequence[int] | Sequence[str]] | None = None,
    metrics: Mapping[str, int | float | list[int] | list[float]] | None = None,
) -> RecordDict:
    """Pack the records of a message; empty lists, which Flower cannot carry, are left out."""
    records = RecordDict()
    if vectors is not None:
        records[ARRAYS] = encode_vectors(vectors)  # type: ignore[arg-type]
    if config is not None:
        records[CONFIG] = ConfigRecord(_without_empty(config))
    if metrics is not None:
        records[METRICS] = MetricRecord(_without_empty(metrics))
    return records


def for_regions(values: Mapping[str, T], regions: set[int]) -> dict[str, T]:
    """Leave out what is for other regions only: ``<name>/<region>``."""
    return {k: v for k, v in values.items() if "/" not in k or int(k.rpartition("/")[2]) in regions}


def _without_empty(values: Mapping[str, object]) -> dict[str, Any]:
    return {k: list(v) if isinstance(v, tuple) else v for k, v in values.items() if v not in ([], ())}


def read_config(message: Message) -> ConfigRecord:
    """Return a message's configuration record."""
    record = message.content.get(CONFIG)
    if not isinstance(record, ConfigRecord):
        raise WireError(f"the record '{CONFIG}' is missing")
    return record


def read_metrics(message: Message) -> MetricRecord:
    """Return a message's metric record."""
    record = message.content.get(METRICS)
    if not isinstance(record, MetricRecord):
        raise WireError(f"the record '{METRICS}' is missing")
    return record


def int_list(record: ConfigRecord | MetricRecord, key: str) -> list[int]:
    """Return a list of whole numbers; a missing key is an empty list."""
    value = record.get(key, [])
    if not isinstance(value, list) or any(not isinstance(x, int) or isinstance(x, bool) for x in value):
        raise WireError(f"'{key}' is not a list of whole numbers")
    return [int(x) for x in value]


def int_value(record: ConfigRecord, key: str) -> int:
    """Return a whole number."""
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(f"'{key}' is not a whole number")
    return value


def str_list(record: ConfigRecord, key: str) -> list[str]:
    """Return a list of texts."""
    value = record.get(key)
    if not isinstance(value, list):
        raise WireError(f"'{key}' is not a list of texts")
    return [str(x) for x in value]


def float_list(record: MetricRecord, key: str, length: int) -> list[float]:
    """Return a list of numbers of a given length."""
    value = record.get(key, [])
    if not isinstance(value, list) or len(value) != length:
        raise WireError(f"'{key}' does not hold {length} numbers")
    return [float(x) for x in value]


def num_bytes(message: Message) -> int:
    """Return the bytes of a message's arrays."""
    if not message.has_content() or ARRAYS not in message.content:
        return 0
    record = message.content[ARRAYS]
    return sum(len(array.data) for array in record.values()) if isinstance(record, ArrayRecord) else 0
