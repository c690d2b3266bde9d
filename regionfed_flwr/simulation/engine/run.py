"""One run from its configuration to its results, with everything it started ended again."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rich.console import Console

from regionfed_flwr.config import RunConfig, Value
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine import processes
from regionfed_flwr.simulation.engine.interrupts import Interrupted, Interrupts
from regionfed_flwr.simulation.engine.machine import Layout, count_cores, count_gpus, plan_layout
from regionfed_flwr.simulation.engine.progress import Display, EventTail, open_display
from regionfed_flwr.simulation.engine.staging import run_values, stage_package, write_run_config
from regionfed_flwr.simulation.engine.superlink import RunStatus, SuperLink, one_line

_LOOK_SECONDS = 0.25
_POLL_SECONDS = 10.0
# Once the app has said that it is done, only the engine's own end is waited for.
_POLL_AT_END_SECONDS = 1.0
_END_SECONDS = 90.0
_GONE_SECONDS = 10.0
_LOST = "the process that ran the app is gone or stuck; the machine may have been short of memory"


@dataclass(frozen=True)
class RunOutcome:
    """How a run ended.

    Attributes
    ----------
    exit_code : int
        0: finished with results; 1: failed; 130, 143, 129: stopped by SIGINT, SIGTERM, SIGHUP.
    reason : str
        One sentence about a failure; empty after success.
    output : Path
        Folder of the artifacts.
    nodes : int
        SuperNodes the users were spread over.
    seconds : float
        From start to end.
    """

    exit_code: int
    reason: str
    output: Path
    nodes: int
    seconds: float

    @property
    def logs(self) -> Path:
        """Folder with what Flower and the app have printed."""
        return self.output / "logs"


def new_output_folder(parent: Path, name: str) -> Path:
    """Make and return ``parent/<YYYYmmdd-HHMMSS>-<name>``, with a number behind it when that is taken.

    Raises
    ------
    RegionFedError
        When the folder cannot be made.
    """
    stem = f"{datetime.now():%Y%m%d-%H%M%S}-{re.sub(r'[^A-Za-z0-9._-]+', '-', name) or 'run'}"
    number = 1
    while True:
        folder = parent.absolute() / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            number += 1
        except OSError as error:
            raise RegionFedError(f"The output folder '{folder}' cannot be made: {error.strerror}.") from error
        else:
            return folder


def run_simulation(
    config: RunConfig,
    *,
    output: Path | None = None,
    nodes: int | None = None,
    cpus_per_node: int = 1,
    gpus_per_node: float | None = None,
    app_dir: Path | None = None,
    app_values: Mapping[str, Value] | None = None,
    console: Console | None = None,
) -> RunOutcome:
    """Run the app in Flower's simulation engine and wait for its results.

    Parameters
    ----------
    config : RunConfig
        The run's configuration; its ``output_dir`` is used when ``output`` is omitted.
    output : Path, optional
        Folder for the artifacts: new or empty. By default ``runs/<time>-<run name>`` under the current directory.
    nodes : int, optional
        SuperNodes; by default one a core, and no more than users.
    cpus_per_node : int
        Cores of a node while it works.
    gpus_per_node : float, optional
        GPUs of a node while it works; by default all nodes share what the machine has.
    app_dir : Path, optional
        Folder of another Flower app to run in this one's place. Its manifest must declare ``output-dir``; there it
        leaves ``results.json``, and ``events.jsonl`` while it runs.
    app_values : Mapping[str, bool or int or float or str], optional
        Configuration of that app; of ``config`` it gets nothing.
    console : Console, optional
        Where the progress is shown.

    Returns
    -------
    RunOutcome
        Also for a run that failed or was stopped.

    Raises
    ------
    RegionFedError
        For bad input, before any process is started.
    """
    began = time.monotonic()
    layout = plan_layout(
        config,
        cores=count_cores(),
        visible_gpus=0 if config.device == "cpu" and not gpus_per_node else count_gpus(),
        nodes=nodes,
        cpus_per_node=cpus_per_node,
        gpus_per_node=gpus_per_node,
    )
    values = run_values(config, app_dir, app_values or {})
    output = _claim_output(config, output)
    exit_code, reason = 0, ""
    with Interrupts() as interrupts, processes.subreaper(), processes.run_folder() as folder:
        write_run_config(folder.path / "run.toml", values | {"output-dir": str(output)})
        app = app_dir.absolute() if app_dir else stage_package(folder.path)
        (output / "logs").mkdir()
        try:
            with open_display(console or Console()) as display:
                _Engine(folder, app, output, interrupts, display).run(layout)
        except RegionFedError as error:
            exit_code, reason = 1, _sentence(str(error))
        except Interrupted as stop:
            exit_code, reason = 128 + stop.number, f"The run was {stop}."
    return RunOutcome(exit_code, reason, output, layout.nodes, time.monotonic() - began)


class _Engine:
    """One run's processes, from the first to the last."""

    def __init__(
        self, folder: processes.RunFolder, app: Path, output: Path, interrupts: Interrupts, display: Display
    ) -> None:
        self._folder = folder
        self._app = app
        self._output = output
        self._interrupts = interrupts
        self._display = display
        self._tail = EventTail(output / "events.jsonl")
        self._done = False
        self._failure = ""

    def run(self, layout: Layout) -> None:
        """Run the app; return when its results are there, and raise the reason when they are not."""
        processes.sweep()
        group = processes.ProcessGroup(self._folder.tag)
        link = None
        try:
            self._display.phase("Starting Flower")
            link = SuperLink.start(self._folder, self._output / "logs" / "superlink.log", self._interrupts)
            self._display.phase("Submitting the app")
            run_id = link.submit(self._app, self._folder.path / "run.toml", layout, self._interrupts)
            self._follow(link, run_id)
        finally:
            self._display.phase("Stopping Flower")
            left = group.stop(link.pid if link else None)
        if left:
            raise RegionFedError(f"The processes {left} of this run could not be ended.")

    def _follow(self, link: SuperLink, run_id: str) -> None:
        """Watch the run to its end and judge it."""
        status = self._watch(link, run_id)
        log = ""
        # A log that cannot be had must not hide how the run ended.
        with contextlib.suppress(RegionFedError):
            log = link.app_log(run_id, self._interrupts)
        (self._output / "logs" / "app.log").write_text(log, encoding="utf-8")
        if self._failure or status.status != "finished:completed":
            raise RegionFedError(self._failure or failure_reason(status, log))
        if not (self._output / "results.json").is_file():
            raise RegionFedError(f"The app ended without writing '{self._output / 'results.json'}'.")

    def _watch(self, link: SuperLink, run_id: str) -> RunStatus:
        """Show the app's events until the SuperLink says that the run has ended."""
        next_poll = time.monotonic() + _POLL_SECONDS
        deadline = None
        while deadline is None or time.monotonic() < deadline:
            self._interrupts.sleep(_LOOK_SECONDS)
            link.check_alive()
            gone = link.simulation_ended()
            self._take_events()
            if deadline is None and (gone or self._done):
                next_poll = time.monotonic()
                deadline = next_poll + (_END_SECONDS if self._done else _GONE_SECONDS)
            if time.monotonic() >= next_poll:
                status = link.status(run_id, self._interrupts)
                if status.finished:
                    self._take_events()
                    return status
                next_poll = time.monotonic() + (_POLL_SECONDS if deadline is None else _POLL_AT_END_SECONDS)
        return RunStatus("lost", _LOST)

    def _take_events(self) -> None:
        for event in self._tail.read():
            self._display.show(event)
            if event["event"] == "failed":
                self._failure = str(event.get("text") or "The app failed without saying why.")
            self._done = self._done or event["event"] in ("done", "failed")


