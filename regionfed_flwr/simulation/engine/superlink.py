"""A SuperLink of the run's own, and the ``flwr`` commands spoken to it."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine.interrupts import Interrupts
from regionfed_flwr.simulation.engine.machine import Layout
from regionfed_flwr.simulation.engine.processes import TAG, RunFolder, is_alive

if TYPE_CHECKING:
    import psutil

_START_SECONDS = 60.0
_COMMAND_SECONDS = 120.0
_ATTEMPTS = 3
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True)
class RunStatus:
    """What the SuperLink says about a run: ``running``, ``finished:completed``, ``finished:failed`` and so on."""

    status: str
    details: str

    @property
    def finished(self) -> bool:
        """Whether the run has ended, well or not."""
        return self.status.startswith("finished")


class SuperLink:
    """A running SuperLink. Start one with :meth:`start`.

    Everything is started in a session of its own, so that Ctrl-C in a terminal reaches this process only.
    """

    def __init__(self, folder: RunFolder, env: dict[str, str], process: subprocess.Popen[bytes], log: Path) -> None:
        self._folder = folder
        self._env = env
        self._process = process
        self._log = log
        self._simulation: psutil.Process | None = None

    @classmethod
    def start(cls, folder: RunFolder, log: Path, interrupts: Interrupts) -> SuperLink:
        """Start a SuperLink on a free port and wait until it answers.

        Parameters
        ----------
        folder : RunFolder
            Holds its home, its database and its working directory, where no package may shadow the app's.
        log : Path
            File for what it prints.
        interrupts : Interrupts
            Ends the wait.

        Raises
        ------
        RegionFedError
            When it does not start.
        """
        env = environment(folder)
        for name in ("home", "cwd", "r"):
            (folder.path / name).mkdir()
        for _ in range(_ATTEMPTS):
            port = _free_port()
            _write_connection(folder.path / "home" / "config.toml", port)
            link = cls(folder, env, _launch(folder, env, port, log), log)
            # Another process may have taken the port meanwhile; then this one ends, and the next attempt is due.
            if link._wait_until_healthy(port, interrupts):
                return link
        raise RegionFedError(f"The SuperLink did not start: {last_line(log) or 'it printed nothing'}; see '{log}'.")

    @property
    def pid(self) -> int:
        """Process id."""
        return self._process.pid

    def check_alive(self) -> None:
        """Raise :class:`RegionFedError` when the SuperLink has ended on its own."""
        if self._process.poll() is not None:
            raise RegionFedError(
                f"The SuperLink ended unexpectedly with exit code {self._process.returncode}: {last_line(self._log)}"
            )

    def simulation_ended(self) -> bool:
        """Whether the process that ran the app is gone, which Flower itself notices only after a minute."""
        import psutil

        if self._simulation is None:
            with contextlib.suppress(psutil.Error):
                below = psutil.Process(self.pid).children(recursive=True)
                self._simulation = next((p for p in below if "flwr-simulation" in " ".join(p.cmdline())), None)
        return self._simulation is not None and not is_alive(self._simulation)

    def submit(self, app: Path, run_config: Path, layout: Layout, interrupts: Interrupts) -> str:
        """Submit an app and return the run's id; raise :class:`RegionFedError` when it is refused."""
        options = ["-c", str(run_config), "--federation-config", layout.federation_config(), "--format", "json"]
        answer = self._ask(["run", str(app), "local", *options], interrupts)
        return str(answer["run-id"])

    def status(self, run_id: str, interrupts: Interrupts) -> RunStatus:
        """Ask how a run stands. Costs a second of a core: not to be asked often."""
        runs = self._ask(["ls", "local", "--run-id", run_id, "--format", "json"], interrupts)["runs"]
        return RunStatus(str(runs[0]["status"]), str(runs[0]["status-details"]))

    def app_log(self, run_id: str, interrupts: Interrupts) -> str:
        """Return what the app has printed so far, without colours."""
        return _ANSI.sub("", self._run(["log", run_id, "local", "--show"], interrupts))

    def _ask(self, arguments: Sequence[str], interrupts: Interrupts) -> dict[str, Any]:
        text = self._run(arguments, interrupts)
        try:
            answer: dict[str, Any] = json.loads(text)
        except ValueError as error:
            raise RegionFedError(f"`flwr {arguments[0]}` gave no answer: {one_line(text) or 'no output'}.") from error
        # The exit status is 0 even for a refusal.
        if not answer.get("success"):
            message = str(answer.get("error-message", "")).rpartition("\n\n")[2]
            raise RegionFedError(f"`flwr {arguments[0]}` was refused: {one_line(message)}")
        return answer

    def _run(self, arguments: Sequence[str], interrupts: Interrupts) -> str:
        """Run a ``flwr`` command to its end and return its output."""
        # A file, as a pipe that nobody empties would block a long log.
        output = self._folder.path / "command.out"
        with output.open("wb") as file:
            process = subprocess.Popen(
                [_command("flwr", self._env), *arguments],
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=self._folder.path / "cwd",
                env=self._env,
                start_new_session=True,
            )
        deadline = time.monotonic() + _COMMAND_SECONDS
        while process.poll() is None:
            self.check_alive()
            if time.monotonic() > deadline:
                process.kill()
                process.wait()
                raise RegionFedError(f"`flwr {arguments[0]}` gave no answer within {_COMMAND_SECONDS:.0f} seconds.")
            interrupts.sleep(0.1)
        return output.read_text(encoding="utf-8", errors="replace")

    def _wait_until_healthy(self, port: int, interrupts: Interrupts) -> bool:
        deadline = time.monotonic() + _START_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            if _healthy(port) and self._listens_on(port):
                return True
            interrupts.sleep(0.2)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        return False

    def _listens_on(self, port: int) -> bool:
        """Whether it is this SuperLink, not a stranger, that answers."""
        import psutil

        with contextlib.suppress(psutil.Error):
            connections = psutil.Process(self.pid).net_connections(kind="tcp")
            return any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in connections)
        return False


