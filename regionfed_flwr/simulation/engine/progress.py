"""What a person sees while a run goes on, read from the app's own event file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn

Event = dict[str, Any]

_PHASES = {"waiting": "Waiting for the nodes", "train": "Training", "evaluate": "Evaluating", "done": "Finished"}


class EventTail:
    """Reads the lines that were added to a JSON-lines file since the last look.

    Parameters
    ----------
    path : Path
        The file; it need not exist yet.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def read(self) -> list[Event]:
        """Return the new events; a line still being written is left for the next time, a damaged one is skipped."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._offset)
                added = file.read()
        except FileNotFoundError:
            return []
        whole = added[: added.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [event for line in whole.splitlines() if (event := _event(line)) is not None]


def describe(event: Event) -> str:
    """Return one line about an event, such as ``Round 2/6: shared 0.712, regional 0.745``."""
    name, text = event["event"], str(event.get("text") or "")
    where = f"{event.get('round')}/{event.get('rounds')}"
    if name == "round":
        scores = [f"{model} {score:.3f}" for model, score in (event.get("overall") or {}).items()]
        details = ", ".join([*scores, *filter(None, [text])])
        return f"Round {where}: {details}" if details else f"Round {where}"
    if name in _PHASES:
        return f"{_PHASES[name]}, round {where}" if name in ("train", "evaluate") else _PHASES[name]
    return f"{name.capitalize()}: {text}" if text else name.capitalize()


class Display(Protocol):
    """Shows a run's course."""

    def __enter__(self) -> Display: ...

    def __exit__(self, *exc_info: object) -> None: ...

    def phase(self, text: str) -> None:
        """Say what the engine does, before the app speaks for itself."""
        ...

    def show(self, event: Event) -> None:
        """Take in one event of the app."""
        ...


class PlainDisplay:
    """One line for the start, each round and the end; no control characters, for files and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def __enter__(self) -> PlainDisplay:
        return self

    def __exit__(self, *exc_info: object) -> None:
        return None

    def phase(self, text: str) -> None:
        """Print a line."""
        self._console.print(text, markup=False, highlight=False, soft_wrap=True)

    def show(self, event: Event) -> None:
        """Print the event, unless the line of its round or of the failure will tell."""
        if event["event"] not in ("train", "evaluate", "failed"):
            self.phase(describe(event))


class LiveDisplay:
    """A bar over the rounds while the run goes on, with the rounds' lines above it, for a terminal."""

    def __init__(self, console: Console) -> None:
        columns = (SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
        self._progress = Progress(*columns, TimeElapsedColumn(), console=console, transient=True)
        self._task: TaskID = self._progress.add_task("Starting", total=None)

    def __enter__(self) -> LiveDisplay:
        self._progress.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._progress.stop()

    def phase(self, text: str) -> None:
        """Change the words before the bar."""
        self._progress.update(self._task, description=text)

    def show(self, event: Event) -> None:
        """Move the bar; print what is not only a phase above it."""
        name = event["event"]
        if name in _PHASES:
            self.phase(_PHASES[name])
        elif name != "failed":
            self._progress.console.print(describe(event), markup=False, highlight=False)
        if name == "round":
            self._progress.update(self._task, completed=event.get("round"), total=event.get("rounds") or None)


def open_display(console: Console) -> Display:
    """Return the display that fits the console."""
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def _event(line: bytes) -> Event | None:
    try:
        event = json.loads(line)
    except ValueError:
        return None
    return event if isinstance(event, dict) and isinstance(event.get("event"), str) else None
