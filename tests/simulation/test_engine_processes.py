import json
import os
import subprocess
import sys
import time
import uuid
from pathlib import Path

import psutil
import pytest

from regionfed_flwr.simulation.engine import processes
from regionfed_flwr.simulation.engine.processes import TAG, ProcessGroup, is_alive, run_folder, subreaper, sweep

pytestmark = pytest.mark.skipif(not psutil.LINUX, reason="needs /proc")

STUBBORN = (
    "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('ready', flush=True); time.sleep(99)"
)
# Starts a child that loses the tag, and a grandchild that also leaves the session; says their process ids.
FAMILY = """
import subprocess, time
child = subprocess.Popen(["sleep", "98"], env={})
stray = subprocess.Popen(["sleep", "97"], env={}, start_new_session=True)
print(child.pid, stray.pid, flush=True)
time.sleep(99)
"""


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch):
    monkeypatch.setattr(processes, "GRACE_SECONDS", 1.0)


@pytest.fixture
def tag():
    name = str(uuid.uuid4())
    yield name
    ProcessGroup(name).stop()


def start(tag: str, code: str) -> tuple[subprocess.Popen, str]:
    process = subprocess.Popen(
        [sys.executable, "-c", code],
        env=os.environ | {TAG: tag},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    return process, process.stdout.readline()


def test_family_is_found_and_ended_and_strangers_are_not(tag):
    stranger = subprocess.Popen(["sleep", "96"], start_new_session=True)
    parent, said = start(tag, FAMILY)
    family = {parent.pid, *map(int, said.split())}
    group = ProcessGroup(tag)
    try:
        assert {process.pid for process in group.alive()} == family
        assert group.stop(leader=parent.pid) == []
        assert group.alive() == []
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


def test_what_ignores_sigterm_is_killed(tag):
    process, said = start(tag, STUBBORN)
    assert said == "ready\n"
    assert ProcessGroup(tag).stop() == []
    assert not psutil.pid_exists(process.pid)


def test_orphans_are_collected_not_left_as_zombies(tag):
    with subreaper():
        parent, said = start(tag, FAMILY)
        child = psutil.Process(int(said.split()[0]))
        group = ProcessGroup(tag)
        group.alive()
        parent.kill()
        parent.wait()
        assert is_alive(child)
        assert child.ppid() == os.getpid()
        assert group.stop() == []
        assert not psutil.pid_exists(child.pid)


def test_a_zombie_is_not_alive():
    process = subprocess.Popen(["true"])
    handle = psutil.Process(process.pid)
    while handle.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert handle.is_running()
    assert not is_alive(handle)
    process.wait()


@pytest.fixture
def root(tmp_path, monkeypatch):
    monkeypatch.setattr(processes, "temporary_root", lambda: tmp_path)
    return tmp_path


def test_run_folder_is_there_for_the_run_and_gone_after(root):
    with run_folder() as folder:
        assert folder.path.parent == root
        assert json.loads((folder.path / "owner.json").read_text()) == {"tag": folder.tag, "pid": os.getpid()}
        assert sweep() == 0
        assert folder.path.exists()
    assert list(root.iterdir()) == []


def test_sweep_takes_dead_runs_only(root, tag):
    owner = f"""
import sys, time
from pathlib import Path
from regionfed_flwr.simulation.engine import processes
processes.temporary_root = lambda: Path({str(root)!r})
with processes.run_folder() as folder:
    print(folder.path, flush=True)
    time.sleep(99)
"""
    owners = [subprocess.Popen([sys.executable, "-c", owner], stdout=subprocess.PIPE, text=True) for _ in range(2)]
    try:
        living, dead = (Path(process.stdout.readline().strip()) for process in owners)
        tags = [json.loads((folder / "owner.json").read_text())["tag"] for folder in (living, dead)]
        left = [start(each, FAMILY)[0] for each in tags]
        assert sweep() == 0

        owners[1].kill()
        owners[1].wait()
        assert sweep() == 1
        assert not dead.exists()
        assert ProcessGroup(tags[1]).alive() == []
        assert living.exists()
        assert left[0].poll() is None
    finally:
        for process in owners:
            process.kill()
            process.wait()
        for each in tags:
            ProcessGroup(each).stop()


def test_damaged_and_foreign_folders_are_left_alone(root):
    (root / "rf-empty").mkdir()
    (root / "rf-damaged").mkdir()
    (root / "rf-damaged" / "owner.json").write_text("{")
    assert sweep() == 0
    assert {path.name for path in root.iterdir()} == {"rf-empty", "rf-damaged"}


def test_a_long_temporary_root_is_avoided(monkeypatch):
    monkeypatch.setattr("tempfile.gettempdir", lambda: "/var/folders/xy/0123456789abcdef0123456789/T")
    assert processes.temporary_root() == Path("/tmp")
