"""Model weights as one JSON file: readable facts beside base64 numbers, held together by a checksum."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regionfed_flwr.core.param_space import ParamSpace
from regionfed_flwr.errors import RegionFedError

FORMAT = "regionfed-weights-1"
ASSETS = Path(__file__).parent / "assets"
TINY_WEIGHTS = ASSETS / "t5-tiny.json"
TINY_TOKENIZER = ASSETS / "t5-tiny-tokenizer.json"

_LINE = 120
_DTYPES: dict[str, np.dtype[Any]] = {"float16": np.dtype("<f2"), "float32": np.dtype("<f4")}


def save_weights(
    path: Path, space: ParamSpace, vector: Tensor, about: Mapping[str, Any], dtype: str = "float16"
) -> None:
    """Write a parameter vector; the same arguments give the same bytes.

    Parameters
    ----------
    path : Path
        File to write.
    space : ParamSpace
        Names and shapes, in the order in which they lie in the vector.
    vector : Tensor
        Shape ``(d,)``.
    about : Mapping[str, Any]
        Where the weights come from (JSON values), kept for the reader.
    dtype : {"float16", "float32"}
        Stored precision, little-endian.

    Raises
    ------
    RegionFedError
        When a number is not finite in the stored precision.
    """
    with np.errstate(over="ignore"):
        stored = vector.detach().cpu().numpy().astype(_DTYPES[dtype])
    if stored.shape != (space.size,):
        raise ValueError(f"a vector of shape {stored.shape} does not fit a space of size {space.size}")
    if not np.isfinite(stored).all():
        raise RegionFedError(f"The weights for '{path}' are not all finite in {dtype}; nothing was written.")
    raw = stored.tobytes()
    text = base64.b64encode(raw).decode("ascii")
    content = {
        "format": FORMAT,
        "about": dict(about),
        "dtype": dtype,
        "parameters": [[name, list(shape)] for name, shape in zip(space.names, space.shapes, strict=True)],
        "sha256": hashlib.sha256(raw).hexdigest(),
        "data": [text[start : start + _LINE] for start in range(0, len(text), _LINE)],
    }
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def load_weights(path: Path) -> tuple[ParamSpace, Tensor, dict[str, Any]]:
    """Read what :func:`save_weights` wrote.

    Returns
    -------
    space : ParamSpace
    vector : Tensor
        Shape ``(d,)``, float32; exactly the stored numbers.
    about : dict
        Where the weights come from.

    Raises
    ------
    RegionFedError
        When the file is missing, of another format, or damaged.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            raise ValueError
        raw = base64.b64decode("".join(content["data"]), validate=True)
        names, shapes = zip(*content["parameters"], strict=True)
        space = ParamSpace(tuple(names), tuple(tuple(shape) for shape in shapes))
        stored = np.frombuffer(raw, _DTYPES[content["dtype"]])
        sound = content["sha256"] == hashlib.sha256(raw).hexdigest() and stored.shape == (space.size,)
        about = dict(content["about"])
    except OSError as error:
        raise RegionFedError(f"The weights file '{path}' cannot be read: {error.strerror}.") from error
    except (ValueError, KeyError, TypeError, binascii.Error) as error:
        raise RegionFedError(f"'{path}' is not a weights file of the format '{FORMAT}'.") from error
    if not sound:
        raise RegionFedError(f"The weights file '{path}' is damaged: its numbers do not match its checksum or shapes.")
    return space, torch.from_numpy(stored.astype(np.float32)), about


def tiny_start() -> tuple[ParamSpace, Tensor]:
    """Return the pretrained weights of t5-tiny, without importing transformers.

    Returns
    -------
    space : ParamSpace
    vector : Tensor
        Shape ``(d,)``, float32.
    """
    space, vector, _ = load_weights(TINY_WEIGHTS)
    return space, vector
