"""From a run configuration to a federation."""

from __future__ import annotations

from typing import Any

from regionfed_flwr.config import RunConfig
from regionfed_flwr.data.base import Federation


def load_federation(config: RunConfig) -> Federation[Any]:
    """Return the federation that a configuration describes.

    Raises
    ------
    RegionFedError
        When its files are missing or malformed, or have too few users.
    """
    if config.data == "femnist":
        from regionfed_flwr.data.femnist import FemnistFederation, FemnistSpec

        return FemnistFederation(
            FemnistSpec(
                seed=config.seed,
                regions=config.regions,
                users_per_region=config.users_per_region,
                samples_per_user=config.samples_per_user,
                validation_fraction=config.validation_fraction,
                test_fraction=config.test_fraction,
                path=config.data_path,
                dirichlet_alpha=config.dirichlet_alpha,
                region_scheme=config.region_scheme,
            )
        )
    from regionfed_flwr.data.esci import EsciFederation, EsciSpec

    return EsciFederation(EsciSpec.from_config(config))
