"""From a path or a hub name to writers."""

from __future__ import annotations

import re
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from regionfed_flwr.data.femnist.glyphs import CLASSES, IMAGE_SIZE
from regionfed_flwr.data.femnist.leaf import leaf_writers
from regionfed_flwr.data.femnist.writers import Images, Labels, Writers, writers_of_rows
from regionfed_flwr.errors import RegionFedError

COLUMNS = ("image", "writer_id", "character")
ALLOWED = (
    "a folder of LEAF's *.json files, a .npz file, a folder saved by datasets, or a hub name such as 'flwrlabs/femnist'"
)
_HUB_NAME = re.compile(r"[\w.-]+/[\w.-]+")
_SAVED_BY_DATASETS = ("dataset_dict.json", "dataset_info.json")


def load_writers(path: str) -> Writers:
    """Open a collection of handwritten characters.

    Parameters
    ----------
    path : str
        A folder of LEAF JSON files; a ``.npz`` file with ``x`` (uint8, white on black) of shape
        (writers, classes, 28, 28), or of shape (n, 28, 28) with ``y`` and ``writer`` of length n; a folder written
        by ``datasets`` ``save_to_disk``; or the name of a data set on the Hugging Face hub. The last two have the
        columns image, writer_id and character.

    Raises
    ------
    RegionFedError
        When nothing is there, or it has another form.
    """
    place = Path(path).expanduser()
    if place.suffix == ".npz":
        return _npz_writers(place)
    if place.is_dir():
        if any((place / name).is_file() for name in _SAVED_BY_DATASETS):
            return _dataset_writers(str(place), saved=True)
        files = sorted(place.glob("*.json"))
        if not files:
            raise RegionFedError(f"Folder '{path}' has no *.json file; allowed are {ALLOWED}.")
        return leaf_writers(files)
    if place.exists() or not _HUB_NAME.fullmatch(path):
        state = "has an unknown format" if place.exists() else "does not exist"
        raise RegionFedError(f"Data path '{path}' {state}; allowed are {ALLOWED}.")
    return _dataset_writers(path, saved=False)


def _npz_writers(file: Path) -> Writers:
    try:
        with np.load(file, allow_pickle=False) as archive:
            arrays = {name: archive[name] for name in ("x", "y", "writer") if name in archive}
    except (OSError, ValueError, zipfile.BadZipFile) as error:
        raise RegionFedError(f"File '{file}' cannot be read as a .npz archive: {error}.") from error
    x, side = arrays.get("x", np.zeros(0)), (IMAGE_SIZE, IMAGE_SIZE)
    if x.dtype != np.uint8 or x.shape[-2:] != side or x.ndim not in (3, 4) or x.size == 0:
        raise RegionFedError(
            f"File '{file}' needs an array x of uint8 with the shape (writers, classes, 28, 28) or (n, 28, 28), but "
            f"has {x.dtype} {x.shape}."
        )
    if x.ndim == 4:
        writer, labels = np.indices(x.shape[:2]).reshape(2, -1)
    else:
        writer, labels = _rows_of_npz(file, len(x), arrays)
    if labels.min() < 0 or labels.max() >= len(CLASSES):
        raise RegionFedError(f"File '{file}' has labels beyond the {len(CLASSES)} classes 0 to 61.")
    pixels = x.reshape(-1, *side)
    return writers_of_rows(writer, labels.astype(np.int64), lambda rows: pixels[rows])


def _rows_of_npz(
    file: Path, count: int, arrays: Mapping[str, npt.NDArray[Any]]
) -> tuple[npt.NDArray[Any], npt.NDArray[Any]]:
    """Return the writer and the label of each of ``count`` images."""
    for name in ("writer", "y"):
        if name not in arrays or arrays[name].shape != (count,):
            found = f"has the shape {arrays[name].shape}" if name in arrays else "is missing"
            raise RegionFedError(
                f"File '{file}': array '{name}' {found}; it needs one entry for each of {count} images."
            )
    if arrays["y"].dtype.kind not in "iu":
        raise RegionFedError(f"File '{file}': array 'y' is {arrays['y'].dtype}; labels must be whole numbers 0 to 61.")
    return arrays["writer"], arrays["y"]


def _dataset_writers(name: str, *, saved: bool) -> Writers:
    import datasets

    try:
        data = datasets.load_from_disk(name) if saved else datasets.load_dataset(name)
    except Exception as error:  # the hub's client raises the errors of several libraries
        what = "is not a data set saved by datasets" if saved else "is no local path, and the hub did not give it"
        raise RegionFedError(f"Data set '{name}' {what}: {error}; allowed are {ALLOWED}.") from error
    if isinstance(data, datasets.DatasetDict):
        data = datasets.concatenate_datasets(list(data.values()))
    missing = [column for column in COLUMNS if column not in data.column_names]
    if missing:
        raise RegionFedError(f"Data set '{name}' has no column '{missing[0]}'; it needs {', '.join(COLUMNS)}.")
    if not isinstance(data.features["image"], datasets.Image):
        raise RegionFedError(f"Data set '{name}': column 'image' must hold images, not {data.features['image']}.")
    ids = data["writer_id"][:]
    if None in ids:
        raise RegionFedError(f"Data set '{name}', row {ids.index(None)}: writer_id is empty; each row needs a writer.")
    labels = _labels(name, data["character"][:], getattr(data.features["character"], "names", CLASSES))
    pictures = data.select_columns(["image"])
    return writers_of_rows(np.asarray(ids), labels, lambda rows: _pixels(pictures.select(rows)["image"]))


def _labels(where: str, values: list[Any], names: tuple[str, ...] | list[str]) -> Labels:
    """Return indices into the characters; values are characters, or indices into ``names``."""
    index = {character: i for i, character in enumerate(CLASSES)}
    meaning = {i: index[name] for i, name in enumerate(names) if name in index} | index
    unknown = next((value for value in values if value not in meaning), None)
    if unknown is not None:
        raise RegionFedError(f"Data set '{where}' has the character {unknown!r}; allowed are 0-9, A-Z and a-z.")
    return np.array([meaning[value] for value in values], dtype=np.int64)


def _pixels(pictures: Any) -> Images:
    """Return pictures (PIL) as white ink on black, whichever colour the paper has."""
    side = (IMAGE_SIZE, IMAGE_SIZE)
    grey = [p.convert("L") for p in pictures]
    images = np.stack([np.asarray(p if p.size == side else p.resize(side)) for p in grey])
    return 255 - images if images.mean() > 127.5 else images
