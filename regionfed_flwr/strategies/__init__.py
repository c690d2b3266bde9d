"""Training methods: one file each, server half and client half side by side.

``RegionFed`` here is the drop-in for Flower's FedAvg (``plug_in.py``); this package's own app takes its methods from
``registry.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regionfed_flwr.strategies.plug_in import RegionFed

__all__ = ["RegionFed"]


def __getattr__(name: str) -> Any:
    """Import the drop-in strategy when it is asked for: a client that only trains never needs it."""
    if name == "RegionFed":
        from regionfed_flwr.strategies.plug_in import RegionFed

        return RegionFed
    raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
