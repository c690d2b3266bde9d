"""The character benchmark as a federation: one user is one writer (paper appendix B.3)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from regionfed_flwr.core.seeding import numpy_generator
from regionfed_flwr.data.base import Glyph, UserSplits
from regionfed_flwr.data.femnist.glyphs import CLASSES
from regionfed_flwr.data.femnist.similarity import even_groups
from regionfed_flwr.data.femnist.sources import load_writers
from regionfed_flwr.data.femnist.writers import Writers, rendered_writers
from regionfed_flwr.data.regions import assign_regions
from regionfed_flwr.errors import RegionFedError


@dataclass(frozen=True)
class FemnistSpec:
    """Which writers, how many samples, which regions.

    Attributes
    ----------
    seed : int
    regions, users_per_region : int
    samples_per_user : int
        At most so many of a writer's samples are used; rendered writers have exactly so many.
    validation_fraction, test_fraction : float
        Shares of a user's samples; the rest, at least one sample, is for training. LEAF has 0 and 0.1.
    path : str
        See :func:`regionfed_flwr.data.femnist.sources.load_writers`; empty: rendered glyphs.
    dirichlet_alpha : float
        Concentration of a rendered writer's characters.
    region_scheme : str
        See :func:`regionfed_flwr.data.regions.assign_regions`.
    """

    seed: int = 0
    regions: int = 10
    users_per_region: int = 20
    samples_per_user: int = 100
    validation_fraction: float = 0.0
    test_fraction: float = 0.1
    path: str = ""
    dirichlet_alpha: float = 0.3
    region_scheme: str = "semantic"


class FemnistFederation:
    """Writers as users, grouped by the similarity of their characters. Users are ordered by region.

    Raises
    ------
    RegionFedError
        When the data cannot be read, or have fewer writers than users.
    """

    def __init__(self, spec: FemnistSpec) -> None:
        self._spec = spec
        self._writers = _open(spec)
        chosen = _choose(spec, len(self._writers.class_counts))
        homes = even_groups(self._writers.class_counts[chosen], spec.regions)
        generator = numpy_generator(spec.seed, "femnist-regions")
        region_of = assign_regions(spec.region_scheme, homes.tolist(), None, spec.regions, generator)
        order = np.argsort(region_of, kind="stable")
        self._writer_of_user: list[int] = chosen[order].tolist()
        self._region_of = tuple(region_of[i] for i in order)

    @property
    def region_names(self) -> tuple[str, ...]:
        """Name of each region."""
        return tuple(f"writers-{region}" for region in range(self._spec.regions))

    @property
    def region_of(self) -> tuple[int, ...]:
        """Region of each user, ascending."""
        return self._region_of

    @property
    def classes(self) -> tuple[str, ...]:
        """The 62 characters 0-9, A-Z, a-z."""
        return CLASSES

    def user(self, user: int) -> UserSplits[Glyph]:
        """Return the samples of one user."""
        writer = self._writer_of_user[user]
        images, labels = self._writers.read(writer)
        shuffled = numpy_generator(self._spec.seed, "femnist-split", writer).permutation(len(labels))
        rows = shuffled[: self._spec.samples_per_user]
        glyphs = [Glyph(images[row], int(labels[row])) for row in rows]
        test = min(round(self._spec.test_fraction * len(rows)), len(rows) - 1)
        train = max(1, len(rows) - test - round(self._spec.validation_fraction * len(rows)))
        return UserSplits(train=glyphs[test : test + train], validation=glyphs[test + train :], test=glyphs[:test])


def _open(spec: FemnistSpec) -> Writers:
    if spec.path:
        return load_writers(spec.path)
    number = spec.regions * spec.users_per_region
    return rendered_writers(spec.seed, number, spec.samples_per_user, spec.dirichlet_alpha)


def _choose(spec: FemnistSpec, available: int) -> npt.NDArray[np.int64]:
    """Draw the writers who take part, ascending."""
    needed = spec.regions * spec.users_per_region
    if available < needed:
        raise RegionFedError(
            f"Data '{spec.path}' have {available} writers, but {spec.regions} regions of {spec.users_per_region} users "
            f"need {needed}; ask for fewer regions or fewer users in each."
        )
    return np.sort(numpy_generator(spec.seed, "femnist-writers").choice(available, size=needed, replace=False))
