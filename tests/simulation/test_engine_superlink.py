import json
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine import superlink
from regionfed_flwr.simulation.engine.interrupts import Interrupts
from regionfed_flwr.simulation.engine.machine import Layout
from regionfed_flwr.simulation.engine.processes import TAG, RunFolder
from regionfed_flwr.simulation.engine.superlink import RunStatus, SuperLink, environment, last_line, one_line


@pytest.fixture
def folder(tmp_path) -> RunFolder:
    (tmp_path / "cwd").mkdir()
    return RunFolder(tmp_path, "a-tag")


@pytest.fixture
def link(folder):
    """A link whose daemon only waits, and whose `flwr` prints what a test put into the file `answer`."""
    (folder.path / "bin").mkdir()
    command = folder.path / "bin" / "flwr"
    command.write_text(f'#!/bin/sh\necho "$@" > {folder.path}/arguments\ncat {folder.path}/answer\n')
    command.chmod(0o755)
    env = {"PATH": f"{folder.path}/bin:/usr/bin:/bin"}
    process = subprocess.Popen(["sleep", "60"])
    yield SuperLink(folder, env, process, folder.path / "superlink.log")
    process.kill()
    process.wait()


def answer(folder: RunFolder, value) -> None:
    (folder.path / "answer").write_text(value if isinstance(value, str) else json.dumps(value))


def test_submission_returns_the_run(folder, link):
    answer(folder, {"success": True, "run-id": "12"})
    assert link.submit(Path("/app"), Path("/run.toml"), Layout(4, 2, 1, 0.5), Interrupts()) == "12"
    asked = (folder.path / "arguments").read_text()
    assert asked.startswith("run /app local -c /run.toml --federation-config num-supernodes=4 ")


def test_refused_submission_is_told_in_flowers_words(folder, link):
    # Flower exits with 0 here.
    answer(
        folder, {"success": False, "error-message": "Using SuperLink: local\n\n[code: 15] Invalid run configuration."}
    )
    with pytest.raises(RegionFedError, match=r"^`flwr run` was refused: \[code: 15\] Invalid run configuration\.$"):
        link.submit(Path("/app"), Path("/run.toml"), Layout(1, 1, 1, 0.0), Interrupts())


@pytest.mark.parametrize("text", ["", "Traceback (most recent call last):\n  oh no"])
def test_an_answer_that_is_none_is_an_error(folder, link, text):
    answer(folder, text)
    with pytest.raises(RegionFedError, match=r"`flwr ls` gave no answer: (no output|Traceback .* oh no)"):
        link.status("12", Interrupts())


def test_status_and_log(folder, link):
    answer(folder, {"success": True, "runs": [{"status": "finished:failed", "status-details": "Why."}]})
    status = link.status("12", Interrupts())
    assert status == RunStatus("finished:failed", "Why.")
    assert status.finished
    assert not RunStatus("running", "N/A").finished
    long = "\x1b[92mINFO \x1b[0m: " + "x" * 100_000
    answer(folder, long)
    assert link.app_log("12", Interrupts()) == "INFO : " + "x" * 100_000


def test_command_that_hangs_is_given_up(folder, link, monkeypatch):
    monkeypatch.setattr(superlink, "_COMMAND_SECONDS", 0.2)
    (folder.path / "bin" / "flwr").write_text("#!/bin/sh\nexec sleep 60\n")
    with pytest.raises(RegionFedError, match="`flwr ls` gave no answer within"):
        link.status("12", Interrupts())


def test_dead_superlink_is_noticed_with_its_last_words(folder):
    log = folder.path / "superlink.log"
    log.write_text("fine\n\x1b[91mERROR\x1b[0m : out of ports\n\n")
    process = subprocess.Popen(["false"])
    process.wait()
    link = SuperLink(folder, {"PATH": "/usr/bin:/bin"}, process, log)
    with pytest.raises(RegionFedError, match="SuperLink ended unexpectedly with exit code 1: ERROR : out of ports"):
        link.check_alive()


def test_superlink_that_cannot_start_is_reported(folder, monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    command = tmp_path / "bin" / "flower-superlink"
    command.write_text("#!/bin/sh\necho no database\nexit 3\n")
    command.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "bin" / "python"))
    (tmp_path / "cwd").rmdir()
    log = tmp_path / "superlink.log"
    with pytest.raises(RegionFedError, match="The SuperLink did not start: no database; see "):
        SuperLink.start(folder, log, Interrupts())
    assert log.read_text().count("no database") == 3


def test_a_stranger_on_the_port_is_not_taken_for_the_superlink(link):
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert not link._listens_on(server.getsockname()[1])


def test_environment_is_the_runs_own(folder, monkeypatch):
    for name in ("RAY_ADDRESS", "FLWR_LOCAL_SUPERLINK_HTTP_API_PORT", TAG):
        monkeypatch.setenv(name, "inherited")
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("no_proxy", "intranet")
    monkeypatch.delenv("NO_PROXY", raising=False)
    env = environment(folder)
    assert "inherited" not in env.values()
    assert env[TAG] == "a-tag"
    assert env["HF_HUB_OFFLINE"] == "0"
    assert env["NO_PROXY"] == "intranet,127.0.0.1,localhost"
    assert env["PATH"].split(":")[0] == str(Path(sys.executable).parent)
    assert env["FLWR_DISABLE_RUNTIME_DEPENDENCY_INSTALLATION"] == "1"


def test_lines(tmp_path):
    assert one_line(" a\n  b\tc ") == "a b c"
    assert one_line("x" * 600) == "x" * 499 + "…"
    (tmp_path / "log").write_text("\n\n")
    assert last_line(tmp_path / "log") == ""