def failure_reason(status: RunStatus, log: str) -> str:
    """Return in one sentence why a run failed.

    Parameters
    ----------
    status : RunStatus
        What the SuperLink knows; often only that there was an error.
    log : str
        What the app printed. The first exception in it is the cause, later ones follow from it.
    """
    details = status.details.removeprefix("Simulation failed with exception: ")
    if details in ("", "N/A") or "Ending simulation" in details or "unknown error" in details:
        raised = re.search(r"^(?:\w+\.)*\w*(?:Error|Exception): (.+)$", log, flags=re.MULTILINE)
        details = raised.group(1) if raised else f"{status.status}, {details}"
    return f"The run failed: {details}"


def _claim_output(config: RunConfig, output: Path | None) -> Path:
    """Return the folder for the artifacts, made and empty."""
    if output is None and not config.output_dir:
        return new_output_folder(Path("runs"), config.run_name)
    folder = (output or Path(config.output_dir)).expanduser().absolute()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        taken = any(folder.iterdir())
    except OSError as error:
        raise RegionFedError(f"The output folder '{folder}' cannot be made: {error.strerror}.") from error
    if taken:
        raise RegionFedError(f"The output folder '{folder}' is not empty; name a new one, or none.")
    return folder


def _sentence(text: str) -> str:
    """Return one line that ends like a sentence."""
    line = one_line(text)
    return line if line.endswith((".", "!", "?", "…")) else f"{line}."
