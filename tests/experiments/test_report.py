"""A report is written from a run's folder, whatever the run was."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib
import pytest
from PIL import Image

from regionfed_flwr.config import parse_config
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.experiments.report import write_report
from regionfed_flwr.experiments.table import render_table
from tests.experiments import fakes

ESCI = parse_config({})
FEMNIST = parse_config({"data": "femnist", "model": "cnn"})
ALL = ["convergence", "accuracy_by_region", "alpha_by_round", "intent_distribution", "category_distribution"]


@pytest.fixture
def lend(monkeypatch: pytest.MonkeyPatch) -> Callable[[Any], None]:
    """Return a function that says which federation a configuration gives; an exception is raised instead."""

    def use(federation: Any) -> None:
        def load(config: object) -> Any:
            if isinstance(federation, Exception):
                raise federation
            return federation

        monkeypatch.setattr("regionfed_flwr.data.load.load_federation", load)

    return use


def check(folder: Path, paths: list[Path], pictures: list[str]) -> None:
    assert paths == [folder / "table.txt", *(folder / "figures" / f"{name}.png" for name in pictures)]
    for path in paths[1:]:
        with Image.open(path) as image:
            assert 600 <= image.width <= 2400 and 350 <= image.height <= 2600
            assert round(image.info["dpi"][0]) == 150
            assert len(image.convert("L").getcolors()) > 20


def test_a_whole_report(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    lend(fakes.federation(8, 10))
    result, rounds = fakes.results(), fakes.rounds()
    folder = fakes.write_run(tmp_path, ESCI, result, rounds)
    before = dict(matplotlib.rcParams)
    check(folder, write_report(folder), ALL)
    assert dict(matplotlib.rcParams) == before
    assert (folder / "table.txt").read_text(encoding="utf-8") == render_table(result, rounds)


def test_characters(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    lend(fakes.federation(10, 20, glyphs=True))
    names, tasks = fakes.names(10), ("character",)
    folder = fakes.write_run(tmp_path, FEMNIST, fakes.results(names, tasks), fakes.rounds(3, names, tasks))
    check(folder, write_report(folder), ALL[:4])
    assert "Characters (%)" in (folder / "table.txt").read_text(encoding="utf-8")


def test_one_region_one_round(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    lend(fakes.federation(1, 1))
    names = fakes.names(1)
    folder = fakes.write_run(tmp_path, ESCI, fakes.results(names, rounds=1), fakes.rounds(1, names))
    check(folder, write_report(folder), ALL)


def test_fedavg_has_no_alpha(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    lend(fakes.federation(8, 2))
    folder = fakes.write_run(tmp_path, ESCI, fakes.results(regional=False), fakes.rounds(4, regional=False, every=3))
    check(folder, write_report(folder), [name for name in ALL if name != "alpha_by_round"])


def test_without_data_on_this_machine(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    lend(RegionFedError("There are no writers here."))
    folder = fakes.write_run(tmp_path, ESCI, fakes.results(), fakes.rounds())
    check(folder, write_report(folder), ALL[:3])


def test_empty_results(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    lend(RegionFedError("There are no writers here."))
    folder = fakes.write_run(tmp_path, ESCI, {}, [])
    check(folder, write_report(folder), [])


def test_a_report_can_be_written_again(tmp_path: Path, lend: Callable[[Any], None]) -> None:
    names = fakes.names(2)
    lend(fakes.federation(2, 2))
    folder = fakes.write_run(tmp_path, ESCI, fakes.results(names), fakes.rounds(2, names))
    first = {path: path.read_bytes() for path in write_report(folder)}
    assert {path: path.read_bytes() for path in write_report(folder)} == first


@pytest.mark.parametrize(
    ("name", "text", "sentence"),
    [
        ("results.json", None, "results.json' cannot be read"),
        ("results.json", "{", "results.json' is not JSON"),
        ("results.json", "[1]", "holds list"),
        ("config.json", '{"no-such-key": 1}', "Unknown configuration key 'no-such-key'"),
        ("rounds.jsonl", '{"round": 0}\n{"round": 1', "Line 2 of .*rounds.jsonl' is not JSON"),
        ("rounds.jsonl", '{"seconds": 1}\n', "Line 1 of .*rounds.jsonl' has no whole number 'round'"),
    ],
)
def test_damaged_files_are_named(tmp_path: Path, name: str, text: str | None, sentence: str) -> None:
    folder = fakes.write_run(tmp_path, ESCI, fakes.results(), fakes.rounds())
    if text is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(text)
    with pytest.raises(RegionFedError, match=sentence):
        write_report(folder)
    assert not (folder / "table.txt").exists()


def test_importing_the_report_loads_nothing_heavy() -> None:
    heavy = "{'matplotlib', 'torch', 'transformers', 'datasets', 'ray'}"
    code = f"import sys, regionfed_flwr.experiments.report; sys.exit(bool({heavy} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