def environment(folder: RunFolder) -> dict[str, str]:
    """Return the environment of everything a run starts."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_", "FLWR_"))}
    scripts = str(Path(sys.executable).parent)
    no_proxy = ",".join(filter(None, [os.environ.get("NO_PROXY", os.environ.get("no_proxy")), "127.0.0.1,localhost"]))
    return inherited | {
        TAG: folder.tag,
        "PATH": os.pathsep.join([scripts, os.environ.get("PATH", os.defpath)]),
        "NO_PROXY": no_proxy,
        "no_proxy": no_proxy,
        "FLWR_HOME": str(folder.path / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "FLWR_DISABLE_UPDATE_CHECK": "1",
        "FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION": "1",
        "RAY_TMPDIR": str(folder.path / "r"),
        "RAY_USAGE_STATS_ENABLED": "0",
        # Ray's workers would run at the lowest priority.
        "RAY_worker_niceness": "0",
        # One thread a process: more collapse beside a busy neighbour, and would change the order of sums.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "PYTHONUNBUFFERED": "1",
        # Large arrays stay in the heap: mapping and clearing fresh pages for each costs as much as adding them.
        "MALLOC_ARENA_MAX": "1",
        "MALLOC_MMAP_THRESHOLD_": str(2**32),
        "MALLOC_TRIM_THRESHOLD_": str(2**33),
        "MALLOC_TOP_PAD_": str(2**26),
    }


def one_line(text: str, limit: int = 500) -> str:
    """Return ``text`` with all white space as single blanks, cut after ``limit`` characters."""
    words = " ".join(text.split())
    return words if len(words) <= limit else words[: limit - 1] + "…"


def last_line(path: Path) -> str:
    """Return the last line with text in a log, or nothing."""
    lines = [_ANSI.sub("", line).strip() for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]
    return next((one_line(line) for line in reversed(lines) if line), "")


def _launch(folder: RunFolder, env: dict[str, str], port: int, log: Path) -> subprocess.Popen[bytes]:
    options = ["--insecure", "--simulation", "--host", "127.0.0.1", "--port", str(port)]
    options += ["--database", str(folder.path / "state.db"), "--isolation", "subprocess"]
    with log.open("ab") as file:
        return subprocess.Popen(
            [_command("flower-superlink", env), *options, "--disable-runtime-dependency-installation"],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=subprocess.STDOUT,
            cwd=folder.path / "cwd",
            env=env,
            start_new_session=True,
        )


def _command(name: str, env: dict[str, str]) -> str:
    path = shutil.which(name, path=env["PATH"])
    if path is None:
        raise RegionFedError(f"The command '{name}' is missing; install it with `pip install 'flwr[simulation]'`.")
    return path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _write_connection(path: Path, port: int) -> None:
    text = f'[superlink]\ndefault = "local"\n\n[superlink.local]\naddress = "127.0.0.1:{port}"\ninsecure = true\n'
    path.write_text(text, encoding="utf-8")


def _healthy(port: int) -> bool:
    # A proxy in the environment must not see a question to this machine.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://127.0.0.1:{port}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
