"""LEAF's JSON files (Caldas et al. 2018)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from regionfed_flwr.data.femnist.glyphs import CLASSES, IMAGE_SIZE
from regionfed_flwr.data.femnist.writers import Images, Labels, Writers, writers_of_rows
from regionfed_flwr.errors import RegionFedError


def leaf_writers(files: Sequence[Path]) -> Writers:
    """Read LEAF files; a user who stands in several of them gets the samples of all.

    Raises
    ------
    RegionFedError
        For a file that is not LEAF's; the sentence names the file, the user and what is allowed.
    """
    ids, images, labels = [], [], []
    for file in files:
        for user, x, y in _users(file):
            ids.append(np.full(len(y), user))
            images.append(x)
            labels.append(y)
    if not any(len(y) for y in labels):
        raise RegionFedError(f"LEAF files in '{files[0].parent}' hold no samples; at least one user must have some.")
    pixels = np.concatenate(images)
    return writers_of_rows(np.concatenate(ids), np.concatenate(labels), lambda rows: pixels[rows])


def _users(file: Path) -> list[tuple[str, Images, Labels]]:
    """Return each user's name, images and labels."""
    try:
        document = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise RegionFedError(f"LEAF file '{file}' cannot be read as JSON: {error}.") from error
    if not isinstance(document, dict):
        raise RegionFedError(f"LEAF file '{file}' must be a JSON object, but is a {type(document).__name__}.")
    for key, kind in (("users", list), ("num_samples", list), ("user_data", dict)):
        if not isinstance(document.get(key), kind):
            raise RegionFedError(
                f"LEAF file '{file}' has no {kind.__name__} '{key}'; needed are users, num_samples and user_data."
            )
    users, sizes, data = document["users"], document["num_samples"], document["user_data"]
    if len(users) != len(sizes):
        raise RegionFedError(
            f"LEAF file '{file}' names {len(users)} users but {len(sizes)} num_samples; each user must have one."
        )
    names = [str(user) for user in users]
    return [_user(f"LEAF file '{file}', user '{u}'", u, n, data.get(u)) for u, n in zip(names, sizes, strict=True)]


def _user(where: str, name: str, size: Any, data: Any) -> tuple[str, Images, Labels]:
    if not isinstance(data, dict) or not all(isinstance(data.get(key), list) for key in ("x", "y")):
        raise RegionFedError(f"{where}: user_data must hold an object with the lists x and y.")
    if not len(data["x"]) == len(data["y"]) == size:
        raise RegionFedError(
            f"{where}: x has {len(data['x'])} samples, y has {len(data['y'])} and num_samples says {size}; all three "
            "must be equal."
        )
    if size == 0:
        return name, np.zeros((0, IMAGE_SIZE, IMAGE_SIZE), np.uint8), np.zeros(0, np.int64)
    try:
        x, y = np.asarray(data["x"], dtype=np.float64), np.asarray(data["y"])
    except (TypeError, ValueError) as error:
        raise RegionFedError(f"{where}: x must be lists of {IMAGE_SIZE**2} numbers, and y a list of labels.") from error
    if x.shape != (size, IMAGE_SIZE**2) or not (x.min() >= 0 and x.max() <= 1):
        raise RegionFedError(f"{where}: each sample of x must be {IMAGE_SIZE**2} numbers from 0 to 1.")
    if y.ndim != 1 or y.dtype.kind not in "iu" or y.min() < 0 or y.max() >= len(CLASSES):
        raise RegionFedError(f"{where}: each label of y must be a whole number from 0 to {len(CLASSES) - 1}.")
    ink = np.rint(255 * (1 - x)).astype(np.uint8)  # LEAF has black ink on white paper
    return name, ink.reshape(-1, IMAGE_SIZE, IMAGE_SIZE), y.astype(np.int64)
