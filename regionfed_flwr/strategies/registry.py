"""Every method's name, server half and client half."""

from __future__ import annotations

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True)
class Method:
    """Where a method's halves are: ``module`` below this package, and two class names."""

    module: str
    server: str
    client: str

    def load_server(self) -> Any:
        """Return the strategy class."""
        return getattr(import_module(self.module), self.server)

    def load_client(self) -> Any:
        """Return an instance of the client half."""
        return getattr(import_module(self.module), self.client)()


METHODS: dict[str, Method] = {
    "fedavg": Method("regionfed_flwr.strategies.fedavg", "FedAvg", "FedAvgClient"),
    "regionfed": Method("regionfed_flwr.strategies.regionfed", "RegionFed", "RegionFedClient"),
}
