import io
import tomllib
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import regionfed_flwr
from regionfed_flwr.config import RunConfig, parse_config
from regionfed_flwr.errors import RegionFedError
from regionfed_flwr.simulation.engine.staging import (
    config_section,
    declared_keys,
    manifest,
    run_values,
    stage_package,
    write_run_config,
)

TOY = Path(__file__).parents[1] / "e2e" / "toy_app"


def test_section_and_manifest_hold_every_key_in_its_type():
    config = parse_config({"learning-rate": 1e-5, "run-name": 'a "b"\\c', "seed": 7})
    section = tomllib.loads(config_section(config))["tool"]["flwr"]["app"]["config"]
    assert section == config.to_flower()
    assert {k: type(v) for k, v in section.items()} == {k: type(v) for k, v in config.to_flower().items()}
    app = tomllib.loads(manifest(config))["tool"]["flwr"]["app"]
    assert app["config"] == section
    assert tomllib.loads(manifest())["tool"]["flwr"]["app"]["config"] == RunConfig().to_flower()


def test_staged_manifest_names_the_same_app_as_the_repository():
    repository = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text())
    staged = tomllib.loads(manifest())
    assert staged["project"]["name"] == repository["project"]["name"]
    assert staged["project"]["version"] == repository["project"]["version"]
    for key in ("publisher", "components"):
        assert staged["tool"]["flwr"]["app"][key] == repository["tool"]["flwr"]["app"][key]


def test_flower_bundles_the_staged_package_whole(tmp_path):
    from flwr.cli.build import build_fab_from_disk

    app = stage_package(tmp_path)
    staged = {str(path.relative_to(app)) for path in app.rglob("*") if path.is_file()}
    with zipfile.ZipFile(io.BytesIO(build_fab_from_disk(app))) as bundle:
        assert set(bundle.namelist()) == staged | {".info/CONTENT"}
    package = Path(regionfed_flwr.__file__).parent
    assert {f"regionfed_flwr/{path.relative_to(package)}" for path in package.rglob("*.py")} < staged
    assert not any("__pycache__" in name for name in staged)


@given(st.dictionaries(st.sampled_from(["output-dir", "run-name"]), st.text(st.characters(exclude_categories=["Cs"]))))
def test_any_text_survives_the_run_file(tmp_path_factory, values):
    path = tmp_path_factory.mktemp("toml") / "run.toml"
    write_run_config(path, values)
    assert tomllib.loads(path.read_text(encoding="utf-8")) == values


def test_another_app_gets_what_was_given_and_nothing_else():
    assert run_values(RunConfig(seed=3), TOY, {"toy-mode": "slow"}) == {"toy-mode": "slow"}
    with pytest.raises(RegionFedError, match=r"'seed' is not declared in the manifest of .*toy_app"):
        run_values(RunConfig(), TOY, {"seed": 3})


def test_another_app_must_know_where_its_results_go(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nlr = 0.1\n")
    with pytest.raises(RegionFedError, match="'output-dir' is not declared"):
        run_values(RunConfig(), tmp_path, {"lr": 0.2})


@pytest.mark.parametrize("text", [None, "not toml", "[project]\nname = 'x'\n", "[tool.flwr]\napp = 3\n"])
def test_a_folder_without_a_manifest_is_no_app(tmp_path, text):
    if text is not None:
        (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(RegionFedError, match=r"is no Flower app: its pyproject.toml needs a \[tool.flwr.app\] section"):
        declared_keys(tmp_path)


def test_keys_in_tables_are_dotted(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool.flwr.app.config]\nlr = 0.1\n[tool.flwr.app.config.data]\nn = 1\n")
    assert declared_keys(tmp_path) == {"lr", "data.n"}


def test_local_paths_become_absolute_and_hub_names_stay(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "leaf").mkdir()
    (tmp_path / "models" / "mine").mkdir(parents=True)
    (tmp_path / "t5-tiny").mkdir()
    values = run_values(RunConfig(data_path="leaf", model="models/mine"), None, {})
    assert (values["data-path"], values["model"]) == (str(tmp_path / "leaf"), str(tmp_path / "models" / "mine"))
    values = run_values(RunConfig(data_path="flwrlabs/femnist", model="t5-tiny"), None, {})
    assert (values["data-path"], values["model"]) == ("flwrlabs/femnist", "t5-tiny")
