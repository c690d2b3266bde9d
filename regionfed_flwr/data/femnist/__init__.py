"""Handwritten characters by writer: LEAF's FEMNIST, files of the same kind, or rendered glyphs."""

from regionfed_flwr.data.femnist.federation import FemnistFederation, FemnistSpec
from regionfed_flwr.data.femnist.glyphs import CLASSES

__all__ = ["CLASSES", "FemnistFederation", "FemnistSpec"]
