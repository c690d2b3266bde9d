"""Peak memory of a run's processes, left in the run's folder by the processes themselves.

Flower's simulation lets any of its worker processes serve any node, so a question to a node would not reach all.
"""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

_UNIT = 2**20 if sys.platform == "darwin" else 2**10  # ru_maxrss is in bytes there, in KiB elsewhere


def note_peak(folder: Path, role: str) -> None:
    """Write this process's peak resident memory so far, in MiB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / _UNIT
    (folder / f"peak-{role}-{os.getpid()}.txt").write_text(f"{peak:.1f}\n")


def read_peaks(folder: Path, role: str) -> list[float]:
    """Return the peaks of all processes of a role, in MiB."""
    return [float(path.read_text()) for path in sorted(folder.glob(f"peak-{role}-*.txt"))]
