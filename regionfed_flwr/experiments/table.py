"""The results of a run as a plain-text table."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

Record = Mapping[str, Any]

MODELS = ("start", "shared", "regional")
TASK_TITLES = {"intent": "Intent", "spell": "Spelling", "entity": "Entities (F1)", "character": "Characters"}
_NOT_TASKS = {"overall", "loss", "per_region", "rrs_mean", "rrs_min", "rrs_sd", "rrs_uplift"}
_GROUP_HEAD = "start shared reg."
_CAPTION = (
    "start: before training; shared: the global model; reg.: each region's own model;",
    "gain: reg. - shared, in points. Scores are those of the users' test parts; - means not measured.",
)


def render_table(results: Record, rounds: Sequence[Record] = ()) -> str:
    """Render the scores by region and the run's summary.

    Parameters
    ----------
    results : Mapping
        Content of ``results.json``; scores are fractions.
    rounds : sequence of Mapping
        Lines of ``rounds.jsonl``: names of further regions, and traffic where the results do not say it.

    Returns
    -------
    str
        Lines of at most 100 characters for three tasks and region names of up to 18 characters, ending in a
        newline. Scores are percentages with one decimal; a missing value is ``-``.
    """
    models = model_scores(results)
    tasks = sorted({task for scores in models.values() for task in _tasks(scores)}, key=_task_order)
    names = region_names(results, rounds)
    rows = [(name, {model: of_region(scores, name) for model, scores in models.items()}) for name in names]
    width = max(len(name) for name in [*names, "All regions"])
    title = f"{results.get('method', '-')}, seed {results.get('seed', '-')}, {results.get('rounds', '-')} rounds"
    head = _head(width, tasks)
    rule = "-" * max(len(line) for line in head)
    body = [_row(name, width, scores, tasks) for name, scores in rows]
    total = _row("All regions", width, models, tasks)
    lines = [title, "", *head, rule, *body, rule, total, "", *_CAPTION, "", *_summary(models)]
    return "\n".join([*lines, "", _costs(results, rounds), ""])


def number(record: Record | None, key: str) -> float | None:
    """Return a finite number of a record, or None when it is missing, null or not finite."""
    value = (record or {}).get(key)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else None


def model_scores(results: Record) -> dict[str, Record]:
    """Return the scores of the models ``start``, ``shared`` and ``regional``; {} for one that is missing."""
    metrics = results.get("metrics") or {}
    found = (results.get("start"), metrics.get("shared"), metrics.get("regional"))
    return {model: scores or {} for model, scores in zip(MODELS, found, strict=True)}


def of_region(scores: Record, name: str) -> Record:
    """Return one region's scores under a model, {} when it has none."""
    found: Record = (scores.get("per_region") or {}).get(name) or {}
    return found


def region_names(results: Record, rounds: Iterable[Record] = ()) -> list[str]:
    """Return the names of all regions in the files' order.

    A single listing may lack a region (no reply, no test sample), so the longest one leads and the others add to it.
    """
    listings: list[Record] = [scores.get("per_region") or {} for scores in model_scores(results).values()]
    listings += [entry.get("regions") or {} for entry in rounds]
    longest_first = sorted(listings, key=len, reverse=True)
    return list(dict.fromkeys(name for listing in longest_first for name in listing))


def _tasks(scores: Record) -> set[str]:
    regions: Iterable[Record] = (scores.get("per_region") or {}).values()
    return {key for record in (scores, *regions) for key in record} - _NOT_TASKS


def _task_order(task: str) -> tuple[int, str]:
    known = list(TASK_TITLES)
    return (known.index(task) if task in known else len(known), task)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f}"


def _points(value: float | None) -> str:
    return "-" if value is None else f"{round(100 * value, 1) + 0.0:+.1f}"  # + 0.0 turns -0.0 into 0.0


def _head(width: int, tasks: Sequence[str]) -> list[str]:
    """Return the titles of the groups of columns, a rule under each, and the columns' names."""
    gain = f"{_GROUP_HEAD}  gain"
    groups = [("Overall (%)", gain), *((f"{TASK_TITLES.get(task, task)} (%)", _GROUP_HEAD) for task in tasks)]
    titles = "  ".join(title.center(len(columns)) for title, columns in groups)
    rules = "  ".join("-" * len(columns) for _, columns in groups)
    columns = "  ".join(columns for _, columns in groups)
    lead = " " * width
    return [f"{lead}  {titles}".rstrip(), f"{lead}  {rules}", f"{'Region':<{width}}  {columns}"]


def _row(name: str, width: int, scores: Mapping[str, Record], tasks: Sequence[str]) -> str:
    """Return one line: the name, Overall under each model with the gain, then each task under each model."""
    shared, regional = (number(scores[model], "overall") for model in MODELS[1:])
    gain = None if shared is None or regional is None else regional - shared
    cells = f"{_group(scores, 'overall')}{_points(gain):>6}"
    return "  ".join([f"{name:<{width}}", cells, *(_group(scores, task) for task in tasks)])


def _group(scores: Mapping[str, Record], key: str) -> str:
    start, shared, regional = (_percent(number(scores[model], key)) for model in MODELS)
    return f"{start:>5}{shared:>6}{regional:>6}"


def _summary(models: Mapping[str, Record]) -> list[str]:
    """Return how evenly the regions are served, and the losses."""
    kinds: list[tuple[str, str, Callable[[float | None], str]]] = [
        ("RRS_mean    mean over the regions (%)", "rrs_mean", _percent),
        ("RRS_min     weakest region (%)", "rrs_min", _percent),
        ("RRS_uplift  smallest gain of a region (points)", "rrs_uplift", _points),
        ("SD          standard deviation over the regions (points)", "rrs_sd", _percent),
        ("Loss        mean over the test samples", "loss", lambda x: "-" if x is None else f"{x:.4f}"),
    ]
    width = max(len(text) for text, _, _ in kinds)
    lines = [f"{'':<{width}}  {'shared':>8}  {'reg.':>8}"]
    for text, key, show in kinds:
        shared, regional = (show(number(models[model], key)) for model in MODELS[1:])
        lines.append(f"{text:<{width}}  {shared:>8}  {regional:>8}")
    return lines


def _costs(results: Record, rounds: Sequence[Record]) -> str:
    seconds = number(results, "seconds")
    time = "-" if seconds is None else f"{seconds:.1f}"
    down, up = (_total(results, rounds, key) for key in ("bytes_down", "bytes_up"))
    down_text, up_text = ("-" if total is None else f"{total / 1e6:.2f}" for total in (down, up))
    rejected = _total(results, rounds, "rejected")
    replies = "-" if rejected is None else f"{rejected:.0f}"
    return f"Time {time} s | Traffic {down_text} MB down, {up_text} MB up | Rejected replies {replies}"


def _total(results: Record, rounds: Iterable[Record], key: str) -> float | None:
    """Return the run's total, added up from its rounds where the results do not say it."""
    values = [value for entry in rounds if (value := number(entry, key)) is not None]
    return number(results, key) if key in results else math.fsum(values) if values else None
