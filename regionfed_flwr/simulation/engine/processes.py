"""Everything a run starts is found again and ended, also what a killed run left behind.

Every process of a run carries the run's tag in its environment. Some overwrite that memory with a title of their
own, so the sessions of the tagged ones, and their descendants, are searched too.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import shutil
import signal
import sys
import tempfile
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    import psutil

TAG = "REGIONFED_TAG"
GRACE_SECONDS = 3.0
_PREFIX = "rf-"
# Ray's sockets lie up to 70 characters below the run's folder, and a socket's path may have 107.
_LONGEST_ROOT = 24
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True)
class RunFolder:
    """A run's short temporary folder, and the tag of its processes."""

    path: Path
    tag: str


@contextlib.contextmanager
def subreaper() -> Iterator[None]:
    """Let orphans of the run become children of this process, where they can be waited for (Linux only)."""
    if sys.platform != "linux":
        yield
        return
    prctl = ctypes.CDLL(None).prctl
    before = ctypes.c_int()
    prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before), 0, 0, 0)
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        yield
    finally:
        prctl(_PR_SET_CHILD_SUBREAPER, before.value, 0, 0, 0)


def temporary_root() -> Path:
    """Return the folder for runs' temporary folders: the system's, unless its path is too long for Ray's sockets."""
    root = Path(tempfile.gettempdir())
    return root if len(str(root)) <= _LONGEST_ROOT else Path("/tmp")


@contextlib.contextmanager
def run_folder() -> Iterator[RunFolder]:
    """Make a run's temporary folder, lock it while the run lives, and remove it.

    The kernel drops the lock when this process ends, however it ends: an unlocked folder is a dead run's. (A stored
    process id with its start time would not do: it reads differently after the clock is set, and in a container.)
    """
    folder = RunFolder(Path(tempfile.mkdtemp(prefix=_PREFIX, dir=temporary_root())), str(uuid.uuid4()))
    with (folder.path / "owner.json.new").open("w", encoding="utf-8") as file:
        _lock(file)
        json.dump({"tag": folder.tag, "pid": os.getpid()}, file)
        file.flush()
        # Only a locked file gets the name that other runs look for.
        Path(file.name).rename(folder.path / "owner.json")
        try:
            yield folder
        finally:
            shutil.rmtree(folder.path, ignore_errors=True)


def sweep() -> int:
    """End the processes of runs whose owner is gone and remove their folders; return how many runs that were."""
    swept = 0
    for path in sorted(temporary_root().glob(f"{_PREFIX}*/owner.json")):
        with contextlib.suppress(OSError, ValueError, KeyError), path.open("r+", encoding="utf-8") as file:
            if not _lock(file):
                continue
            ProcessGroup(str(json.load(file)["tag"])).stop()
            shutil.rmtree(path.parent, ignore_errors=True)
            swept += 1
    return swept


def _lock(file: TextIO) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


class ProcessGroup:
    """The processes of one run.

    Parameters
    ----------
    tag : str
        Value of ``REGIONFED_TAG`` in their environment.
    """

    def __init__(self, tag: str) -> None:
        self.tag = tag
        self._sessions: set[int] = set()
        self._seen: set[psutil.Process] = set()

    def alive(self) -> list[psutil.Process]:
        """Find the run's processes that still run, by tag, by session and by descent."""
        import psutil

        everyone = [p for p in psutil.process_iter(["ppid", "create_time", "environ"]) if p.pid != os.getpid()]
        tagged = {p for p in everyone if (p.info["environ"] or {}).get(TAG) == self.tag}
        self._sessions |= {_session(p) for p in tagged} - {os.getsid(0), 0}
        self._seen |= tagged | {p for p in everyone if _session(p) in self._sessions}
        parents = {p.pid for p in self._seen if is_alive(p)}
        for process in sorted(everyone, key=lambda p: p.info["create_time"] or 0.0):
            if process.info["ppid"] in parents:
                self._seen.add(process)
                parents.add(process.pid)
        return [p for p in self._seen if is_alive(p)]

    def stop(self, leader: int | None = None) -> list[int]:
        """End all of them, first gently, and collect those that are children of this process.

        Parameters
        ----------
        leader : int, optional
            Process id of the one that can end most of the others in good order.

        Returns
        -------
        list of int
            Process ids that outlived even SIGKILL; empty but for processes stuck in the kernel.
        """
        self.alive()
        if leader is not None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(leader, signal.SIGTERM)
            self._wait_until_gone()
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.alive():
                _send(process, number)
            self._wait_until_gone()
        return [process.pid for process in self.alive()]

    def _wait_until_gone(self) -> None:
        deadline = time.monotonic() + GRACE_SECONDS
        while self._reap() and time.monotonic() < deadline:
            time.sleep(0.1)

    def _reap(self) -> bool:
        """Collect the run's dead children; return whether any of its processes still runs."""
        import psutil

        left = self.alive()
        for child in psutil.Process().children():
            if child in self._seen and not is_alive(child):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(child.pid, os.WNOHANG)
        return bool(left)


def _session(process: psutil.Process) -> int:
    try:
        return os.getsid(process.pid)
    except OSError:
        return 0


def is_alive(process: psutil.Process) -> bool:
    """Whether a process still runs; one that only waits to be collected does not."""
    import psutil

    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.Error:
        return False


def _send(process: psutil.Process, number: int) -> None:
    import psutil

    with contextlib.suppress(psutil.Error):
        process.send_signal(number)
