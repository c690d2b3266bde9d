"""`regionfed run` with real processes: it succeeds, it fails with a sentence, and it leaves nothing behind."""

import contextlib
import json
import signal
import tomllib
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.e2e.same import assert_same_models, run_here
from tests.e2e.wrapper import TOY, Ended, Wrapper, wait_for

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(not psutil.LINUX, reason="needs /proc"),
]

SMALL = """
model = "encoder-tiny"
regions = 2
users-per-region = 2
samples-per-user = 24
num-server-rounds = 2
local-epochs = 1
"""


def toy(mode: str) -> list[str]:
    return ["--app", str(TOY), "--nodes", "1", "-c", f"toy-mode={mode}"]


@contextlib.contextmanager
def running(*wrappers: Wrapper) -> Iterator[None]:
    try:
        yield
    finally:
        for wrapper in wrappers:
            wrapper.kill()


def assert_clean(ended: Ended) -> None:
    assert ended.survivors == []
    assert not ended.folder_left
    assert "Traceback" not in ended.out + ended.err
    assert "\x1b" not in ended.out + ended.err


@pytest.fixture(scope="module")
def together(tmp_path_factory) -> tuple[Path, Ended, Ended]:
    """The real app and a toy at the same time."""
    cwd = tmp_path_factory.mktemp("together")
    (cwd / "small.toml").write_text(SMALL)
    real = Wrapper(cwd, "real", "--config", "small.toml", "--nodes", "2")
    other = Wrapper(cwd, "toy", *toy("good"), "-c", "num-server-rounds=3")
    with running(real, other):
        return cwd, real.end(), other.end()


@pytest.fixture(scope="module")
def failures(tmp_path_factory) -> tuple[Path, dict[str, Ended]]:
    """Three apps that fail, at the same time."""
    cwd = tmp_path_factory.mktemp("failures")
    wrappers = {mode: Wrapper(cwd, mode, *toy(mode)) for mode in ("server-raises", "client-dies", "server-dies")}
    with running(*wrappers.values()):
        return cwd, {mode: wrapper.end() for mode, wrapper in wrappers.items()}


def test_ray_gives_the_models_of_the_in_process_grid(together, tmp_path):
    cwd, _, _ = together
    assert_same_models(cwd / "real", run_here(tmp_path / "here", tomllib.loads(SMALL)))


def test_real_app_leaves_its_results_and_says_where(together):
    cwd, real, _ = together
    assert real.code == 0, real.err
    assert_clean(real)
    results = json.loads((cwd / "real" / "results.json").read_text())
    assert results["nodes"] == 2
    assert (cwd / "real" / "table.txt").read_text().rstrip() in real.out
    assert f"Artifacts: {cwd / 'real'}\n" in real.out
    pictures = sorted((cwd / "real" / "figures").glob("*.png"))
    assert pictures
    assert [line.split()[-1] for line in real.out.splitlines() if line.startswith("Picture:")] == list(
        map(str, pictures)
    )
    rounds = [line for line in real.out.splitlines() if line.startswith("Round ")]
    assert [line.split(":")[0] for line in rounds] == ["Round 0/2", "Round 1/2", "Round 2/2"]
    assert (cwd / "real" / "logs" / "app.log").stat().st_size > 0


def test_two_runs_at_once_both_succeed(together):
    cwd, real, other = together
    assert (real.code, other.code) == (0, 0), other.err
    assert_clean(other)
    assert json.loads((cwd / "toy" / "results.json").read_text()) == {"nodes": 1}
    assert "Round 3/3: shared 0.500, regional 0.800\n" in other.out


@pytest.mark.parametrize(
    ("mode", "sentence"),
    [
        ("server-raises", "The run failed: The toy server was told to raise."),
        ("client-dies", "A toy client failed in round 1 with error 0."),
        (
            "server-dies",
            "The run failed: the process that ran the app is gone or stuck; the machine may have been short of memory.",
        ),
    ],
)
def test_failure_ends_with_one_sentence(failures, mode, sentence):
    cwd, ended = failures[0], failures[1][mode]
    assert ended.code == 1
    assert ended.err == f"regionfed: {sentence}\nLogs: {cwd / mode / 'logs'}\n"
    assert_clean(ended)
    assert not (cwd / mode / "results.json").exists()
    assert (cwd / mode / "logs" / "superlink.log").stat().st_size > 0


def test_signals_end_only_their_own_run_and_the_next_start_sweeps_a_killed_one(tmp_path):
    interrupted = Wrapper(tmp_path, "interrupted", *toy("slow"))
    killed = Wrapper(tmp_path, "killed", *toy("slow"))
    with running(interrupted, killed):
        interrupted.wait_for_event("train")
        killed.wait_for_event("train")
        assert len(interrupted.group.alive()) >= 3

        interrupted.process.send_signal(signal.SIGINT)
        assert interrupted.process.wait(20) == 130
        ended = interrupted.end()
        assert ended.err.startswith("regionfed: The run was stopped by SIGINT.\n")
        assert_clean(ended)

        assert killed.process.poll() is None
        killed.process.send_signal(signal.SIGKILL)
        killed.process.wait()
        left = killed.group.alive()
        assert len(left) >= 3
        assert killed.folder.exists()

        following = Wrapper(tmp_path, "following", *toy("slow"))
        with running(following):
            wait_for(lambda: not killed.folder.exists(), 60)
            assert killed.group.alive() == []
            following.process.send_signal(signal.SIGTERM)
            ended = following.end()
            assert ended.code == 143
            assert ended.err.startswith("regionfed: The run was stopped by SIGTERM.\n")
            assert_clean(ended)
