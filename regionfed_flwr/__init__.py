"""Regional personalization for federated learning, as a Flower application."""

__version__ = "0.1.0"
