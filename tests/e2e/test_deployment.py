"""The same app on a real SuperLink with two SuperNodes on loopback gives the simulation's model, bit for bit."""

import json
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from regionfed_flwr.config import parse_config
from regionfed_flwr.simulation.engine import processes
from regionfed_flwr.simulation.engine.staging import stage_package, write_run_config
from regionfed_flwr.simulation.engine.superlink import environment
from tests.e2e.ports import free_ports
from tests.e2e.same import assert_same_models, run_here

SMALL = {
    "model": "encoder-tiny",
    "regions": 2,
    "users-per-region": 2,
    "samples-per-user": 24,
    "num-server-rounds": 2,
    "local-epochs": 1,
    "evaluate-every": 0,
}


class Deployment:
    """A SuperLink and its SuperNodes, each with a home of its own."""

    def __init__(self, folder: processes.RunFolder) -> None:
        self.path, self.env, self.started = folder.path, environment(folder), []
        (self.http,) = free_ports(1)
        home = self.path / "home"
        home.mkdir()
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "dep"\n\n[superlink.dep]\naddress = "127.0.0.1:{self.http}"\ninsecure = true\n'
        )
        self._spawn(
            "superlink",
            "flower-superlink --insecure --host 127.0.0.1 --port "
            f"{self.http} --database {self.path}/state.db --disable-runtime-dependency-installation",
        )
        self._wait(lambda: urllib.request.urlopen(f"http://127.0.0.1:{self.http}/health", timeout=2).status == 200)
        self.app = stage_package(self.path)

    def _spawn(self, name: str, command: str, *more: str) -> subprocess.Popen[bytes]:
        with (self.path / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*command.split(), *more],
                env=self.env | {"FLWR_HOME": str(self.path / f"home-{name}")},
                cwd=self.path,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.started.append(process)
        return process

    def _wait(self, ready, seconds: float = 60.0) -> None:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            try:
                if ready():
                    return
            except OSError:
                pass
            time.sleep(0.3)
        logs = "\n".join(p.read_text()[-1500:] for p in self.path.glob("*.log"))
        raise AssertionError(f"not ready after {seconds} s\n{logs}")

    def node(self, number: int, config: str) -> None:
        (port,) = free_ports(1)
        self._spawn(
            f"node-{number}",
            f"flower-supernode --insecure --superlink 127.0.0.1:{self.http} --host 127.0.0.1 --port {port}",
            "--node-config",
            config,
        )

    def stop_nodes(self) -> None:
        for process in self.started[1:]:
            process.terminate()
            process.wait(20)
        del self.started[1:]

    def flwr(self, *arguments: str) -> dict:
        env = self.env | {"FLWR_HOME": str(self.path / "home")}
        text = subprocess.run(
            ["flwr", *arguments, "--format", "json"],
            env=env,
            cwd=self.path,
            capture_output=True,
            text=True,
            timeout=120,
        ).stdout
        return json.loads(text)

    def run(self, output: Path, **keys) -> None:
        config = parse_config(SMALL, **keys, output_dir=str(output))
        write_run_config(self.path / "run.toml", config.to_flower())
        run_id = str(self.flwr("run", str(self.app), "dep", "-c", str(self.path / "run.toml"))["run-id"])
        status: list[str] = []

        def ended() -> bool:
            run = self.flwr("ls", "dep", "--run-id", run_id)["runs"][0]
            status[:] = [run["status"], run["status-details"]]
            time.sleep(2)
            return run["status"].startswith("finished")

        self._wait(ended, 200)
        logs = (self.path / "superlink.log").read_text()[-2000:]
        assert status[0] == "finished:completed", f"{status}\n{logs}"


@pytest.fixture
def deployment():
    with processes.subreaper(), processes.run_folder() as folder:
        group = processes.ProcessGroup(folder.tag)
        try:
            yield Deployment(folder)
        finally:
            assert group.stop() == []


@pytest.mark.timeout(400)
def test_deployed_app_gives_the_models_of_the_simulation(deployment, tmp_path):
    for number in range(2):
        deployment.node(number, f"partition-id={number} num-partitions=2")
    deployment.run(tmp_path / "fedavg", method="fedavg")
    assert_same_models(tmp_path / "fedavg", run_here(tmp_path / "fedavg-here", SMALL | {"method": "fedavg"}))

    deployment.stop_nodes()
    names = ("Urban Tech", "Young Demo.")
    for number, name in enumerate(reversed(names)):
        deployment.node(number, f'partition-id={number} num-partitions=2 region="r{names.index(name)}"')
    deployment.run(tmp_path / "regionfed")
    assert_same_models(tmp_path / "regionfed", run_here(tmp_path / "regionfed-here", SMALL))
    assert json.loads((tmp_path / "regionfed" / "results.json").read_text())["rejected"] == 0
