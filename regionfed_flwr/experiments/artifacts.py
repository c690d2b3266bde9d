"""What a run leaves behind in its folder."""

from __future__ import annotations

import dataclasses
import json
import time
from pathlib import Path
from typing import Any

from safetensors.torch import save_file
from torch import Tensor

from regionfed_flwr.config import RunConfig
from regionfed_flwr.core.metrics import regional_summary
from regionfed_flwr.core.param_space import ParamSpace
from regionfed_flwr.strategies.events import RoundRecord


class RunRecorder:
    """Writes a run's configuration, events, rounds, results and models.

    Parameters
    ----------
    folder : Path
        The run's folder; made when missing.
    config : RunConfig
        Written to ``config.json``.

    Notes
    -----
    ``events.jsonl`` tells what is going on, for whoever watches; ``rounds.jsonl`` has one line per round;
    ``results.json`` exists only when the run has come to its end.
    """

    def __init__(self, folder: Path, config: RunConfig) -> None:
        self.folder, self.config = folder, config
        self.rounds: list[RoundRecord] = []
        self._began = time.monotonic()
        folder.mkdir(parents=True, exist_ok=True)
        _write_json(folder / "config.json", config.to_flower())
        for name in ("events.jsonl", "rounds.jsonl"):
            (folder / name).write_text("")
        (folder / "results.json").unlink(missing_ok=True)

    def on_phase(self, event: str, server_round: int, rounds: int, text: str) -> None:
        """Append an event."""
        self.tell(event, server_round, rounds, text=text)

    def on_round(self, record: RoundRecord, strategy: Any) -> None:
        """Append a round's line, and its event with the overall scores."""
        self.rounds.append(record)
        _append(self.folder / "rounds.jsonl", dataclasses.asdict(record))
        overall = {m: s["overall"] for m, s in (record.evaluation or {}).items() if "overall" in s}
        self.tell("round", record.round, self.config.num_server_rounds, overall=overall, seconds=record.seconds)

    def tell(self, event: str, server_round: int = 0, rounds: int = 0, **more: Any) -> None:
        """Append one event."""
        line = {"time": time.time(), "event": event, "round": server_round, "rounds": rounds, **more}
        _append(self.folder / "events.jsonl", line)

    def save_models(self, space: ParamSpace, shared: Tensor, regional: dict[str, Tensor]) -> None:
        """Write the shared model and one for each region as safetensors, by parameter name."""
        folder = self.folder / "models"
        folder.mkdir(exist_ok=True)
        for name, vector in {"shared": shared, **{f"region-{_slug(k)}": v for k, v in regional.items()}}.items():
            save_file(
                {k: v.contiguous().clone() for k, v in space.split(vector).items()}, folder / f"{name}.safetensors"
            )

    def finish(self, num_nodes: int) -> dict[str, Any]:
        """Write ``results.json`` and return it."""
        judged = [record for record in self.rounds if record.evaluation]
        results = {
            "method": self.config.method,
            "seed": self.config.seed,
            "seconds": time.monotonic() - self._began,
            "rounds": self.config.num_server_rounds,
            "nodes": num_nodes,
            "rejected": sum(record.rejected for record in self.rounds),
            "bytes_down": sum(record.bytes_down for record in self.rounds),
            "bytes_up": sum(record.bytes_up for record in self.rounds),
            "start": _with_summary(judged[0].evaluation or {}).get("shared", {}) if judged else {},
            "metrics": _with_summary(judged[-1].evaluation or {}) if judged else {},
        }
        _write_json(self.folder / "results.json", results)
        return results


def _with_summary(evaluation: dict[str, Any]) -> dict[str, Any]:
    """Add the regional robustness scores to each model's scores."""
    per_region = {
        model: [s["overall"] for s in scored["per_region"].values() if "overall" in s]
        for model, scored in evaluation.items()
    }
    result = {}
    for model, scored in evaluation.items():
        same = len(per_region.get("shared", [])) == len(per_region[model])
        baseline = per_region["shared"] if model != "shared" and "shared" in per_region and same else None
        result[model] = scored | regional_summary(per_region[model], baseline)
    return result


def _slug(name: str) -> str:
    return "".join(c if c.isalnum() else "-" for c in name.lower()).strip("-")


def _write_json(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=2) + "\n")


def _append(path: Path, value: Any) -> None:
    with path.open("a") as stream:
        stream.write(json.dumps(value) + "\n")
