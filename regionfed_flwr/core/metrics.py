"""Metrics as sums and counts, so that they add up over users, regions and nodes.

Keys are ``<task>.correct`` and ``<task>.count`` for a task judged by accuracy, ``<task>.tp``, ``<task>.fp`` and
``<task>.fn`` for one judged by micro-F1, and ``loss.sum`` with ``loss.count``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence

Counts = dict[str, float]


def add_counts(parts: Iterable[Mapping[str, float]]) -> Counts:
    """Add counts key by key, in the order given."""
    total: Counts = {}
    for part in parts:
        for key, value in part.items():
            total[key] = total.get(key, 0.0) + value
    return total


def scores(counts: Mapping[str, float]) -> dict[str, float]:
    """Return each task's score as a fraction, their mean as ``overall``, and the mean ``loss``.

    A task without any example (or an entity task without any gold or predicted entity) is left out; with no task
    at all the result is empty.
    """
    result: dict[str, float] = {}
    for task in sorted({key.rpartition(".")[0] for key in counts} - {"loss"}):
        if f"{task}.tp" in counts:
            tp, fp, fn = (counts[f"{task}.{part}"] for part in ("tp", "fp", "fn"))
            if 2 * tp + fp + fn > 0:
                result[task] = 2 * tp / (2 * tp + fp + fn)
        elif counts[f"{task}.count"] > 0:
            result[task] = counts[f"{task}.correct"] / counts[f"{task}.count"]
    if result:
        result["overall"] = math.fsum(result.values()) / len(result)
    if counts.get("loss.count", 0) > 0:
        result["loss"] = counts["loss.sum"] / counts["loss.count"]
    return result


def regional_summary(per_region: Sequence[float], baseline: Sequence[float] | None = None) -> dict[str, float]:
    """Regional robustness scores of per-region overall scores (paper section 4.2, repaired).

    Parameters
    ----------
    per_region : sequence of float
        Overall score of each region.
    baseline : sequence of float, optional
        The same regions under the shared (FedAvg) model.

    Returns
    -------
    dict
        ``rrs_mean`` (the printed formula), ``rrs_min`` (what the prose promises), ``rrs_sd`` (population standard
        deviation over regions) and, with a baseline, ``rrs_uplift`` (the smallest gain over it).
    """
    if not per_region:
        return {}
    mean = math.fsum(per_region) / len(per_region)
    variance = math.fsum((x - mean) ** 2 for x in per_region) / len(per_region)
    result = {"rrs_mean": mean, "rrs_min": min(per_region), "rrs_sd": math.sqrt(variance)}
    if baseline is not None:
        result["rrs_uplift"] = min(a - b for a, b in zip(per_region, baseline, strict=True))
    return result
