import re
from pathlib import Path

import pytest

from regionfed_flwr.config import RunConfig
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine import run as engine
from regionfed_flwr.simulation.engine import run_simulation
from regionfed_flwr.simulation.engine.run import failure_reason, new_output_folder
from regionfed_flwr.simulation.engine.superlink import RunStatus

TOY = Path(__file__).parents[1] / "e2e" / "toy_app"
LOG = """
INFO :      Starting
Traceback (most recent call last):
  File "raybackend.py", line 1, in build
ValueError: ActorPool is empty.
Traceback (most recent call last):
RuntimeError: Simulation Runtime crashed.
"""


@pytest.fixture(autouse=True)
def _no_processes(monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError("a process was started")

    monkeypatch.setattr("subprocess.Popen", refuse)
    monkeypatch.setattr(engine, "count_gpus", lambda: 0)


@pytest.mark.parametrize(
    ("details", "log", "reason"),
    [
        ("Simulation failed with exception: No module named 'x'", LOG, "No module named 'x'"),
        ("Simulation failed with exception: An error was encountered. Ending simulation.", LOG, "ActorPool is empty."),
        ("Task failed with unknown error.", "", "finished:failed, Task failed with unknown error."),
        ("N/A", LOG, "ActorPool is empty."),
        ("No heartbeat received from the task.", LOG, "No heartbeat received from the task."),
    ],
)
def test_reason_is_flowers_unless_the_log_knows_better(details, log, reason):
    assert failure_reason(RunStatus("finished:failed", details), log) == f"The run failed: {reason}"


def test_folders_of_the_same_second_differ(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folders = [new_output_folder(Path("runs"), "first try/../x") for _ in range(30)]
    assert len(set(folders)) == 30
    assert all(folder.is_dir() and folder.is_absolute() and folder.parent == tmp_path / "runs" for folder in folders)
    assert all(re.fullmatch(r"\d{8}-\d{6}-first-try-..-x(-\d+)?", folder.name) for folder in folders)


def test_a_folder_with_something_in_it_is_refused(tmp_path):
    (tmp_path / "results.json").write_text("{}")
    with pytest.raises(RegionFedError, match="is not empty; name a new one"):
        run_simulation(RunConfig(), output=tmp_path)
    with pytest.raises(RegionFedError, match="is not empty; name a new one"):
        run_simulation(RunConfig(output_dir=str(tmp_path)))


def test_a_folder_that_cannot_be_is_refused(tmp_path, monkeypatch):
    (tmp_path / "runs").write_text("a file")
    monkeypatch.chdir(tmp_path)
    for config in (RunConfig(), RunConfig(output_dir="runs/x")):
        with pytest.raises(RegionFedError, match=r"The output folder '.*runs.*' cannot be made"):
            run_simulation(config)


def test_bad_input_leaves_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RegionFedError, match="--nodes is 0"):
        run_simulation(RunConfig(), nodes=0)
    with pytest.raises(RegionFedError, match="'nokey' is not declared"):
        run_simulation(RunConfig(), app_dir=TOY, app_values={"nokey": 1})
    with pytest.raises(RegionFedError, match="is no Flower app"):
        run_simulation(RunConfig(), app_dir=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_failure_is_an_outcome_with_one_sentence(tmp_path, monkeypatch):
    def fail(*arguments):
        raise RegionFedError("First line\n  second line")

    monkeypatch.setattr(engine.SuperLink, "start", fail)
    outcome = run_simulation(RunConfig(), output=tmp_path / "out", nodes=1)
    assert (outcome.exit_code, outcome.reason, outcome.nodes) == (1, "First line second line.", 1)
    assert outcome.output == tmp_path / "out"
    assert outcome.logs.is_dir()
