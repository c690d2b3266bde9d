"""Start `regionfed run` as a person would and watch what it leaves behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from regionfed_flwr.simulation.engine.processes import ProcessGroup, temporary_root

ROOT = Path(__file__).resolve().parents[2]
TOY = Path(__file__).parent / "toy_app"
PATIENCE = 150.0


@dataclass(frozen=True)
class Ended:
    code: int
    out: str
    err: str
    survivors: list[psutil.Process]
    folder_left: bool


class Wrapper:
    """A running `regionfed run`."""

    def __init__(self, cwd: Path, name: str, *arguments: str) -> None:
        self.output = cwd / name
        self._out, self._err = cwd / f"{name}.out", cwd / f"{name}.err"
        command = [sys.executable, "-m", "regionfed_flwr.cli", "run", "--output", name, *arguments]
        path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self.process = subprocess.Popen(
                command, cwd=cwd, env=os.environ | {"PYTHONPATH": path}, stdout=out, stderr=err
            )
        self.folder, self.group = self._find_folder()

    def _find_folder(self) -> tuple[Path, ProcessGroup]:
        def found() -> tuple[Path, str] | None:
            for path in temporary_root().glob("rf-*/owner.json"):
                try:
                    owner = json.loads(path.read_text())
                except (OSError, ValueError):  # another run's, gone or not yet written
                    continue
                if owner["pid"] == self.process.pid:
                    return path.parent, owner["tag"]
            return None

        folder, tag = wait_for(found, 20)
        return folder, ProcessGroup(tag)

    def wait_for_event(self, name: str) -> None:
        events = self.output / "events.jsonl"

        def happened() -> bool:
            assert self.process.poll() is None, self._err.read_text()
            return events.exists() and f'"event": "{name}"' in events.read_text()

        wait_for(happened)

    def end(self) -> Ended:
        """Wait for the command, and look again and again for its processes meanwhile."""

        def over() -> bool:
            self.group.alive()
            return self.process.poll() is not None

        wait_for(over)
        text = self._out.read_text(), self._err.read_text()
        return Ended(self.process.returncode, *text, self.group.alive(), self.folder.exists())

    def kill(self) -> None:
        """End the command and its processes, whatever state a failed test left them in."""
        self.process.kill()
        self.process.wait()
        self.group.stop()


def wait_for(ready: Callable[[], Any], seconds: float = PATIENCE) -> Any:
    """Return the first true answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := ready():
            return answer
        time.sleep(0.3)
    raise AssertionError(f"nothing within {seconds} s")
