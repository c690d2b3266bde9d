"""Writers and their samples, wherever these come from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.femnist.glyphs import CLASSES, draw_style, write

Images = npt.NDArray[np.uint8]
Labels = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Writers:
    """A collection of writers, each with at least one sample.

    Attributes
    ----------
    class_counts : ndarray of int, shape (writers, 62)
        Samples of each character by each writer.
    read : callable
        Given a writer's number, returns the writer's images, uint8 (n, 28, 28), white on black, and labels, (n,).
    """

    class_counts: npt.NDArray[np.int64]
    read: Callable[[int], tuple[Images, Labels]]


def rendered_writers(seed: int, number: int, samples: int, dirichlet_alpha: float) -> Writers:
    """Return made-up writers whose characters follow a symmetric Dirichlet distribution each."""

    def labels_of(writer: int) -> Labels:
        generator = numpy_generator(seed, "femnist-classes", writer)
        shares = generator.dirichlet(np.full(len(CLASSES), dirichlet_alpha))
        return generator.choice(len(CLASSES), size=samples, p=shares)

    def read(writer: int) -> tuple[Images, Labels]:
        labels = labels_of(writer)
        style = draw_style(numpy_generator(seed, "femnist-style", writer))
        return write(style, labels, numpy_generator(seed, "femnist-samples", writer)), labels

    counts = [np.bincount(labels_of(writer), minlength=len(CLASSES)) for writer in range(number)]
    return Writers(np.stack(counts), read)


def writers_of_rows(
    writer_ids: npt.NDArray[np.generic], labels: Labels, images: Callable[[npt.NDArray[np.int64]], Images]
) -> Writers:
    """Group rows by writer, in the order of the writers' ids.

    Parameters
    ----------
    writer_ids : ndarray, shape (n,)
        Who wrote each row; numbers or text.
    labels : ndarray of int, shape (n,)
    images : callable
        Given row numbers (k,), returns their images, (k, 28, 28).
    """
    ids, writer_of_row = np.unique(writer_ids, return_inverse=True)
    counts = np.zeros((len(ids), len(CLASSES)), dtype=np.int64)
    np.add.at(counts, (writer_of_row, labels), 1)
    by_writer = np.argsort(writer_of_row, kind="stable")
    ends = np.cumsum(counts.sum(axis=1))

    def read(writer: int) -> tuple[Images, Labels]:
        rows = by_writer[ends[writer] - counts[writer].sum() : ends[writer]]
        return images(rows), labels[rows]

    return Writers(counts, read)
