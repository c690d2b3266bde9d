"""The report of a finished run: its table and its pictures, from the files the run left."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regionfed_flwr.config import RunConfig, parse_config
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.experiments import figures
from regionfed_flwr.experiments.table import Record, region_names, render_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

log = logging.getLogger(__name__)


def write_report(run_dir: Path) -> list[Path]:
    """Write ``table.txt`` and ``figures/*.png`` of a run.

    A picture that does not apply is left out, and so are those of the data when this machine has none.

    Parameters
    ----------
    run_dir : Path
        Folder with ``config.json``, ``results.json`` and ``rounds.jsonl``.

    Returns
    -------
    list of Path
        The files written, the table first.

    Raises
    ------
    RegionFedError
        If one of the three files is missing or damaged.
    """
    config = parse_config(_read_object(run_dir / "config.json"))
    results = _read_object(run_dir / "results.json")
    rounds = _read_rounds(run_dir / "rounds.jsonl")
    table = run_dir / "table.txt"
    table.write_text(render_table(results, rounds), encoding="utf-8")
    return [table, *_write_figures(run_dir / "figures", config, results, rounds)]


def _write_figures(folder: Path, config: RunConfig, results: Record, rounds: Sequence[Record]) -> list[Path]:
    import matplotlib

    folder.mkdir(exist_ok=True)
    names = region_names(results, rounds)
    with matplotlib.rc_context(figures.STYLE):
        drawn: dict[str, Figure | None] = {
            "convergence": figures.convergence(results, rounds),
            "accuracy_by_region": figures.accuracy_by_region(results, names),
            "alpha_by_round": figures.alpha_by_round(rounds, names),
        }
        data = _count_data(config)
        if data is not None:
            what = "Character" if config.data == "femnist" else "Intent"
            drawn["intent_distribution"] = figures.intent_distribution(data, what)
            drawn["category_distribution"] = figures.category_distribution(data)
        paths = []
        for name, figure in drawn.items():
            if figure is not None:
                figure.savefig(folder / f"{name}.png")
                paths.append(folder / f"{name}.png")
    return paths


def _count_data(config: RunConfig) -> figures.DataCounts | None:
    """Count the federation's data, or return None where it cannot be had (a deployment's server holds none)."""
    from regionfed_flwr.data.load import load_federation

    try:
        return figures.count_data(load_federation(config))
    except RegionFedError as error:
        log.warning("No pictures of the data: %s", error)
        return None


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise RegionFedError(
            f"'{path}' cannot be read ({error}); a report needs the folder of a finished run with config.json, "
            "results.json and rounds.jsonl."
        ) from error


def _parse(text: str, place: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise RegionFedError(f"{place} is not JSON ({error}); run again to get a whole file.") from error
    if not isinstance(value, dict):
        raise RegionFedError(f"{place} holds {type(value).__name__}, but a JSON object is expected.")
    return value


def _read_object(path: Path) -> dict[str, Any]:
    return _parse(_read_text(path), f"'{path}'")


def _read_rounds(path: Path) -> list[dict[str, Any]]:
    """Read one object a line; every line must say its round."""
    entries = []
    for index, line in enumerate(_read_text(path).splitlines(), start=1):
        if line.strip():
            entry = _parse(line, f"Line {index} of '{path}'")
            if not isinstance(entry.get("round"), int):
                raise RegionFedError(f"Line {index} of '{path}' has no whole number 'round'.")
            entries.append(entry)
    return entries
